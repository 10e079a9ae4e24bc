"""What the exit code of a tenant says of it."""

from __future__ import annotations

import signal

from sharebench.records.types import TenantStatus
from tenant.contract import EXIT_OUT_OF_MEMORY


def classify(code: int, has_exit_codes: bool = True) -> tuple[TenantStatus, str]:
    """Status and reason of a tenant that ended with this exit code before it was asked to.

    Without `has_exit_codes` it is a user program, whose codes have no known meaning.
    """
    if code == EXIT_OUT_OF_MEMORY and has_exit_codes:
        return "oom", "ran out of memory"
    if code < 0:
        names = {known.value: known.name for known in signal.Signals}
        name = names.get(-code, f"signal {-code}")
        return ("killed" if name in ("SIGKILL", "SIGTERM") else "crashed"), f"ended by {name}"
    return "crashed", f"ended by itself with exit code {code}"
