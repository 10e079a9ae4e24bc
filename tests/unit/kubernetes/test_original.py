"""The node as it was found, and the way back to it."""

from __future__ import annotations

from typing import Any

from unit.kubernetes.objects import CONFIG, node

from sharebench.nodes.kubernetes import original
from sharebench.nodes.kubernetes.original import ANNOTATION


def noted(config: str | None) -> dict[str, Any]:
    found = node(config)
    text = original.text({"device-plugin": original.noted(found, "nvidia", "configs")})
    found = original.of(node(config, annotations={ANNOTATION: text})) or {}
    return found["device-plugin"]


def test_an_untouched_node_has_no_note() -> None:
    assert original.of(node()) is None


def test_absence_comes_back_as_absence() -> None:
    patch = original.label_patch(node("sharebench-ts-7"), noted(None))
    assert patch == {"metadata": {"labels": {CONFIG: None}}}


def test_a_label_comes_back() -> None:
    patch = original.label_patch(node("sharebench-ts-7"), noted("theirs"))
    assert patch == {"metadata": {"labels": {CONFIG: "theirs"}}}


def test_a_label_that_somebody_else_set_since_is_left_alone() -> None:
    assert original.label_patch(node("new"), noted("theirs")) is None


def test_what_is_not_back_yet() -> None:
    note = noted(None)
    assert original.unrestored(node(), note) == []
    shared = node("sharebench-ts-7", "time-slicing", 7)
    found = original.unrestored(shared, note)
    assert len(found) == 4
    assert f"label {CONFIG} is sharebench-ts-7, not absent" in found


def test_a_node_that_was_found_without_gpus_need_not_get_back_there() -> None:
    found = original.noted(node(allocatable={}), "nvidia", "configs")
    assert original.unrestored(node(), found) == []
    assert original.unrestored(node("sharebench-ts-7", "time-slicing", 7), found)


def test_a_gpu_that_was_found_cut_is_not_back_before_its_labels_say_so() -> None:
    cut = node("theirs")
    cut["metadata"]["labels"]["nvidia.com/mig-3g.20gb.count"] = "2"
    found = original.noted(cut, "nvidia", "configs")
    assert original.unrestored(cut, found) == []
    (line,) = original.unrestored(node("theirs"), found)
    assert line == "label nvidia.com/mig-*.count is absent, not {'3g.20gb': 2}"


def test_only_our_taint_goes() -> None:
    theirs = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    tainted = node()
    tainted["spec"]["taints"] = [theirs, {"key": original.TAINT, "effect": "NoSchedule"}]
    assert original.taints_without_ours(tainted) == [theirs]


def test_another_node_that_is_measured_is_known() -> None:
    busy = node(annotations={ANNOTATION: original.text({})})
    busy["metadata"]["name"] = "other"
    assert original.others_in_use([node(), busy], "gpu-node")
    assert not original.others_in_use([node(), busy], "other")
