"""Questions to finished results: which jobs they run, what they leave unchanged, and their answers."""

import re
import shutil

from pipeline.harness import Checkout, Jobs, table_jobs, unstub_jobs
from tables import rows


def test_another_question_rebuilds_only_the_advice(finished: Checkout) -> None:
    answered: Jobs = {"decide": {""}, "report": {""}}
    for key in ("tenants=2", "isolation=fault", "deploy=device-plugin"):
        assert finished.run(config=[key], options=["--dry-run"]).ok().jobs == answered
    assert finished.run(config=["price_per_hour=4.0"]).ok().jobs == answered
    assert finished.run(config=["price_per_hour=4.0"]).ok().jobs == {}
    assert finished.run(options=["--dry-run"]).ok().jobs == answered


def test_decision_and_report_need_no_records(finished: Checkout) -> None:
    unstub_jobs(finished, "decide", "report")
    page = finished.results / "report.html"
    finished.run("report", options=["--forcerun", "decide"]).ok()
    whole = page.read_text()
    shutil.rmtree(finished.results / "cells")
    assert finished.run("report", options=["--forcerun", "report"]).ok().jobs == {"report": {""}}
    assert page.read_text() == whole and "Gates over 28 cells" in whole
    again = finished.run("report", config=["slo={latency_ms: 50}"], options=["--forcerun", "decide", "--dry-run"])
    assert "aggregate" in again.ok().jobs, "goodput needs the records"


def test_an_slo_adds_goodput_to_the_tables(finished: Checkout) -> None:
    assert finished.run(config=["slo={latency_ms: 50}"]).ok().jobs == table_jobs(())
    assert {"goodput_hz"} <= set(rows(finished.results / "tables/cells.csv")[0])
    assert finished.run().ok().jobs == table_jobs(())
    assert "goodput_hz" not in rows(finished.results / "tables/cells.csv")[0]


def test_advise_answers_from_the_records_and_changes_nothing(finished: Checkout) -> None:
    # A table that was cut would give an answer of its own.
    summary = finished.results / "tables/summary.csv"
    summary.write_text("".join(line for line in summary.open() if not line.startswith("exclusive")))
    before = {name: (finished.results / "tables" / name).read_bytes() for name in ("summary.csv", "advice.csv")}
    files = finished.files()
    said = finished.ask(
        "advise", "--slo", "latency_ms=8", "--tenants", "2", "--price-per-hour", "4.0", "--workloads", "alpha"
    )
    assert "Advice for 2 tenants, SLO 8 ms, $4 per GPU and hour, from A100 80GB PCIe (simulated)" in said
    # Latency is 2 + 500 / 108 ms alone, 11.3 ms for two under MPS, longer under time-slicing, and 37.7 ms with MIG.
    assert re.search(r"^-.*\nexclusive +2, 1 on each ", said, flags=re.MULTILINE)
    assert finished.files() == files
    assert before == {name: (finished.results / "tables" / name).read_bytes() for name in before}


def test_advise_on_a_data_set_makes_its_tables_with_the_slo(finished: Checkout) -> None:
    data = finished.root / "tmp/data"
    shutil.copytree(finished.results, data, ignore=shutil.ignore_patterns(".sharebench", "tables", "figures"))
    question = ["advise", str(data), "--slo", "latency_ms=12", "--tenants", "2"]
    said = finished.ask(*question)
    assert "alpha: no winner, since it was not a GPU." in said and "beta: " in said
    said = finished.ask(*question, "--workloads", "alpha")
    assert re.search(r"^-.*\nmps +1, 2 on each ", said, flags=re.MULTILINE) and "beta: " not in said
