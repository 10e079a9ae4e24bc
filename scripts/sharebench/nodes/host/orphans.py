"""Processes that outlive the program which started them: they come to this process, and end with the cell."""

from __future__ import annotations

import contextlib
import ctypes
import sys

import psutil

# linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
# A process may start another while it is being ended.
ROUNDS = 5
GRACE_SECONDS = 2.0


def _adopt(is_on: bool) -> None:
    """Whether orphans among the descendants become children of this process, and not of init; Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


class Orphans:
    """The orphans among this process's descendants from now on, whatever their session or environment."""

    def __init__(self) -> None:
        self._others = {child.pid for child in psutil.Process().children()}
        _adopt(True)

    def end(self) -> None:
        """End all processes that have become children of this one since, and what they started."""
        for _ in range(ROUNDS):
            left = self._left()
            if not left:
                break
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, GRACE_SECONDS)
        _adopt(False)

    def _left(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for child in psutil.Process().children():
            if child.pid not in self._others:
                found.append(child)
                # It may end while it is looked at; the others are looked at all the same.
                with contextlib.suppress(psutil.Error):
                    found += child.children(recursive=True)
        return found
