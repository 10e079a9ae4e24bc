"""Objects of a cluster as its API server shows them, cut down to what the driver reads."""

from __future__ import annotations

from typing import Any

from sharebench.nodes.kubernetes.cluster.api import Json

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
