"""Pods by a template, on a node that is shared already and without any other scheduler."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from cluster.driving import Run, study_of
from cluster.harness import Cluster
from cluster.test_switching import shown

STATIC = {"access": "static"}
AS_FOUND = {
    "mechanism": "time-slicing",
    "access": "static",
    "thread_percent": "100/N",
    "pod": {
        "resources": {"nvidia.com/gpu": 1},
        "annotations": {"example.com/share": "$fraction"},
        "environment": {"MY_SHARE": "$thread_percent"},
        "shows": {"MY_SHARE": "$thread_percent"},
    },
}


def test_a_study_that_switches_nothing(plugin: Cluster, namespace: str, tmp_path: Path) -> None:
    """The path of other schedulers from end to end; theirs are not here, which is in the tables."""
    plugin.switch("ts3", 3)
    before = shown(plugin)
    given = study_of(
        namespace,
        strategies=["exclusive", "as-found", "hami", "kai-fraction"],
        replicas=[3, 7],
        null_cells=False,
        strategy_catalogue={"exclusive": STATIC, "as-found": AS_FOUND},
    )
    run = Run(tmp_path, plugin.kubeconfig, given)
    code, out = run.finish("preflight")
    assert code == 0, out
    assert "no Deployment hami-scheduler with a ready pod is in the cluster" in out
    assert "the node offers 3 of nvidia.com/gpu, and 7 tenants ask for 7" in out
    code, out = run.finish()
    assert code == 0, out
    with (tmp_path / "results" / "tables" / "summary.csv").open(newline="") as file:
        rows = {(row["strategy"], row["replicas"]): row for row in csv.DictReader(file)}
    found = {key: row["status"] for key, row in rows.items()}
    assert found == {
        ("exclusive", "1"): "ok",
        ("as-found", "3"): "ok",
        **{(name, n): "infeasible" for name in ("hami", "kai-fraction") for n in ("3", "7")},
        ("as-found", "7"): "infeasible",
    }
    assert "no Deployment kai-scheduler-default" in rows["kai-fraction", "3"]["reason"]
    record = json.loads(next(tmp_path.glob("results/cells/as-found/*/n3/r1/raw.json")).read_text())
    assert record["limits"]["thread_percent"] == 33
    assert [tenant["view"]["variables"] for tenant in record["tenants"]] == [{"MY_SHARE": "33"}] * 3
    assert all(item["holds"] for item in record["evidence"])
    assert {item["name"] for item in record["evidence"]} >= {"devices that the tenants were given", "variable MY_SHARE"}
    assert shown(plugin) == before
