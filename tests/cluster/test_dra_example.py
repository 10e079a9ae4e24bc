"""Kubernetes' example of a DRA driver: the second adapter, on GPUs that do not exist."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster.harness import Cluster, own_bed
from cluster.test_dra import account, by_claims, evidence, left
from cluster.test_runs import run_in
from cluster.testbed import gpu
from tables import rows

pytestmark = pytest.mark.testbed
__all__ = ["account"]
LONG = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}


@pytest.fixture(scope="module")
def dra(machine: None) -> Iterator[Cluster]:
    """A test bed of its own, with this driver alone: NVIDIA's would be taken before it."""
    with own_bed("dra-example") as found:
        gpu.install_example_dra(found)
        yield Cluster(found.kubeconfig, found)


def test_three_pods_share_a_claim_of_the_example_driver(dra: Cluster, account: Path, tmp_path: Path) -> None:
    given = by_claims(strategies=["time-slicing", "time-slicing-long", "mps", "mig"], replicas=[3], baseline="none")
    run = run_in(tmp_path / "study", account, given)
    code, out = run.finish()
    assert code == 0, out
    cells = {row["strategy"]: row for row in rows(run.folder / "results/tables/summary.csv")}
    assert {name: row["status"] for name, row in cells.items()} == {
        "time-slicing": "ok",
        "time-slicing-long": "ok",
        "mps": "infeasible",
        "mig": "infeasible",
    }
    assert cells["mps"]["reason"] == "the DRA driver gpu.example.com has no mps"
    assert cells["mig"]["reason"] == "the DRA driver gpu.example.com has no mig"
    records = {
        path.parts[-5]: json.loads(path.read_text())
        for path in (run.folder / "results").glob("cells/time-slicing*/*/*/*/raw.json")
    }
    for name, interval in (("time-slicing", "Default"), ("time-slicing-long", "Long")):
        record = records[name]
        assert all(each["holds"] for each in record["evidence"])
        assert evidence(record, "reservedFor") == [3]
        seen = {"GPU_DEVICE_0": "gpu-0", "GPU_DEVICE_0_SHARING_STRATEGY": "TimeSlicing"}
        assert (
            evidence(record, "variables of the CDI device")
            == [seen | {"GPU_DEVICE_0_TIMESLICE_INTERVAL": interval}] * 3
        )
        assert record["node"]["product"] == "LATEST GPU MODEL"
    (config,) = evidence(records["time-slicing-long"], "opaque configuration in the allocation")[0]
    assert config["parameters"]["sharing"] == LONG
    assert left(dra) == []
