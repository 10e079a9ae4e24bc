"""A published data set made again for papers: its tables, its figures in the widths of papers, and its report."""

from __future__ import annotations

import shutil
from pathlib import Path

from sharebench import aggregate, dataset, decide, figures, lifecycle, report
from sharebench.files import read_json
from sharebench.matrix import Study

IN_REPORT = "page"
"""The width of `figures.PAPER` that the report shows."""


def draw(published: Path, out: Path) -> None:
    """Write `out`/tables, manifest.json, figures and report.html from the data set `published`.

    Raises dataset.DataSetError and aggregate.Refused when its records are not whole.
    """
    study, data = table(published, out)
    results = decide.read(data, out)
    catalogue = study.config["workload_catalogue"]
    decide.write_model(results, {name: catalogue[name]["class"] for name in study.calibrated()})
    decide.write_answer(results, study.config)
    for name in figures.names_for(study.config, study.node_kind):
        figures.draw(name, data, out, for_paper=True)
    if (data / "tables" / "timeslice.csv").is_file():
        shutil.copy(data / "tables" / "timeslice.csv", out / "tables")
        _draw_timeslice(data, out, study)
    report.write(data, out, f"-{IN_REPORT}")


def table(published: Path, out: Path) -> tuple[Study, Path]:
    """Write `out`/tables and manifest.json from the data set `published`; its study, and its folder once unpacked.

    Raises dataset.DataSetError and aggregate.Refused when its records are not whole.
    """
    study = dataset.study_of(published)
    dataset.check_whole(study)
    data = dataset.located(published)
    made_by = read_json(data / "manifest.json")
    # The time of the original, so that the same data give the same files.
    run = {key: made_by[key] for key in ("not_shown", "run_id", "created_epoch_seconds")}
    aggregate.table(study, data, out, run | {"argv": ["snakemake", "paper"]} | lifecycle.git_state())
    return study, data


def _draw_timeslice(data: Path, out: Path, study: Study) -> None:
    """The figure of the probe, which is of no cell."""
    from sharebench.figures import timeslice
    from sharebench.figures.sheet import save
    from sharebench.figures.style import theme

    for name, inches in figures.PAPER.items():
        with theme(inches):
            save(timeslice.draw(data, list(study.strategies)), out / "figures", f"timeslice-{name}")
