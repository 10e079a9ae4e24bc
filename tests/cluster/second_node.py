"""A second node of a test cluster without a kubelet: a stand-in that says of its pods what a kubelet would, and shows
the GPU as device plugin and GPU feature discovery would after each change of the config label. Nothing runs there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import yaml
from cluster.harness import GPU, LABEL, PLUGIN_NAMESPACE, Cluster
from kubernetes import client

NAME = "second-node"
PRODUCT = "NVIDIA-Mock-H200"
CONFIGS = "nvidia-device-plugin-configs"
POLL_SECONDS = 0.3


class SecondNode:
    """The node, and the thread that renews its status."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # A client must not be shared between threads.
        self.core: Any = client.CoreV1Api(client.ApiClient(cluster.api.configuration))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._live, name=NAME, daemon=True)

    def begin(self) -> None:
        labels = {"kubernetes.io/hostname": NAME, "nvidia.com/gpu.present": "true"}
        self.core.create_node({"metadata": {"name": NAME, "labels": labels}})
        self._thread.start()

    def end(self) -> None:
        self._ended.set()
        self._thread.join()
        self.core.delete_node(NAME)
        for pod in self._pods():
            with suppress(client.ApiException):
                self.core.delete_namespaced_pod(pod.metadata.name, pod.metadata.namespace, grace_period_seconds=0)

    def _pods(self) -> list[Any]:
        return list(self.core.list_pod_for_all_namespaces(field_selector=f"spec.nodeName={NAME}").items)

    def _live(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            # The API server may be unreachable, or someone else may have changed the node.
            with suppress(client.ApiException, OSError):
                self._show_gpu()
                for pod in self._pods():
                    self._answer_for(pod)

    def _shared(self, label: str | None) -> tuple[str, int]:
        """Sharing strategy and number of replicas of the label's config."""
        data = self.core.read_namespaced_config_map(CONFIGS, PLUGIN_NAMESPACE).data
        sharing = yaml.safe_load(data[label or "exclusive"]).get("sharing") or {}
        for name, section in sharing.items():
            return "mps" if name == "mps" else "time-slicing", section["resources"][0]["replicas"]
        return "none", 1

    def _show_gpu(self) -> None:
        node = self.core.read_node(NAME)
        kind, replicas = self._shared(node.metadata.labels.get(LABEL))
        labels = {
            "nvidia.com/gpu.count": "1",
            "nvidia.com/gpu.product": PRODUCT,
            "nvidia.com/gpu.replicas": str(replicas),
            "nvidia.com/gpu.sharing-strategy": kind,
            "nvidia.com/mps.capable": "true" if kind == "mps" else "false",
        }
        if any(node.metadata.labels.get(key) != value for key, value in labels.items()):
            self.core.patch_node(NAME, {"metadata": {"labels": labels}})
        room = {"cpu": "2", "memory": "4Gi", "pods": "30", GPU: str(replicas)}
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {"type": "Ready", "status": "True", "reason": "StandIn", "lastHeartbeatTime": now}
        self.core.patch_node_status(NAME, {"status": {"capacity": room, "allocatable": room, "conditions": [ready]}})

    def _answer_for(self, pod: Any) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        if pod.metadata.deletion_timestamp:
            self.core.delete_namespaced_pod(name, namespace, grace_period_seconds=0)
        elif pod.status.phase == "Pending":
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            containers = [
                {
                    "name": each.name,
                    "ready": True,
                    "restartCount": 0,
                    "image": each.image,
                    "imageID": "",
                    "state": {"running": {"startedAt": now}},
                }
                for each in pod.spec.containers
            ]
            ready: list[dict[str, Any]] = [{"type": "Ready", "status": "True"}]
            status = {"phase": "Running", "conditions": ready, "containerStatuses": containers}
            self.core.patch_namespaced_pod_status(name, namespace, {"status": status})


@contextmanager
def second_node(cluster: Cluster) -> Iterator[SecondNode]:
    """The node with one GPU that is not shared, removed afterwards."""
    made = SecondNode(cluster)
    made.begin()
    try:
        deadline = time.monotonic() + 60
        while "nvidia.com/gpu.product" not in cluster.core.read_node(NAME).metadata.labels:
            assert time.monotonic() < deadline, "the second node does not come up"
            time.sleep(POLL_SECONDS)
        yield made
    finally:
        made.end()
