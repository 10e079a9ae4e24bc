"""`from`: tables, figures and report of a data set are rebuilt without measuring; figures are reproducible."""

import json
import shutil
from typing import Any, cast

from pipeline.harness import REPOSITORY, Checkout, table_jobs, unstub_jobs
from tables import rows
from unit.edited import edited_table

from sharebench.model.study_config import StudyConfig
from sharebench.read.figures.catalogue import names_for


def test_tables_and_figures_of_a_data_set_are_rebuilt_to_the_byte(finished: Checkout) -> None:
    data = finished.root / "tmp/paper-2026"
    shutil.copytree(finished.results, data, ignore=shutil.ignore_patterns(".sharebench", "tables", "figures"))
    shutil.rmtree(finished.root / ".snakemake")
    before = finished.files()
    unstub_jobs(finished)
    # The config file is that of another study; the one in the data set counts.
    options: dict[str, Any] = {"study": "cpu.yaml", "config": [f"from={data}"], "cores": 2}
    result = finished.run(**options).ok()
    assert result.jobs == table_jobs(set())
    made = finished.root / "results/from/paper-2026"
    assert (made / "tables/summary.csv").read_bytes() == (finished.results / "tables/summary.csv").read_bytes()
    assert "A100" in (made / "report.html").read_text()
    assert json.loads((made / "manifest.json").read_text())["node_kind"] == "simulated"
    new = finished.files() - before
    assert not [path for path in new if not path.startswith(("results/from", ".snakemake"))]

    figures = {path.name: path.read_bytes() for path in (made / "figures").glob("*.svg")}
    no_pairs = cast(StudyConfig, {"interference": [], "faults": [], "workloads": []})
    assert set(figures) == {f"{name}.svg" for name in names_for(no_pairs, "simulated")}
    assert all(len(svg) > 10_000 for svg in figures.values()), "real figures, not stubs"
    again = ["latency.svg", "startup.svg"]
    for name in again:
        (made / "figures" / name).unlink()
    drawn = finished.run(*(f"results/from/paper-2026/figures/{name}" for name in again), **options).ok()
    assert drawn.jobs == {"figures": {""}}
    assert {path.name: path.read_bytes() for path in (made / "figures").glob("*.svg")} == figures


def test_tables_of_a_published_gpu_data_set_are_rebuilt_without_a_gpu(untouched: Checkout) -> None:
    data = untouched.root / "published" / "h200" / "eager"
    shutil.copytree(REPOSITORY / "published" / "h200" / "eager", data)
    assert untouched.run(config=["from=published/h200/eager"]).ok().jobs == table_jobs(set())
    made = untouched.root / "results/from/eager"
    summary = rows(made / "tables/summary.csv")
    assert len(summary) == 7
    [sliced] = [
        row for row in summary if (row["strategy"], row["workload"], row["replicas"]) == ("time-slicing", "yolos", "7")
    ]
    assert 7 < float(sliced["slowdown"]) < 8
    table = (made / "tables/summary.md").read_text()
    assert table.startswith("NVIDIA H200, ") and "not a GPU" not in table


def test_what_a_further_study_has_measured_counts_and_its_change_is_decided_anew(untouched: Checkout) -> None:
    for name in ("eager", "faults"):
        shutil.copytree(REPOSITORY / "published" / "h200" / name, untouched.root / "tmp" / name / "mine")
    # A study of one's own, which changes, has none.
    (untouched.root / "tmp/faults/mine/checksums.sha256").unlink()
    unstub_jobs(untouched, "decide")
    options: dict[str, Any] = {"config": ["from=[tmp/eager/mine, tmp/faults/mine]"]}
    untouched.run(**options).ok()
    made = untouched.root / "results/from/mine/tables/advice.csv"
    basis = {row["strategy"]: row["fault_isolation_basis"] for row in rows(made)}
    assert basis["time-slicing"].startswith("measured in faults/mine: 0 of ")
    assert untouched.run(**options).ok().jobs == {}
    with edited_table(untouched.root / "tmp/faults/mine/tables/isolation.csv") as faults:
        faults["failed"] = 1
    assert set(untouched.run(**options).ok().jobs) == {"decide", "report"}
    assert {row["fault_isolation"] for row in rows(made) if row["strategy"] == "time-slicing"} == {"no"}


def test_a_folder_that_is_not_a_data_set_is_refused_in_one_line(untouched: Checkout) -> None:
    before = untouched.files()
    result = untouched.run(config=["from=envs"])
    assert result.code == 1
    assert result.out.splitlines()[1:] == [
        "config: from: envs is not a data set (manifest.json: No such file or directory); "
        "give a folder that has manifest.json and cells/"
    ]
    assert untouched.files() == before


def test_an_incomplete_data_set_is_refused_in_one_line(finished: Checkout) -> None:
    finished.delete_records("mig/alpha/2/1", "mps/alpha/2/1")
    result = finished.run(config=["from=results"])
    assert result.code == 1
    [_, line] = result.out.splitlines()
    assert line.startswith("config: from: results lacks 2 of its 39 files, such as cells/m")
    assert line.endswith("/alpha/n2/r1/raw.json; give a complete data set")


def test_a_damaged_data_set_is_refused_without_an_unusable_command(finished: Checkout) -> None:
    finished.record_path("mig/alpha/2/1").write_text("damaged")
    result = finished.run(config=["from=results"])
    assert result.failed == {"aggregate": {""}}
    assert "results/cells/mig/alpha/n2/r1/raw.json: not valid JSON, damaged or cut off" in result.out
    assert "re-measure them where this data set was made" in result.out
    assert "--forcerun" not in result.out
