"""Helpers for tests on a cluster: objects, pods, the node's GPUs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml
from cluster.testbed import images, lifecycle
from cluster.testbed.instance import Instance
from kubernetes import client, config
from kubernetes.stream import stream

T = TypeVar("T")
LABEL = "nvidia.com/device-plugin.config"
GPU = "nvidia.com/gpu"
PLUGIN_NAMESPACE = "nvidia-device-plugin"
PYTHON_IMAGE = images.PYTHON
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
NOT_FOUND = 404
FOREVER = "import time; time.sleep(3600)"
# For what takes seconds on an idle machine: only a defect takes so long.
PATIENCE_SECONDS = 300.0


def eventually(what: str, probe: Callable[[], T | None], seconds: float = PATIENCE_SECONDS) -> T:
    """Wait for the first truthy result of `probe`; fails the test after this number of seconds."""
    deadline = time.monotonic() + seconds
    while True:
        answer = probe()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.1)


@contextmanager
def own_bed(what: str) -> Iterator[Instance]:
    """A test bed named after its purpose, which is removed afterwards."""
    name = f"{what}-tests-{os.getpid()}"
    try:
        yield lifecycle.up(name)
    finally:
        lifecycle.down(name)


@dataclass
class Cluster:
    """The API of a test bed."""

    instance: Instance

    @property
    def kubeconfig(self) -> Path:
        return self.instance.kubeconfig

    @cached_property
    def api(self) -> client.ApiClient:
        return cast(client.ApiClient, cast(Any, config).new_client_from_config(str(self.kubeconfig)))

    @cached_property
    def core(self) -> Any:
        """The core API; Any, since the client types every field of an object as optional."""
        return client.CoreV1Api(self.api)

    @cached_property
    def apps(self) -> client.AppsV1Api:
        return client.AppsV1Api(self.api)

    @cached_property
    def node_name(self) -> str:
        return str(self.core.list_node().items[0].metadata.name)

    def node(self) -> Any:
        return self.core.read_node(self.node_name)

    def resources(self) -> dict[str, tuple[int, int]]:
        """NVIDIA's resources of the node: name -> (capacity, allocatable), 0 for missing ones."""
        status = self.node().status
        names = {name for name in (*status.capacity, *status.allocatable) if name.startswith("nvidia.com/")}
        return {name: (int(status.capacity.get(name, 0)), int(status.allocatable.get(name, 0))) for name in names}

    def allocatable(self, name: str = GPU) -> int:
        return self.resources().get(name, (0, 0))[1]

    def labels(self) -> dict[str, str]:
        """NVIDIA's labels of the node, without their prefix."""
        prefix = "nvidia.com/"
        return {
            key.removeprefix(prefix): value
            for key, value in self.node().metadata.labels.items()
            if key.startswith(prefix)
        }

    def set_label(self, value: str | None, key: str = LABEL) -> None:
        self.core.patch_node(self.node_name, {"metadata": {"labels": {key: value}}})

    def switch(
        self, value: str, count: int, name: str = GPU, seconds: float = PATIENCE_SECONDS
    ) -> list[dict[str, tuple[int, int]]]:
        """Set the plugin's config label and wait for `count` allocatable; returns all states seen meanwhile."""
        seen = [self.resources()]
        self.set_label(value)

        def is_there() -> bool:
            now = self.resources()
            if now != seen[-1]:
                seen.append(now)
            return now.get(name, (0, 0))[1] == count

        eventually(f"{count} {name} after label {value}", is_there, seconds)
        return seen

    def plugin_pods(self, name: str = "nvidia-device-plugin") -> list[Any]:
        selector = f"app.kubernetes.io/name={name}"
        return list(self.core.list_namespaced_pod(PLUGIN_NAMESPACE, label_selector=selector).items)

    def delete_plugin_pod(self, name: str) -> None:
        """Delete the plugin's pod if it exists; its DaemonSet creates a new one."""
        try:
            self.core.delete_namespaced_pod(name, PLUGIN_NAMESPACE)
        except client.ApiException as error:
            if error.status != NOT_FOUND:
                raise

    def containers(self, name: str = "nvidia-device-plugin") -> dict[str, Any]:
        """State of each container of a DaemonSet's pod, except of a pod that is ending."""
        (pod,) = [pod for pod in self.plugin_pods(name) if pod.metadata.deletion_timestamp is None]
        return {status.name: status for status in pod.status.container_statuses or []}

    @contextmanager
    def namespace(self, labels: dict[str, str]) -> Iterator[str]:
        """A namespace of the test with Pod Security, deleted afterwards with all its objects."""
        body = {"metadata": {"generateName": "sharebench-test-", "labels": labels}}
        name = self.core.create_namespace(body).metadata.name
        try:
            eventually("a service account", lambda: self.core.list_namespaced_service_account(name).items)
            yield name
        finally:
            for pod in self.core.list_namespaced_pod(name).items:
                self.core.delete_namespaced_pod(pod.metadata.name, name, grace_period_seconds=0)
            eventually("the end of the pods", lambda: not self.core.list_namespaced_pod(name).items)
            self.core.delete_namespace(name)

    def token(self, account: str, namespace: str) -> str:
        """A token of this service account, valid for an hour."""
        body = {"spec": {"expirationSeconds": 3600}}
        found: str = self.core.create_namespaced_service_account_token(account, namespace, body).status.token
        return found

    def kubeconfig_of(self, account: str, namespace: str, folder: Path) -> Path:
        """A kubeconfig in the folder with only the rights of this service account."""
        made = yaml.safe_load(self.kubeconfig.read_text())
        for user in made["users"]:
            user["user"] = {"token": self.token(account, namespace)}
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(made))
        return path

    def start(self, namespace: str, name: str, code: str = FOREVER, **changes: Any) -> None:
        """Start a restricted pod that runs Python code; `changes` are merged into its container."""
        self.core.create_namespaced_pod(namespace, pod(name, code, **changes))

    def is_up(self) -> bool:
        """Whether the API server answers."""
        try:
            self.core.list_namespace(_request_timeout=2)
        except Exception:  # the client raises whatever its transport does
            return False
        return True

    def release_api_server(self) -> None:
        """Let the API server start again. NFD's master is restarted, since it would need 90 s otherwise."""
        lifecycle.release(self.instance, "kube-apiserver")
        eventually("an API server that is up", self.is_up)
        self.core.delete_collection_namespaced_pod(PLUGIN_NAMESPACE, label_selector="app=nfd-master")

    def bring_api_server_back(self) -> None:
        """After it was held, with all that listens to it restarted.

        Who lost it asks again ever more rarely, up to a minute apart, and hears of nothing meanwhile: the kubelet of no
        pod, a config-manager of no label. What comes next would wait for that.
        """
        self.release_api_server()
        old = self.core.list_namespaced_pod(PLUGIN_NAMESPACE).items
        old_uids = {pod.metadata.uid for pod in old}
        count = sum(pod.metadata.deletion_timestamp is None for pod in old)
        lifecycle.restart(self.instance, "kube-controller-manager", "kube-scheduler", "kubelet")
        self.core.delete_collection_namespaced_pod(PLUGIN_NAMESPACE)

        def are_new() -> bool:
            pods = self.core.list_namespaced_pod(PLUGIN_NAMESPACE).items
            statuses = [status for pod in pods for status in pod.status.container_statuses or []]
            has_old = any(pod.metadata.uid in old_uids for pod in pods)
            return not has_old and len(pods) >= count and bool(statuses) and all(status.ready for status in statuses)

        eventually("new pods of the device plugin", are_new)

    def phase(self, namespace: str, name: str) -> str:
        return str(self.core.read_namespaced_pod(name, namespace).status.phase)

    def wait_for_phase(
        self, namespace: str, name: str, phase: str = "Running", seconds: float = PATIENCE_SECONDS
    ) -> None:
        eventually(f"{phase} of pod {name}", lambda: self.phase(namespace, name) == phase, seconds)

    def execute(self, namespace: str, name: str, *command: str, **choice: str) -> str:
        """The output of a command in a pod; `container=...` selects one of several."""
        run = self.core.connect_get_namespaced_pod_exec
        return str(stream(run, name, namespace, command=list(command), stdout=True, stderr=True, **choice))

    def mps_share(self, daemon: Any) -> float:
        """Percent of the SMs that the MPS daemon in this pod gives each client."""
        control = "echo get_default_active_thread_percentage | nvidia-cuda-mps-control"
        command = ["env", "CUDA_MPS_PIPE_DIRECTORY=/mps/nvidia.com/gpu/pipe", "sh", "-c", control]
        place = daemon.metadata.namespace, daemon.metadata.name
        return float(self.execute(*place, *command, container="mps-control-daemon-ctr"))

    def unschedulable(self, namespace: str, name: str) -> str | None:
        """The scheduler's message if it finds no node for the pod."""
        for condition in self.core.read_namespaced_pod(name, namespace).status.conditions or []:
            if condition.type == "PodScheduled" and condition.reason == "Unschedulable":
                return str(condition.message)
        return None


def pod(name: str, code: str = FOREVER, **changes: Any) -> dict[str, Any]:
    """A pod that restricted Pod Security admits."""
    container = {
        "name": "main",
        "image": PYTHON_IMAGE,
        "command": ["python3", "-u", "-c", code],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        **changes,
    }
    return {
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65534, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }
