"""Questions to finished results: which jobs they run, and what they leave unchanged."""

import shutil

from pipeline.harness import JOBS_AFTER_TABLES, Checkout, table_jobs, unstub_jobs
from tables import rows


def test_another_question_rebuilds_only_the_advice(finished: Checkout) -> None:
    for key in ("tenants=2", "isolation=fault"):
        assert finished.run(config=[key], options=["--dry-run"]).ok().jobs == JOBS_AFTER_TABLES
    assert finished.run(config=["price_per_hour=4.0"]).ok().jobs == JOBS_AFTER_TABLES
    assert finished.run(config=["price_per_hour=4.0"]).ok().jobs == {}
    assert finished.run(options=["--dry-run"]).ok().jobs == JOBS_AFTER_TABLES


def test_an_slo_adds_goodput_to_the_tables(finished: Checkout) -> None:
    assert finished.run(config=["slo={latency_ms: 50}"]).ok().jobs == table_jobs(())
    assert {"goodput_hz"} <= set(rows(finished.results / "tables/cells.csv")[0])
    assert finished.run().ok().jobs == table_jobs(())
    assert "goodput_hz" not in rows(finished.results / "tables/cells.csv")[0]


def test_advise_answers_from_the_tables_and_measures_nothing(finished: Checkout) -> None:
    unstub_jobs(finished, "decide")
    # The stubbed run left no real decision.
    finished.run("decide", options=["--forcerun", "decide"]).ok()
    before = (finished.results / "tables/summary.csv").read_bytes()
    question = ["slo={latency_ms: 8}", "tenants=2", "isolation=none", "price_per_hour=4.0"]
    asked = finished.run("advise", config=question).ok()
    assert asked.jobs == {"advise": {""}} and asked.switches == []
    assert "Advice for 2 tenants, SLO 8 ms, $4 per device and hour, from A100 80GB PCIe (simulated)" in asked.out
    # Latency is 2 + 500 / 108 ms alone, 11.3 ms for two under MPS, longer under time-slicing, and 37.7 ms with MIG.
    assert "alpha: take exclusive on 2 devices, one tenant on each: p" in asked.out
    assert "$5,760.00 a month" in asked.out.replace("\n ", "")
    assert "- alpha: take exclusive on 2 devices" in (finished.results / "tables/advice.md").read_text()
    assert {row["slo_ms"] for row in rows(finished.results / "tables/advice.csv")} == {"8.0"}
    assert (finished.results / "tables/summary.csv").read_bytes() == before

    # The next plain run answers the question of the config again.
    assert finished.run().ok().jobs == JOBS_AFTER_TABLES

    finished.delete_records("mig/alpha/2/1")
    assert finished.run("advise", config=question).ok().jobs == {"advise": {""}}
    assert not finished.record_path("mig/alpha/2/1").exists()


def test_advise_without_results_is_one_line(untouched: Checkout) -> None:
    unstub_jobs(untouched, "decide")
    result = untouched.run("advise")
    assert result.code == 1 and result.cells == set()
    assert "no finished results in results (results/manifest.json is missing); measure first" in result.out
    assert "Traceback" not in result.out


def test_advise_on_a_data_set_makes_its_tables_first(finished: Checkout) -> None:
    unstub_jobs(finished, "decide")
    data = finished.root / "tmp/data"
    shutil.copytree(finished.results, data, ignore=shutil.ignore_patterns(".sharebench", "tables", "figures"))
    asked = finished.run("advise", config=[f"from={data}", "slo={latency_ms: 12}", "tenants=2"]).ok()
    assert asked.jobs == {"aggregate": {""}, "advise": {""}}
    assert "alpha: take mps on 1 device: " in asked.out and "beta: " in asked.out
    assert table_jobs(set()).keys() - asked.jobs.keys() == {"decide", "figures", "report"}
    assert (finished.root / "results/from/data/tables/advice.md").exists()
    assert "goodput_hz" in rows(finished.root / "results/from/data/tables/cells.csv")[0], "by the SLO of the question"
    asked = finished.run("advise", config=[f"from={data}", "slo={latency_ms: 12}", "tenants=2", "workloads=alpha"]).ok()
    assert "alpha: take mps on 1 device: " in asked.out and "beta: " not in asked.out
