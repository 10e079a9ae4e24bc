"""A page of a program's metrics, as the driver asks for it on a host and the client container in a pod."""

import http.client
import time
from typing import TypedDict

from tenant.contract import Environment
from tenant.contract.requests import described

# Asked for by name: OpenMetrics would have other names for the same.
HEADERS = {"Accept": "text/plain;version=0.0.4"}
# Parsing takes a fifth of a second for each MiB, and the page is asked for again and again.
PAGE_BYTES = 8 << 20
# Asked again and again until a program is ready; one that hangs must not hold up the others.
READY_SECONDS = 2.0
# At the end of a window: a page that has begun is waited for.
LATE_SECONDS = 10.0


class Page(TypedDict):
    """What was answered, or why nothing was; times by the monotonic clock of who asked."""

    begun_ns: int
    ended_ns: int
    text: str
    is_whole: bool
    failure: str | None


class Scraped(TypedDict):
    """The pages of a window's ends, and where they were asked for."""

    pages: list[Page]
    environment: Environment


def fetched(port: int, path: str, timeout_seconds: float = READY_SECONDS) -> Page:
    """Ask a program under the same kernel."""
    begun_ns, body, failure = time.monotonic_ns(), b"", None
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds)
    try:
        connection.connect()
        begun_ns = time.monotonic_ns()
        connection.request("GET", path, headers=HEADERS)
        response = connection.getresponse()
        body = response.read(PAGE_BYTES + 1)
        if response.status != 200:
            failure = f"status {response.status}"
    except (OSError, http.client.HTTPException) as error:
        failure = described(error)
    finally:
        connection.close()
    ended_ns, is_whole = time.monotonic_ns(), len(body) <= PAGE_BYTES
    text = body.decode(errors="replace") if is_whole else ""
    return {"begun_ns": begun_ns, "ended_ns": ended_ns, "text": text, "is_whole": is_whole, "failure": failure}
