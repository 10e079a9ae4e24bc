"""What proves in a cluster that tenants had the instances of their strategy, and what contradicts it."""

from __future__ import annotations

from typing import Any

import pytest
from unit.kubernetes.objects import node

from sharebench.nodes.contract import Grant
from sharebench.nodes.kubernetes.access.device_plugin.evidence import collect
from sharebench.nodes.kubernetes.access.device_plugin.mig_instances import Partitioning
from sharebench.nodes.kubernetes.access.device_plugin.readiness import Expected

PARTITIONING = Partitioning({"3g.20gb": 1, "1g.5gb": 2}, ("3g.20gb", "1g.5gb", "1g.5gb"), "all-balanced")
KEY = "sharebench-mig-mixed"
SMS = {"nvidia.com/mig-3g.20gb.multiprocessors": "42", "nvidia.com/mig-1g.5gb.multiprocessors": "14"}
EXPECTED = Expected(
    KEY, "none", 1, 1, PARTITIONING.resources, PARTITIONING.labels("A100") | {"nvidia.com/mig.config": "all-balanced"}
)
WHOLE = Expected("sharebench-exclusive", "none", 1, 1)


def cut_node() -> dict[str, Any]:
    made = node(KEY, allocatable={"nvidia.com/gpu": 0, **PARTITIONING.resources})
    made["metadata"]["labels"] |= EXPECTED.besides | SMS
    return made


def view(device: str, **more: Any) -> dict[str, Any]:
    return {"view": {"device": device, "is_mig": True, "mps_pipe": None, "sm_count": None} | more}


def failing(records: list[dict[str, Any]], groups: list[int], is_partitioned: bool = True) -> list[str]:
    """Names of what does not hold."""
    grants = [Grant(index, group) for index, group in enumerate(groups)]
    expected, cut = (EXPECTED, PARTITIONING) if is_partitioned else (WHOLE, Partitioning({}))
    made = cut_node() if is_partitioned else node("sharebench-exclusive")
    return [item["name"] for item in collect(expected, cut, [], made, grants, records) if not item["holds"]]


def test_each_tenant_has_an_instance_of_its_own() -> None:
    records = [view("a", sm_count=42), view("b", sm_count=14), view("c")]
    assert failing(records, [0, 1, 2]) == []


@pytest.mark.parametrize(
    ("records", "names"),
    [
        ([view("a"), view("b"), view("b")], ["devices that the tenants were given", "tenants on each device"]),
        ([view("a"), view("b"), view("c", is_mig=False)], ["device is a MIG instance"]),
        ([view("a", sm_count=14), view("b"), view("c")], ["SMs of its instance"]),
    ],
)
def test_what_contradicts_that(records: list[dict[str, Any]], names: list[str]) -> None:
    assert failing(records, [0, 1, 2]) == names


def test_tenants_share_instances_evenly() -> None:
    assert failing([view("a"), view("b"), view("b")], [0, 1, 0]) == []
    assert failing([view("a"), view("b"), view("b"), view("b")], [0, 1, 0, 1]) == ["tenants on each device"]


def test_what_no_tenant_could_tell_of_its_device_is_not_observed() -> None:
    grants = [Grant(index, index) for index in range(3)]
    records = [view("a", is_mig=None), view("b"), view("c")]
    (item,) = (item for item in collect(EXPECTED, PARTITIONING, [], cut_node(), grants, records) if not item["holds"])
    assert (item["name"], item["observed"]) == ("device is a MIG instance", None), "left to the gate, no contradiction"


def test_the_whole_gpu_is_no_instance() -> None:
    assert failing([view("a", is_mig=False)], [0], is_partitioned=False) == []
    assert failing([view("a")], [0], is_partitioned=False) == ["device is a MIG instance"]
