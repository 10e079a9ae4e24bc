"""The number of tokens in each event of a stream, for the answers of various servers."""

import gzip
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenant.client.events import FORMS, PARTS, TokenEvents
from tenant.contract import OutputTokens
from tenant.record import finished_streams, output_tokens, request_columns, token_count, tpot_ns
from tenant.recorder import Window
from tenant.workload import RequestError

MS = 1_000_000
STREAM_TYPE = "text/event-stream"


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def text(content: str, finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": content, "finish_reason": finish}], **more}


def used(tokens: float | None) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 9, "completion_tokens": tokens}}


def call(**function: str) -> dict[str, Any]:
    return chat({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]})


def spoken(kind: str, delta: Any = None, **more: Any) -> dict[str, Any]:
    """An event of the Responses or the Messages API."""
    return {"type": kind, **({} if delta is None else {"delta": delta}), **more}


ROLE = chat({"role": "assistant", "content": ""})
STOP = chat({}, "stop")
RESPONSES = [
    spoken("response.created", response={"usage": None}),
    spoken("response.output_item.added", item={"type": "message"}),
    spoken("response.reasoning_text.delta", "hm"),
    spoken("response.output_text.delta", "a"),
    spoken("response.function_call_arguments.delta", "{"),
    spoken("response.output_text.delta", ""),
    spoken("response.output_text.done", text="a"),
    spoken("response.completed", response={"usage": {"output_tokens": 3}}),
]
MESSAGES = [
    spoken("message_start", message={"usage": {"output_tokens": 1}}),
    spoken("content_block_start", content_block={"type": "text", "text": ""}),
    spoken("ping"),
    spoken("content_block_delta", {"type": "text_delta", "text": "a"}),
    spoken("content_block_delta", {"type": "thinking_delta", "thinking": "hm"}),
    spoken("content_block_delta", {"type": "input_json_delta", "partial_json": "{"}),
    spoken("content_block_delta", {"type": "signature_delta", "signature": "abc"}),
    spoken("content_block_stop"),
    spoken("message_delta", {"stop_reason": "end_turn"}, usage={"output_tokens": 4}),
    spoken("message_stop"),
]
LLAMA = [
    {"content": "", "stop": False, "prompt_progress": {"total": 9}},
    {"content": "a", "stop": False, "tokens_predicted": 1},
    {"content": "bc", "stop": False, "tokens_predicted": 3},
    {"content": "", "stop": True, "tokens_predicted": 3},
]
OLLAMA = [
    {"response": "", "thinking": "hm", "done": False},
    {"response": "a", "done": False},
    {"response": "", "done": True, "eval_count": 2},
]
OLLAMA_CHAT = [
    {"message": {"role": "assistant", "content": "a"}, "done": False},
    {"message": {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}, "done": False},
    {"message": {"content": ""}, "done": True, "eval_count": 2},
]
TGI = [{"token": {"text": "a"}, "generated_text": None}, {"token": {"text": "b"}, "generated_text": "ab"}]


def events(*documents: object, end: str = "\n\n", done: bool = True) -> Iterator[bytes]:
    """Server-sent events with these documents, and the end mark of most APIs."""
    for document in documents:
        yield f"data: {json.dumps(document)}{end}".encode()
    if done:
        yield f"data: [DONE]{end}".encode()


def answer(pieces: Iterable[bytes], content_type: str = STREAM_TYPE) -> TokenEvents:
    """An answer with one of these pieces per ms, from 1 ms on."""
    found = TokenEvents(content_type)
    for number, piece in enumerate(pieces, start=1):
        found.take(piece, number * MS)
    found.end(99 * MS)
    return found


def event_stream(*documents: object) -> TokenEvents:
    return answer(events(*documents))


def at_ms(found: TokenEvents) -> list[int]:
    return [ns // MS for ns in found.stream(0, 99 * MS).times_ns]


@pytest.mark.parametrize(
    ("documents", "times_ms", "tokens", "reported"),
    [
        ([ROLE, chat({"content": "a"}), chat({"content": "b"}), STOP], [2, 3], [1, 1], None),
        ([chat({"role": "assistant", "content": "a"}), chat({"content": "b"}, "length")], [1, 2], [1, 1], None),
        ([ROLE, chat({"reasoning_content": "hm"}), chat({"content": ""}), STOP], [2], [1], None),
        ([chat({"content": None, "reasoning": "hm"}), chat({"refusal": "no"})], [1, 2], [1, 1], None),
        ([ROLE, call(name="f", arguments=""), call(arguments=""), call(arguments="{"), STOP], [2, 4], [1, 1], None),
        ([chat({"content": [{"type": "text", "text": ""}]}), chat({"content": [{"text": "a"}]})], [2], [1], None),
        ([chat({"role": "assistant"}), chat({"content": ""}), chat({"content": "a"})], [3], [1], None),
        ([chat({"role": "a", "content": "", "extra_fields": {"a": [1]}}), chat({"content": "a"})], [2], [1], None),
        ([text("a"), text(""), text("b"), text("", "length")], [1, 3], [1, 1], None),
        ([{"choices": [], "prompt_filter_results": []}, text("a")], [2], [1], None),
        ([text("a"), text("b", "length"), {"choices": [], **used(7)}], [1, 2], [1, 1], 7),
        ([text("a"), text("b"), used(7)], [1, 2], [1, 1], 7),
        ([text("a"), text("", "stop", **used(2))], [1], [1], 2),
        ([text("a", **used(1)), text("bcd", **used(4)), {"choices": [], **used(4)}], [1, 2], [1, 3], 4),
        ([text("a", **used(1)), text("", **used(2)), text("b", **used(3))], [1, 3], [1, 2], 3),
        ([{**ROLE, **used(0)}, chat({"content": ""}, **used(1)), chat({"content": "a"}), STOP], [3], [1], 1),
        ([{**ROLE, **used(0)}, text("a"), text("b"), {"choices": [], **used(2)}], [2, 3], [1, 1], 2),
        ([text("a", **used(0)), text("b", **used(0)), {**STOP, **used(2)}], [1, 2], [1, 1], 2),
        ([text("a", **used(1.0)), text("b", **used(2.0))], [1, 2], [1, 1], 2),
        ([text("a", usage=None), text("b", **used(None))], [1, 2], [1, 1], None),
        (RESPONSES, [3, 4, 5], [1, 1, 1], 3),
        (MESSAGES, [4, 5, 6], [1, 1, 1], 4),
        (LLAMA, [2, 3], [1, 2], 3),
        (TGI, [1, 2], [1, 1], None),
        ([{"text_output": "a"}, {"text_output": ""}, {"text_output": "b"}], [1, 3], [1, 1], None),
        ([{}, text("a"), {"type": "keepalive"}], [2], [1], None),
    ],
)
def test_each_event_with_text_is_counted_with_its_tokens(
    documents: list[object], times_ms: list[int], tokens: list[int], reported: int | None
) -> None:
    found = event_stream(*documents)
    stream = found.stream(0, 99 * MS)
    assert at_ms(found) == times_ms
    assert (list(stream.tokens), stream.reported) == (tokens, reported)
    assert token_count(stream) == (sum(tokens) if reported is None else reported)


@pytest.mark.parametrize("documents", [OLLAMA, OLLAMA_CHAT], ids=["generate", "chat"])
@pytest.mark.parametrize("content_type", ["application/x-ndjson", "", STREAM_TYPE])
def test_each_line_of_json_is_an_event(documents: list[object], content_type: str) -> None:
    lines = [json.dumps(document).encode() + b"\n" for document in documents]
    found = answer(lines, content_type)
    assert (at_ms(found), found.stream(0, 0).reported) == ([1, 2], 2)
    # Lines that arrive together are as many tokens; the last line needs no end.
    assert at_ms(answer([b"".join(lines)[:-1]], content_type)) == [1, 1]


@pytest.mark.parametrize("end", ["\n\n", "\r\n\r\n", "\r\r", "\n\r\n"])
@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("content_type", ["Text/Event-Stream; charset=utf-8", "text/plain", ""])
def test_events_are_read_as_the_html_standard_defines_them(end: str, size: int, content_type: str) -> None:
    line = end[: len(end) // 2]
    word = json.dumps(text("wört\u2028"), indent=0, ensure_ascii=False).replace("\n", f"{line}data:")
    fields = [": ping", "event", "retry: 3", "id:7", "other: x", f"data: {word}"]
    stream = f"\ufeff: hello{end}{line.join(fields)}{end}data:{end}data{end}data:  [DONE]{end}data: unfinished"
    content = stream.encode()
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    assert len(answer(pieces, content_type).stream(0, 0).tokens) == 1


def test_an_event_is_timed_by_its_last_byte() -> None:
    found = TokenEvents(STREAM_TYPE)
    found.take(b": ping\r\n\r\ndata: {", 1 * MS)
    found.take(b'"content": "a"}\r\n', 2 * MS)
    found.take(b"\r\ndata: 3", 3 * MS)
    assert list(found.stream(0, None).times_ns) == [3 * MS]
    with pytest.raises(RequestError, match="an event is not a JSON object: 34"):
        found.take(b"4\n\n", 4 * MS)


SAYS = "the server says: "


@pytest.mark.parametrize(
    ("documents", "reason"),
    [
        ([{"error": {"message": "boom"}}], SAYS + "{'message': 'boom'}"),
        ([{"error": "boom"}], SAYS + "boom"),
        ([{"object": "error", "message": "boom", "code": 400}], SAYS + "{'object': 'error', 'message': 'boom'"),
        ([{"type": "error", "error": {"type": "overloaded_error"}}], SAYS + "{'type': 'overloaded_error'}"),
        ([{"type": "error", "code": 1, "message": "boom"}], SAYS + "{'type': 'error', 'code': 1"),
        ([spoken("response.failed", response={"error": {"code": "x"}})], SAYS + "{'code': 'x'}"),
        ([spoken("response.completed", response={"error": {"code": "x"}})], SAYS + "{'code': 'x'}"),
        ([{"choices": [*text("a")["choices"], *text("", "error")["choices"]]}], SAYS + "finish_reason: error"),
        ([chat({"content": "a", "error": {"code": 1}})], SAYS + "{'code': 1}"),
        ([chat({}, "abort")], SAYS + "finish_reason: abort"),
        ([text("", "error")], SAYS + "finish_reason: error"),
        ([{"choices": [{"index": 0, "text": "a", "error": {"code": 502}}]}], SAYS + "{'code': 502}"),
        ([{"code": 500, "message": "boom"}], 'an event is of no form that is read: "message": "boom"'),
        ([{"code": 500, "detail": "boom"}], 'an event is of no form that is read: {"code": 500, "detail": "boom"}'),
        ([{"type": "text-delta", "id": "1", "delta": "a"}], 'an event is of no form that is read: {"type": "text-d'),
        ([[1]], "an event is not a JSON object: [1]"),
        ([{"choices": [1]}], 'an event is of no form that is read: "choices": [1]'),
        ([{"choices": "abc"}], 'an event is of no form that is read: "choices": "abc"'),
        ([chat({"content": 5})], 'an event is of no form that is read: "content": 5'),
        ([{"choices": [{"delta": [1]}]}], 'an event is of no form that is read: "delta": [1]'),
        ([text("a", usage="abc")], 'an event is of no form that is read: "completion_tokens": "abc"'),
        ([text("a", **used(1.5))], 'an event is of no form that is read: "completion_tokens": 1.5'),
        ([text("a", **used(-5))], 'an event is of no form that is read: "completion_tokens": -5'),
        ([text("a", **used(10**23))], 'an event is of no form that is read: "completion_tokens": 1000'),
        ([text("a", **used(math.nan))], 'an event is of no form that is read: "completion_tokens": NaN'),
        ([ROLE, STOP], "the answer has no token"),
        ([], "the answer has no token"),
    ],
)
def test_what_is_no_stream_of_tokens_is_an_error_with_its_cause(documents: list[object], reason: str) -> None:
    for before in ([], [text("a"), text("b")]):
        if before and reason == "the answer has no token":
            continue
        with pytest.raises(RequestError, match=re.escape(reason)):
            event_stream(*before, *documents)


@pytest.mark.parametrize(
    ("content_type", "content", "reason"),
    [
        (
            "application/json",
            b'{"choices": []}',
            'did not stream ("stream": true?), but sent application/json: {',
        ),
        ("application/json; charset=utf-8", b' {"error": "busy"}', 'application/json: {"error": "busy"}'),
        ("application/x-ndjson", b'{"response": "all", "done": true}\n', "did not stream"),
        ("", b'{"content": "all", "stop": true}', "but sent an unknown type: {"),
        ("", b'{"choices": [{"text": "a b"}], "usage": {}}', "did not stream"),
        ("text/plain", b'{"choices": [{"text": "a b", "finish_reason": "stop"}]}\n', "did not stream"),
        ("", b'{"text_output": "a b"}', "did not stream"),
        ("text/html", b"<html><body>Sorry</body></html>", "text/html: <html><body>Sorry"),
        ("text/plain", b"try later", "text/plain: try later"),
        (STREAM_TYPE, b'{"error": {"message": "busy"}}', SAYS + "{'message': 'busy'}"),
        (STREAM_TYPE, b"", "the answer is empty"),
        (STREAM_TYPE, b"\n \n", "the answer is empty"),
        (STREAM_TYPE, b"nothing that is a field", "the answer has no token"),
        (STREAM_TYPE, b'event: error\ndata: {"message": "died"}\n\n', SAYS + '{"message": "died"}'),
        (STREAM_TYPE, b"event: error\ndata: died", SAYS + "died"),
        (STREAM_TYPE, b'error: {"code": 400, "message": "too long"}\n\n', SAYS + '{"code": 400'),
        (STREAM_TYPE, gzip.compress(b"data: a\n\n", mtime=0), "the answer is compressed (gzip)"),
        ("application/x-ndjson", b'{"response": "a"}\nbusy', "an event is not a JSON object: busy"),
        (STREAM_TYPE, b"data: " + b"[" * 100_000 + b"\n\n", "an event is not a JSON object: [["),
        (STREAM_TYPE, b"data: " + b"x" * (1 << 21), "a line of the stream is longer than 1 MiB"),
        (STREAM_TYPE, (b"data: " + b"x" * 1000 + b"\n") * 1100, "an event of the stream is longer than 1 MiB"),
        ("", b" " * (1 << 21), "the answer is empty"),
    ],
)
@pytest.mark.parametrize("size", [999, 1 << 30])
def test_another_answer_than_a_stream_is_an_error_with_its_cause(
    content_type: str, content: bytes, reason: str, size: int
) -> None:
    pieces = [content[at : at + size] for at in range(0, len(content), size)]
    with pytest.raises(RequestError, match=re.escape(reason)):
        answer(pieces, content_type)


@pytest.mark.parametrize("encoding", ["gzip", "br"])
def test_a_compressed_answer_is_an_error(encoding: str) -> None:
    TokenEvents(STREAM_TYPE, "Identity")
    with pytest.raises(RequestError, match=f"compressed \\({encoding}\\), although the request says"):
        TokenEvents(STREAM_TYPE, encoding)


@pytest.mark.parametrize(
    ("documents", "end"),
    [
        ([text("a")], r"\[DONE\]"),
        ([ROLE], r"\[DONE\]"),
        (RESPONSES[:-1], "response.completed or response.incomplete"),
        (MESSAGES[:-1], "message_stop"),
        (LLAMA[:-1], '"stop"'),
        (TGI[:-1], '"generated_text"'),
    ],
)
def test_a_stream_that_breaks_off_is_an_error(documents: list[object], end: str) -> None:
    with pytest.raises(RequestError, match=f"the stream ended without {end}"):
        answer(events(*documents, done=False))


@pytest.mark.parametrize("documents", [RESPONSES[:-1], MESSAGES[:-1]], ids=["responses", "messages"])
def test_the_end_mark_of_a_gateway_ends_no_stream_that_has_its_own(documents: list[object]) -> None:
    with pytest.raises(RequestError, match="the stream ended without "):
        answer(events(*documents))


@pytest.mark.parametrize("documents", [OLLAMA, OLLAMA_CHAT], ids=["generate", "chat"])
def test_lines_that_say_that_more_will_come_must_end(documents: list[object]) -> None:
    lines = [json.dumps(document).encode() + b"\n" for document in documents[:-1]]
    with pytest.raises(RequestError, match='the stream ended without "done"'):
        answer(lines, "application/x-ndjson")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(sorted({*FORMS, *PARTS, "usage", "type", "error", "done"})), inner, max_size=3
        )
    ),
    max_leaves=8,
)
LINES = st.one_of(
    JSON.map(lambda value: b"data: " + json.dumps(value).encode()),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from(
        [b"event: error", b"data: [DONE]", b"event: ping", b": x", b"data", b"{", b"\xff\xfe", b"error: x"]
    ),
    st.binary(max_size=20),
)
ENDS = st.sampled_from([b"\n\n", b"\n", b"\r", b"\r\n", b""])


def answers_or_fails(content: bytes, content_type: str, size: int) -> None:
    found = TokenEvents(content_type)
    with suppress(RequestError):
        for at in range(0, len(content), size):
            found.take(content[at : at + size], at)
        found.end(len(content))
        stream = found.stream(0, len(content))
        assert len(stream.times_ns) == len(stream.tokens) > 0 and min(stream.tokens) > 0


def fuzz(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        parts = st.lists(st.tuples(LINES, ENDS).map(b"".join), max_size=8).map(b"".join)
        kinds = st.sampled_from([STREAM_TYPE, "application/x-ndjson", "application/json", "text/plain", ""])
        decorated = given(parts, kinds, st.sampled_from([1, 3, 64, 4096]))(test)
        return settings(max_examples=examples)(decorated)

    return decorate


@fuzz(100)
def test_any_bytes_are_tokens_or_an_error(content: bytes, content_type: str, size: int) -> None:
    answers_or_fails(content, content_type, size)


@pytest.mark.thorough
@fuzz(2_000)
def test_very_many_bytes_are_tokens_or_an_error(content: bytes, content_type: str, size: int) -> None:
    answers_or_fails(content, content_type, size)


def window_tokens(*streams: Any, start_ms: int, end_ms: int) -> tuple[Window, OutputTokens]:
    window = Window(start_ms * MS, end_ms * MS)
    window.streams += streams
    return window, output_tokens(window)


def test_tokens_count_in_the_window_in_which_they_arrive() -> None:
    documents = [text("a", **used(1)), text("bcd", **used(4)), text("e", "stop", **used(5))]
    _, tokens = window_tokens(event_stream(*documents).stream(-5 * MS, 9 * MS), start_ms=2, end_ms=3)
    assert tokens == {"count": 3, "source": "usage", "reported": 5, "counted": 5}
    # With only a total, each event gets an equal share.
    _, tokens = window_tokens(
        event_stream(text("a"), text("b"), {"choices": [], **used(10)}).stream(0, 9 * MS), start_ms=2, end_ms=9
    )
    assert tokens == {"count": 5, "source": "usage", "reported": 10, "counted": 2}
    mixed = event_stream(text("a")).stream(0, 9 * MS), event_stream(text("a", **used(1))).stream(0, 9 * MS)
    assert window_tokens(*mixed, start_ms=0, end_ms=9)[1] == {
        "count": 2,
        "source": "chunks",
        "reported": 1,
        "counted": 1,
    }
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
