"""A stand-in of an LLM server that speaks OpenAI's chat completions: it computes, but what it says is made up.

`chat_server.py PORT`. POST /v1/chat/completions answers `max_tokens` words, with `stream: true` one event each.
"""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

WEIGHTS = np.random.rand(256, 256)


def words(count: int) -> Iterator[str]:
    """A number of words, the first of which takes longer, as reading the question does."""
    for number in range(count):
        for _ in range(8 if number == 0 else 1):
            WEIGHTS @ WEIGHTS
        yield f"word{number} "


class Handler(BaseHTTPRequestHandler):
    """One connection, which a client may keep."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def begin(self, kind: str, *more: tuple[str, str]) -> None:
        """Send the head."""
        self.send_response(200)
        for name, value in (("Content-Type", kind), *more):
            self.send_header(name, value)
        self.end_headers()

    def send(self, text: str) -> None:
        """Send a chunk."""
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

    def do_GET(self) -> None:
        """GET /health."""
        self.begin("text/plain", ("Content-Length", "3"))
        self.wfile.write(b"ok\n")

    def do_POST(self) -> None:
        """POST /v1/chat/completions."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = asked.get("max_tokens", 8)
        if not asked.get("stream"):
            message = {"role": "assistant", "content": "".join(words(count))}
            body = json.dumps({"object": "chat.completion", "choices": [{"index": 0, "message": message}]}).encode()
            self.begin("application/json", ("Content-Length", str(len(body))))
            self.wfile.write(body)
            return
        self.begin("text/event-stream", ("Transfer-Encoding", "chunked"))
        for word in words(count):
            choice = {"index": 0, "delta": {"content": word}}
            self.send(f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n")
        self.send("data: [DONE]\n\n")
        self.send("")

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
