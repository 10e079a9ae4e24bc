"""What the driver and a tenant share about requests: the text of HTTP errors, secrets, and pages of metrics.

`{env:NAME}` in a request stands for a variable of the environment, and is filled in by the client only.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterable, Mapping
from typing import TypedDict

from tenant.contract import Environment

ENV_PLACEHOLDER = re.compile(r"\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
# At most this much of a server's text is repeated in an error.
MAX_ERROR_CHARACTERS = 100


def error_text(error: Exception) -> str:
    """The line for an OSError or HTTPException of http.client."""
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    said = str(error).strip()
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, ConnectionError):
        return f"no HTTP answer, but {said[:MAX_ERROR_CHARACTERS]!r}"
    return "".join(each for each in said if each.isprintable())[:MAX_ERROR_CHARACTERS] or type(error).__name__


def named(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for text in texts for name in ENV_PLACEHOLDER.findall(text)))


def variable_problem(texts: Iterable[str], environment: Mapping[str, str]) -> str | None:
    """Why a variable that these texts name cannot be part of a request, or None; never its value."""
    for name in named(texts):
        value = environment.get(name)
        if not value:
            return f"{{env:{name}}} is not set in the environment; export {name}"
        if not (value.isascii() and value.isprintable()):
            return f"{{env:{name}}} holds what no request can (a line break, or no ASCII); export {name} without it"
    return None


def filled(text: str, environment: Mapping[str, str]) -> str:
    return ENV_PLACEHOLDER.sub(lambda found: environment[found[1]], text)


# Asked for by name: OpenMetrics would have other names for the same.
METRICS_HEADERS = {"Accept": "text/plain;version=0.0.4"}
# Parsing takes a fifth of a second for each MiB, and the page is asked for again and again.
MAX_PAGE_BYTES = 8 << 20
# Asked again and again until a program is ready; one that hangs must not hold up the others.
READY_TIMEOUT_SECONDS = 2.0
# At the end of a window: a page that has begun is waited for.
EDGE_TIMEOUT_SECONDS = 10.0


class Page(TypedDict):
    """What was answered, or why nothing was; times by the monotonic clock of who asked."""

    begun_ns: int
    ended_ns: int
    text: str
    is_whole: bool
    failure: str | None


class ScrapeReport(TypedDict):
    """The pages of a window's ends, and where they were asked for."""

    pages: list[Page]
    environment: Environment


def fetch_page(port: int, path: str, timeout_seconds: float = READY_TIMEOUT_SECONDS) -> Page:
    """Ask a program under the same kernel."""
    begun_ns, body, failure = time.monotonic_ns(), b"", None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds)
    try:
        connection.connect()
        begun_ns = time.monotonic_ns()
        connection.request("GET", path, headers=METRICS_HEADERS)
        response = connection.getresponse()
        body = response.read(MAX_PAGE_BYTES + 1)
        if response.status != 200:
            failure = f"status {response.status}"
    except (OSError, http.client.HTTPException) as error:
        failure = error_text(error)
    finally:
        connection.close()
    ended_ns, is_whole = time.monotonic_ns(), len(body) <= MAX_PAGE_BYTES
    text = body.decode(errors="replace") if is_whole else ""
    return {"begun_ns": begun_ns, "ended_ns": ended_ns, "text": text, "is_whole": is_whole, "failure": failure}
