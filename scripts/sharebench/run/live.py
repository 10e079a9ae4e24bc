"""The line of what is measured: on a terminal with its phase and the time left, elsewhere as it begins."""

import contextlib
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from sharebench.cell.cell import PHASES

REFRESH_SECONDS = 1.0
CLEAR = "\r\x1b[2K"


def duration(seconds: float) -> str:
    """A duration for people: `45 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class _Line(logging.Handler):
    """A line of a terminal that is written again; its records are the names of phases."""

    def __init__(self, what: str, left_seconds: float | None, stream: TextIO, clock: Callable[[], float]) -> None:
        super().__init__()
        self.what, self.left_seconds, self.stream, self.clock = what, left_seconds, stream, clock
        self.began_seconds = clock()
        self.phase = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.phase = record.getMessage()
        self.draw()

    def draw(self) -> None:
        took = self.clock() - self.began_seconds
        left = "" if self.left_seconds is None else f"about {duration(max(0.0, self.left_seconds - took))} left"
        text = " · ".join(filter(None, (self.what, self.phase, left)))
        self.stream.write(CLEAR + text[: shutil.get_terminal_size().columns - 1])
        self.stream.flush()

    def close(self) -> None:
        """Leave the line with the time that it took."""
        self.stream.write(f"{CLEAR}{self.what} · {duration(self.clock() - self.began_seconds)}\n")
        self.stream.flush()
        super().close()


@contextlib.contextmanager
def shown(
    what: str,
    left_seconds: float | None = None,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
    is_alone: bool = True,
) -> Iterator[None]:
    """Show what is measured in this context, and how long the run will take from now on, if that is known.

    Lines of what others measure at the same time would overwrite each other.
    """
    stream = stream or sys.stdout
    if not is_alone or not stream.isatty():
        left = "" if left_seconds is None else f" · about {duration(left_seconds)} left"
        print(f"{what}{left}", file=stream, flush=True)
        yield
        return
    line, is_over = _Line(what, left_seconds, stream, clock), threading.Event()

    def refresh() -> None:
        while not is_over.wait(REFRESH_SECONDS):
            # A phase may begin at the same moment.
            line.acquire()
            line.draw()
            line.release()

    refreshing = threading.Thread(target=refresh, daemon=True)
    PHASES.addHandler(line)
    line.draw()
    refreshing.start()
    try:
        yield
    finally:
        is_over.set()
        refreshing.join()
        PHASES.removeHandler(line)
        line.close()
