"""The node as it was found, and the way back to it."""

from __future__ import annotations

from typing import Any

from unit.kubernetes.objects import CONFIG, node

from sharebench.nodes.kubernetes.access.device_plugin import plugin_state
from sharebench.nodes.kubernetes.cluster import saved_state
from sharebench.nodes.kubernetes.cluster.saved_state import ANNOTATION


def noted(config: str | None) -> dict[str, Any]:
    found = node(config)
    text = saved_state.dump({"device-plugin": plugin_state.capture(found, "nvidia", "configs")})
    found = saved_state.load(node(config, annotations={ANNOTATION: text})) or {}
    return found["device-plugin"]


def test_an_untouched_node_has_no_note() -> None:
    assert saved_state.load(node()) is None


def test_absence_comes_back_as_absence() -> None:
    patch = plugin_state.label_patch(node("sharebench-ts-7"), noted(None))
    assert patch == {"metadata": {"labels": {CONFIG: None}}}


def test_a_label_comes_back() -> None:
    patch = plugin_state.label_patch(node("sharebench-ts-7"), noted("theirs"))
    assert patch == {"metadata": {"labels": {CONFIG: "theirs"}}}


def test_a_label_that_somebody_else_set_since_is_left_alone() -> None:
    assert plugin_state.label_patch(node("new"), noted("theirs")) is None


def test_what_is_not_back_yet() -> None:
    note = noted(None)
    assert plugin_state.differences(node(), note) == []
    shared = node("sharebench-ts-7", "time-slicing", 7)
    found = plugin_state.differences(shared, note)
    assert len(found) == 4
    assert f"label {CONFIG} is sharebench-ts-7, not absent" in found


def test_a_node_that_was_found_without_gpus_need_not_get_back_there() -> None:
    found = plugin_state.capture(node(allocatable={}), "nvidia", "configs")
    assert plugin_state.differences(node(), found) == []
    assert plugin_state.differences(node("sharebench-ts-7", "time-slicing", 7), found)


def test_a_gpu_that_was_found_cut_is_not_back_before_its_labels_say_so() -> None:
    cut = node("theirs")
    cut["metadata"]["labels"]["nvidia.com/mig-3g.20gb.count"] = "2"
    found = plugin_state.capture(cut, "nvidia", "configs")
    assert plugin_state.differences(cut, found) == []
    (line,) = plugin_state.differences(node("theirs"), found)
    assert line == "label nvidia.com/mig-*.count is absent, not {'3g.20gb': 2}"


def test_only_our_taint_goes() -> None:
    theirs = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    tainted = node()
    tainted["spec"]["taints"] = [theirs, {"key": saved_state.TAINT, "effect": "NoSchedule"}]
    assert saved_state.taints_without_ours(tainted) == [theirs]


def test_another_node_that_is_measured_is_known() -> None:
    busy = node(annotations={ANNOTATION: saved_state.dump({})})
    busy["metadata"]["name"] = "other"
    assert saved_state.others_in_use([node(), busy], "gpu-node")
    assert not saved_state.others_in_use([node(), busy], "other")
