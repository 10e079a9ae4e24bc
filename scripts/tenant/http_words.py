"""What went wrong with an HTTP request, in one short line."""

from __future__ import annotations

import http.client
from collections.abc import Iterable

SHOWN = 100


def described(error: Exception, secrets: Iterable[str] = ()) -> str:
    """The line for an OSError or HTTPException of http.client, without what may be a secret in it."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    said = str(error).strip()
    for secret in secrets:
        said = said.replace(secret, "…")
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return f"no HTTP answer, but {said[:SHOWN]!r}"
    return "".join(each for each in said if each.isprintable())[:SHOWN] or type(error).__name__
