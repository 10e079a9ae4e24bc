"""What went wrong with an HTTP request, in one short line."""

from __future__ import annotations

import http.client

SHOWN = 100


def described(error: Exception) -> str:
    """The line for an OSError or HTTPException of http.client."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return f"no HTTP answer, but {str(error).strip()[:SHOWN]!r}"
    said = "".join(each for each in str(error) if each.isprintable())
    return said[:SHOWN] or type(error).__name__
