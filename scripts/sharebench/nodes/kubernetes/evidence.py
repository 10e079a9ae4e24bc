"""What proves that a strategy was in force in a cluster: the node's state, and what the tenants saw in their pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sharebench.nodes.base import Evidence
from sharebench.nodes.kubernetes.readiness import (
    CONFIG_LABEL,
    REPLICAS_LABEL,
    SHARING_LABEL,
    Expected,
    allocatable,
)


def _item(name: str, expected: Any, observed: Any, source: str) -> dict[str, Any]:
    return {"name": name, "expected": expected, "observed": observed, "holds": expected == observed, "source": source}


def collect(
    expected: Expected, problems: Sequence[str], node: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> Evidence:
    """The record's `evidence`; `problems` is what differed from the expected state while the tenants still ran.

    That every tenant has a record of the same window proves that all of them ran at the same time.
    """
    labels = node["metadata"].get("labels", {})
    shown = {CONFIG_LABEL: expected.config, SHARING_LABEL: expected.sharing, REPLICAS_LABEL: str(expected.replicas)}
    evidence = [_item(f"label {name}", wanted, labels.get(name), "node") for name, wanted in shown.items()]
    room = {"nvidia.com/gpu": expected.allocatable}
    evidence.append(_item("allocatable", room, allocatable(node), "node"))
    evidence.append(_item("what differs from the state", [], list(problems), "node"))
    views: list[Mapping[str, Any]] = [record.get("view") or {} for record in records]
    devices = sorted({str(view.get("device")) for view in views})
    evidence.append(_item("devices that the tenants were given", 1, len(devices), "node"))
    for index, view in enumerate(views):
        evidence.append(_item("knows its device", True, view.get("device") is not None, f"tenant {index}"))
        under_mps = view.get("mps_pipe") is not None
        evidence.append(_item("has the pipe of an MPS daemon", expected.sharing == "mps", under_mps, f"tenant {index}"))
    return evidence
