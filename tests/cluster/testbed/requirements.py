"""What this machine must have for the test bed; each lack is one line."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from cluster.testbed.instance import cache

CGROUPS = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "pids")
TOOLS = {
    "runc": "runc",
    "ip": "iproute2",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "openssl": "openssl",
    "gcc": "gcc and libc6-dev",
    "nm": "binutils",
    "iptables": "iptables",
    "mmdebstrap": "mmdebstrap",
}
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
HIDDEN = ("/run", "/var/lib", "/var/log")  # where a node mounts folders of its own


def cni_folder() -> Path | None:
    return next((folder for folder in CNI_FOLDERS if (folder / "bridge").exists()), None)


def missing() -> str | None:
    """The first thing that is missing and how to get it; None if the test bed can start here."""
    if os.uname().sysname != "Linux" or os.uname().machine != "x86_64":
        return "the test bed needs Linux on x86_64"
    if os.geteuid() != 0:
        return "the test bed needs root: it makes namespaces, mounts and a network link"
    if not os.environ.get("SHAREBENCH_TESTBED_BIN") and not shutil.which("go"):
        return "no Go compiler (go) on PATH, and no folder of binaries in SHAREBENCH_TESTBED_BIN"
    for tool, package in TOOLS.items():
        if not shutil.which(tool):
            return f"no {tool} on PATH: apt-get install {package}"
    if cni_folder() is None:
        return f"no CNI plugins in {' or '.join(map(str, CNI_FOLDERS))}: apt-get install containernetworking-plugins"
    if (CGROUPS / "cgroup.controllers").exists():
        return "this machine has cgroup v2 only, on which the test bed never ran: use kind (SHAREBENCH_CLUSTER=kind)"
    for controller in CONTROLLERS:
        if not os.access(CGROUPS / controller, os.W_OK):
            return f"no cgroup rights: cannot write to {CGROUPS / controller}"
    if any(cache().is_relative_to(folder) for folder in HIDDEN):
        return f"the cache {cache()} lies below {', '.join(HIDDEN)}: name another folder in SHAREBENCH_TESTBED_CACHE"
    return None
