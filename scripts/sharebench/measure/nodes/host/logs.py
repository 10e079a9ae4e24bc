"""A tenant's log, which may have any size: every byte is searched once, long logs are cut, lines are shown as text."""

import os
from pathlib import Path

from sharebench.core.console import plain_text

# A longer log is cut: the logs of several tenants would fill the disk for temporary files.
MAX_LOG_BYTES = 1 << 28
# The part of a log that is kept after the cell. A user program may print a line per iteration.
KEPT_BYTES = 1 << 16


class LogSearch:
    """Searches a growing log for a text, and reads every byte once."""

    def __init__(self, log: Path, text: str) -> None:
        self.log = log
        self._wanted = text.encode()
        self._offset = 0
        self._is_found = False

    def is_found(self) -> bool:
        """Whether the text has been printed so far."""
        if self._is_found:
            return True
        if self.log.stat().st_size < self._offset:
            # Its own program has cut it, as a redirection to /dev/stderr does.
            self.restart()
        with self.log.open("rb") as file:
            # The text may have begun at the end of what was read.
            file.seek(max(0, self._offset - len(self._wanted) + 1))
            self._is_found = self._wanted in file.read()
            self._offset = file.tell()
        return self._is_found

    def restart(self) -> None:
        """Go on at the start of a log that was cut."""
        self._offset = 0


def log_end(log: Path, size_bytes: int = KEPT_BYTES) -> str:
    """The end of the log as plain text; empty without a log."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - size_bytes))
        return plain_text(file.read().decode(errors="replace"))


def truncate_log(log: Path, search: LogSearch | None = None) -> None:
    """Cut a log that is too long to its end, once it is searched. Its program appends, so its next lines follow."""
    if not log.exists() or log.stat().st_size <= MAX_LOG_BYTES:
        return
    end = log_end(log)
    if search is not None:
        search.is_found()
        search.restart()
    os.truncate(log, 0)
    with log.open("a") as file:
        file.write(f"[more than {MAX_LOG_BYTES >> 20} MiB were printed: what came before was cut]\n{end}")
