"""A stand-in for the GPU operator: of all that it does, only how it treats the ConfigMap of a ClusterPolicy.

The ClusterPolicy's definition is NVIDIA's own. What becomes of `spec.devicePlugin.config` is what its controller does
(`handleDevicePluginConfig`): without a name, plugin and GPU feature discovery run without config-manager; with one,
both have it, and it reads that ConfigMap.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml
from cluster.testbed import programs, sources
from cluster.testbed.gpu import MANIFESTS
from cluster.testbed.instance import Instance
from cluster.testbed.lifecycle import run, wait_for
from kubernetes import client, config

GROUP, VERSION, PLURAL, NAME = "nvidia.com", "v1", "clusterpolicies", "cluster-policy"
NAMESPACE = "nvidia-device-plugin"
PARTS = ("device-plugin.yaml", "gfd.yaml", "mps.yaml")
SETTINGS = ("available-configs", "config")
PERIOD_SECONDS = 0.5
# What its definition demands; nothing of it is heeded here but `devicePlugin`.
SECTIONS = ("daemonsets", "dcgm", "dcgmExporter", "driver", "gfd", "nodeStatusExporter", "toolkit")
POLICY: dict[str, Any] = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": "ClusterPolicy",
    "metadata": {"name": NAME, "labels": {"app.kubernetes.io/version": "v1.11.1"}},
    "spec": {"operator": {"defaultRuntime": "containerd"}, "devicePlugin": {"imagePullPolicy": "IfNotPresent"}}
    | {section: {} for section in SECTIONS},
}


def daemon_sets(policy: dict[str, Any]) -> list[dict[str, Any]]:
    """The DaemonSets of the test bed as the operator has them under this policy."""
    objects = [each for part in PARTS for each in yaml.safe_load_all((MANIFESTS / part).read_text()) if each]
    found = [each for each in objects if each["kind"] == "DaemonSet"]
    settings = policy["spec"]["devicePlugin"].get("config") or {}
    about = {"apiVersion": policy["apiVersion"], "kind": "ClusterPolicy", "name": NAME}
    for each in found:
        each["metadata"]["ownerReferences"] = [about | {"uid": policy["metadata"]["uid"], "controller": True}]
        if settings.get("name"):
            _read(each["spec"]["template"]["spec"], settings)
        else:
            _read_nothing(each["spec"]["template"]["spec"])
    return found


def _managers(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in (*spec["initContainers"], *spec["containers"]) if each["command"] == ["config-manager"]]


def _read(spec: dict[str, Any], settings: dict[str, str]) -> None:
    for volume in spec["volumes"]:
        if volume["name"] == "available-configs":
            volume["configMap"]["name"] = settings["name"]
    for manager in _managers(spec):
        for variable in manager["env"]:
            if variable["name"] == "DEFAULT_CONFIG":
                variable["value"] = settings.get("default", "")


def _read_nothing(spec: dict[str, Any]) -> None:
    managers = _managers(spec)
    for kind in ("initContainers", "containers"):
        spec[kind] = [each for each in spec[kind] if each not in managers]
        for each in spec[kind]:
            each["env"] = [variable for variable in each.get("env", ()) if variable["name"] != "CONFIG_FILE"]
            each["volumeMounts"] = [mount for mount in each["volumeMounts"] if mount["name"] not in SETTINGS]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] not in SETTINGS]


def install(found: Instance) -> None:
    """The definition, and a ClusterPolicy that names no ConfigMap. Raises TestbedError."""
    kubectl = [programs.obtain(programs.KUBE)["kubectl"], f"--kubeconfig={found.kubeconfig}"]
    definition = sources.file(*sources.CLUSTER_POLICY)
    run(*kubectl, "create", "-f", definition)

    def is_served() -> bool:
        return subprocess.run([*kubectl, "get", PLURAL], capture_output=True).returncode == 0

    wait_for(f"the API of {PLURAL}", is_served, 30.0)
    run(*kubectl, "create", "-f", "-", text=yaml.safe_dump(POLICY))


@contextmanager
def operating(found: Instance) -> Iterator[None]:
    """The stand-in at work: once before this begins, and then whenever the policy has changed."""
    api = config.new_client_from_config(str(found.kubeconfig))
    policies, apps = client.CustomObjectsApi(api), client.AppsV1Api(api)
    ended = threading.Event()
    seen: list[Any] = []

    def act() -> None:
        policy = policies.get_cluster_custom_object(GROUP, VERSION, PLURAL, NAME)
        if policy["spec"] == (seen or [None])[-1]:
            return
        for each in daemon_sets(policy):
            apps.replace_namespaced_daemon_set(each["metadata"]["name"], NAMESPACE, each)
        seen.append(policy["spec"])

    def keep_acting() -> None:
        while not ended.wait(PERIOD_SECONDS):
            act()

    act()
    thread = threading.Thread(target=keep_acting, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(10)
