"""What proves that a strategy of the device plugin is active: the node's state, and what the tenants saw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sharebench.nodes.contract import Evidence, Grant, item
from sharebench.nodes.kubernetes.access.base import view_of
from sharebench.nodes.kubernetes.access.device_plugin.mig_instances import Partitioning
from sharebench.nodes.kubernetes.access.device_plugin.readiness import Expected
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.labels import allocatable
from tenant.contract import TenantReport


def collect(
    expected: Expected,
    partitioning: Partitioning,
    problems: Sequence[str],
    node: Json,
    grants: Sequence[Grant],
    records: Sequence[TenantReport],
) -> Evidence:
    """The record's `evidence`; `problems` is what differed from the expected state while the tenants still ran.

    That every tenant has a record of the same window proves that all of them ran at the same time.
    """
    labels = node["metadata"].get("labels", {})
    evidence = [item(f"label {name}", wanted, labels.get(name), "node") for name, wanted in expected.labels.items()]
    evidence.append(item("allocatable", expected.allocatable, allocatable(node), "node"))
    evidence.append(item("what differs from the state", [], list(problems), "node"))
    views = [view_of(record) for record in records]
    devices = Counter(str(view.get("device")) for view in views)
    groups = Counter(grant.group for grant in grants)
    evidence.append(item("devices that the tenants were given", len(groups), len(devices), "node"))
    evidence.append(item("tenants on each device", sorted(groups.values()), sorted(devices.values()), "node"))
    for grant, view in zip(grants, views, strict=False):
        source = f"tenant {grant.index}"
        evidence.append(item("knows its device", True, view.get("device") is not None, source))
        evidence.append(item("device is a MIG instance", bool(partitioning.layout), view.get("is_mig"), source))
        under_mps = view.get("mps_pipe") is not None
        evidence.append(item("has the pipe of an MPS daemon", expected.sharing == "mps", under_mps, source))
        units = labels.get(f"{partitioning.resource(grant.group)}.multiprocessors")
        if partitioning.layout and units is not None and view.get("sm_count") is not None:
            evidence.append(item("SMs of its instance", int(units), view["sm_count"], source))
    return evidence
