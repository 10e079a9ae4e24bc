"""Dynamic resource allocation by NVIDIA's DRA driver, on the mock GPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from cluster.harness import RESTRICTED, Cluster, eventually, pod
from cluster.testbed import gpu, lifecycle
from kubernetes import client

pytestmark = pytest.mark.testbed
CLAIM = {
    "metadata": {"name": "gpu"},
    "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}},
}
SHOW_DEVICES = "import glob, time; print(sorted(glob.glob('/dev/nvidia*'))); time.sleep(3600)"


@pytest.fixture(scope="module")
def dra(machine: None) -> Iterator[Cluster]:
    """A test bed of its own, without the device plugin: only one of the two may own a GPU."""
    name = f"dra-tests-{os.getpid()}"
    found = lifecycle.up(name)
    try:
        gpu.install_dra(found)
        yield Cluster(found.kubeconfig, found)
    finally:
        lifecycle.down(name)


def claiming(name: str) -> dict[str, Any]:
    body = pod(name, SHOW_DEVICES, resources={"claims": [{"name": "gpu"}]})
    body["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    return body


def test_a_slice_describes_the_gpu(dra: Cluster) -> None:
    resources = client.ResourceV1Api(dra.api)
    (offered,) = eventually("a ResourceSlice", lambda: resources.list_resource_slice().items)
    (device,) = offered.spec.devices
    assert device.attributes["uuid"].string.startswith("GPU-")


def test_three_pods_share_one_claim_and_see_its_device(dra: Cluster) -> None:
    resources = client.ResourceV1Api(dra.api)
    with dra.namespace(RESTRICTED) as namespace:
        resources.create_namespaced_resource_claim(namespace, CLAIM)
        names = [f"tenant-{index}" for index in range(3)]
        for name in names:
            dra.core.create_namespaced_pod(namespace, claiming(name))
        for name in names:
            dra.wait_for_phase(namespace, name)
        for name in names:
            log = eventually("a log", lambda name=name: dra.core.read_namespaced_pod_log(name, namespace))
            assert "/dev/nvidia0" in log
        assert len(resources.read_namespaced_resource_claim("gpu", namespace).status.reserved_for) == 3
