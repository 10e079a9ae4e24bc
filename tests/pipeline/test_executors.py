"""Cells are measured on the host on which snakemake runs, whatever executor its user names."""

from pipeline.harness import Checkout

ELSEWHERE = ["--executor", "elsewhere", "--jobs", "2"]


def test_an_executor_for_other_hosts_is_refused_in_one_line_and_writes_nothing(untouched: Checkout) -> None:
    before = untouched.files()
    refused = untouched.run(options=ELSEWHERE)
    assert refused.code == 1 and not refused.jobs
    line = refused.out.splitlines()[-1]
    assert (
        line.startswith("--executor: cells are measured on the host on which snakemake runs") and "leave it out" in line
    )
    assert "Traceback" not in refused.out
    assert untouched.files() == before


def test_an_executor_on_this_host_measures(finished: Checkout) -> None:
    cell = "mps/alpha/2/1"
    finished.delete_records(cell)
    assert finished.run(options=["--executor", "here"]).ok().cells == {cell}


def test_a_run_that_measures_nothing_may_be_executed_anywhere(finished: Checkout) -> None:
    (finished.results / "report.html").unlink()
    assert finished.run("report", options=ELSEWHERE).ok().jobs == {"report": {""}}


def test_touching_what_is_not_there_measures_nothing_and_ends_in_order(untouched: Checkout) -> None:
    touched = untouched.run(options=["--touch"])
    assert touched.code == 0 and "Traceback" not in touched.out and "Error" not in touched.out
    assert not list(untouched.results.rglob("raw.json"))
