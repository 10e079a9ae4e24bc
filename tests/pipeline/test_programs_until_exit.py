"""User programs that run until they exit, through the whole pipeline."""

import pytest
from pipeline.harness import Checkout, measuring_jobs
from tables import rows

# It sleeps in a child process; with 1 as second argument it fails at once.
EXITS = """
import subprocess, sys
if sys.argv[2:] == ["1"]:
    print("no such data set", flush=True)
    sys.exit(3)
nap = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({sys.argv[1]})"])
sys.exit(nap.wait())
"""
WORKLOADS = ("brief", "fails", "endless")
STRATEGIES = {"exclusive": 1, "sequential": 2, "mps": 2}
CELLS = {f"{strategy}/{name}/{n}/1" for strategy, n in STRATEGIES.items() for name in WORKLOADS}


@pytest.mark.thorough
def test_programs_are_measured_until_they_exit(untouched: Checkout) -> None:
    untouched.study = "exiting.yaml"
    (untouched.root / "exits.py").write_text(EXITS)
    result = untouched.run().ok()
    assert result.jobs == {
        "characterise_node": {""},
        "configure_node": {"exclusive", "sequential", "mps"},
        **measuring_jobs(CELLS),
    }, "such programs are not calibrated"
    assert untouched.processes() == []
    assert untouched.scratch_folders() == []

    shared, queue = (untouched.record(f"{strategy}/brief/2/1") for strategy in ("mps", "sequential"))
    for record in (shared, queue):
        assert (record["status"], record["calibration"]) == ("ok", None)
        assert all(item["holds"] for item in record["evidence"])
        for tenant in record["tenants"]:
            assert (tenant["measured_by"], tenant["count"], tenant["job"]["completed"]) == ("exit", 1, 1)
            assert tenant["sum_seconds"] == tenant["job"]["completion_seconds"] >= 0.3
            assert tenant["cpu"]["cpu_seconds"] > 0
            assert tenant["memory_bytes"] > 1 << 20
    took = [tenant["job"]["completion_seconds"] for tenant in shared["tenants"]]
    window = shared["window"]
    assert window["end_monotonic_seconds"] - window["start_monotonic_seconds"] == pytest.approx(max(took), abs=1e-6)
    (_, first_end), (second_start, _) = queue["window"]["turns"]
    assert first_end < second_start

    failed = untouched.record("mps/fails/2/1")
    assert failed["reason"] == "1 of 2 tenants crashed: ended by itself with exit code 3"
    assert failed["tenants"][1]["exit"]["log_tail"] == "no such data set\n"
    late = untouched.record("mps/endless/2/1")
    assert late["reason"] == "2 of 2 tenants hung: it had not exited 0.5 s after its start"
    assert [each["status"] for each in untouched.record("sequential/endless/2/1")["tenants"]] == [
        "hung",
        "not-measured",
    ]

    jobs = {(row["strategy"], row["workload"]): row for row in rows(untouched.results / "tables/jobs.csv")}
    assert set(jobs) == {(strategy, name) for strategy in STRATEGIES for name in WORKLOADS}
    row = jobs["mps", "brief"]
    # On a busy machine a gate may exclude a cell.
    if row["n"] == jobs["sequential", "brief"]["n"] == "1":
        assert float(row["makespan_seconds"]) == pytest.approx(max(took))
        assert float(row["makespan_with_startup_seconds"]) == pytest.approx(max(took)), "with the start"
        queued = sum(tenant["job"]["completion_seconds"] for tenant in queue["tenants"])
        assert float(row["speedup"]) == pytest.approx(queued / max(took))
    assert [jobs["mps", name]["status"] for name in WORKLOADS] == ["ok", "crashed", "hung"]

    assert untouched.run().ok().jobs == {}, "an outcome is not re-measured"
    # Windows and warm-up are for workloads of other kinds.
    untouched.edit("exiting.yaml", "max_seconds: 0.5", "max_seconds: 1")
    again = untouched.run(config=["window_seconds=2", "warmup={max_seconds: 3}"], options=["--dry-run"]).ok()
    assert again.cells == {f"{strategy}/endless/{n}/1" for strategy, n in STRATEGIES.items()}
