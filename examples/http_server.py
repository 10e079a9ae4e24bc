"""A small HTTP server: POST /infer multiplies matrices and answers with a sum; GET /health says that it is there.

`http_server.py PORT`
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

WEIGHTS = np.random.rand(300, 300)


class Handler(BaseHTTPRequestHandler):
    """One connection, which a client may keep."""

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
        """Say that it is there."""
        self.answer(200 if self.path == "/health" else 404, "here\n")

    def do_POST(self) -> None:
        """Infer."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer(200, f"{(WEIGHTS @ WEIGHTS).sum()}\n")

    def log_message(self, format: str, *args: object) -> None:
        """Keep quiet."""


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
