"""The number of tokens in each event of a stream, for the answers of various servers."""

import json
from typing import Any

import pytest

from tenant.client.events import EventStream, TokenPieces, new_answer
from tenant.contract import OutputTokens
from tenant.record import finished_streams, output_tokens, request_columns, token_count, tpot_ns
from tenant.recorder import Window
from tenant.workload import RequestError

MS = 1_000_000


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def text(content: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": content, "finish_reason": finish}], **more}


def used(tokens: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 9, "completion_tokens": tokens}}


ROLE = chat({"role": "assistant", "content": ""})
STOP = chat({}, "stop")


def event_stream(*documents: object) -> EventStream:
    """A stream with one of these events per ms, from 1 ms on."""
    events = EventStream()
    for number, document in enumerate((*documents, None), start=1):
        data = "[DONE]" if document is None else json.dumps(document)
        events.take(f"data: {data}\n\n".encode(), number * MS)
    events.end()
    return events


@pytest.mark.parametrize(
    ("documents", "at_ms", "tokens", "reported"),
    [
        ([ROLE, chat({"content": "a"}), chat({"content": "b"}), STOP], [2, 3], [1, 1], None),
        ([chat({"role": "assistant", "content": "a"}), chat({"content": "b"}, "length")], [1, 2], [1, 1], None),
        ([ROLE, chat({"reasoning_content": "hm"}), chat({"content": ""}), STOP], [2, 3], [1, 1], None),
        ([ROLE, chat({"tool_calls": [{"index": 0}]}), STOP], [2], [1], None),
        ([text("a"), text(""), text("b"), text("", "length")], [1, 2, 3], [1, 1, 1], None),
        ([text("a"), text("b", "length"), {"choices": [], **used(7)}], [1, 2], [1, 1], 7),
        ([text("a"), text("", "stop", **used(2))], [1], [1], 2),
        ([text("a", **used(1)), text("bcd", **used(4)), {"choices": [], **used(4)}], [1, 2], [1, 3], 4),
        ([{**ROLE, **used(0)}, chat({"content": ""}, **used(1)), {**STOP, **used(1)}], [2], [1], 1),
        ([text("a", usage=None), text("b", usage=None)], [1, 2], [1, 1], None),
        ([{"token": {"text": "a"}}, {"token": {"text": "b"}}], [1, 2], [1, 1], None),
    ],
    ids=["chat", "role", "thinks", "tool", "empty", "usage", "last", "continuous", "counted", "null", "other"],
)
def test_each_event_is_counted_with_its_tokens(
    documents: list[object], at_ms: list[int], tokens: list[int], reported: int | None
) -> None:
    stream = event_stream(*documents).stream(0, 99 * MS)
    assert [ns // MS for ns in stream.times_ns] == at_ms
    assert (list(stream.tokens), stream.reported) == (tokens, reported)
    assert token_count(stream) == (sum(tokens) if reported is None else reported)


def test_an_event_is_timed_by_its_last_byte() -> None:
    events = EventStream()
    events.take(b": ping\r\n\r\ndata: {", 1 * MS)
    events.take(b'"a": 1}', 2 * MS)
    events.take(b"\r\n\r\ndata: 3", 3 * MS)
    assert list(events.stream(0, None).times_ns) == [3 * MS]
    with pytest.raises(RequestError, match="an event is not a JSON object: 34"):
        events.take(b"4\n\n", 4 * MS)


def test_each_piece_of_another_content_type_is_one_token() -> None:
    pieces = new_answer("application/x-ndjson")
    assert type(pieces) is TokenPieces
    pieces.take(b"{}\n{}\n", MS)
    pieces.take(b"{}\n", 2 * MS)
    assert list(pieces.stream(0, None).times_ns) == [MS, 2 * MS]


def window_tokens(*streams: Any, start_ms: int, end_ms: int) -> tuple[Window, OutputTokens]:
    window = Window(start_ms * MS, end_ms * MS)
    window.streams += streams
    return window, output_tokens(window)


def test_tokens_count_in_the_window_in_which_they_arrive() -> None:
    documents = [text("a", **used(1)), text("bcd", **used(4)), text("e", "stop", **used(5))]
    _, tokens = window_tokens(event_stream(*documents).stream(-5 * MS, 9 * MS), start_ms=2, end_ms=3)
    assert tokens == {"count": 3, "source": "usage"}
    # With only a total, each event gets an equal share.
    _, tokens = window_tokens(
        event_stream(text("a"), text("b"), {"choices": [], **used(10)}).stream(0, 9 * MS), start_ms=2, end_ms=9
    )
    assert tokens == {"count": 5, "source": "usage"}
    mixed = event_stream(text("a")).stream(0, 9 * MS), event_stream(text("a", **used(1))).stream(0, 9 * MS)
    assert window_tokens(*mixed, start_ms=0, end_ms=9)[1] == {"count": 2, "source": "chunks"}
    assert window_tokens(start_ms=0, end_ms=9)[1] == {"count": 0, "source": "chunks"}


def test_one_token_has_no_tpot_and_one_event_no_itl() -> None:
    one, lump = event_stream(text("a")), event_stream(text("abc", **used(3)))
    window, _ = window_tokens(one.stream(MS, 9 * MS), lump.stream(0, 9 * MS), start_ms=0, end_ms=9)
    columns = request_columns(finished_streams(window), window.start_ns)
    assert columns == {
        "start_seconds": [0.0, 0.001],
        "ttft_seconds": [0.001, 0.0],
        "tpot_seconds": [None, None],
        "itl_max_seconds": [None, None],
        "latency_seconds": [0.009, 0.008],
        "output_tokens": [3, 1],
    }


def test_several_tokens_in_one_event_end_one_gap() -> None:
    stream = event_stream(text("a", **used(1)), text("bcd", **used(4)), text("e", **used(5))).stream(0, 9 * MS)
    assert tpot_ns(stream) == pytest.approx(2 * MS / 4)
