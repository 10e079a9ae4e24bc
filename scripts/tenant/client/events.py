"""Counts the tokens in the pieces of a streamed answer.

One gap lies between two events with tokens, however many each has. In OpenAI's `text/event-stream` format, only events
with a choice can carry tokens.
- If the server counts along, an event has as many tokens as `usage` has risen by. The first such event has `usage`
  already, as in vLLM with `stream_options: {continuous_usage_stats: true}`.
- Otherwise an event has one token if it has text, or if the completion continues, since a token's text may be empty.
  vLLM's benchmark does the same (`async_request_openai_completions` in vllm/benchmarks/lib/endpoint_request_func.py).
- An event with only a role or a finish reason has no token, as in AIPerf, which ignores events without content
  (https://docs.nvidia.com/nim/benchmarking/llm/2.0.0/metrics.html). vLLM's chat benchmark counts the role as a token.
A `usage` at the end gives the total number of tokens. Each event of another JSON format is one token, as is each piece
of an answer of another content type.
"""

import json
from array import array
from typing import Any

from tenant.recorder import TokenStream
from tenant.workload import RequestError

EVENT_STREAM = "text/event-stream"
DONE = b"[DONE]"


class TokenPieces:
    """An answer whose pieces carry one token each."""

    def __init__(self) -> None:
        self._times_ns = array("q")
        self._tokens = array("q")
        self._reported: int | None = None

    def _add(self, now_ns: int, tokens: int) -> None:
        self._times_ns.append(now_ns)
        self._tokens.append(tokens)

    def take(self, piece: bytes, now_ns: int) -> None:
        """Take the next bytes of the answer, which arrived at `now_ns`. Raises RequestError."""
        self._add(now_ns, 1)

    def end(self) -> None:
        """End the answer. Raises RequestError if it is incomplete."""
        if not self._times_ns:
            raise RequestError("the answer has no token")

    def stream(self, intended_ns: int, ended_ns: int | None) -> TokenStream:
        """The tokens that have arrived; the answer may not have ended."""
        tokens = self._tokens[:]
        return TokenStream(intended_ns, ended_ns, self._times_ns[: len(tokens)], tokens, self._reported)


class EventStream(TokenPieces):
    """An answer in the format `text/event-stream`."""

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
            document = json.loads(data)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise RequestError(f"an event is not a JSON object: {data.decode(errors='replace')}")
        if error := document.get("error"):
            raise RequestError(f"the server says in its stream: {error}")
        if "choices" in document:
            self._count(document, now_ns)
        else:
            self._add(now_ns, 1)

    def _count(self, document: dict[str, Any], now_ns: int) -> None:
        choices, reported = document["choices"], (document.get("usage") or {}).get("completion_tokens")
        if choices and not self._has_choices:
            self._has_choices, self._is_counted = True, reported is not None
        new_tokens = 0 if reported is None else reported - (self._reported or 0)
        self._reported = self._reported if reported is None else reported
        if choices and not self._is_counted:
            new_tokens = int(any(map(_has_token, choices)))
        if choices and new_tokens > 0:
            self._add(now_ns, new_tokens)


def _has_token(choice: dict[str, Any]) -> bool:
    is_unfinished = choice.get("finish_reason") is None
    if "text" in choice:
        return bool(choice["text"]) or is_unfinished
    delta = choice.get("delta") or {}
    content = {key: value for key, value in delta.items() if key != "role"}
    return any(content.values()) or ("content" in content and "role" not in delta and is_unfinished)


def new_answer(content_type: str) -> TokenPieces:
    return EventStream() if content_type.startswith(EVENT_STREAM) else TokenPieces()
