"""Telemetry of a GPU that only its tenants' pods can see; the mock reports only memory."""

from __future__ import annotations

import pytest
from cluster.driving import grants, normalised, state, study_of, tenants_of
from cluster.test_switching import node

from sharebench.measure.cell.window import measure_window
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY
from sharebench.study.study import Study

# Python, with the mock in the place of the driver's library.
WITH_NVML = "testbed.local/nvidia:1"
__all__ = ["node"]


@pytest.fixture
def study(namespace: str) -> Study:
    return normalised(study_of(namespace))


@pytest.mark.parametrize("has_library", [True, False])
def test_the_first_tenant_samples_where_it_has_the_library(node: ClusterNode, study: Study, has_library: bool) -> None:
    if has_library:
        node.cluster.options = {**node.cluster.options, "image": WITH_NVML}
    node.ensure(state(study, "time-slicing"))
    tenants = tenants_of(node, study, 2)
    try:
        tenants.start(grants(2))
        tenants.wait_ready()
        _, records, rows, telemetry = measure_window(tenants, tenants.sampler(), 2.0, 60.0)
    finally:
        tenants.stop()
    assert len(records) == 2
    if has_library:
        assert (telemetry["source"], telemetry["reason"]) == ("nvml-in-tenant-0", None)
        assert telemetry["samples"] == len(rows) > 0
        assert {row["memory_used_mib"] for row in rows} == {0.0}
        assert telemetry["power_mean_watts"] is None
    else:
        reason = "libnvidia-ml.so.1 is not in the tenant's container"
        assert (rows, telemetry) == ([], {**UNKNOWN_TELEMETRY, "reason": reason})
