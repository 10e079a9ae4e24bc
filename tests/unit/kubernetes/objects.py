"""API objects of a cluster, reduced to what the driver reads."""

from typing import Any

from sharebench.measure.nodes.kubernetes.access.dra import nvidia
from sharebench.measure.nodes.kubernetes.cluster import claims_api
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.claims_api import DraDevice
from sharebench.model.strategy import Strategy

CONFIG = "nvidia.com/device-plugin.config"


def node(
    config: str | None = None,
    sharing: str = "none",
    replicas: int = 1,
    allocatable: dict[str, int] | None = None,
    **more: Any,
) -> Json:
    """A node with one GPU whose plugin has the config of that key; `more` are metadata."""
    labels = {
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.product": "NVIDIA-Mock-A100-SXM4-40GB",
        "nvidia.com/gpu.replicas": str(replicas),
        "nvidia.com/gpu.sharing-strategy": sharing,
        "nvidia.com/mps.capable": "true" if sharing == "mps" else "false",
    }
    if config is not None:
        labels[CONFIG] = config
    values = {"nvidia.com/gpu": replicas} if allocatable is None else allocatable
    return {
        "metadata": {"name": "gpu-node", "labels": labels, "resourceVersion": "7", **more},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "2"} | {name: str(value) for name, value in values.items()},
            "capacity": {"cpu": "2", "nvidia.com/gpu": "7"},
        },
    }


def daemon_set(name: str, *containers: str, **more: Any) -> Json:
    """A DaemonSet with these containers; `more` is its pod template's spec."""
    return {
        "metadata": {"name": name, "namespace": "nvidia", "uid": f"uid-{name}", "generation": 2, "labels": {}},
        "spec": {
            "template": {
                "spec": {
                    "containers": [{"name": each, "image": "testbed.local/nvidia:v0.19.3"} for each in containers],
                    **more,
                }
            }
        },
        "status": {"observedGeneration": 2},
    }


def daemon_pod(name: str, *containers: str, ready: bool = True, **more: Any) -> Json:
    """The pod of the DaemonSet of that name; `more` are metadata."""
    statuses = [{"name": each, "ready": ready, "state": {"running": {}}} for each in containers]
    return {
        "metadata": {
            "name": f"{name}-x",
            "namespace": "nvidia",
            "uid": f"uid-pod-{name}",
            "ownerReferences": [owner(name)],
            **more,
        },
        "spec": {"containers": [{"name": each} for each in containers]},
        "status": {"phase": "Running", "containerStatuses": statuses},
    }


def owner(name: str) -> Json:
    """The reference of a DaemonSet's pod to it."""
    return {"kind": "DaemonSet", "name": name, "uid": f"uid-{name}"}


def tenant_pod(phase: str = "Running", state: Json | None = None, **status: Any) -> Json:
    """A tenant's pod whose container has that state."""
    containers = [] if state is None else [{"name": "tenant", "ready": True, "state": state}]
    return {
        "metadata": {"name": "sharebench-0", "namespace": "sharebench", "labels": {}},
        "spec": {"containers": [{"name": "tenant"}]},
        "status": {"phase": phase, "containerStatuses": containers, **status},
    }


UUID = "GPU-00000000-0000-4000-8000-000000000001"
# How many of a GPU's eight memory slices an instance takes, by its compute slices.
MEMORY_SLICES = {"1": 1, "2": 2, "3": 4, "4": 4, "7": 8}


def gpu(minor: int = 0, uuid: str = UUID, memory: str = "40Gi") -> Json:
    """A whole GPU in a slice."""
    attributes = {
        "type": {"string": "gpu"},
        "uuid": {"string": uuid},
        "productName": {"string": "NVIDIA Mock A100-SXM4-40GB"},
        "driverVersion": {"version": "570.0.1"},
        "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
    }
    return {"name": f"gpu-{minor}", "attributes": attributes, "capacity": {"memory": {"value": memory}}}


def instance(profile: str, number: int, minor: int = 0, memory: str = "4864Mi", is_made: bool = True) -> Json:
    """A MIG instance of the GPU with that minor number; one that is not created yet is a placement without a UUID."""
    attributes = {
        "type": {"string": "mig"},
        "profile": {"string": profile},
        "parentUUID": {"string": f"GPU-{minor}"},
        "productName": {"string": "NVIDIA Mock A100-SXM4-40GB"},
    }
    name = f"gpu-{minor}-mig-{profile.replace('.', '')}-{number}"
    made: Json = {"name": name, "attributes": attributes, "capacity": {"memory": {"value": memory}}}
    if is_made:
        attributes["uuid"] = {"string": f"MIG-{minor}-{profile}-{number}"}
    else:
        size = MEMORY_SLICES[profile.split("g")[0]]
        taken = {f"memory-slice-{number * size + more}": {"value": "1"} for more in range(size)}
        made["consumesCounters"] = [{"counterSet": f"gpu-{minor}-counter-set", "counters": taken}]
    return made


def in_slice(*devices: Json, driver: str = nvidia.DRIVER, node: str = "gpu-node", generation: int = 1) -> Json:
    """A ResourceSlice with these devices."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def offered(*devices: Json) -> list[DraDevice]:
    """The devices as they are read from a slice."""
    return claims_api.offered_devices([in_slice(*devices)], "gpu-node")


def strategy(*mechanisms: str, **more: Any) -> Strategy:
    """A strategy by claims."""
    return Strategy.model_construct(**{"name": "own", "mechanism": mechanisms, "access": "dra"} | more)
