"""A program's descendants as its host sees them, and orphans."""

import contextlib
import ctypes

import psutil

# linux/prctl.h
PR_SET_CHILD_SUBREAPER = 36
# A process may start another while it is being ended.
ROUNDS = 5
GRACE_SECONDS = 2.0


def tree_pids(pid: int) -> list[int]:
    """The process first, then its living descendants."""
    with contextlib.suppress(psutil.Error):
        return [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    return [pid]


def set_subreaper(is_on: bool) -> None:
    """Let orphaned descendants become children of this process instead of init, or stop that."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


class Orphans:
    """The orphans among this process's descendants from now on, whatever their session or environment."""

    def __init__(self) -> None:
        self._earlier = {child.pid for child in psutil.Process().children()}
        set_subreaper(True)

    def end(self) -> None:
        """End all processes that have become children of this one since, and what they started."""
        for _ in range(ROUNDS):
            left = self._remaining()
            if not left:
                break
            for process in left:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, GRACE_SECONDS)
        set_subreaper(False)

    def _remaining(self) -> list[psutil.Process]:
        remaining = [child for child in psutil.Process().children() if child.pid not in self._earlier]
        for child in remaining.copy():
            # A process may end meanwhile, which must not hide the others.
            with contextlib.suppress(psutil.Error):
                remaining += child.children(recursive=True)
        return remaining
