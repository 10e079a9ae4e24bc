"""What a study says of its jobs, in plain words."""

import math
from typing import Any, NamedTuple

from sharebench.core.spec import has_jobs
from sharebench.figures import data
from sharebench.report.words import digits

Row = dict[str, Any]


class Jobs(NamedTuple):
    """One job of the study: its rows of tables/jobs.csv, and what they say of each strategy."""

    workload: str
    rows: list[Row]
    findings: list[tuple[str, str]]


def of_jobs(study: data.DrawnStudy) -> list[Jobs]:
    """One entry per workload that is a job, in order; empty without jobs."""
    if not has_jobs(study.config):
        return []
    table = data.jobs(study)
    strategies = study.strategies(table)
    found = []
    for workload in study.workloads(table):
        rows: list[Row] = [
            {str(key): value for key, value in row.items()}
            for row in table[table["workload"] == workload].to_dict("records")
        ]
        rows.sort(key=lambda row: (strategies.index(row["strategy"]), row["replicas"]))
        found.append(Jobs(workload, rows, _findings(rows, study)))
    return found


def _findings(rows: list[Row], study: data.DrawnStudy) -> list[tuple[str, str]]:
    """Strategy and what its largest number of jobs with a valid cell says, for all but queues and single jobs."""
    catalogue = study.config["strategy_catalogue"]
    said = []
    for strategy in dict.fromkeys(row["strategy"] for row in rows):
        own = [row for row in rows if row["strategy"] == strategy and row["n"] > 0 and row["replicas"] > 1]
        if not own or catalogue[strategy]["mechanism"] == ["sequential"]:
            continue
        row = own[-1]
        text = f"{row['replicas']} jobs shared by {strategy} take {row['makespan_seconds']:.3g} s"
        if math.isnan(row["speedup"]):
            text += "; one after another was not measured."
        else:
            queue = next(each for each in rows if _is_queue_of(each, row, catalogue))
            within = ""
            if not math.isnan(row["speedup_low"]):
                within = f" (95 % interval {row['speedup_low']:.2f} to {row['speedup_high']:.2f})"
            text += (
                f" against {queue['makespan_seconds']:.3g} s one after another,"
                f" {row['speedup']:.2f} times as fast{within}."
            )
            energies = row["energy_per_job_joules"], queue["energy_per_job_joules"]
            if not any(map(math.isnan, energies)):
                text += f" A job takes {digits(energies[0])} J against {digits(energies[1])} J."
        said.append((strategy, text))
    return said


def _is_queue_of(row: Row, shared: Row, catalogue: dict[str, Any]) -> bool:
    is_queue = catalogue[row["strategy"]]["mechanism"] == ["sequential"] and row["n"] > 0
    return is_queue and bool(row["replicas"] == shared["replicas"])
