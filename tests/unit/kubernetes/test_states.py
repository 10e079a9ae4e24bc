"""A node's states under the device plugin, with labels and values as seen on real nodes."""

from typing import Any

import pytest
from unit.kubernetes.objects import Json, daemon_pod, daemon_set, node

from sharebench.measure.nodes.contract import Grant
from sharebench.measure.nodes.kubernetes.access.device_plugin import state
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_instances import Partitioning
from sharebench.measure.nodes.kubernetes.access.device_plugin.state import Expected
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import find_stack

TS7 = Expected("sharebench-ts-7", "time-slicing", 7, 1)
MPS3 = Expected("sharebench-mps-3", "mps", 3, 1)
PLUGIN = daemon_set("plugin", "nvidia-device-plugin-ctr", "sidecar")
MPS_SET = daemon_set("mps", "mps-control-daemon-ctr", "sidecar")


def plugin(**more: Any) -> Json:
    return daemon_pod("plugin", "nvidia-device-plugin-ctr", "sidecar", **more)


def mps(**more: Any) -> Json:
    return daemon_pod("mps", "mps-control-daemon-ctr", "sidecar", **more)


def switched(**changes: Any) -> Json:
    return node(**{"config": "sharebench-ts-7", "sharing": "time-slicing", "replicas": 7} | changes)


def unmet(here: Json, *pods: Json, sets: tuple[Json, ...] = (PLUGIN, MPS_SET), expected: Expected = TS7) -> list[str]:
    return state.state_problems(here, pods, find_stack(sets, pods), expected)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, None),
        ({"config": "someone-elses"}, "label nvidia.com/device-plugin.config is someone-elses"),
        ({"config": None}, "is absent, not sharebench-ts-7"),
        # the labels are ahead of the kubelet, and the other way round
        ({"allocatable": {"nvidia.com/gpu": 1}}, "allocatable is nvidia.com/gpu 1, not nvidia.com/gpu 7"),
        ({"sharing": "none"}, "nvidia.com/gpu.sharing-strategy is none"),
        # the plugin has gone through 0; capacity, which is still 7, is ignored
        ({"allocatable": {"nvidia.com/gpu": 0}}, "allocatable is nothing"),
        # a resource of an earlier config that is not 0 yet, and resources that stay with 0
        ({"allocatable": {"nvidia.com/gpu": 7, "nvidia.com/gpu.shared": 7}}, "nvidia.com/gpu.shared 7"),
        ({"allocatable": {"nvidia.com/gpu": 7, "nvidia.com/gpu.shared": 0, "nvidia.com/mig-1g.5gb": 0}}, None),
    ],
)
def test_each_signal_that_differs_is_a_problem(changes: dict[str, Any], line: str | None) -> None:
    found = unmet(switched(**changes), plugin())
    assert len(found) == (line is not None)
    assert line is None or line in found[0]


def test_daemons_that_are_not_ready_are_problems() -> None:
    crashing = plugin(ready=False)
    crashing["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    behind = PLUGIN | {"status": {"observedGeneration": 1}}
    for found, line in (
        (unmet(switched(), crashing), "plugin: nvidia-device-plugin-ctr is not ready (CrashLoopBackOff)"),
        (unmet(switched(), plugin(deletionTimestamp="2026-11-20T16:00:00Z")), "the pod of plugin is ending"),
        (unmet(switched()), "plugin has no pod on the node"),
        (unmet(switched(), plugin(), sets=(behind, MPS_SET)), "plugin: its last change is not rolled out yet"),
        (unmet(switched(), plugin(), mps()), "the MPS control daemon still runs"),
    ):
        assert found == [line]


def test_mps_needs_its_daemon_but_not_the_daemons_sidecar() -> None:
    here = switched(config="sharebench-mps-3", sharing="mps", replicas=3)
    assert unmet(here, plugin(), expected=MPS3) == ["mps has no pod on the node"]
    assert unmet(here, plugin(), sets=(PLUGIN,), expected=MPS3) == ["the MPS control daemon has no DaemonSet"]
    # in the chart of 0.19 the sidecar finds no process to signal and crashes repeatedly
    crashing = mps()
    crashing["status"]["containerStatuses"][1]["ready"] = False
    assert unmet(here, plugin(), crashing, expected=MPS3) == []


def test_a_node_found_without_gpus_is_not_restored_to_none() -> None:
    found = state.capture(node(allocatable={}), "nvidia", "configs", {})
    assert state.restore_problems(node(), found) == []
    assert state.restore_problems(node("sharebench-ts-7", "time-slicing", 7), found)


def test_a_partitioned_gpu_is_not_restored_before_its_labels_show_it() -> None:
    partitioned = node("theirs")
    partitioned["metadata"]["labels"]["nvidia.com/mig-3g.20gb.count"] = "2"
    found = state.capture(partitioned, "nvidia", "configs", {})
    assert state.restore_problems(partitioned, found) == []
    (line,) = state.restore_problems(node("theirs"), found)
    assert line == "label nvidia.com/mig-*.count is absent, not {'3g.20gb': 2}"


PARTITIONING = Partitioning({"3g.20gb": 1, "1g.5gb": 2}, ("3g.20gb", "1g.5gb", "1g.5gb"), "all-balanced")
KEY = "sharebench-mig-mixed"
SMS = {"nvidia.com/mig-3g.20gb.multiprocessors": "42", "nvidia.com/mig-1g.5gb.multiprocessors": "14"}
EXPECTED = Expected(
    KEY, "none", 1, 1, PARTITIONING.resources, PARTITIONING.labels("A100") | {"nvidia.com/mig.config": "all-balanced"}
)
WHOLE = Expected("sharebench-exclusive", "none", 1, 1)


def view(device: str, **more: Any) -> dict[str, Any]:
    return {"view": {"device": device, "is_mig": True, "mps_pipe": None, "sm_count": None} | more}


def failing(
    records: Any, groups: list[int], is_partitioned: bool = True, problems: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Observed values of evidence that does not hold, by name."""
    grants = [Grant(index, group) for index, group in enumerate(groups)]
    expected, parts = (EXPECTED, PARTITIONING) if is_partitioned else (WHOLE, Partitioning({}))
    here = node("sharebench-exclusive")
    if is_partitioned:
        here = node(KEY, allocatable={"nvidia.com/gpu": 0, **PARTITIONING.resources})
        here["metadata"]["labels"] |= EXPECTED.mig_labels | SMS
    items = state.evidence(expected, parts, problems, here, grants, records)
    return {item["name"]: item["observed"] for item in items if not item["holds"]}


@pytest.mark.parametrize(
    ("records", "groups", "names"),
    [
        ([view("a", sm_count=42), view("b", sm_count=14), view("c")], [0, 1, 2], []),
        (
            [view("a"), view("b"), view("b")],
            [0, 1, 2],
            ["devices that the tenants were given", "tenants on each device"],
        ),
        ([view("a"), view("b"), view("c", is_mig=False)], [0, 1, 2], ["device is a MIG instance"]),
        ([view("a", sm_count=14), view("b"), view("c")], [0, 1, 2], ["SMs of its instance"]),
        # shared evenly, then unevenly
        ([view("a"), view("b"), view("b")], [0, 1, 0], []),
        ([view("a"), view("b"), view("b"), view("b")], [0, 1, 0, 1], ["tenants on each device"]),
    ],
)
def test_evidence_shows_each_tenants_instance(records: Any, groups: list[int], names: list[str]) -> None:
    assert list(failing(records, groups)) == names


def test_a_device_unknown_to_the_tenants_is_not_observed() -> None:
    records = [view("a", is_mig=None), view("b"), view("c")]
    assert failing(records, [0, 1, 2]) == {"device is a MIG instance": None}, "left to the gate, no contradiction"


def test_the_whole_gpu_is_not_an_instance() -> None:
    assert failing([view("a", is_mig=False)], [0], is_partitioned=False) == {}
    assert list(failing([view("a")], [0], is_partitioned=False)) == ["device is a MIG instance"]


def test_what_differs_while_tenants_run_contradicts_the_state() -> None:
    whole = [view("a", is_mig=False)]
    assert failing(whole, [0], is_partitioned=False) == {}
    found = failing(whole, [0], is_partitioned=False, problems=("label x is 1, not 2",))
    assert found == {"what differs from the state": ["label x is 1, not 2"]}
    under_mps = failing([view("a", is_mig=False, mps_pipe="/mps")], [0], is_partitioned=False)
    assert under_mps == {"has the pipe of an MPS daemon": True}
