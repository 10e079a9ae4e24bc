"""A user's container that counts its own latencies, as the client next to it asks it: pages that the driver reads."""

import time

from tenant.contract import environment
from tenant.contract.pages import LATE_SECONDS, Page, Scraped, fetched
from tenant.failures import RefusedError
from tenant.program import Program


class Scraping(Program):
    """`port` is the program's, `path` that of its metrics."""

    def __init__(self, port: int, path: str) -> None:
        self._port = port
        self._path = path
        self._pages: list[Page] | None = None

    def page(self, path: str) -> Page:
        """Ask it now."""
        return fetched(self._port, path)

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> None:
        """Raises RefusedError for a window that has begun."""
        if start_ns < time.monotonic_ns():
            raise RefusedError("the window starts in the past")
        self._pages = []

    def look(self) -> float:
        if self._pages is not None:
            self._pages.append(fetched(self._port, self._path, LATE_SECONDS))
        return super().look()

    def wait_record(self, deadline_seconds: float) -> Scraped:
        """The pages of the window's ends. Raises RefusedError before there is a window."""
        if self._pages is None:
            raise RefusedError("no window was set")
        self._thread.join()
        return {"pages": self._pages, "environment": environment({})}
