"""HAMi and Volcano themselves on the mock GPU: who places the pipeline's pods, and what they get of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import Run, study_of
from cluster.harness import RESTRICTED, Cluster, eventually, own_bed
from cluster.testbed import gpu, schedulers

pytestmark = [pytest.mark.testbed, pytest.mark.slow]
STATIC = {"access": "static"}


@contextmanager
def empty_folder_removed(path: str) -> Iterator[None]:
    """Afterwards: it is mounted from the machine into each pod with a share, and stays."""
    yield
    with suppress(OSError):
        Path(path).rmdir()


@contextmanager
def bed_with(scheduler: str, offered: str, registered: str, *workloads: str) -> Iterator[Cluster]:
    """A test bed with that scheduler and its device plugin in place of NVIDIA's, which shows ten shares of the GPU."""
    if (lack := schedulers.missing(scheduler)) is not None:
        pytest.skip(lack)
    with own_bed(scheduler) as found, empty_folder_removed("/tmp/vgpulock"):
        gpu.install(found.kubeconfig)
        schedulers.replace_plugin(found)
        schedulers.install(found, scheduler, *workloads)
        cluster = Cluster(found.kubeconfig, found)
        eventually("ten shares", lambda: cluster.node().status.allocatable.get(offered) == "10", 90.0)
        eventually("the GPU on the node", lambda: registered in cluster.node().metadata.annotations, 60.0)
        yield cluster


@pytest.fixture(scope="module")
def hami(machine: None) -> Iterator[Cluster]:
    workloads = ("deployment/hami-scheduler", "daemonset/hami-device-plugin")
    with bed_with("hami", "nvidia.com/gpu", "hami.io/node-nvidia-register", *workloads) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def volcano(machine: None) -> Iterator[Cluster]:
    workloads = ("deployment/volcano-scheduler", "deployment/volcano-controllers", "daemonset/volcano-device-plugin")
    with bed_with("volcano", "volcano.sh/vgpu-number", "volcano.sh/node-vgpu-register", *workloads) as cluster:
        yield cluster


def measured(cluster: Cluster, tmp_path: Path, strategy: str, replicas: list[int]) -> dict[int, dict[str, Any]]:
    """The records of a study with that strategy, by the number of tenants."""
    with cluster.namespace(RESTRICTED) as namespace:
        given = study_of(
            namespace,
            strategies=[strategy],
            replicas=replicas,
            baseline="none",
            null_cells=False,
            strategy_catalogue={"exclusive": STATIC, "exclusive-again": STATIC},
        )
        code, out = Run(tmp_path, cluster.kubeconfig, given).finish()
        assert code == 0, out
    found = (json.loads(path.read_text()) for path in tmp_path.glob(f"results/cells/{strategy}/*/*/*/raw.json"))
    return {record["cell"]["replicas"]: record for record in found}


def check(records: dict[int, dict[str, Any]], scheduler: str, allocated: str) -> None:
    """Two and three tenants that this scheduler placed, which know their share of the SMs."""
    assert {n: record["status"] for n, record in records.items()} == {2: "ok", 3: "ok"}
    for n, record in records.items():
        held = {item["name"]: item["holds"] for item in record["evidence"]}
        assert held[f"pods of the scheduler {scheduler}"]
        assert held[f"pods with the annotation {allocated}"]
        assert all(held.values())
        shown = [tenant["view"]["variables"] for tenant in record["tenants"]]
        assert shown == [{"CUDA_DEVICE_SM_LIMIT": str(100 // n)}] * n


def test_hami_places_the_tenants_and_sets_their_limits(hami: Cluster, tmp_path: Path) -> None:
    check(measured(hami, tmp_path, "hami", [2, 3]), "hami-scheduler", "hami.io/vgpu-devices-allocated")


# What a container with a share was given: variables, the library in its process, and a place for the library's file.
GIVEN = """
import json, os, time
open(os.environ["CUDA_DEVICE_MEMORY_SHARED_CACHE"], "w").close()
limits = {name: os.environ[name] for name in os.environ if name.startswith("CUDA_DEVICE") and "CACHE" not in name}
print(json.dumps([limits, "libvgpu.so" in open("/proc/self/maps").read(), os.getuid()]), flush=True)
time.sleep(3600)
"""


def share(percent: str) -> dict[str, Any]:
    """What a pod asks HAMi for."""
    names = ("nvidia.com/gpu", "nvidia.com/gpucores", "nvidia.com/gpumem-percentage")
    return {"limits": dict(zip(names, ("1", percent, percent), strict=True))}


def test_what_hami_makes_of_a_pod_that_names_no_scheduler(hami: Cluster) -> None:
    """Webhook, extender and plugin; a mock has no CUDA, in which the library would act."""
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
    check(measured(volcano, tmp_path, "volcano-vgpu", [2, 3]), "volcano", "volcano.sh/vgpu-ids-new")
