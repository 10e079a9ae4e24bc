"""Foreign GPU pods, and the choice of a node."""

from __future__ import annotations

from typing import Any

import pytest

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster import foreign_pods
from sharebench.nodes.kubernetes.cluster.cluster import chosen
from sharebench.nodes.kubernetes.cluster.nvidia_stack import version_of


def pod(name: str, asks: str | None = "nvidia.com/gpu", phase: str = "Running", **more: Any) -> dict[str, Any]:
    resources = {"limits": {asks: "1"}} if asks else {}
    spec = {"containers": [{"name": "c", "resources": resources}]} | more
    return {"metadata": {"namespace": "team", "name": name}, "spec": spec, "status": {"phase": phase}}


def test_who_holds_a_gpu() -> None:
    ours, elsewhere = pod("ours"), pod("elsewhere")
    for each in (ours, elsewhere):
        each["metadata"]["labels"] = {"sharebench/node": "0123"}
    ours["metadata"]["namespace"] = "sharebench"
    early = pod("init", asks=None, initContainers=[{"name": "i", "resources": {"requests": {"nvidia.com/gpu": "1"}}}])
    claims = pod("claim", asks=None, resourceClaims=[{"name": "gpu"}])
    pods = [pod("a"), pod("mig", "nvidia.com/mig-1g.5gb"), pod("cpu", asks=None), pod("done", phase="Succeeded")]
    found = foreign_pods.gpu_pods([*pods, ours, early, claims, elsewhere], "sharebench")
    assert [each["metadata"]["name"] for each in found] == ["a", "mig", "init", "claim", "elsewhere"]


def test_the_refusal_lists_them() -> None:
    line = foreign_pods.refusal([pod(f"p{number}") for number in range(7)])
    assert "team/p0, team/p1" in line
    assert "and 2 more" in line
    assert "kubernetes.drain: true" in line


def node(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": {"capacity": {}}}


def test_the_only_node_with_a_gpu_is_taken() -> None:
    gpu = {"nvidia.com/gpu.present": "true"}
    assert chosen([node("a"), node("b", **gpu)], "auto")["metadata"]["name"] == "b"
    assert chosen([node("a"), node("b", **gpu)], "a")["metadata"]["name"] == "a"
    with pytest.raises(NodeError, match=r"2 nodes have GPUs \(b, c\); name the one"):
        chosen([node("b", **gpu), node("c", **gpu)], "auto")
    with pytest.raises(NodeError, match="no node has a GPU"):
        chosen([node("a")], "auto")
    with pytest.raises(NodeError, match="no node 'x'"):
        chosen([node("a")], "x")


@pytest.mark.parametrize(("text", "numbers"), [("v0.19.3", (0, 19, 3)), ("0.20.0-ubi9", (0, 20, 0)), ("latest", ())])
def test_versions_can_be_compared(text: str, numbers: tuple[int, ...]) -> None:
    assert version_of(text) == numbers
