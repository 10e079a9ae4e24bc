"""One test bed among several on a machine: its name, its folder, its addresses."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from cluster.testbed.errors import TestbedError

Gpu = Literal["mock", "real", "real-cdi"]
GPUS: tuple[Gpu, ...] = get_args(Gpu)
NODE, SECOND_NODE = "gpu-node", "gpu-node-second"
SERVICE_IP = "10.96.0.1"  # on the loopback of the node's network namespace: the same in every instance
SLOTS = range(256)
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")


def cache() -> Path:
    """Folder of binaries, images and running instances: SHAREBENCH_TESTBED_CACHE, else below the XDG cache."""
    named = os.environ.get("SHAREBENCH_TESTBED_CACHE")
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return (Path(named) if named else base / "sharebench-testbed").absolute()


@contextmanager
def locked(name: str) -> Iterator[None]:
    """A lock for one process at a time, which waits."""
    folder = cache() / "locks"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Instance:
    """`slot` sets the addresses and the name of the network link, `name` the folder and the cgroup.

    An instance with an owner, a process and when it started, is of no use when that process has ended.
    """

    name: str
    slot: int
    gpu: Gpu = "mock"
    owner_pid: int | None = None
    owner_started_ticks: int | None = None

    @property
    def is_real(self) -> bool:
        """Whether its GPU is the machine's own (`real.py`)."""
        return self.gpu != "mock"

    @property
    def hides_driver(self) -> bool:
        return self.gpu == "real-cdi"

    @property
    def folder(self) -> Path:
        return cache() / "instances" / self.name

    @property
    def second(self) -> Path:
        """Folder of a second node."""
        return self.folder / "second"

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.pki / "admin.kubeconfig"

    @property
    def link(self) -> str:
        return f"sbtb{self.slot}"

    @property
    def host_ip(self) -> str:
        return f"10.87.{self.slot}.1"

    @property
    def node_ip(self) -> str:
        return f"10.87.{self.slot}.2"

    @property
    def pod_subnet(self) -> str:
        return f"10.88.{self.slot}.0/24"

    @property
    def pod_subnets(self) -> tuple[str, str]:
        """Pod subnets of the node and of a second one."""
        return f"10.88.{self.slot}.0/25", f"10.88.{self.slot}.128/25"

    @property
    def cgroup(self) -> str:
        return f"sharebench-testbed-{self.name}"

    @property
    def init_file(self) -> Path:
        """Process id and start time of the node's first process."""
        return self.folder / "init.json"

    def init_pid(self) -> int | None:
        """Id of the node's first process if it still runs; another process with its id does not count."""
        try:
            pid, started = json.loads(self.init_file.read_text())
        except FileNotFoundError:
            return None
        return pid if started_ticks(pid) == started else None

    def is_abandoned(self) -> bool:
        return self.owner_pid is not None and started_ticks(self.owner_pid) != self.owner_started_ticks


def started_ticks(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process, or only its zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] == "Z" else int(fields[19])


def find(name: str) -> Instance | None:
    """The instance of that name, running or not. Raises TestbedError for an invalid name."""
    if not NAME.fullmatch(name):
        raise TestbedError(f"{name!r} is not a name for a test bed: use up to 32 lower-case letters, digits and dashes")
    try:
        return Instance(**json.loads((cache() / "instances" / name / "instance.json").read_text()))
    except FileNotFoundError:
        return None


def create(name: str, owner_pid: int | None = None, gpu: Gpu = "mock") -> Instance:
    """A new instance on unused addresses. Raises TestbedError if all are taken."""
    owner = (owner_pid, started_ticks(owner_pid)) if owner_pid else (None, None)
    with locked("slots"):
        routes = subprocess.run(["ip", "-4", "route"], check=True, capture_output=True, text=True).stdout
        others = [json.loads(file.read_text())["slot"] for file in (cache() / "instances").glob("*/instance.json")]
        for slot in SLOTS:
            instance = Instance(name, slot, gpu, *owner)
            taken = slot in others or Path("/sys/class/net", instance.link).exists()
            if not taken and instance.pod_subnet not in routes and f"10.87.{slot}.0/30" not in routes:
                instance.folder.mkdir(parents=True, exist_ok=True)
                (instance.folder / "instance.json").write_text(json.dumps(asdict(instance)))
                return instance
    raise TestbedError("all 256 addresses for test beds are in use; end some with `make cluster-down NAME=...`")
