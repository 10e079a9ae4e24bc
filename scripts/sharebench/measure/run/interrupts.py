"""Signals to the process that owns a run: the first Ctrl-C ends the run, the next one ends the process at once.

The run's guard then ends what is left. Jobs have a handler of their own (`ownership.interruptible`).
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator

# Wrappers such as `uv run` pass on a Ctrl-C that the terminal has sent to all, so that it arrives twice.
REPEAT_SECONDS = 1.0
EXIT_INTERRUPTED = 130

_repeats_until = 0.0


def _leave_at_next(line: Callable[[], str]) -> None:
    """Let the next Ctrl-C print the line and end this process; a closed terminal has no effect any more."""

    def leave(number: int, frame: object) -> None:
        if time.monotonic() > _repeats_until:
            # Neither buffers nor exceptions: Snakemake would print a traceback.
            with contextlib.suppress(OSError):
                os.write(2, f"{line()}\n".encode())
            os._exit(EXIT_INTERRUPTED)

    signal.signal(signal.SIGINT, leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def end_run_at_first(line: Callable[[], str]) -> None:
    """Let the first Ctrl-C, or a closed terminal, end the run in order; the next Ctrl-C prints the line and leaves."""

    def end(number: int, frame: object) -> None:
        global _repeats_until
        _repeats_until = time.monotonic() + REPEAT_SECONDS
        _leave_at_next(line)
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, end)
    # A run under nohup outlives its terminal.
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(signal.SIGHUP, end)


@contextlib.contextmanager
def left_at_once(line: Callable[[], str]) -> Iterator[None]:
    """A block that Ctrl-C ends at once, with the line, together with the process."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    _leave_at_next(line)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
