"""What others' operators and drivers write into the API, put there without their controllers: what we make of it.

Nothing here starts: the objects are those of GPU operator 26.7, of DRA driver 0.5, and of a chart on Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import Run, documented, grants, normalised, owned, study_of, tenants_of, typed
from cluster.harness import PYTHON_IMAGE, Cluster, eventually, own_bed
from cluster.test_runs import KEPT, NAMESPACE, audited, beyond, grant, run_in, unused
from cluster.test_static import STATIC
from cluster.testbed.lifecycle import kubectl
from kubernetes import client, utils

pytestmark = pytest.mark.slow
OPERATOR = "gpu-operator"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
LABELS = {
    "gpu.present": "true",
    "gpu.count": "1",
    "gpu.product": "NVIDIA-A100-SXM4-40GB",
    "gpu.memory": "40960",
    "gpu.replicas": "1",
    "gpu.sharing-strategy": "none",
    "mps.capable": "false",
}
DRIVER = "gpu.nvidia.com"


@pytest.fixture(scope="module")
def bare(machine: None) -> Iterator[Cluster]:
    """A test bed without any part of NVIDIA's, whose node has the labels and the resource of one GPU."""
    with own_bed("imitated") as found:
        cluster = Cluster(found)
        cluster.core.patch_node(
            cluster.node_name, {"metadata": {"labels": {f"nvidia.com/{name}": value for name, value in LABELS.items()}}}
        )
        cluster.core.patch_node_status(
            cluster.node_name, {"status": {"capacity": {"nvidia.com/gpu": "1"}, "allocatable": {"nvidia.com/gpu": "1"}}}
        )
        for name in (OPERATOR, NAMESPACE):
            kubectl(found, "create", "namespace", name)
        yield cluster


def owner(cluster: Cluster, kind: str, plural: str, name: str) -> dict[str, Any]:
    """The reference to a custom resource of the operator, which is made with its definition."""
    group, version = "nvidia.com", "v1" if kind == "ClusterPolicy" else "v1alpha1"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    utils.create_from_dict(cluster.api, definition)
    kubectl(cluster.instance, "wait", "--for=condition=Established", f"crd/{plural}.{group}")
    body = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}, "spec": {}}
    made = client.CustomObjectsApi(cluster.api).create_cluster_custom_object(group, version, plural, body)
    return {**{key: body[key] for key in ("apiVersion", "kind")}, "name": name, "uid": made["metadata"]["uid"]}


@contextmanager
def daemon_set(
    cluster: Cluster, name: str, reference: dict[str, Any], container: dict[str, Any], **spec: Any
) -> Iterator[None]:
    """A DaemonSet of the operator, which runs on no node of the test bed."""
    containers = [{"image": PYTHON_IMAGE, **each} for each in (container, *spec.pop("sidecars", []))]
    body = {
        "metadata": {"name": name, "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}]},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"nodeSelector": {"nvidia.com/gpu.deploy.imitated": "true"}, "containers": containers, **spec},
            },
        },
    }
    cluster.apps.create_namespaced_daemon_set(OPERATOR, body)
    try:
        yield
    finally:
        cluster.apps.delete_namespaced_daemon_set(name, OPERATOR)


def preflight(cluster: Cluster, folder: Path, given: dict[str, Any]) -> str:
    _, out = Run(folder, cluster.kubeconfig, given).finish("preflight")
    return " ".join(out.split())


@pytest.fixture(scope="module")
def policy(bare: Cluster) -> dict[str, Any]:
    return owner(bare, "ClusterPolicy", "clusterpolicies", "cluster-policy")


@pytest.fixture(scope="module")
def gpu_cluster(bare: Cluster) -> dict[str, Any]:
    return owner(bare, "GPUCluster", "gpuclusters", "gpu-cluster")


def test_an_operator_with_a_cluster_policy(bare: Cluster, policy: dict[str, Any], tmp_path: Path) -> None:
    """Its plugin has no ConfigMap before the documented commands; then preflight names what they have made."""
    given = study_of(NAMESPACE, strategies=["exclusive", "time-slicing"])
    named = "nvidia-device-plugin-daemonset"
    plugin, discovery = {"name": "nvidia-device-plugin"}, {"name": "gpu-feature-discovery"}
    with daemon_set(bare, "gpu-feature-discovery", policy, discovery):
        with daemon_set(bare, named, policy, plugin):
            out = preflight(bare, tmp_path, given)
            assert f"(ClusterPolicy cluster-policy, {OPERATOR}/{named})" in out
            assert "have the ClusterPolicy cluster-policy name one (docs/cluster/install.md, ClusterPolicy)" in out
        typed(bare, documented("install.md", "ClusterPolicy")[0])
        found = client.CustomObjectsApi(bare.api).get_cluster_custom_object(
            "nvidia.com", "v1", "clusterpolicies", "cluster-policy"
        )
        config = found["spec"]["devicePlugin"]["config"]
        # As the operator's controller does with it.
        folder = "/available-configs"
        manager = {
            "name": "config-manager",
            "env": [
                {"name": "CONFIG_FILE_SRCDIR", "value": folder},
                {"name": "DEFAULT_CONFIG", "value": config["default"]},
            ],
            "volumeMounts": [{"name": config["name"], "mountPath": folder}],
        }
        volumes = [{"name": config["name"], "configMap": {"name": config["name"]}}]
        with daemon_set(bare, named, policy, plugin, sidecars=[manager], volumes=volumes):
            out = preflight(bare, tmp_path, given)
            assert f"{OPERATOR}/sharebench-configs, default default" in out
            assert "exclusive feasible with 1 tenants" in out


def slices(cluster: Cluster, **device: Any) -> dict[str, Any]:
    """The ResourceSlice of one GPU."""
    attributes = {"type": {"string": "gpu"}, "uuid": {"string": UUID}, "productName": {"string": "NVIDIA A100"}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "imitated"},
        "spec": {
            "driver": DRIVER,
            "nodeName": cluster.node_name,
            "pool": {"name": cluster.node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0", "attributes": attributes, **device}],
        },
    }


@contextmanager
def offered(cluster: Cluster, reference: dict[str, Any], gates: str, **device: Any) -> Iterator[None]:
    """The operator's DRA driver 0.5.0 with these gates, its class and its slice."""
    container = {
        "name": "gpus",
        "image": "nvcr.io/nvidia/dra-driver-nvidia-gpu:v0.5.0",
        "command": ["gpu-kubelet-plugin"],
        "env": [{"name": "FEATURE_GATES", "value": gates}],
    }
    resources = client.ResourceV1Api(cluster.api)
    expression = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == 'gpu'"
    device_class = {
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": expression}}], "extendedResourceName": "nvidia.com/gpu"},
    }
    with daemon_set(cluster, "nvidia-dra-driver", reference, container):
        resources.create_device_class(device_class)
        resources.create_resource_slice(slices(cluster, **device))
        try:
            yield
        finally:
            resources.delete_resource_slice("imitated")
            resources.delete_device_class(DRIVER)


WHOLE: dict[str, Any] = {"capacity": {"memory": {"value": "40Gi"}}}
SHARED: dict[str, Any] = {
    "allowMultipleAllocations": True,
    "capacity": {"memory": {"value": "40Gi", "requestPolicy": {"default": "40Gi", "validRange": {"min": "1Mi"}}}},
}


def test_an_operator_with_a_gpu_cluster(bare: Cluster, gpu_cluster: dict[str, Any], tmp_path: Path) -> None:
    given = study_of(NAMESPACE, strategies=["exclusive", "mps"], kubernetes={"access": "dra"})
    with offered(bare, gpu_cluster, "TimeSlicingSettings=true", **WHOLE):
        out = preflight(bare, tmp_path, given)
    assert f"v0.5.0 (GPUCluster gpu-cluster, {OPERATOR}), gates that are on: TimeSlicingSettings" in out
    assert "set spec.draDriver.featureGates.MPSSupport: true in GPUCluster gpu-cluster" in out
    assert "Helm" not in out


def test_a_plain_gpu_that_claims_serve(bare: Cluster, gpu_cluster: dict[str, Any], tmp_path: Path) -> None:
    """Where a class has an extended resource, no plugin shares it: the way is by claims (KEP-5004)."""
    given = study_of(NAMESPACE, strategies=["exclusive", "time-slicing"])
    with offered(bare, gpu_cluster, "", **WHOLE):
        made = client.ResourceV1Api(bare.api).read_device_class(DRIVER)
        assert made.spec.extended_resource_name == "nvidia.com/gpu", "kept by the API server"
        out = preflight(bare, tmp_path, given)
    assert "its DRA driver (GPUCluster gpu-cluster) gives GPUs to claims; set kubernetes.access: dra" in out


def test_a_gpu_that_takes_several_claims(bare: Cluster, gpu_cluster: dict[str, Any], tmp_path: Path) -> None:
    """Driver 0.5 with consumable shares: what is feasible, and claims that the real scheduler gives one GPU."""
    strategies = ["time-slicing-own-claims", "time-slicing", "mps", "exclusive-own-claims"]
    given = study_of(NAMESPACE, strategies=strategies, replicas=[3], kubernetes={"access": "dra"})
    resources = client.ResourceV1Api(bare.api)
    with offered(bare, gpu_cluster, "ConsumableShares=true,MPSSupport=true", **SHARED):
        out = preflight(bare, tmp_path, given)
        assert "time-slicing-own-claims feasible with 3 tenants" in out
        assert "time-slicing feasible with 3 tenants" in out
        assert "no MPS while it offers consumable shares; set CONSUMABLE_SHARES" in out
        assert "two claims may get the same GPU; set CONSUMABLE_SHARES" in out
        study = normalised(given | {"strategies": strategies[:1], "baseline": "none"})
        with owned(bare, study, tmp_path) as node:
            tenants = tenants_of(node, study, 3)
            tenants.start(grants(3))

            def devices() -> list[tuple[str, str]]:
                claims = resources.list_namespaced_resource_claim(NAMESPACE).items
                found = [claim.status and claim.status.allocation for claim in claims]
                return [
                    (result.device, result.consumed_capacity["memory"])
                    for allocation in found
                    if allocation
                    for result in allocation.devices.results
                ]

            part = f"{(40 << 10) // 3}Mi"
            eventually("an allocation for each tenant", lambda: devices() == [("gpu-0", part)] * 3)
            tenants.stop()


def test_a_shared_node_without_nvidias_plugin_and_only_the_rights_of_the_manifests(
    bare: Cluster, tmp_path: Path
) -> None:
    """As under HAMi: the Lease is in the tenants' namespace."""
    folders = ("tenants", "tenants/static")
    grant(bare, *folders)
    since = len(audited(bare))
    template = {"resources": {"nvidia.com/gpu": 1}, "environment": {"NVIDIA_VISIBLE_DEVICES": UUID}}
    entry = STATIC | {"pod": template}
    given = study_of(
        NAMESPACE,
        strategies=["as-found"],
        replicas=[1],
        baseline="none",
        null_cells=False,
        strategy_catalogue={
            "exclusive": entry,
            "exclusive-again": entry,
            "as-found": entry | {"mechanism": "time-slicing"},
        },
    )
    run = run_in(tmp_path / "study", bare.kubeconfig_of("sharebench", NAMESPACE, tmp_path), given)
    run.passed("preflight")
    run.passed()
    assert not beyond(bare, since, *folders)
    assert unused(bare, since, *folders) == KEPT.keys()
