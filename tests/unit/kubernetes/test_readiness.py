"""When a node counts as switched, over what a real node of the test bed was seen to go through."""

from __future__ import annotations

from typing import Any

import pytest
from unit.kubernetes.objects import daemon_pod, daemon_set, node

from sharebench.nodes.kubernetes.access.device_plugin.readiness import Expected, Stability, unmet
from sharebench.nodes.kubernetes.cluster.nvidia_stack import Daemon

TS7 = Expected("sharebench-ts-7", "time-slicing", 7, 1)
MPS3 = Expected("sharebench-mps-3", "mps", 3, 1)
PLUGIN = daemon_set("plugin", "ctr", "sidecar")
MPS_SET = daemon_set("mps", "mps-control-daemon-ctr", "sidecar")


def plugin(**pod: Any) -> Daemon:
    return Daemon("plugin", PLUGIN, daemon_pod("plugin", "ctr", "sidecar", **pod))


def mps(is_there: bool = True, **pod: Any) -> Daemon:
    made = daemon_pod("mps", "mps-control-daemon-ctr", "sidecar", **pod) if is_there else None
    return Daemon("mps", MPS_SET, made, "mps-control-daemon-ctr")


def switched(**changes: Any) -> dict[str, Any]:
    return node(**{"config": "sharebench-ts-7", "sharing": "time-slicing", "replicas": 7} | changes)


def test_all_signals_agree() -> None:
    assert unmet(switched(), [plugin()], mps(is_there=False), TS7) == []


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"config": "somebody-elses"}, "label nvidia.com/device-plugin.config is somebody-elses"),
        ({"config": None}, "is absent, not sharebench-ts-7"),
        # the labels are ahead of the kubelet, and the other way round
        ({"allocatable": {"nvidia.com/gpu": 1}}, "allocatable is nvidia.com/gpu 1, not nvidia.com/gpu 7"),
        ({"sharing": "none"}, "nvidia.com/gpu.sharing-strategy is none"),
        # the plugin has gone through 0; capacity, which still says 7, is not looked at
        ({"allocatable": {"nvidia.com/gpu": 0}}, "allocatable is nothing"),
        # the name of a config before, which has not become 0 yet
        ({"allocatable": {"nvidia.com/gpu": 7, "nvidia.com/gpu.shared": 7}}, "nvidia.com/gpu.shared 7"),
    ],
)
def test_one_signal_differs(changes: dict[str, Any], word: str) -> None:
    found = unmet(switched(**changes), [plugin()], None, TS7)
    assert len(found) == 1
    assert word in found[0]


def test_a_name_that_was_registered_once_stays_with_0() -> None:
    values = {"nvidia.com/gpu": 7, "nvidia.com/gpu.shared": 0, "nvidia.com/mig-1g.5gb": 0}
    assert unmet(switched(allocatable=values), [plugin()], None, TS7) == []


def test_a_pod_that_is_not_ready() -> None:
    unready = plugin(ready=False)
    unready.pod["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}  # type: ignore[index]
    assert unmet(switched(), [unready], None, TS7) == ["plugin: ctr is not ready (CrashLoopBackOff)"]


def test_a_pod_that_ends_or_is_missing() -> None:
    ending = plugin(deletionTimestamp="2026-11-20T16:00:00Z")
    assert unmet(switched(), [ending], None, TS7) == ["the pod of plugin is ending"]
    assert unmet(switched(), [Daemon("plugin", PLUGIN, None)], None, TS7) == ["plugin has no pod on the node"]


def test_a_daemon_set_that_is_rolled_out() -> None:
    behind = PLUGIN | {"status": {"observedGeneration": 1}}
    found = unmet(switched(), [Daemon("plugin", behind, plugin().pod)], None, TS7)
    assert found == ["plugin: its last change is not rolled out yet"]


def test_mps_needs_its_daemon_but_not_the_daemons_sidecar() -> None:
    here = switched(config="sharebench-mps-3", sharing="mps", replicas=3)
    assert unmet(here, [plugin()], mps(is_there=False), MPS3) == ["mps has no pod on the node"]
    assert unmet(here, [plugin()], None, MPS3) == ["the MPS control daemon has no DaemonSet"]
    # in the chart of 0.19 the sidecar finds no process to signal and crashes again and again
    crashing = mps()
    crashing.pod["status"]["containerStatuses"][1]["ready"] = False  # type: ignore[index]
    assert unmet(here, [plugin()], crashing, MPS3) == []


def test_mps_must_be_gone_otherwise() -> None:
    assert unmet(switched(), [plugin()], mps(), TS7) == ["the MPS control daemon still runs"]


def test_stability_begins_anew_with_every_problem() -> None:
    # recorded: right at first, through 0 when the plugin tries again, right for good
    stability = Stability(15.0)
    seen = [(0, []), (10, []), (12, ["allocatable is 0"]), (20, []), (30, []), (35, [])]
    assert [stability.holds(at, found) for at, found in seen] == [False, False, False, False, False, True]
