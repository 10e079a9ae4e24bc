"""Requirements of the test bed on this machine; each missing one is one line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from cluster.testbed import cgroups, real
from cluster.testbed.instance import Gpu, cache

TOOLS = {"runc": "runc", "ip": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "openssl": "openssl"}
MOCK_TOOLS = {"gcc": "gcc and libc6-dev", "nm": "binutils", "mmdebstrap": "mmdebstrap"}
CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
NAMESPACES = ("--mount", "--net", "--ipc", "--uts", "--propagation=private", "--fork")
OWN_PROCESSES = ("--pid", "--mount-proc")  # not with a real GPU, whose driver knows processes by the machine's numbers
# Tries everything that a node does, in temporary namespaces. $1 is an empty folder for instances.
TRIAL = """set -e
mount --make-rshared /
mount -t tmpfs tmpfs /run
cd "$1"
mkdir lower upper work merged
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay merged
ip link add trial0 type veth peer name trial1
ip link add trial2 type bridge
echo 1 > /proc/sys/net/ipv4/ip_forward
"""
INSTANCE_GIB = 4
HIDDEN = ("/run", "/var/lib", "/var/log")  # where a node mounts folders of its own


def namespaces(gpu: Gpu) -> tuple[str, ...]:
    """Options of unshare for the node's first process."""
    return (*OWN_PROCESSES, *NAMESPACES) if gpu == "mock" else NAMESPACES


def cni_folder() -> Path | None:
    given = Path(os.environ.get("SHAREBENCH_TESTBED_BIN", "/nonexistent"))
    return next((folder for folder in (given, *CNI_FOLDERS) if (folder / "bridge").exists()), None)


def missing(gpu: Gpu = "mock") -> str | None:
    """The first missing requirement and its remedy; None if the test bed can start here."""
    if os.uname().sysname != "Linux" or os.uname().machine != "x86_64":
        return "the test bed needs Linux on x86_64"
    if os.geteuid() != 0:
        return "the test bed needs root: it makes namespaces, mounts and a network link"
    if not os.environ.get("SHAREBENCH_TESTBED_BIN") and not shutil.which("go"):
        return "no Go compiler (go) on PATH, and no folder of binaries in SHAREBENCH_TESTBED_BIN"
    for tool, package in (TOOLS | (MOCK_TOOLS if gpu == "mock" else {})).items():
        if not shutil.which(tool):
            return f"no {tool} on PATH: apt-get install {package}"
    if cni_folder() is None:
        return f"no CNI plugins in {' or '.join(map(str, CNI_FOLDERS))}: apt-get install containernetworking-plugins"
    if lack := (real.missing() if gpu != "mock" else None) or cgroups.missing():
        return lack
    if any(cache().is_relative_to(folder) for folder in HIDDEN):
        return f"the cache {cache()} lies below {', '.join(HIDDEN)}: name another folder in SHAREBENCH_TESTBED_CACHE"
    cache().mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(cache()).free < INSTANCE_GIB << 30:
        return f"less than {INSTANCE_GIB} GiB are free below {cache()}"
    return _refused(gpu)


def _refused(gpu: Gpu) -> str | None:
    """Namespaces, mounts or links that the kernel, or the container around, refuses."""
    with TemporaryDirectory(dir=cache()) as folder:
        command = ["unshare", *namespaces(gpu), "sh", "-c", TRIAL, "sh", folder]
        done = subprocess.run(command, capture_output=True, text=True)
    said = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
    return f"no namespaces, mounts or links here: {said[0]}" if done.returncode else None
