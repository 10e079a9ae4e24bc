"""MPS daemons that a crashed tenant may have broken: they are restarted before the next cell.

A server whose client died may serve the next ones badly (NVIDIA, Multi-Process Service). Nothing of that shows outside
of the node, so it is judged by how the tenants ended.
"""

from __future__ import annotations

from pathlib import Path

from sharebench.core.files import read_json, write_json
from tenant.contract import TenantReport


def ended_well(record: TenantReport) -> bool:
    """Whether a tenant that delivered this record has finished its work, and is not stuck in the middle of it."""
    load, job = record.get("load") or {}, record.get("job")
    is_stuck = load.get("arrival") == "closed" and bool(load.get("censored"))
    return not is_stuck and not (job and job["completion_seconds"] is None)


class MpsSuspects:
    """The accesses whose MPS daemon is suspect; a file in the node's folder tells all jobs of a run."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "mps_suspects.json"

    def _accesses(self) -> list[str]:
        return list(read_json(self._file)) if self._file.exists() else []

    def __contains__(self, access: str) -> bool:
        return access in self._accesses()

    def add(self, access: str) -> None:
        """Suspect the daemon of that access."""
        write_json(self._file, sorted({*self._accesses(), access}))

    def remove(self, access: str) -> None:
        """Trust the daemon of that access: it was restarted, or has served a cell well."""
        if access in self:
            write_json(self._file, [each for each in self._accesses() if each != access])

    def clear(self) -> None:
        """Trust all daemons."""
        self._file.unlink(missing_ok=True)
