"""A study of jobs: its cells, records and tables, and the cells that a change invalidates."""

import pytest
from pipeline.harness import Checkout, Jobs, measuring_jobs
from tables import rows

STUDY = "jobs.yaml"
BASELINE = {f"exclusive/{name}/1/1" for name in ("product", "endless", "loop")}
PRODUCT_CELLS = {"exclusive/product/1/1", "sequential/product/2/1", "mps/product/2/1"}
CELLS = BASELINE | PRODUCT_CELLS | {"sequential/endless/2/1", "mps/endless/2/1", "mps/both/2/1"}


def test_jobs_run_concurrently_in_a_queue_and_next_to_a_loop(untouched: Checkout) -> None:
    untouched.study = STUDY
    result = untouched.run().ok()
    assert result.jobs == {
        "characterise_node": {""},
        "calibrate": {"product", "endless", "loop"},
        "configure_node": {"exclusive", "sequential", "mps"},
        **measuring_jobs(CELLS),
    }

    shared, queue = (untouched.record(f"{strategy}/product/2/1") for strategy in ("mps", "sequential"))
    for record in (shared, queue):
        assert record["status"] == "ok"
        assert [tenant["count"] for tenant in record["tenants"]] == [60, 60]
        assert [tenant["job"]["completed"] for tenant in record["tenants"]] == [60, 60]
    took = [tenant["job"]["completion_seconds"] for tenant in shared["tenants"]]
    window = shared["window"]
    length = window["end_monotonic_seconds"] - window["start_monotonic_seconds"]
    assert length == pytest.approx(max(took), abs=1e-6) and "turns" not in window
    (first_start, first_end), (second_start, second_end) = queue["window"]["turns"]
    assert first_start < first_end < second_start < second_end

    late = untouched.record("mps/endless/2/1")
    assert late["status"] == "hung" and "of its job's 9000000 iterations" in late["reason"]
    assert 0 < late["tenants"][0]["job"]["completed"] < 9_000_000
    assert late["tenants"][0]["job"]["completion_seconds"] is None
    assert [t["status"] for t in untouched.record("sequential/endless/2/1")["tenants"]] == ["hung", "not-measured"]

    mix = untouched.record("mps/both/2/1")
    assert [tenant["job"] for tenant in mix["tenants"]] == [None, None]
    assert all(tenant["timeline"]["slot_seconds"] * 40 == pytest.approx(0.2) for tenant in mix["tenants"])

    jobs = {(row["strategy"], row["workload"]): row for row in rows(untouched.results / "tables/jobs.csv")}
    assert set(jobs) == {(s, w) for s in ("exclusive", "sequential", "mps") for w in ("product", "endless")}
    queued = sum(tenant["job"]["completion_seconds"] for tenant in queue["tenants"])
    # On a busy machine a gate may have excluded a cell.
    row, is_valid = jobs["mps", "product"], jobs["mps", "product"]["n"] == "1"
    assert row["status"] == "ok" and bool(row["makespan_seconds"]) is is_valid
    assert not is_valid or float(row["makespan_seconds"]) == pytest.approx(max(took))
    if is_valid and jobs["sequential", "product"]["n"] == "1":
        assert float(row["speedup"]) == pytest.approx(queued / max(took))
    assert (jobs["mps", "endless"]["status"], jobs["mps", "endless"]["makespan_seconds"]) == ("hung", "")
    summarised = {row["strategy"] for row in rows(untouched.results / "tables/summary.csv")}
    assert summarised == {"exclusive", "mps"}, "a queue shares nothing"
    assert (untouched.results / "figures/jobs.png").exists()

    def planned() -> Jobs:
        return untouched.run(options=["--dry-run"]).ok().jobs

    assert planned() == {}
    # Another number of iterations changes the workload, alone and in the mix.
    untouched.edit(STUDY, "iterations: 60", "iterations: 40")
    assert planned() == measuring_jobs(PRODUCT_CELLS | {"mps/both/2/1"})
    untouched.edit(STUDY, "iterations: 40", "iterations: 60")
    # Only the loop has a window; jobs end by themselves.
    untouched.edit(STUDY, "window_seconds: 0.2", "window_seconds: 0.3")
    assert planned() == {"calibrate": {"loop"}, **measuring_jobs({"exclusive/loop/1/1", "mps/both/2/1"})}
