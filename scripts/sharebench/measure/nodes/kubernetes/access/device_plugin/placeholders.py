"""Placeholder pods that hold all GPUs of a node but one, so that the tenants of every cell use that one.

The device plugin distributes the replicas of all of a node's GPUs in an order of its own. So idle pods take every
replica, and each logs its GPU. Those on one GPU are removed, which makes that GPU free. The others stay during the
state.
"""

import time
from collections import Counter
from secrets import token_hex

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import RESOURCE
from sharebench.measure.nodes.kubernetes.cluster import restricted
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL, OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import parse_quantity
from tenant.contract import VISIBLE_DEVICES_VARIABLE, DeviceView, device_digest

PLACEHOLDER = "placeholder"
POLL_SECONDS = 0.5
# Room for all other pods of the node: those of its DaemonSets and of the study.
RESERVED_PODS = 30
# Prints the GPU's UUID from the variable, and the device files, which identify it where devices are given by CDI.
PRINT_GPU = (
    f"import glob, os; print(os.environ.get({VISIBLE_DEVICES_VARIABLE!r}, 'void'), "
    "*sorted(map(os.path.basename, glob.glob('/dev/nvidia[0-9]*'))), flush=True); "
)


def parse_gpu(log: str) -> str:
    """The GPU in a placeholder's log: the digest of its UUID, or else its device file. Raises NodeError."""
    name, *files = log.split() or [""]
    if name.startswith("GPU-") and "," not in name:
        return device_digest(name)
    if len(files) == 1:
        return files[0]
    raise NodeError(
        "the device plugin does not show a pod which GPU it has, neither by "
        f"{VISIBLE_DEVICES_VARIABLE} nor by a device file: {' '.join(log.split())}"
    )


def gpu_in_view(view: DeviceView, gpu: str) -> str | None:
    """The GPU that a tenant saw, in the form of `gpu`: a device file or a digest (`parse_gpu`)."""
    if gpu.startswith("nvidia"):
        return ", ".join(node for node in view.get("nodes", ()) if "/" not in node) or None
    return view.get("device")


def no_room_reason(node: Json, slots: int) -> str | None:
    """Why the node has no room for `slots` placeholders; None if it has."""
    room = parse_quantity(node["status"]["allocatable"].get("pods", "110")) - RESERVED_PODS
    if slots <= room:
        return None
    return (
        f"{slots} placeholder pods would have to hold the node's GPUs, it has room for {room} of them; "
        "use claims (config/kubernetes_dra.yaml), or fewer tenants"
    )


class Placeholders:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def are_in_place(self, count: int) -> bool:
        return [status.get("phase") for status in self._cluster.held_statuses().values()] == ["Running"] * count

    def remove(self) -> None:
        """Remove all placeholders, and wait until they are gone. Raises NodeError."""
        self._remove(list(self._cluster.held_statuses()))

    def _remove(self, names: list[str]) -> None:
        for name in names:
            self._cluster.api.delete(f"{self._cluster.tenants_path}/{name}", grace_seconds=restricted.GRACE_SECONDS)
        limit = self._cluster.options["switch_seconds"]
        deadline = time.monotonic() + limit
        while left := self._cluster.held_statuses().keys() & set(names):
            if time.monotonic() > deadline:
                raise NodeError(f"placeholder pods do not end within {limit:g} s: {', '.join(sorted(left))}")
            time.sleep(POLL_SECONDS)

    def fill(self, gpus: int, replicas: int, wanted: str | None) -> str:
        """Hold all GPUs but `wanted`, or but the first by name; returns that (`parse_gpu`). Raises NodeError."""
        began = time.monotonic()
        names = [f"sharebench-{PLACEHOLDER}-{token_hex(4)}" for _ in range(gpus * replicas)]
        for name in names:
            self._cluster.api.create(self._cluster.tenants_path, self._pod(name))
        given = self._await_gpus(names)
        counts = Counter(given.values())
        if sorted(counts.values()) != [replicas] * gpus:
            shown = ", ".join(map(str, sorted(counts.values())))
            raise NodeError(
                f"{gpus} GPUs with {replicas} replicas each are expected, {len(names)} placeholder pods found "
                f"{len(counts)} with {shown}"
            )
        free = min(counts) if wanted is None else wanted
        if free not in counts:
            raise NodeError("the GPU of earlier cells is not offered any more; run sharebench restore")
        self._remove([name for name, gpu in given.items() if gpu == free])
        self._cluster.note_phase("placeholders", time.monotonic() - began)
        return free

    def _pod(self, name: str) -> Json:
        labels = {OWNER_LABEL: self._cluster.digest, HELD_LABEL: PLACEHOLDER}
        pod = restricted.idle_pod(self._cluster.name, self._cluster.options, name, labels, PRINT_GPU)
        (container,) = pod["spec"]["containers"]
        for kind in ("limits", "requests"):
            container["resources"][kind][RESOURCE] = "1"
        return pod

    def _await_gpus(self, names: list[str]) -> dict[str, str]:
        """Wait until all pods run; returns the GPU of each. Raises NodeError."""
        limit = self._cluster.options["switch_seconds"]
        deadline = time.monotonic() + limit
        gpus: dict[str, str] = {}
        while True:
            status = self._cluster.held_statuses()
            for name in names:
                phase = status.get(name, {}).get("phase")
                if phase == "Failed":
                    raise NodeError(f"a placeholder pod failed: {restricted.waiting_reason(status[name])}")
                if phase == "Running" and name not in gpus:
                    log = self._cluster.api.get_text(f"{self._cluster.tenants_path}/{name}/log")
                    if log.strip():
                        gpus[name] = parse_gpu(log)
            if len(gpus) == len(names):
                return gpus
            if time.monotonic() > deadline:
                reason = next((restricted.waiting_reason(status[name]) for name in names if name not in gpus), "")
                raise NodeError(f"{len(gpus)} of {len(names)} placeholder pods run after {limit:g} s: {reason}")
            time.sleep(POLL_SECONDS)
