"""A small HTTP server: POST /infer answers with the sum of a matmul, GET /health with the status 200.

`http_server.py PORT`
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

WEIGHTS = np.random.rand(300, 300)


class Handler(BaseHTTPRequestHandler):
    """A connection, which the client may keep open."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status: int, text: str) -> None:
        """Send a short text."""
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        """Answer the health check."""
        self.answer(200 if self.path == "/health" else 404, "here\n")

    def do_POST(self) -> None:
        """Answer an inference request."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, f"{(WEIGHTS @ WEIGHTS).sum()}\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
