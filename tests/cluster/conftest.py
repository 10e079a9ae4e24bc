"""The test bed that the tests run on. With SHAREBENCH_CLUSTER=testbed, skips are failures."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from cluster.described import described
from cluster.harness import GPU, LABEL, RESTRICTED, Cluster, eventually, own_bed
from cluster.testbed import gpu, lifecycle, requirements


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep tests with a test bed of their own in one group if several processes run tests."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            if "SHAREBENCH_CLUSTER" not in os.environ:
                item.add_marker("cluster")
            if "cluster" not in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the cluster's description to a failure, since CI keeps only the log."""
    report = yield
    clusters = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, Cluster)]
    if report.failed and clusters:
        report.sections.append(("cluster", described(clusters[0])))
    return report


@pytest.fixture(scope="session")
def machine() -> None:
    """Skip if the test bed cannot run here."""
    lack = requirements.missing()
    if lack:
        pytest.skip(lack)


@pytest.fixture(scope="session")
def cluster(machine: None) -> Iterator[Cluster]:
    """A test bed with the device plugin on a mock GPU. One that ran before keeps running."""
    named = os.environ.get("SHAREBENCH_TESTBED_NAME")
    name = named or f"tests-{os.getpid()}"
    instance = lifecycle.up(name, stays=bool(named))
    try:
        gpu.install(instance)
        yield Cluster(instance)
    finally:
        if not named:
            lifecycle.down(name)


@pytest.fixture(scope="module")
def mig(machine: None) -> Iterator[Cluster]:
    """A test bed whose mock GPU can do MIG, with NVIDIA's mig-manager."""
    with own_bed("mig") as found:
        gpu.install(found)
        gpu.install_mig(found)
        yield Cluster(found)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace with restricted Pod Security."""
    with cluster.namespace(RESTRICTED) as name:
        yield name


@pytest.fixture
def plugin(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with one GPU, which is not shared before and after the test."""

    def reset() -> None:
        cluster.set_label("exclusive")
        for name in ("nvidia-device-plugin", "gpu-feature-discovery"):
            for pod in cluster.plugin_pods(name):
                if any(not status.ready for status in pod.status.container_statuses or []):
                    cluster.delete_plugin_pod(pod.metadata.name)  # out of its back-off at once
        eventually("one GPU, not shared", is_exclusive)

    def is_exclusive() -> bool:
        shared = [count for name, (_, count) in cluster.resources().items() if name != GPU]
        labels = cluster.labels()
        # Kubernetes removes its own taints some seconds after a node has become ready.
        is_tainted = any(taint.key.startswith("node.kubernetes.io/") for taint in cluster.node().spec.taints or [])
        is_alone = cluster.allocatable() == 1 and not any(shared) and not cluster.plugin_pods("mps-control-daemon")
        return is_alone and labels.get("gpu.sharing-strategy") == "none" and not is_tainted

    reset()
    yield cluster
    reset()
    cluster.set_label(None, LABEL)
