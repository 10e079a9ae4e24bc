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


def item(name: str, expected: Any, observed: Any, source: str, holds: bool | None = None) -> dict[str, Any]:
    """One piece of evidence; it holds when what was observed is what was expected, unless said otherwise."""
    holds = expected == observed if holds is None else holds
    return {"name": name, "expected": expected, "observed": observed, "holds": holds, "source": source}


def collect(
    expected: Expected, problems: Sequence[str], node: Mapping[str, Any], records: Sequence[Mapping[str, Any]]
) -> Evidence:
    """The record's `evidence`; `problems` is what differed from the expected state while the tenants still ran.

    That every tenant has a record of the same window proves that all of them ran at the same time.
    """
    labels = node["metadata"].get("labels", {})
    shown = {CONFIG_LABEL: expected.config, SHARING_LABEL: expected.sharing, REPLICAS_LABEL: str(expected.replicas)}
    evidence = [item(f"label {name}", wanted, labels.get(name), "node") for name, wanted in shown.items()]
    room = {"nvidia.com/gpu": expected.allocatable}
    evidence.append(item("allocatable", room, allocatable(node), "node"))
    evidence.append(item("what differs from the state", [], list(problems), "node"))
    views: list[Mapping[str, Any]] = [record.get("view") or {} for record in records]
    devices = sorted({str(view.get("device")) for view in views})
    evidence.append(item("devices that the tenants were given", 1, len(devices), "node"))
    for index, view in enumerate(views):
        evidence.append(item("knows its device", True, view.get("device") is not None, f"tenant {index}"))
        under_mps = view.get("mps_pipe") is not None
        evidence.append(item("has the pipe of an MPS daemon", expected.sharing == "mps", under_mps, f"tenant {index}"))
    return evidence
