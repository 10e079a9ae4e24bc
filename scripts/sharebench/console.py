"""What a job that fails says."""

from __future__ import annotations

import sys


def failed(line: object) -> int:
    """Say why, to the job's log and at once to the terminal; returns the job's exit status."""
    print(line, file=sys.stderr)
    print(f"  {line}", flush=True)
    return 1
