"""A node of a cluster, whatever brings its GPU to pods: who it is, who owns it, and pods as tenants."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from sharebench.collect.rows import NOTHING_KNOWN, Row
from sharebench.files import read_json, write_json
from sharebench.nodes.base import Node, NodeError, Sampler, Tenants
from sharebench.nodes.kubernetes import keys, original, strangers
from sharebench.nodes.kubernetes.api import Api, ApiRefused, Json, is_in_cluster
from sharebench.nodes.kubernetes.installed import Configs, Installed, Part, look
from sharebench.nodes.kubernetes.lease import NodeLease, node_digest
from sharebench.nodes.kubernetes.readiness import COUNT_LABEL
from sharebench.ownership import RUN_ID_VARIABLE
from sharebench.tenants.pod_spec import Place
from sharebench.tenants.pods import PodTenants

GPU_LABEL = "nvidia.com/gpu.present"
PRODUCT_LABEL = "nvidia.com/gpu.product"


class NoSampler:
    """Telemetry of a node whose GPU the driver cannot see: none."""

    def start(self) -> None:
        """Nothing to begin."""

    def stop(self, window_start_seconds: float, window_end_seconds: float) -> tuple[list[Row], dict[str, Any]]:
        """No rows, and a summary that knows nothing."""
        return [], dict(NOTHING_KNOWN)


def chosen(nodes: Sequence[Json], wanted: str) -> Json:
    """The node by its name, or the only one with a GPU for `auto`. Raises NodeError."""
    if wanted != "auto":
        found = [node for node in nodes if node["metadata"]["name"] == wanted]
        if not found:
            raise NodeError(f"the cluster has no node {wanted!r}; set kubernetes.node to one that it has")
        return found[0]
    found = [
        node
        for node in nodes
        if node["metadata"].get("labels", {}).get(GPU_LABEL) == "true"
        or any(name.startswith("nvidia.com/") for name in node.get("status", {}).get("capacity", {}))
    ]
    if len(found) != 1:
        names = ", ".join(sorted(node["metadata"]["name"] for node in found))
        what = f"{len(found)} nodes have GPUs ({names})" if found else "no node has a GPU"
        raise NodeError(f"{what}; name the one to measure: kubernetes.node")
    return found[0]


class ClusterNode(Node):
    """One node, by the config's `kubernetes` section; `options` also has the study's `tenants` by mechanism."""

    kind = "kubernetes"
    state_outlives_run = False

    # The cluster as it is.

    @cached_property
    def api(self) -> Api:
        """The cluster."""
        return Api(self.options["context"])

    @cached_property
    def name(self) -> str:
        """The node's name."""
        wanted = self.options["node"]
        return str(chosen(self.api.get("/api/v1/nodes")["items"], wanted)["metadata"]["name"])

    @property
    def _path(self) -> str:
        return f"/api/v1/nodes/{self.name}"

    def read(self) -> Json:
        """The node's object."""
        return self.api.get(self._path)

    def pods(self) -> list[Json]:
        """All pods that are on the node or bound to it."""
        found: list[Json] = self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")["items"]
        return found

    def _daemon_sets(self) -> list[Json]:
        found: list[Json] = self.api.get("/apis/apps/v1/daemonsets")["items"]
        return found

    @cached_property
    def installed(self) -> Installed:
        """What of NVIDIA's stack there is."""
        return look(self._daemon_sets(), self.pods())

    def _configs(self) -> tuple[Part, Configs]:
        plugin, configs = self.installed.plugin, self.installed.configs
        if plugin is None or configs is None:
            raise NodeError(str(self.missing()))
        return plugin, configs

    def missing(self) -> str | None:
        """What every strategy needs and the cluster lacks."""
        if self.installed.plugin is None:
            return "the cluster has no NVIDIA device plugin (a DaemonSet); install it, or the GPU operator"
        if self.installed.configs is None:
            return "the device plugin has no ConfigMap to switch by; install it with config.map or config.name"
        if self.installed.discovery is None:
            return "GPU Feature Discovery is not installed, so that nothing would prove a state; set gfd.enabled: true"
        return None

    @cached_property
    def gpus(self) -> int:
        """How many GPUs the node has."""
        return int(self.read()["metadata"].get("labels", {}).get(COUNT_LABEL, 0))

    # What a cell asks.

    @property
    def is_mock(self) -> bool:
        """Whether the tenants leave the GPU alone, as on a test bed without one."""
        return bool(self.options["device"] == "cpu")

    def facts(self) -> dict[str, Any]:
        """The record's `node` object. The device is told apart by the machine's id, hashed, and its product."""
        node = self.read()
        labels, info = node["metadata"].get("labels", {}), node["status"]["nodeInfo"]
        product = labels.get(PRODUCT_LABEL, "unknown GPU").removesuffix("-SHARED").replace("-", " ")
        memory_mib = labels.get("nvidia.com/gpu.memory")
        identity = f"{info.get('systemUUID') or info.get('machineID')}/{product}"
        label = ""
        if self.is_mock:
            label = f"{'mock GPU' if 'mock' in product.lower() else 'GPU idle'}, CPU work in pods"
        parts = ("major", "minor", "rev")
        driver = [labels.get(f"nvidia.com/cuda.driver.{part}") for part in parts]
        return {
            "kind": self.kind,
            "device": hashlib.sha256(identity.encode()).hexdigest()[:16],
            "product": product,
            "units": int(node["status"]["capacity"]["cpu"]) if self.is_mock else None,
            "units_name": "cores" if self.is_mock else "SMs",
            "memory_bytes": int(memory_mib) << 20 if memory_mib else None,
            "is_gpu": not self.is_mock,
            "label": label,
            "details": {
                "node": "node-0",
                "gpus": self.gpus,
                "driver": ".".join(filter(None, driver)) or None,
                "device_plugin": self.installed.plugin.version if self.installed.plugin else None,
                "kubernetes": info["kubeletVersion"],
                "container_runtime": info["containerRuntimeVersion"],
                "kernel": info["kernelVersion"],
            },
        }

    def tenants(self, spec: Mapping[str, Any], settings: Mapping[str, Any]) -> Tenants:
        """One pod per tenant."""
        cell = hashlib.sha256(f"{self._run_id}/{settings['cell_folder']}".encode()).hexdigest()[:12]
        place = Place(
            node=self.name,
            node_digest=node_digest(self.name),
            namespace=self.options["namespace"],
            cell=cell,
            resource=keys.RESOURCE,
            taint=original.TAINT,
            options=self.options,
        )
        reach = self.options["reach"]
        if reach == "auto":
            reach = "pod-ip" if is_in_cluster() else "port-forward"
        return PodTenants(self.api, place, spec, settings, self.read, reach)

    def sampler(self, tenants: Tenants) -> Sampler:
        """None yet: NVML and DCGM are out of the driver's sight."""
        return NoSampler()

    # Owning the node.

    @property
    def _run_id(self) -> str:
        return os.environ.get(RUN_ID_VARIABLE, "")

    @cached_property
    def _lease(self) -> NodeLease:
        plugin, _ = self._configs()
        return NodeLease(self.api, plugin.namespace, self.name)

    @property
    def _lease_file(self) -> Path:
        return self.folder / "lease.json"

    def claim(self, run_id: str) -> None:
        """Take the node's Lease and keep it. Raises NodeError with the owner's name when another run has it."""
        # The last run that had these results is over, or we would not have them.
        dead = read_json(self._lease_file)["run_id"] if self._lease_file.exists() else None
        self._lease.acquire(run_id, dead)
        write_json(self._lease_file, {"run_id": run_id})
        self._lease.keep(run_id)

    def release(self) -> None:
        """Let go of the node."""
        self._lease.release(self._run_id)

    def _refuse_strangers(self) -> None:
        found = strangers.gpu_pods(self.pods())
        if found and self.options["drain"]:
            strangers.drain(self.api, found, self.options["switch_seconds"])
        elif found:
            raise NodeError(strangers.refusal(found))

    def _set_taint(self, present: bool) -> None:
        for attempt in range(5):
            node = self.read()
            taints = original.taints_without_ours(node)
            if present:
                taints.append({"key": original.TAINT, "value": "true", "effect": "NoSchedule"})
            if taints == (node["spec"].get("taints") or []):
                return
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            try:
                self.api.patch(self._path, {"metadata": version, "spec": {"taints": taints or None}})
            except ApiRefused as refused:
                if refused.status != 409 or attempt == 4:
                    raise
