"""Digests of source files that were made before.

Cutting every file into tokens takes longer than all else of ours in a run that has nothing to do.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from pathlib import Path

from sharebench import fingerprint
from sharebench.files import Damaged, read_json, write_json

# Beside what Python keeps of the same files, and on the same terms.
PATH = Path(__file__).parent / "__pycache__" / "digests.json"
MOST = 1000


class KnownDigests:
    """What `fingerprint.digest_of` says of a source, read from the file at `path` where it has been asked before."""

    def __init__(self, path: Path = PATH) -> None:
        self._path = path
        self._maker = hashlib.sha256(Path(fingerprint.__file__).read_bytes()).hexdigest()
        self._known = self._read()
        self._is_new = False

    def _read(self) -> dict[str, str]:
        with contextlib.suppress(OSError, Damaged, KeyError, TypeError):
            kept = read_json(self._path)
            # Those of another version of the digest are worth nothing, and old ones are not kept for ever.
            if kept["maker"] == self._maker and len(kept["digests"]) <= MOST:
                return dict(kept["digests"])
        return {}

    def digest_of(self, source: str) -> str:
        """Digest of the source; raises what `fingerprint.digest_of` does."""
        key = hashlib.sha256(source.encode()).hexdigest()
        if key not in self._known:
            self._known[key] = fingerprint.digest_of(source)
            self._is_new = True
        return self._known[key]

    def keep(self) -> None:
        """Write what is new to the file; without one the next run works it out again."""
        if self._is_new and not sys.dont_write_bytecode:
            with contextlib.suppress(OSError):
                write_json(self._path, {"maker": self._maker, "digests": self._known})
            self._is_new = False
