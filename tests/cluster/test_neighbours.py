"""Different tenants on one GPU of the device plugin: mixes, and a pod that fails next to another."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import study_of
from cluster.harness import Cluster
from cluster.test_runs import left, run_in
from cluster.test_switching import shown
from tables import rows

SMALL = {"module": "matmul", "params": {"size": 64}}
ENDS = {
    "oom": ("oom", None),
    "leak": ("oom", None),
    "illegal-address": ("crashed", "ended by SIGSEGV"),
    "assert": ("crashed", "ended by SIGABRT"),
    "killed": ("killed", "ended by SIGKILL"),
    "stopped": ("hung", None),
    "spin": ("hung", None),
}
"""How the aggressor's pod ends by its fault."""
AT_SECONDS = 0.4 * 2


def records_of(results: Path) -> dict[str, Any]:
    """Each cell's record by the name of its workload."""
    found = [json.loads(path.read_text()) for path in results.glob("cells/*/*/*/*/raw.json")]
    return {record["cell"]["workload"]: record for record in found}


@pytest.mark.parametrize(
    ("reach", "faults"), [pytest.param("port-forward", list(ENDS), marks=pytest.mark.slow), ("pod-ip", ["killed"])]
)
def test_mixes_and_faults(plugin: Cluster, namespace: str, tmp_path: Path, reach: str, faults: list[str]) -> None:
    before = shown(plugin)
    given = study_of(
        namespace,
        strategies=["time-slicing"],
        replicas=[2],
        baseline="none",
        workloads=["small-and-large"],
        workload_catalogue={
            "small": SMALL,
            "large": {"module": "matmul", "params": {"size": 128}},
            "small-and-large": {"tenants": ["small", "large"]},
        },
        faults=faults,
        fault_victims=["small"],
        allow_faults=True,
        window_seconds=2,
        kubernetes={"reach": reach},
    )
    run = run_in(tmp_path / "study", plugin.kubeconfig, given)
    run.passed()
    records = records_of(run.folder / "results")
    assert {name: record["status"] for name, record in records.items()} == dict.fromkeys(
        ["small-and-large", *(f"fault-{kind}+small" for kind in faults)], "ok"
    )
    mix = records["small-and-large"]["tenants"]
    assert [tenant["workload"] for tenant in mix] == ["small", "large"]
    assert all(tenant["count"] > 0 for tenant in mix)
    for kind in faults:
        record = records[f"fault-{kind}+small"]
        victim, aggressor = record["tenants"]
        fault, (ends, reason) = record["fault"], ENDS[kind]
        assert (victim["status"], victim["workload"], victim["exit"]) == ("ok", "small", None)
        assert sum(victim["timeline"]["count"][30:]) > 0, "it is measured to the window's end"
        assert (aggressor["status"], aggressor["workload"]) == (ends, f"fault-{kind}"), aggressor["exit"]
        if reason is not None:
            assert aggressor["exit"]["reason"] == reason
        assert (fault["kind"], fault["aggressor"], fault["happened"]) == (kind, 1, True)
        assert fault["ended_seconds"][0] is None
        assert (fault["set_up_again"], fault["refused_tenants"]) == (False, 0)
        assert 0 < fault["new_tenant_seconds"] <= fault["recovery_seconds"]
        assert all(item["holds"] for item in record["evidence"])
    # By its connection, not by the kubelet, which checks once a second.
    killed_seconds = records["fault-killed+small"]["fault"]["ended_seconds"][1]
    assert AT_SECONDS <= killed_seconds < AT_SECONDS + 0.5
    tables = run.folder / "results/tables"
    assert {row["fault"]: row["aggressor"] for row in rows(tables / "isolation.csv")} == {
        kind: ENDS[kind][0] for kind in faults
    }
    assert left(plugin, namespace) == []
    assert shown(plugin) == before
