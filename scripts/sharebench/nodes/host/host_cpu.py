"""The host's CPU, for the `details` of a node's facts: a workload that the host bounds depends on it.

From Linux' /proc and /sys (Documentation/admin-guide/cputopology.rst, cpu-freq). Nothing in it names the machine, and
nothing changes from one moment to the next, so that two studies of one host agree.
"""

from __future__ import annotations

import contextlib
import platform
import re
from pathlib import Path

ROOT = Path("/")


def model() -> str:
    """The CPU's name as the kernel has it."""
    found = re.search(r"^model name\s*:(.*)$", _text(ROOT / "proc/cpuinfo") or "", re.MULTILINE)
    return re.sub(r"\s+", " ", found[1]).strip() if found else platform.processor() or platform.machine()


def facts() -> dict[str, str | int | None]:
    """Model, topology of the CPUs that are online, SMT, governors and largest clock; None where it is not known."""
    cpus = sorted((ROOT / "sys/devices/system/cpu").glob("cpu[0-9]*"))
    places = [(_text(cpu / "topology/physical_package_id"), _text(cpu / "topology/core_id")) for cpu in cpus]
    online = [place for place in places if None not in place]
    governors = {governor for cpu in cpus if (governor := _text(cpu / "cpufreq/scaling_governor"))}
    largest_khz = [int(khz) for cpu in cpus if (khz := _text(cpu / "cpufreq/cpuinfo_max_freq")) and khz.isdecimal()]
    return {
        "cpu": model(),
        "cpu_sockets": len({package for package, _ in online}) or None,
        "cpu_cores": len(set(online)) or None,
        "cpu_threads": len(online) or None,
        "cpu_smt": _text(ROOT / "sys/devices/system/cpu/smt/control"),
        "cpu_governor": " and ".join(sorted(governors)) or None,
        "cpu_mhz_max": round(max(largest_khz) / 1000) if largest_khz else None,
    }


def _text(path: Path) -> str | None:
    with contextlib.suppress(OSError):
        return path.read_text().strip() or None
    return None
