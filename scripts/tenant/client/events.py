"""Which pieces of a streamed answer carry tokens, and how many.

One gap lies between two events that carry tokens, however many each has. In a `text/event-stream` in the manner of
OpenAI only events with a choice can. Where the server counts along (`usage` in the first such event already, as vLLM
does with `stream_options: {continuous_usage_stats: true}`) an event has as many tokens as the count rose by. Elsewhere
it has one if it has text, or if it is one of a completion that goes on, since a token's text may be empty: so does
vLLM's benchmark (`async_request_openai_completions` in vllm/benchmarks/lib/endpoint_request_func.py). An event with
nothing but a role or a reason to finish carries none, as in AIPerf, which disregards what has no content
(https://docs.nvidia.com/nim/benchmarking/llm/2.0.0/metrics.html); vLLM's benchmark of chats takes the role for the
first token. The `usage` at the end gives the number of tokens, if there is one.

An event of another kind of JSON, and a piece of an answer of another type, is one token each.
"""

import json
from array import array
from typing import Any

from tenant.recorder import Stream
from tenant.workload import RequestError

EVENT_STREAM = "text/event-stream"
DONE = b"[DONE]"


class Pieces:
    """An answer whose pieces, as they come, carry one token each."""

    def __init__(self) -> None:
        self._times_ns = array("q")
        self._tokens = array("q")
        self._reported: int | None = None

    def _add(self, now_ns: int, tokens: int) -> None:
        self._times_ns.append(now_ns)
        self._tokens.append(tokens)

    def take(self, piece: bytes, now_ns: int) -> None:
        """The next bytes of the answer, which are there since `now_ns`. Raises RequestError."""
        self._add(now_ns, 1)

    def end(self) -> None:
        """The answer is over. Raises RequestError where something is missing."""
        if not self._times_ns:
            raise RequestError("the answer has no token")

    def stream(self, intended_ns: int, ended_ns: int | None) -> Stream:
        """What has come, also while the answer is under way."""
        tokens = self._tokens[:]
        return Stream(intended_ns, ended_ns, self._times_ns[: len(tokens)], tokens, self._reported)


class Events(Pieces):
    """A `text/event-stream`."""

    def __init__(self) -> None:
        super().__init__()
        self._rest = b""
        self._is_done = self._has_choices = self._is_counted = False

    def take(self, piece: bytes, now_ns: int) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip(), now_ns)

    def end(self) -> None:
        if self._has_choices and not self._is_done:
            raise RequestError(f"the stream ended without {DONE.decode()}")
        super().end()

    def _event(self, data: bytes, now_ns: int) -> None:
        if data == DONE:
            self._is_done = True
            return
        try:
            said = json.loads(data)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise RequestError(f"an event is not a JSON object: {data.decode(errors='replace')}")
        if error := said.get("error"):
            raise RequestError(f"the server says in its stream: {error}")
        if "choices" in said:
            self._count(said, now_ns)
        else:
            self._add(now_ns, 1)

    def _count(self, said: dict[str, Any], now_ns: int) -> None:
        choices, reported = said["choices"], (said.get("usage") or {}).get("completion_tokens")
        if choices and not self._has_choices:
            self._has_choices, self._is_counted = True, reported is not None
        more = 0 if reported is None else reported - (self._reported or 0)
        self._reported = self._reported if reported is None else reported
        if choices and not self._is_counted:
            more = int(any(map(_has_token, choices)))
        if choices and more > 0:
            self._add(now_ns, more)


def _has_token(choice: dict[str, Any]) -> bool:
    goes_on = choice.get("finish_reason") is None
    if "text" in choice:
        return bool(choice["text"]) or goes_on
    delta = choice.get("delta") or {}
    said = {key: value for key, value in delta.items() if key != "role"}
    return any(said.values()) or ("content" in said and "role" not in delta and goes_on)


def answer_of(content_type: str) -> Pieces:
    return Events() if content_type.startswith(EVENT_STREAM) else Pieces()
