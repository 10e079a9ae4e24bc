"""Whatever API call fails, and however, the next run restores the node exactly."""

import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from unit.kubernetes import test_device_plugin, test_dra, test_dra_held, test_mig_partitioning
from unit.kubernetes.fake_cluster import FakeCluster, MigCluster, copied, leased
from unit.kubernetes.test_placeholders import Dealing

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import NodeError, State
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_manager, placeholders, plugin, readers
from sharebench.measure.nodes.kubernetes.access.dra import claims_access
from sharebench.measure.nodes.kubernetes.cluster import lease
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.study.study import Study

SEED = 41
READS, WRITES = ("get", "find", "get_text"), ("patch", "delete", "create", "replace")
FAULTS = ("refused", "away", "once", "killed")


class Killed(BaseException):
    """The process ends here."""


class FailingApi:
    """A fake cluster's API that fails from its call `first` on, of those that the fault concerns."""

    def __init__(self, cluster: FakeCluster, fault: str, first: float) -> None:
        self._cluster, self._fault, self._first = cluster, fault, first
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._cluster, name)
        is_concerned = name in WRITES or (name in READS and self._fault != "refused")
        return (lambda *args, **query: self._call(call, *args, **query)) if is_concerned else call

    def _call(self, call: Callable[..., Any], *args: Any, **query: Any) -> Any:
        self.calls += 1
        if self.calls < self._first or (self._fault == "once" and self.calls > self._first):
            return call(*args, **query)
        if self._fault == "killed":
            raise Killed
        if self._fault == "refused":
            raise ApiRefused(403, "not allowed: ...")
        raise NodeError("the API server cannot be reached since 60 s")


class Case(NamedTuple):
    make: Callable[[], FakeCluster]
    study: Study
    states: tuple[str, str]
    replicas: int | None

    def node(self, cluster: FakeCluster, folder: Path) -> ClusterNode:
        """The node, which is polled less often than by default."""
        return leased(cluster, self.study.node_options() | {"stable_seconds": 1, "publish_seconds": 1}, folder)


def with_one_config() -> FakeCluster:
    made = FakeCluster()
    test_device_plugin.only_config(made)
    return made


def with_two_gpus() -> FakeCluster:
    made = Dealing()
    made._switch()
    return made


def with_claims() -> FakeCluster:
    made = test_dra.Claims()
    made.daemon_sets[-1] = test_dra.driver_set("TimeSlicingSettings=true,MPSSupport=true")
    made.looks_left = 0
    return made


PLUGIN, MIG, DRA = test_device_plugin.STUDY, test_mig_partitioning.STUDY, test_dra_held.STUDY
CASES = {
    "several configs": Case(FakeCluster, PLUGIN, ("time-slicing", "mps"), 3),
    "one config": Case(with_one_config, PLUGIN, ("time-slicing", "mps"), 3),
    "two GPUs": Case(with_two_gpus, PLUGIN, ("time-slicing", "exclusive"), 3),
    "claims": Case(with_claims, DRA, ("mps", "time-slicing"), None),
    "MIG": Case(MigCluster, MIG, ("mig", "exclusive"), None),
}


def shape(cluster: FakeCluster) -> Any:
    """What a run must leave as it was: all objects but the Lease, less versions and empty annotations."""
    cluster.sleep(100)
    cluster.find("")
    kept = {path: copied(body) for path, body in cluster.store.items() if "/leases/" not in path}
    for body in kept.values():
        del body["metadata"]["resourceVersion"]
        body["metadata"]["annotations"] = body["metadata"].get("annotations") or {}
    return kept, [*cluster.tenants], [*getattr(cluster, "claims", [])]


@contextmanager
def clock(cluster: FakeCluster) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        for module in (plugin, readers, lease, mig_manager, placeholders, claims_access):
            patched.setattr(module, "time", cluster)
        patched.setenv(RUN_ID_VARIABLE, "a-run")
        yield


def run_with_fault(case: Case, cluster: FakeCluster, api: FailingApi, folder: Path) -> str:
    """Set both states and restore the node, as a run does; how that ended."""
    node = case.node(cluster, folder)
    node.cluster.__dict__["api"] = api
    ending = "done"
    try:
        try:
            for name in case.states:
                node.ensure(State(case.study.strategies[name], case.replicas, 0))
        except NodeError:
            ending = "failed"
        node.restore()
    except NodeError:
        return "not restored"
    except Killed:
        return "killed"
    return ending


def check(case: Case, fault: str, first: float, folder: Path) -> int:
    """Interrupt a run, and let another one restore the node; the number of calls that could have failed."""
    cluster = case.make()
    before = shape(cluster)
    with clock(cluster):
        api, folder = FailingApi(cluster, fault, first), folder / f"{fault}-{first}"
        ending = run_with_fault(case, cluster, api, folder / "run")
        if ending in ("done", "failed"):
            assert shape(cluster) == before, f"{fault} at call {first}: restored, it said"
        case.node(cluster, folder / "next").sweep()
    assert shape(cluster) == before, f"{fault} at call {first}: {ending}"
    return api.calls


@pytest.mark.parametrize("name", CASES)
def test_the_next_run_restores_the_node_whatever_failed(name: str, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    for fault in FAULTS:
        calls = check(CASES[name], fault, float("inf"), tmp_path)
        check(CASES[name], fault, chance.randint(1, calls), tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", CASES)
def test_the_next_run_restores_the_node_whatever_call_failed(name: str, fault: str, tmp_path: Path) -> None:
    for first in itertools.count(1):
        if check(CASES[name], fault, first, tmp_path) < first:
            break
