"""What DRA drivers put into an API server, cut down to what is read."""

from __future__ import annotations

from typing import Any

from sharebench.core.strategies import Strategy
from sharebench.nodes.kubernetes.access.dra import nvidia
from sharebench.nodes.kubernetes.cluster import claims_api
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.claims_api import Device

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
    """A MIG instance of the GPU with that minor number; one that is yet to be made is a place, and has no UUID."""
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


def in_slice(*devices: Json, driver: str = nvidia.NAME, node: str = "gpu-node", generation: int = 1) -> Json:
    """A ResourceSlice with these devices."""
    pool = {"name": node, "generation": generation, "resourceSliceCount": 1}
    return {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": list(devices)}}


def offered(*devices: Json) -> list[Device]:
    """The devices as they are read from a slice."""
    return claims_api.offered([in_slice(*devices)], "gpu-node")


def strategy(*mechanisms: str, **more: Any) -> Strategy:
    """A strategy by claims."""
    plain = dict.fromkeys(("profile", "instances", "thread_percent", "memory_percent", "replicas"))
    return Strategy(name="own", mechanisms=mechanisms, access="dra", **(plain | more))
