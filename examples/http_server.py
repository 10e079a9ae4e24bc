"""A small HTTP server: POST /infer answers with the sum of a matmul, GET /health with the status 200.

`http_server.py PORT [DEVICE [ADDRESS]]`: on `cuda` torch makes a larger matmul; other machines, and pods, reach it only
by another address than the default.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

PORT = int(sys.argv[1])
DEVICE = sys.argv[2] if len(sys.argv) > 2 else "cpu"
ADDRESS = sys.argv[3] if len(sys.argv) > 3 else "127.0.0.1"


def matrix() -> Any:
    """A square matrix on the device."""
    if DEVICE == "cpu":
        return np.random.rand(300, 300)
    import torch

    return torch.rand(4096, 4096, device=DEVICE)


WEIGHTS = matrix()


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
        self.answer(200, f"{float((WEIGHTS @ WEIGHTS).sum())}\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


ThreadingHTTPServer((ADDRESS, PORT), Handler).serve_forever()
