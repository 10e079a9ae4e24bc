"""The figure of makespans, with and without a queue, and the report's sentences on jobs."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from unit.edited import edited_json
from unit.figures import fabricated

from sharebench.read.columns import columns
from sharebench.read.figures import data, draw, over_replicas, style
from sharebench.read.report import page as report
from sharebench.read.report.sections import statements

pytestmark = pytest.mark.usefixtures("themed")

SECONDS = {"exclusive": {1: 2.0}, "mps": {1: 2.0, 2: 2.2, 4: 3.1}, "sequential": {1: 2.0, 2: 4.0, 4: 8.0}}


def row(strategy: str, replicas: int, seconds: float) -> dict[str, Any]:
    speedup = 2.0 * replicas / seconds
    blank = dict.fromkeys(columns("jobs"), np.nan) | {"reason": ""}
    return blank | {
        **{"strategy": strategy, "workload": "matmul", "replicas": replicas, "status": "ok", "n": 3, "n_expected": 3},
        **{"makespan_seconds": seconds, "makespan_seconds_low": 0.9 * seconds, "makespan_seconds_high": 1.2 * seconds},
        **{"speedup": speedup, "speedup_low": 0.9 * speedup, "speedup_high": 1.1 * speedup},
        "energy_per_job_joules": 100.0 * seconds / replicas,
    }


def with_jobs(root: Path, has_queue: bool = True) -> data.DrawnStudy:
    """The made-up study in which matmul is a job; of mig nothing fits."""
    with edited_json(root / "manifest.json") as manifest:
        config = manifest["config"]
        config["workload_catalogue"]["matmul"]["kind"] = "job"
        config["strategy_catalogue"]["sequential"] = {"description": "A queue.", "mechanism": ["sequential"]}
    rows = [
        row(strategy, replicas, seconds)
        for strategy, of_strategy in SECONDS.items()
        for replicas, seconds in of_strategy.items()
        if has_queue or strategy != "sequential"
    ]
    nothing = dict.fromkeys(columns("jobs"), np.nan)
    rows.append(nothing | row("mig", 4, np.nan) | {"n": 0, "status": "infeasible", "reason": "too few cores"})
    table = pd.DataFrame(rows, columns=list(columns("jobs")))
    if not has_queue:
        table[["speedup", "speedup_low", "speedup_high"]] = np.nan
    table.to_csv(root / "tables" / "jobs.csv", index=False)
    return data.load_study(root, root)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fabricated.write(tmp_path / "results")


def drawn(page: Any) -> dict[str, list[float]]:
    """The y values of each line of the first panel that has markers, by colour."""
    return {line.get_color(): list(line.get_ydata()) for line in page.axes[0].lines if line.get_marker() in "os^DvPXph"}


def test_each_strategy_has_its_makespans_and_the_queue_is_one_of_the_lines(root: Path) -> None:
    page = over_replicas.jobs(with_jobs(root))
    values = sorted(map(tuple, drawn(page).values()))
    assert values == sorted(tuple(of_strategy.values()) for of_strategy in SECONDS.values())
    assert page.axes[0].get_ylim() == (0, pytest.approx(1.08 * 1.2 * 8))
    assert "matmul: mig at 4 tenants is infeasible" in page.alt_text
    assert not [text for text in page.figure.findobj() if "window" in getattr(text, "get_text", str)()]


def test_without_a_queue_the_reference_is_a_multiple_of_one_job(root: Path) -> None:
    page = over_replicas.jobs(with_jobs(root, has_queue=False))
    (reckoned,) = (line for line in page.axes[0].lines if line.get_color() == style.GREY and len(line.get_ydata()) > 9)
    assert reckoned.get_ydata()[0] == pytest.approx(2.0) and reckoned.get_ydata()[-1] == pytest.approx(8.0)


def test_the_report_compares_shared_jobs_with_the_queue(root: Path) -> None:
    (of_matmul,) = statements.jobs(with_jobs(root))
    assert of_matmul.workload == "matmul"
    assert of_matmul.statements == [
        (
            "mps",
            "4 jobs shared by mps take 3.1 s against 8 s one after another, 2.58 times as fast (95 % interval 2.32 to "
            "2.84). A job takes 77.5 J against 200 J.",
        )
    ]


def test_the_report_says_when_there_was_no_queue(root: Path) -> None:
    (of_matmul,) = statements.jobs(with_jobs(root, has_queue=False))
    assert of_matmul.statements == [("mps", "4 jobs shared by mps take 3.1 s; one after another was not measured.")]


def test_the_report_has_a_section_of_jobs_with_the_colour_of_the_queue(root: Path) -> None:
    with_jobs(root)
    draw.draw_figure("jobs", root, root)
    report.write_report(root, root)
    html = (root / "report.html").read_text()
    section = html.split('<section id="jobs">')[1].split("</section>")[0]
    assert "matmul: 4 jobs shared by mps take 3.1 s" in section
    assert "8.00<small>7.20 – 9.60</small>" in section, "the makespan of four jobs in the queue, with its interval"
    assert "too few cores" in section
    assert "<p>Fixed work: all jobs are warm" in section and "Makespan of jobs by their number" in html
    assert '<i class="swatch" style="background: #777">' not in section
