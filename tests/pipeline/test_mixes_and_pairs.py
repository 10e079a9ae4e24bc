"""Tenants that run different workloads: the cells of such a study, and those that a changed workload invalidates."""

import itertools
import json
from typing import Any

import pytest
from pipeline.harness import Checkout, draw_figures, measuring_jobs, table_jobs
from tables import rows

BASELINE = {f"exclusive/{name}/1/1" for name in ("alpha", "beta", "gamma")}
PAIRS = {"alpha+alpha", "alpha+beta", "beta+beta"}
PAIR_CELLS = {f"{s}/{pair}/2/1" for s, pair in itertools.product(("time-slicing", "mps"), PAIRS)}
MIX_CELLS = {"time-slicing/blend/3/1", "mps/blend/3/1"}
CELLS = BASELINE | PAIR_CELLS | MIX_CELLS


def test_mixes_and_pairs_add_calibrations_and_baselines_of_their_workloads(finished_mixes: Checkout) -> None:
    jobs, _ = finished_mixes.first_run()
    assert jobs == {
        "characterise_node": {""},
        "calibrate": {"alpha", "beta", "gamma"},
        "configure_node": {"exclusive", "time-slicing", "mps"},
        **measuring_jobs(CELLS),
    }
    assert finished_mixes.run().ok().jobs == {}


def test_records_and_tables_name_the_workload_of_each_tenant(finished_mixes: Checkout) -> None:
    record = finished_mixes.record("mps/blend/3/1")
    assert [tenant["workload"] for tenant in record["tenants"]] == ["alpha", "gamma", "alpha"]
    spec = json.loads(record["spec"])["workload"]
    assert [tenant["simulated"]["serial_seconds"] for tenant in spec["tenants"]] == [0.002, 0.008, 0.002]
    assert set(record["calibration"]["workloads"]) == {"alpha", "gamma"}
    assert "gates" not in record, "records are judged when they are read"
    tables = finished_mixes.results / "tables"
    tenant_rows = [row for row in rows(tables / "cells.csv") if (row["strategy"], row["workload"]) == ("mps", "blend")]
    assert [row["tenant_workload"] for row in tenant_rows] == ["alpha", "gamma", "alpha"]
    summary = {(row["strategy"], row["workload"], row["tenant_workload"]) for row in rows(tables / "summary.csv")}
    assert {key[1:] for key in summary if key[0] == "mps"} == {
        ("blend", "alpha"),
        ("blend", "gamma"),
        ("alpha+alpha", "alpha"),
        ("alpha+beta", "alpha"),
        ("alpha+beta", "beta"),
        ("beta+beta", "beta"),
    }


def test_the_table_of_pairs_holds_the_planted_slowdowns(finished_mixes: Checkout) -> None:
    # Planted: a + w/S alone, 2 (a + w/S) (1 + 0.1097) under time-slicing, a + 2 w/S under MPS; S = 108 SMs.
    shared = 0.5 / 108
    tables = finished_mixes.results / "tables"
    for row in rows(tables / "interference.csv"):
        serial = {"alpha": 0.002, "beta": 0.004}[row["victim"]]
        expected = 2 * 1.1097 if row["strategy"] == "time-slicing" else (serial + 2 * shared) / (serial + shared)
        assert float(row["slowdown"]) == pytest.approx(expected, rel=0.05)
        assert (row["n"], row["n_expected"]) == ("1", "1")
    found = [(row["strategy"], row["victim"], row["aggressor"]) for row in rows(tables / "interference.csv")]
    names = ("beta", "alpha")
    assert found == list(itertools.product(("time-slicing", "mps"), names, names)), "in the order of the config"


def test_a_changed_workload_invalidates_its_cells_and_the_mixes_with_it(finished_mixes: Checkout) -> None:
    finished_mixes.edit("mixes.yaml", "serial_seconds: 0.004", "serial_seconds: 0.005")
    stale = {"exclusive/beta/1/1"} | {cell for cell in PAIR_CELLS if "beta" in cell}
    assert finished_mixes.run().ok().jobs == {"calibrate": {"beta"}, **measuring_jobs(stale)}
    finished_mixes.edit("mixes.yaml", "serial_seconds: 0.008", "serial_seconds: 0.009")
    stale = {"exclusive/gamma/1/1"} | MIX_CELLS
    assert finished_mixes.run().ok().jobs == {"calibrate": {"gamma"}, **measuring_jobs(stale)}


def test_reordering_the_interference_list_measures_nothing(finished_mixes: Checkout) -> None:
    result = finished_mixes.run(config=["interference=[alpha,beta]"]).ok()
    assert result.jobs == table_jobs(set())
    assert [row["victim"] for row in rows(finished_mixes.results / "tables/interference.csv")][:2] == ["alpha", "alpha"]


def test_a_study_without_pairs_has_no_interference_table_or_figure(finished_mixes: Checkout) -> None:
    files = [finished_mixes.results / path for path in ("tables/interference.csv", "figures/interference.svg")]
    assert all(file.exists() for file in files)
    result = finished_mixes.run(config=["interference=[]"]).ok()
    assert result.jobs == table_jobs(set())
    assert not any(file.exists() for file in files)
    assert finished_mixes.run().ok().jobs == table_jobs(set())
    assert all(file.exists() for file in files)


def test_a_mix_measured_with_another_calibration_is_refused(finished_mixes: Checkout) -> None:
    def change_digest(record: dict[str, Any]) -> None:
        record["calibration"]["workloads"]["beta"]["output_digest"] = [2.0]

    finished_mixes.edit_record("mps/alpha+beta/2/1", change_digest)
    (finished_mixes.results / "tables/cells.csv").unlink()
    result = finished_mixes.run()
    assert result.code == 1
    assert "measured with another calibration" in (finished_mixes.results / "logs/tables.log").read_text()


@pytest.mark.thorough
def test_the_interference_figure_of_a_data_set_is_rebuilt(finished_mixes: Checkout) -> None:
    rebuilt = finished_mixes.root / "results/from/results"
    finished_mixes.run(config=["from=results"], results=rebuilt).ok()
    table = "tables/interference.csv"
    assert (rebuilt / table).read_text() == (finished_mixes.results / table).read_text()
    draw_figures(rebuilt, "interference", data=finished_mixes.results)
