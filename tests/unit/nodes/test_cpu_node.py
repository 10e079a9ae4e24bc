"""The CPU stand-in: the cores of each tenant, infeasible strategies, and the masks as evidence."""

import os
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from unit.studies import config_with

from sharebench.measure.nodes.host.cpu import LABEL, CpuNode
from sharebench.measure.nodes.kinds import open_node
from sharebench.model.config.load import load
from sharebench.model.strategies import all_strategies
from sharebench.model.strategy import Strategy

STRATEGIES = all_strategies(load(config_with({"node": "simulated"})))


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A node on a host whose affinity mask has these cores."""

    def make(cores: set[int], wanted: str | list[int] = "auto") -> CpuNode:
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(cores))
        monkeypatch.setattr(os, "sched_setaffinity", lambda *_: None)
        return CpuNode({"cores": wanted}, tmp_path / "node")

    return make


def layered(mechanism: tuple[str, ...], profile: str | None = None, instances: int | None = None) -> Strategy:
    """A strategy without limits."""
    return Strategy.model_construct(name="own", mechanism=mechanism, profile=profile, instances=instances)


ONE, TWO, EIGHT = {5}, {0, 3}, set(range(8))


@pytest.mark.parametrize(
    "cores, strategy, replicas, masks",
    [
        (ONE, "exclusive", 1, [[5]]),
        (TWO, "exclusive", 1, [[0, 3]]),
        (EIGHT, "exclusive", 1, [list(range(8))]),
        (ONE, "time-slicing", 2, [[5], [5]]),
        (TWO, "time-slicing", 3, [[0], [0], [0]]),
        (EIGHT, "time-slicing", 1, [[0]]),
        (ONE, "mps", 2, [[5], [5]]),
        (TWO, "mps", 3, [[0, 3]] * 3),
        (EIGHT, "mps", 2, [list(range(8))] * 2),
        (ONE, "mig", 1, [[5]]),
        (TWO, "mig", 2, [[0], [3]]),
        (EIGHT, "mig", 3, [[0], [1], [2]]),
        # two instances of three cores, tenants alternate between them
        (EIGHT, "mig-time-slicing", 4, [[0], [3], [0], [3]]),
        (EIGHT, "mig-mps", 3, [[0, 1, 2], [3, 4, 5], [0, 1, 2]]),
        (EIGHT, "mig-mps", 1, [[0, 1, 2]]),
        # the first tenant has the largest instance
        (EIGHT, "mig-unequal", 4, [[0, 1, 2], [3, 4], [5], [6]]),
        (EIGHT, "mig-unequal", 2, [[0, 1, 2], [3, 4]]),
    ],
)
def test_mechanisms_give_masks(
    host: Any, cores: set[int], strategy: str, replicas: int, masks: list[list[int]]
) -> None:
    node = host(cores)
    assert node.infeasible(STRATEGIES[strategy], replicas) is None
    grants = node.grants(STRATEGIES[strategy], replicas)
    assert [grant.index for grant in grants] == list(range(replicas))
    assert [list(grant.cores) for grant in grants] == masks
    groups = defaultdict(set)
    for grant in grants:
        groups[grant.cores].add(grant.group)
    assert all(len(group) == 1 for group in groups.values()), "who shares cores is of one group"


@pytest.mark.parametrize(
    "cores, strategy, replicas, words",
    [
        (TWO, "mig", 3, ["3 instances", "1 core", "need 3", "there are 2"]),
        (ONE, "mig-mps", 1, ["2 instances", "3 core", "need 6", "there are 1"]),
        (EIGHT, "mig", 9, ["need 9", "there are 8"]),
        (TWO, "mig-unequal", 1, ["4 instances", "1/2/3 core", "need 7", "there are 2"]),
        (EIGHT, "mig-unequal", 5, ["5 tenants need 5 MIG instances", "has 4"]),
    ],
)
def test_what_does_not_fit_has_a_reason(
    host: Any, cores: set[int], strategy: str, replicas: int, words: list[str]
) -> None:
    reason = host(cores).infeasible(STRATEGIES[strategy], replicas)
    assert reason is not None
    assert "\n" not in reason
    assert [word for word in words if word not in reason] == []


def test_only_usable_cores_count_in_ascending_order(host: Any) -> None:
    assert host({9, 2, 4}).cores == [2, 4, 9]
    assert host(EIGHT, [6, 1, 99]).cores == [1, 6]


def records(*masks: list[int] | None) -> list[dict[str, Any]]:
    """The part of a tenant's record that the evidence uses."""
    return [{"cpu": {"affinity": mask}} for mask in masks]


def test_the_affinity_mask_that_a_tenant_reports_is_the_evidence(host: Any) -> None:
    node = host(EIGHT, [4, 2])
    grants = node.grants(STRATEGIES["mig"], 2)
    evidence = node.evidence(STRATEGIES["mig"], grants, records([2], [4]))
    assert [item["holds"] for item in evidence] == [True, True]
    assert [item["source"] for item in evidence] == ["tenant 0", "tenant 1"]
    evidence = node.evidence(STRATEGIES["mig"], grants, records([2], [2, 4]))
    assert [item["holds"] for item in evidence] == [True, False]
    assert (evidence[1]["expected"], evidence[1]["observed"]) == ([4], [2, 4])

    both = node.grants(STRATEGIES["mps"], 1)
    assert node.evidence(STRATEGIES["mps"], both, records([2, 4]))[0]["holds"], "sorted like the tenant's own"


def test_facts_label_the_stand_in_and_name_no_host(host: Any) -> None:
    node = host(EIGHT, [1, 2])
    facts = node.facts()
    assert (facts["label"], facts["is_gpu"], facts["units"], facts["units_name"]) == (LABEL, False, 2, "cores")
    assert "not a GPU" in LABEL
    assert facts["details"]["cores_used"] == [1, 2]
    assert facts["memory_bytes"] == psutil.virtual_memory().total
    assert facts["product"]
    assert os.uname().nodename not in str(facts)
    assert facts["device"] == node.facts()["device"]
    assert facts["device"] != host(EIGHT, [1, 2, 3]).facts()["device"], "another stand-in"


def test_the_node_is_opened_by_its_kind_and_locked_host_wide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = open_node("cpu", {"cores": "auto"}, tmp_path / "one")
    other = open_node("cpu", {"cores": "auto"}, tmp_path / "other")
    assert isinstance(one, CpuNode)
    locked = one.lock_path
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert locked == other.lock_path == Path("/tmp/sharebench-cpu.lock"), "whatever the folder for temporary files"
    simulated = open_node("simulated", {}, tmp_path / "one")
    assert simulated.lock_path is None
