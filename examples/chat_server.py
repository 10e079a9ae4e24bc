"""A stand-in for an LLM server with OpenAI's API for completions and chat completions; its words are made up.

`chat_server.py PORT [FIRST_MS GAP_MS]`. POST /v1/chat/completions or /v1/completions returns `max_tokens` words, with
`stream: true` as one event each, and the usage according to `stream_options`; with `logprobs` made-up ones. A word
costs a matmul, the first word eight. With FIRST_MS and GAP_MS the server waits instead, so that one can check what a
client measures: FIRST_MS before the first word of an answer, GAP_MS before each other word, spread evenly over ± 25 %.
"""

import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

WEIGHTS = np.random.rand(256, 256)
WAITS = [float(milliseconds) / 1000 for milliseconds in sys.argv[2:4]]
numbers = iter(range(1 << 62))
lock = threading.Lock()


def words(count: int) -> Iterator[str]:
    """Yield a number of words, each when it is due."""
    with lock:
        number = next(numbers)
    if WAITS:
        # Successive multiples of the golden ratio fill an interval evenly, so means are exact after few requests.
        spread = 0.75 + 0.5 * ((number + np.arange(count) * 0.7549 + 0.5) * 0.6180339887 % 1)
        due = time.monotonic() + np.cumsum(spread * [WAITS[0], *[WAITS[1]] * (count - 1)])
    for index in range(count):
        if WAITS:
            time.sleep(max(0.0, due[index] - time.monotonic()))
        else:
            for _ in range(8 if index == 0 else 1):
                WEIGHTS @ WEIGHTS
        yield f"word{index} "


def prompt_tokens(request: dict[str, Any]) -> int:
    """Number of token ids, or of words, in the prompt."""
    prompt = request.get("prompt") or " ".join(message["content"] for message in request.get("messages", []))
    return len(prompt.split() if isinstance(prompt, str) else prompt)


def logprobs(answer: list[str], is_chat: bool) -> dict[str, Any]:
    """Made-up log-probabilities, the same each time."""
    values = [-0.1 * (1 + index % 7) for index in range(len(answer))]
    if is_chat:
        return {"content": [{"token": word, "logprob": value} for word, value in zip(answer, values, strict=True)]}
    return {"tokens": answer, "token_logprobs": values}


class Handler(BaseHTTPRequestHandler):
    """A connection, which the client may keep open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def begin(self, kind: str, *more: tuple[str, str]) -> None:
        """Send the head of an answer."""
        self.send_response(200)
        for name, value in (("Content-Type", kind), *more):
            self.send_header(name, value)
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """Send a piece of an answer; an empty piece ends it."""
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def do_GET(self) -> None:
        """GET /health."""
        self.begin("text/plain", ("Content-Length", "3"))
        self.wfile.write(b"ok\n")

    def do_POST(self) -> None:
        """POST /v1/chat/completions or /v1/completions."""
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_chat, count, read = self.path.startswith("/v1/chat"), request.get("max_tokens", 8), prompt_tokens(request)
        kind = "chat.completion" if is_chat else "text_completion"

        def event(text: str | None, done: int, has_usage: bool, is_part: bool = True) -> bytes:
            content: dict[str, Any] = {"text": text}
            if is_chat:
                content = {"delta" if is_part else "message": {"role": "assistant", "content": text}}
            choice = {"index": 0, "finish_reason": "length" if done == count else None, **content}
            choices = [] if text is None else [choice]
            answer: dict[str, Any] = {"id": "made-up", "object": kind, "created": int(time.time()), "choices": choices}
            if is_chat and is_part:
                answer["object"] += ".chunk"
            if has_usage:
                answer["usage"] = {"prompt_tokens": read, "completion_tokens": done, "total_tokens": read + done}
            return json.dumps(answer | {"model": request.get("model", "any")}).encode()

        if not request.get("stream"):
            answer = list(words(count))
            body = event("".join(answer), count, True, is_part=False)
            if request.get("logprobs"):
                document = json.loads(body)
                document["choices"][0]["logprobs"] = logprobs(answer, is_chat)
                body = json.dumps(document).encode()
            self.begin("application/json", ("Content-Length", str(len(body))))
            self.wfile.write(body)
            return
        self.begin("text/event-stream", ("Transfer-Encoding", "chunked"))
        options = request.get("stream_options") or {}
        for done, word in enumerate(words(count), 1):
            self.chunk(b"data: %s\n\n" % event(word, done, bool(options.get("continuous_usage_stats"))))
        if options.get("include_usage"):
            self.chunk(b"data: %s\n\n" % event(None, count, True))
        self.chunk(b"data: [DONE]\n\n")
        self.chunk(b"")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    """A server with a thread per connection, many of which may arrive at once."""

    request_queue_size = 1024
    daemon_threads = True


Server(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
