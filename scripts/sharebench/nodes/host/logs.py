"""The log of a tenant, which may be of any size: searched once, cut when it is long, and shown as plain lines."""

import os
from pathlib import Path

from sharebench.core.console import plain

# Beyond this a log is cut: of several tenants it would fill the disk for temporary files.
CUT_BYTES = 1 << 28
# What stays of a log, cut or not, when the cell is over. A user program may print a line per iteration.
KEPT_BYTES = 1 << 16
CHUNK_BYTES = 1 << 20


class Search:
    """Looks for a text in a log that grows, and reads every byte once."""

    def __init__(self, log: Path, text: str) -> None:
        self.log = log
        self.text = text
        self._wanted = text.encode()
        self._offset = 0
        # The end of what was read: the text may have begun there.
        self._rest = b""
        self._is_found = False

    def found(self) -> bool:
        """Whether the text is in what has been printed so far."""
        size = self.log.stat().st_size
        if size < self._offset:
            # It was cut, and begins again.
            self._offset, self._rest = 0, b""
        with self.log.open("rb") as file:
            file.seek(self._offset)
            while not self._is_found and self._offset < size and (chunk := file.read(CHUNK_BYTES)):
                self._offset += len(chunk)
                seen = self._rest + chunk
                self._is_found = self._wanted in seen
                self._rest = seen[max(0, len(seen) - len(self._wanted) + 1) :]
        return self._is_found


def last_of(log: Path, size_bytes: int = KEPT_BYTES) -> str:
    """The end of the log as plain text; empty where there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - size_bytes))
        return plain(file.read().decode(errors="replace"))


def cut(log: Path) -> None:
    """Leave only the end of a log that has become too long. Its program appends, and so goes on after that."""
    if not log.exists() or log.stat().st_size <= CUT_BYTES:
        return
    end = last_of(log)
    os.truncate(log, 0)
    with log.open("a") as file:
        file.write(f"[more than {CUT_BYTES >> 20} MiB were printed: what came before was cut]\n{end}")
