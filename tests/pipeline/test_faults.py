"""A tenant fails next to another: the other is still measured, the next cell is clean, a wedged device ends the run."""

from typing import Any

import pytest
from pipeline.harness import Checkout, draw_figures
from tables import rows

ENDS = {
    "oom": "oom",
    "leak": "oom",
    "illegal-address": "crashed",
    "assert": "crashed",
    "killed": "killed",
    "stopped": "hung",
    "spin": "hung",
}


def is_starved(record: dict[str, Any]) -> bool:
    """Whether the aggressor had no iteration after its time, or the victim none in the last quarter of the window."""
    return not record["fault"]["happened"] or not sum(record["tenants"][0]["timeline"]["count"][30:])


@pytest.mark.thorough
def test_a_fault_is_a_measured_outcome_and_the_next_cell_is_clean(untouched: Checkout) -> None:
    untouched.study = "faults.yaml"
    untouched.edit("faults.yaml", "faults: []", f"faults: [{', '.join(ENDS)}]")
    result = untouched.run().ok()
    assert untouched.processes() == []
    assert untouched.scratch_folders() == []
    records = {cell.split("/")[1]: untouched.record(cell) for cell in result.cells}
    # A busy machine may not run a tenant in a part of the window; what a fault does to it, it does every time.
    for _ in range(3):
        if not (starved := [name for name, record in records.items() if record["fault"] and is_starved(record)]):
            break
        again = [f"mps/{name}/2/1" for name in starved]
        untouched.delete_records(*again)
        assert untouched.run().ok().cells == set(again)
        records |= {name: untouched.record(cell) for name, cell in zip(starved, again, strict=True)}
    assert records.keys() == {"calm", *(f"fault-{kind}+calm" for kind in ENDS)}

    # No victim failed, in spite of the faults in earlier cells.
    assert {name: record["status"] for name, record in records.items()} == dict.fromkeys(records, "ok")
    assert records["calm"]["fault"] is None
    for kind in ENDS:
        record = records[f"fault-{kind}+calm"]
        victim, aggressor = record["tenants"]
        fault = record["fault"]
        assert (victim["status"], victim["workload"], victim["exit"]) == ("ok", "calm", None)
        assert victim["count"] > 0
        assert sum(victim["timeline"]["count"][30:]) > 0, "measured to the end of the window"
        assert (aggressor["status"], aggressor["workload"]) == (ENDS[kind], f"fault-{kind}"), aggressor["exit"]
        assert (fault["kind"], fault["aggressor"], fault["happened"]) == (kind, 1, True)
        assert fault["ended_seconds"][0] is None
        assert (fault["set_up_again"], fault["refused_tenants"]) == (False, 0)
        assert 0 < fault["new_tenant_seconds"] <= fault["recovery_seconds"]
        assert all(item["holds"] for item in record["evidence"])
        assert len(record["evidence"]) == 2, "the aggressor was pinned too"
    assert records["fault-killed+calm"]["fault"]["ended_seconds"][1] >= 0.4

    tables = untouched.results / "tables"
    isolation = {row["fault"]: row for row in rows(tables / "isolation.csv")}
    assert isolation.keys() == ENDS.keys()
    for kind, row in isolation.items():
        assert (row["strategy"], row["victim"], row["n"], row["failed"]) == ("mps", "calm", "1", "0")
        assert row["aggressor"] == ENDS[kind]
        assert int(row["unharmed"]) + int(row["slowed"]) + int(row["unjudged"]) == 1
    assert {row["workload"] for row in rows(tables / "summary.csv")} == {"calm"}, "no mean includes a cell with a fault"
    statuses = {
        row["tenant_workload"]: row["tenant_status"] for row in rows(tables / "cells.csv") if row["tenant"] == "1"
    }
    assert statuses == {"calm": "ok"} | {f"fault-{kind}": ENDS[kind] for kind in ENDS}
    (start,) = rows(tables / "startup.csv")
    assert float(start["first_result_seconds"]) > 0

    assert untouched.run().ok().jobs == {}, "an outcome is not re-measured"
    draw_figures(untouched.results, "isolation", "startup")
    without = untouched.run(config=["faults=[]"]).ok()
    assert without.cells == set()
    assert not (tables / "isolation.csv").exists()
    assert not list(untouched.results.glob("figures/isolation.*"))


def test_a_device_that_takes_no_new_tenant_ends_the_run(untouched: Checkout) -> None:
    untouched.study = "faults.yaml"
    wedging = ["workloads=[]", "faults=[killed,assert]", "fault_victims=[wedging]"]
    untouched.run("results/calibration/wedging.json", config=wedging).ok()
    (untouched.root / "tmp/starts").touch()
    result = untouched.run(config=wedging)
    assert result.code != 0
    assert "no new tenant could start within 120 s after the fault" in result.out
    assert "not tried, the node is down" in result.out
    assert result.failed.keys() >= {"run_cell"}
    assert len(result.failed["run_cell"]) == 2
    assert untouched.measured_cells() == set()
    assert untouched.processes() == []
    assert untouched.scratch_folders() == []
