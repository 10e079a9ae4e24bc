"""Processes that are being killed."""

import re
import signal
from pathlib import Path


def is_dying(pid: int) -> bool:
    """Whether SIGKILL is on its way to the process, which on a busy machine may wait seconds for a core to end."""
    status = Path(f"/proc/{pid}/status").read_text()
    pending = re.findall(r"^(?:SigPnd|ShdPnd):\s*(\w+)$", status, re.MULTILINE)
    return any(int(mask, 16) >> (signal.SIGKILL - 1) & 1 for mask in pending)
