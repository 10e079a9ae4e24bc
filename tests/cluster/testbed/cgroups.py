"""The cgroups of a test bed: one folder in each hierarchy of v1, or one folder of v2.

The node's own processes lie in `node` below it, pods next to that: so `kill` reaches whatever the node started, in a
PID namespace of its own or not.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from cluster.testbed.errors import TestbedError

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("cpu", "cpuset", "memory", "pids")  # what a kubelet insists on
CONTROLLERS_V1 = (*CONTROLLERS, "cpuacct", "devices", "freezer")
NODE = "node"


def is_v2() -> bool:
    return (ROOT / "cgroup.controllers").exists()


def folders(name: str) -> list[Path]:
    """One, or with v1 one for each hierarchy; runc makes that of v2 where it is mounted next to those of v1."""
    return [ROOT / name] if is_v2() else [folder / name for folder in ROOT.iterdir() if folder.is_dir()]


def missing() -> str | None:
    """The first missing right or controller."""
    there = (ROOT / "cgroup.controllers").read_text().split() if is_v2() else ()
    for controller in CONTROLLERS if is_v2() else CONTROLLERS_V1:
        folder = ROOT if is_v2() else ROOT / controller
        if is_v2() and controller not in there:
            return f"no cgroup controller {controller} in {ROOT / 'cgroup.controllers'}"
        if not _is_writable(folder):
            return f"no cgroup rights: cannot write to {folder}"
    return None


def _is_writable(folder: Path) -> bool:
    """Whether cgroups can be created; access() is not reliable in a container."""
    trial = folder / f"sharebench-testbed-trial-{os.getpid()}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return True


def make(name: str) -> None:
    """Create the cgroups. Raises TestbedError if the machine does not delegate its controllers."""
    for folder in folders(name):
        folder.mkdir(exist_ok=True)
        if is_v2():
            for parent in (ROOT, folder):
                _hand_down(parent)
        elif folder.relative_to(ROOT).parts[0] == "cpuset":  # empty at first, and then nothing may run in it
            for file in ("cpuset.cpus", "cpuset.mems"):
                (folder / file).write_text((folder.parent / file).read_text())
    _node_folder(name).mkdir(exist_ok=True)


def _hand_down(folder: Path) -> None:
    controllers = (folder / "cgroup.controllers").read_text().split()
    try:
        (folder / "cgroup.subtree_control").write_text(" ".join(f"+{each}" for each in controllers))
    except OSError as error:
        raise TestbedError(
            f"{folder} does not hand its controllers down: {error.strerror}; in a container, start it with the"
            " cgroup namespace of the host"
        ) from error


def _node_folder(name: str) -> Path:
    return (ROOT if is_v2() else ROOT / "pids") / name / NODE


def enter(name: str, pid: int) -> None:
    """Move the node's first process, and with it all later children, into the cgroups that `kill` ends."""
    (_node_folder(name) / "cgroup.procs").write_text(str(pid))


def processes(name: str) -> set[int]:
    """Ids of all processes in the cgroups."""
    found: set[int] = set()
    for folder in folders(name):
        for file in folder.rglob("cgroup.procs"):
            with suppress(OSError):  # a cgroup may go in between
                found.update(int(line) for line in file.read_text().split())
    return found


def kill(name: str) -> None:
    """Kill the present processes; the next call kills those that they have started meanwhile."""
    for pid in processes(name) - {0}:  # 0: of another PID namespace
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def remove(name: str) -> None:
    """Remove the cgroups. Raises OSError, since a cgroup stays busy for a moment after its last process."""
    for folder in folders(name):
        if folder.exists():
            for path in sorted(folder.rglob("*/"), key=lambda path: -len(path.parts)):
                path.rmdir()
            folder.rmdir()
