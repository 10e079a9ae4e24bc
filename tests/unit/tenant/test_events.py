"""Which events of a stream carry tokens, and how many, by answers as servers give them."""

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


def text(said: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": said, "finish_reason": finish}], **more}


def used(tokens: int) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 9, "completion_tokens": tokens}}


ROLE = chat({"role": "assistant", "content": ""})
STOP = chat({}, "stop")


def taken(*said: object) -> EventStream:
    """The stream of these events, one each ms from 1 ms on."""
    events = EventStream()
    for number, each in enumerate((*said, None), start=1):
        data = "[DONE]" if each is None else json.dumps(each)
        events.take(f"data: {data}\n\n".encode(), number * MS)
    events.end()
    return events


@pytest.mark.parametrize(
    ("said", "at_ms", "tokens", "reported"),
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
def test_an_event_has_the_tokens_that_it_carries(
    said: list[object], at_ms: list[int], tokens: list[int], reported: int | None
) -> None:
    stream = taken(*said).stream(0, 99 * MS)
    assert [ns // MS for ns in stream.times_ns] == at_ms
    assert (list(stream.tokens), stream.reported) == (tokens, reported)
    assert token_count(stream) == (sum(tokens) if reported is None else reported)


def test_an_event_counts_when_its_last_byte_is_there() -> None:
    events = EventStream()
    events.take(b": ping\r\n\r\ndata: {", 1 * MS)
    events.take(b'"a": 1}', 2 * MS)
    events.take(b"\r\n\r\ndata: 3", 3 * MS)
    assert list(events.stream(0, None).times_ns) == [3 * MS]
    with pytest.raises(RequestError, match="an event is not a JSON object: 34"):
        events.take(b"4\n\n", 4 * MS)


def test_an_answer_of_another_type_is_counted_by_its_pieces() -> None:
    pieces = new_answer("application/x-ndjson")
    assert type(pieces) is TokenPieces
    pieces.take(b"{}\n{}\n", MS)
    pieces.take(b"{}\n", 2 * MS)
    assert list(pieces.stream(0, None).times_ns) == [MS, 2 * MS]


def of(*streams: Any, start_ms: int, end_ms: int) -> tuple[Window, OutputTokens]:
    window = Window(start_ms * MS, end_ms * MS)
    window.streams += streams
    return window, output_tokens(window)


def test_tokens_are_of_the_window_in_which_they_came() -> None:
    said = [text("a", **used(1)), text("bcd", **used(4)), text("e", "stop", **used(5))]
    _, tokens = of(taken(*said).stream(-5 * MS, 9 * MS), start_ms=2, end_ms=3)
    assert tokens == {"count": 3, "source": "usage"}
    # Known in the end only: an equal part for each event.
    _, tokens = of(taken(text("a"), text("b"), {"choices": [], **used(10)}).stream(0, 9 * MS), start_ms=2, end_ms=9)
    assert tokens == {"count": 5, "source": "usage"}
    mixed = taken(text("a")).stream(0, 9 * MS), taken(text("a", **used(1))).stream(0, 9 * MS)
    assert of(*mixed, start_ms=0, end_ms=9)[1] == {"count": 2, "source": "chunks"}
    assert of(start_ms=0, end_ms=9)[1] == {"count": 0, "source": "chunks"}


def test_one_token_has_no_time_per_further_one_and_one_event_no_gap() -> None:
    one, lump = taken(text("a")), taken(text("abc", **used(3)))
    window, _ = of(one.stream(MS, 9 * MS), lump.stream(0, 9 * MS), start_ms=0, end_ms=9)
    found = request_columns(finished_streams(window), window.start_ns)
    assert found == {
        "start_seconds": [0.0, 0.001],
        "ttft_seconds": [0.001, 0.0],
        "tpot_seconds": [None, None],
        "itl_max_seconds": [None, None],
        "latency_seconds": [0.009, 0.008],
        "output_tokens": [3, 1],
    }


def test_several_tokens_at_once_are_one_gap() -> None:
    stream = taken(text("a", **used(1)), text("bcd", **used(4)), text("e", **used(5))).stream(0, 9 * MS)
    assert tpot_ns(stream) == pytest.approx(2 * MS / 4)
