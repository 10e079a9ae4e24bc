"""Run a job of the pipeline: `job.py NAME --option …`, whose options are the parameters of its function."""

import sys
from importlib import import_module

from sharebench.core import console

# Functions whose first parameter is the run that owns the results.
RUN_JOBS = {
    "calibrate": "sharebench.run.jobs.calibrate",
    "characterise_node": "sharebench.run.jobs.characterise_node",
    "configure_node": "sharebench.run.jobs.configure_node",
    "measure_timeslice": "sharebench.run.timeslice.probe.measure",
    "restore": "sharebench.run.jobs.restore",
    "run_cell": "sharebench.run.jobs.measure_cell",
}
JOBS = RUN_JOBS | {
    "aggregate": "sharebench.analysis.aggregate.aggregate",
    "archive": "sharebench.datasets.ro_crate.write",
    "compare": "sharebench.analysis.compare.write_comparison",
    "decide": "sharebench.analysis.decide.decide.decide",
    "draw_timeslice": "sharebench.figures.timeslice.write_figure",
    "export_histograms": "sharebench.analysis.tables.histograms.export_histograms",
    "figures": "sharebench.figures.draw.draw_figures",
    "join": "sharebench.datasets.join.join_parts",
    "paper": "publication.rebuild.rebuild_all",
    "paper_together": "publication.build.write",
    "plan": "sharebench.run.plan.show_plan",
    "preflight": "sharebench.nodes.kubernetes.preflight.preflight.show",
    "publish": "sharebench.datasets.publish.publish",
    "report": "sharebench.report.page.write_report",
    "survey": "survey.survey",
    "table_failed_run": "sharebench.analysis.aggregate.write_partial_tables",
}


def main(name: str = "", *arguments: str) -> int:
    if name not in JOBS:
        print(f"there is no job {name!r}; name one of {', '.join(JOBS)}", file=sys.stderr)
        return 2
    module, _, function = JOBS[name].rpartition(".")
    opening = import_module("sharebench.run.jobs").measuring_job if name in RUN_JOBS else None
    return console.run_job(getattr(import_module(module), function), arguments, opening)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
