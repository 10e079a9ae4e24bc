"""MPS daemons that tenants may have left in a bad way, and so are not trusted with the next cell.

A server whose client died may serve the next ones badly (NVIDIA, Multi-Process Service). Nothing of that shows outside
of the node, so it is judged by how the tenants ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sharebench.core.files import read_json, write_json


def ended_well(record: Mapping[str, Any]) -> bool:
    """Whether a tenant that delivered this record is done with its work, and is not cut off in the middle of it."""
    load, job = record.get("load") or {}, record.get("job")
    is_stuck = load.get("arrival") == "closed" and bool(load.get("censored"))
    return not is_stuck and not (job and job["completion_seconds"] is None)


class Doubts:
    """The ways to the GPU whose daemon is in doubt: known to all jobs of a run by a file in the node's folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "doubts.json"

    def _known(self) -> list[str]:
        return list(read_json(self._file)) if self._file.exists() else []

    def concern(self, access: str) -> bool:
        """Whether the daemon of that way is in doubt."""
        return access in self._known()

    def raise_about(self, access: str) -> None:
        """From now on it is."""
        write_json(self._file, sorted({*self._known(), access}))

    def settle(self, access: str) -> None:
        """It is not any more."""
        if self.concern(access):
            write_json(self._file, [each for each in self._known() if each != access])

    def settle_all(self) -> None:
        """None is any more."""
        self._file.unlink(missing_ok=True)
