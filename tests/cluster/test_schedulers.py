"""The real HAMi, Volcano and KAI on the mock GPU: they place the pipeline's pods and set their shares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import Run, study_of
from cluster.harness import RESTRICTED, Cluster, eventually, own_bed, pod
from cluster.testbed import gpu, schedulers

pytestmark = pytest.mark.slow
STATIC = {"access": "static"}


@contextmanager
def empty_folder_removed(path: str) -> Iterator[None]:
    """Remove the folder afterwards, which is mounted from the machine into each pod with a share."""
    yield
    with suppress(OSError):
        Path(path).rmdir()


@contextmanager
def bed_with(scheduler: str, *workloads: str, offered: str = "", registered: str = "") -> Iterator[Cluster]:
    """A test bed with that scheduler, whose device plugin, if any, offers `offered` in place of NVIDIA's."""
    if (lack := schedulers.missing(scheduler)) is not None:
        pytest.skip(lack)
    with own_bed(scheduler) as found, empty_folder_removed("/tmp/vgpulock"):
        gpu.install(found)
        if offered:
            schedulers.replace_plugin(found)
        schedulers.install(found, scheduler, *workloads)
        cluster = Cluster(found)
        if offered:
            eventually("ten shares", lambda: cluster.node().status.allocatable.get(offered) == "10")
            eventually("the GPU on the node", lambda: registered in cluster.node().metadata.annotations)
        yield cluster


@pytest.fixture(scope="module")
def hami(machine: None) -> Iterator[Cluster]:
    workloads = ("deployment/hami-scheduler", "daemonset/hami-device-plugin")
    shares = {"offered": "nvidia.com/gpu", "registered": "hami.io/node-nvidia-register"}
    with bed_with("hami", *workloads, **shares) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def volcano(machine: None) -> Iterator[Cluster]:
    workloads = ("deployment/volcano-scheduler", "deployment/volcano-controllers", "daemonset/volcano-device-plugin")
    shares = {"offered": "volcano.sh/vgpu-number", "registered": "volcano.sh/node-vgpu-register"}
    with bed_with("volcano", *workloads, **shares) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kai(machine: None) -> Iterator[Cluster]:
    with bed_with("kai") as cluster:
        yield cluster


def measured(cluster: Cluster, tmp_path: Path, strategy: str, replicas: list[int]) -> dict[int, dict[str, Any]]:
    """The records of a study with one strategy, by the number of tenants."""
    with cluster.namespace(RESTRICTED) as namespace:
        given = study_of(
            namespace,
            strategies=[strategy],
            replicas=replicas,
            baseline="none",
            null_cells=False,
            strategy_catalogue={"exclusive": STATIC, "exclusive-again": STATIC},
        )
        Run(tmp_path, cluster.kubeconfig, given).passed()
    found = (json.loads(path.read_text()) for path in tmp_path.glob(f"results/cells/{strategy}/*/*/*/raw.json"))
    return {record["cell"]["replicas"]: record for record in found}


def check(records: dict[int, dict[str, Any]], *evidence: str) -> None:
    """Check that two and three tenants ran, and that all evidence holds, including these items."""
    assert {n: record["status"] for n, record in records.items()} == {2: "ok", 3: "ok"}
    for record in records.values():
        held = {item["name"]: item["holds"] for item in record["evidence"]}
        assert held.keys() >= set(evidence)
        assert all(held.values())


SM_LIMIT = "variable CUDA_DEVICE_SM_LIMIT"


def test_hami_places_the_tenants_and_sets_their_limits(hami: Cluster, tmp_path: Path) -> None:
    allocated = "pods with the annotation hami.io/vgpu-devices-allocated"
    check(measured(hami, tmp_path, "hami", [2, 3]), "pods of the scheduler hami-scheduler", allocated, SM_LIMIT)


# Prints what HAMi gives a container with a share: variables and the library in its process.
GIVEN = """
import json, os, time
open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "w").close()
limits = {name: os.environ[name] for name in os.environ if name.startswith("CUDA_DEVICE") and "CACHE" not in name}
print(json.dumps([limits, "libvgpu.so" in open("/proc/self/maps").read(), os.getuid()]), flush=True)
time.sleep(3600)
"""


def share(percent: str) -> dict[str, Any]:
    """Resources that a pod requests from HAMi."""
    names = ("nvidia.com/gpu", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage")
    return {"limits": dict(zip(names, ("1", percent, percent), strict=True))}


def test_hami_handles_a_pod_without_a_scheduler(hami: Cluster) -> None:
    """Webhook, extender and plugin act; the library would need CUDA, which a mock lacks."""
    with hami.namespace(RESTRICTED) as namespace:
        for name in ("first", "second"):
            hami.start(namespace, name, GIVEN, resources=share("40"))
        hami.start(namespace, "third", resources=share("30"))
        for name in ("first", "second"):
            hami.wait_for_phase(namespace, name)
            given = eventually("its output", lambda name=name: hami.core.read_namespaced_pod_log(name, namespace))
            total_mib = int(hami.labels()["gpu.memory"])
            limits = {"CUDA_DEVICE_SM_LIMIT": "40", "CUDA_DEVICE_MEMORY_LIMIT_0": f"{total_mib * 40 // 100}m"}
            assert json.loads(given) == [limits, True, 65534]
        assert hami.core.read_namespaced_pod("first", namespace).spec.scheduler_name == "hami-scheduler"
        reason = eventually("the reason of the third", lambda: hami.unschedulable(namespace, "third"))
        assert "CardInsufficientMemory" in reason or "CardInsufficientCore" in reason


def test_volcano_places_the_tenants_and_sets_their_limits(volcano: Cluster, tmp_path: Path) -> None:
    allocated = "pods with the annotation volcano.sh/vgpu-ids-new"
    check(measured(volcano, tmp_path, "volcano-vgpu", [2, 3]), "pods of the scheduler volcano", allocated, SM_LIMIT)


RESERVED = "kai-resource-reservation"


def test_kai_places_the_tenants_and_then_releases_the_gpu(kai: Cluster, tmp_path: Path) -> None:
    allocated = "pods with the annotation received-resource-type=Fraction"
    check(measured(kai, tmp_path, "kai-fraction", [2, 3]), "pods of the scheduler kai-scheduler", allocated)
    assert not kai.core.list_namespaced_pod(RESERVED).items


# Prints a container's share, by the variables that KAI sets.
GIVEN_BY_KAI = """
import json, os, time
names = ("NVIDIA_VISIBLE_DEVICES", "GPU_PORTION", "CUDA_DEVICE_MEMORY_LIMIT")
print(json.dumps({name: os.environ.get(name) for name in names}), flush=True)
time.sleep(3600)
"""


def start_fraction(cluster: Cluster, namespace: str, name: str, annotation: str, value: str) -> None:
    """Start a pod that requests a part of a GPU from KAI."""
    body = pod(name, GIVEN_BY_KAI)
    body["metadata"] |= {"annotations": {annotation: value}, "labels": {"kai.scheduler/queue": "default-queue"}}
    body["spec"]["schedulerName"] = "kai-scheduler"
    cluster.core.create_namespaced_pod(namespace, body)


def test_kai_sets_the_shares_of_fractions(kai: Cluster) -> None:
    """Webhook, pod grouper, scheduler, binder and reservation pod set the shares; none enforces them."""
    total_mib = int(kai.labels()["gpu.memory"])
    # A share in MiB is rounded up to hundredths of a total that is itself rounded.
    asked = {"half": ("gpu-fraction", "0.5"), "quarter": ("gpu-memory", str(total_mib * 24 // 100))}
    with kai.namespace(RESTRICTED) as namespace:
        for name, (annotation, value) in asked.items():
            start_fraction(kai, namespace, name, annotation, value)
        given = {}
        for name in asked:
            kai.wait_for_phase(namespace, name, seconds=120.0)
            given[name] = json.loads(
                eventually("its output", lambda name=name: kai.core.read_namespaced_pod_log(name, namespace))
            )
        (holder,) = kai.core.list_namespaced_pod(RESERVED).items
        device = holder.metadata.annotations["run.ai/reserve_for_gpu_index"]
        assert {name: each["NVIDIA_VISIBLE_DEVICES"] for name, each in given.items()} == dict.fromkeys(asked, device)
        assert {name: each["GPU_PORTION"] for name, each in given.items()} == {"half": "0.50", "quarter": "0.25"}
        limits = {"half": f"{total_mib // 2}m", "quarter": f"{total_mib // 4}m"}
        assert {name: each["CUDA_DEVICE_MEMORY_LIMIT"] for name, each in given.items()} == limits
        start_fraction(kai, namespace, "too-much", "gpu-fraction", "0.5")
        reason = eventually("the reason of the third", lambda: kai.unschedulable(namespace, "too-much"))
        assert "GPU" in reason
    eventually("the end of the pod that holds the GPU", lambda: not kai.core.list_namespaced_pod(RESERVED).items)
