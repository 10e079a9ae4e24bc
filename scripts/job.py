"""Run a job of the pipeline: `job.py NAME --option …`, whose options are the parameters of its function."""

import errno
import sys
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any

from sharebench.core import console
from sharebench.core.files import Refusal

# Functions whose first parameter is the run that owns the results.
RUN_JOBS = {
    "calibrate": "sharebench.measure.run.jobs.calibrate",
    "characterise_node": "sharebench.measure.run.jobs.characterise_node",
    "configure_node": "sharebench.measure.run.jobs.configure_node",
    "measure_answers": "sharebench.measure.run.answers.measure",
    "measure_timeslice": "sharebench.measure.run.timeslice.probe.measure",
    "run_cell": "sharebench.measure.run.jobs.measure_cells",
}
JOBS = RUN_JOBS | {
    "aggregate": "sharebench.read.aggregate.aggregate",
    "archive": "sharebench.datasets.ro_crate.write",
    "decide": "sharebench.read.decide.decide.decide",
    "draw_answers": "sharebench.read.figures.answers.write_figure",
    "draw_timeslice": "sharebench.read.figures.timeslice.write_figure",
    "export_histograms": "sharebench.read.tables.histograms.export_histograms",
    "figures": "sharebench.read.figures.draw.draw_figures",
    "paper": "publication.rebuild.rebuild_all",
    "paper_together": "publication.build.write",
    "publish": "sharebench.datasets.publish.publish",
    "report": "sharebench.read.report.page.write_report",
    "table_failed_run": "sharebench.read.closing.table_failed_run",
}

FULL = (errno.ENOSPC, errno.EDQUOT)


def naming_a_full_disk(job: Callable[..., Any]) -> Callable[..., Any]:
    """The job of reading, refused with a path where the disk is full, which the error of a write does not name."""

    @wraps(job)
    def named(**options: Any) -> Any:
        try:
            return job(**options)
        except OSError as error:
            if error.errno not in FULL:
                raise
            path = error.filename or options.get("results", options.get("out"))
            raise Refusal(f"{path}: {error.strerror}") from None

    return named


def main(name: str = "", *arguments: str) -> int:
    if name not in JOBS:
        print(f"there is no job {name!r}; name one of {', '.join(JOBS)}", file=sys.stderr)
        return 2
    module, _, function = JOBS[name].rpartition(".")
    opening = import_module("sharebench.measure.run.jobs").measuring_job if name in RUN_JOBS else None
    job = getattr(import_module(module), function)
    return console.run_job(job if opening else naming_a_full_disk(job), arguments, opening)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
