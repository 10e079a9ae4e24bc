"""The cluster that the tests run on: SHAREBENCH_CLUSTER names it."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from cluster.described import described
from cluster.harness import GPU, LABEL, RESTRICTED, Cluster, eventually, own_bed
from cluster.testbed import gpu, kind, lifecycle, requirements

KINDS = ("testbed", "kind", "existing")


def chosen() -> str:
    return os.environ.get("SHAREBENCH_CLUSTER", "testbed")


def is_for(kind: str, item: pytest.Item) -> bool:
    """Whether a test may run on that kind of cluster."""
    marks = {mark.name for mark in item.iter_markers()}
    return kind == "testbed" or (kind == "kind" and "testbed" not in marks) or "existing" in marks


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that the chosen cluster is not for: no skips, as it is a choice. Without one, they may skip."""
    mine = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in mine if "SHAREBENCH_CLUSTER" not in os.environ else ():
        item.add_marker("cluster")
    for item in mine:  # tests that bring a test bed of their own stay together, where several processes run tests
        if "cluster" not in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(item.path.stem))
    others = [item for item in mine if not is_for(chosen(), item)]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if item not in others]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The cluster's description, next to the failure: a log of CI is all that is left of it."""
    report = yield
    clusters = [each for each in getattr(item, "funcargs", {}).values() if isinstance(each, Cluster)]
    if report.failed and clusters:
        report.sections.append(("cluster", described(clusters[0])))
    return report


@pytest.fixture(scope="session")
def machine() -> None:
    """Skips where the test bed cannot run."""
    lack = requirements.missing()
    if lack:
        pytest.skip(lack)


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A cluster with the device plugin on a mock GPU; one that was running before keeps running."""
    if chosen() not in KINDS:
        pytest.exit(f"SHAREBENCH_CLUSTER={chosen()}: must be one of {', '.join(KINDS)}", returncode=4)
    if chosen() == "existing":
        yield Cluster(Path(os.environ.get("KUBECONFIG") or Path.home() / ".kube" / "config"))
    elif chosen() == "kind":
        lack = kind.missing()
        if lack:
            pytest.skip(lack)
        with kind.cluster(f"sharebench-{os.getpid()}") as kubeconfig:
            yield Cluster(kubeconfig)
    else:
        request.getfixturevalue("machine")
        named = os.environ.get("SHAREBENCH_TESTBED_NAME")
        name = named or f"tests-{os.getpid()}"
        instance = lifecycle.up(name, stays=bool(named))
        try:
            gpu.install(instance.kubeconfig)
            yield Cluster(instance.kubeconfig, instance)
        finally:
            if not named:
                lifecycle.down(name)


@pytest.fixture(scope="module")
def mig(machine: None) -> Iterator[Cluster]:
    """A test bed whose mock GPU can do MIG, with NVIDIA's mig-manager."""
    with own_bed("mig") as found:
        gpu.install(found.kubeconfig)
        gpu.install_mig(found)
        yield Cluster(found.kubeconfig, found)


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A namespace with restricted Pod Security."""
    with cluster.namespace(RESTRICTED) as name:
        yield name


@pytest.fixture
def plugin(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with one GPU, not shared, before and after."""

    def reset() -> None:
        cluster.set_label("exclusive")
        for name in ("nvidia-device-plugin", "gpu-feature-discovery"):
            for pod in cluster.plugin_pods(name):
                if any(not status.ready for status in pod.status.container_statuses or []):
                    cluster.delete_plugin_pod(pod.metadata.name)  # out of its back-off at once
        eventually("one GPU, not shared", is_exclusive, 90.0)

    def is_exclusive() -> bool:
        shared = [count for name, (_, count) in cluster.resources().items() if name != GPU]
        labels = cluster.labels()
        # Kubernetes' own taints outlast a node that was not ready, by some seconds.
        is_tainted = any(taint.key.startswith("node.kubernetes.io/") for taint in cluster.node().spec.taints or [])
        is_alone = cluster.allocatable() == 1 and not any(shared) and not cluster.plugin_pods("mps-control-daemon")
        return is_alone and labels.get("gpu.sharing-strategy") == "none" and not is_tainted

    reset()
    yield cluster
    reset()
    cluster.set_label(None, LABEL)
