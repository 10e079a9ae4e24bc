"""Sentences about each strategy: interference, faults and jobs."""

import math
from collections.abc import Callable
from typing import NamedTuple

import pandas as pd

from sharebench.model.study_config import has_jobs
from sharebench.read.figures.data import DrawnStudy, Row, table_rows, worst_outcome
from sharebench.read.report.words import format_number

OUTCOME_OPENINGS = {
    "failed": "A victim failed next to",
    "slowed": "Slowed, but alive, next to",
    "unharmed": "Unharmed next to",
    "survived": "Survived, with latencies that cannot be judged, next to",
    "": "Not known next to",
}


class Statement(NamedTuple):
    strategy: str
    text: str


class JobStatements(NamedTuple):
    """A workload that is a job: its rows of tables/jobs.csv, and statements about them."""

    workload: str
    rows: list[Row]
    statements: list[Statement]


def interference(study: DrawnStudy) -> list[Statement]:
    """Of each strategy the worst pair, and the one whose two suffer least alike; empty without pairs."""
    return _strategy_statements(study, "interference", _pair_sentences) if study.config["interference"] else []


def isolation(study: DrawnStudy) -> list[Statement]:
    """Of each strategy who survived whose fault under it; empty without faults."""
    return _strategy_statements(study, "isolation", _fault_sentences) if study.config["faults"] else []


def _strategy_statements(
    study: DrawnStudy, table: str, sentences: Callable[[pd.DataFrame], list[str]]
) -> list[Statement]:
    found = study.by_strategy(study.table(table))
    return [Statement(strategy, " ".join(sentences(rows))) for strategy, rows in found.items()]


def _interval_text(row: Row, metric: str) -> str:
    low, high = row[f"{metric}_low"], row[f"{metric}_high"]
    return "" if math.isnan(low) else f" (95 % interval {low:.2f} to {high:.2f})"


def _pair_sentences(table: pd.DataFrame) -> list[str]:
    rows = table_rows(table.dropna(subset=["slowdown"]))
    if not rows:
        return ["No pair has a valid measurement."]
    worst = max(rows, key=lambda row: float(row["slowdown"]))
    sentences = [
        f"Worst: next to {worst['aggressor']}, the latency of {worst['victim']} is × {worst['slowdown']:.2f} of that"
        f" alone{_interval_text(worst, 'slowdown')}."
    ]
    slowdowns = {(row["victim"], row["aggressor"]): float(row["slowdown"]) for row in rows}
    ratios = {
        pair: slowdowns[pair] / slowdowns[pair[::-1]]
        for pair in slowdowns
        if pair[0] != pair[1] and pair[::-1] in slowdowns
    }
    if ratios:
        loser, winner = max(ratios, key=lambda pair: ratios[pair])
        sentences.append(
            f"Least alike: {loser} next to {winner} × {slowdowns[loser, winner]:.2f}, {winner} next to {loser}"
            f" × {slowdowns[winner, loser]:.2f}, a ratio of {ratios[loser, winner]:.2f}."
        )
    if len(rows) < len(table):
        sentences.append(f"Without a valid measurement: {len(table) - len(rows)} of {len(table)}.")
    return sentences


def _fault_sentences(rows: pd.DataFrame) -> list[str]:
    faults: dict[str, list[str]] = {outcome: [] for outcome in OUTCOME_OPENINGS}
    for kind in dict.fromkeys(rows["fault"]):
        faults[worst_outcome(rows[rows["fault"] == kind])[0]].append(kind)
    sentences = [f"{OUTCOME_OPENINGS[outcome]}: {', '.join(kinds)}." for outcome, kinds in faults.items() if kinds]
    seconds = rows["new_tenant_seconds"].dropna()
    if len(seconds):
        sentences.append(f"Afterwards a new tenant was ready within {seconds.max():.2g} s.")
    again = dict.fromkeys(rows.loc[rows["set_up_again"] > 0, "fault"])
    if again:
        sentences.append(f"Had to be set up again after: {', '.join(again)}.")
    return sentences


def jobs(study: DrawnStudy) -> list[JobStatements]:
    """One entry per workload that is a job, in order; empty without jobs."""
    if not has_jobs(study.config):
        return []
    catalogue = study.config["strategy_catalogue"]
    queues = {name for name, entry in catalogue.items() if entry.is_queue}
    statements_of_jobs = []
    for workload, rows in study.rows_by_workload(study.table("jobs")).items():
        queue = {row["replicas"]: row for row in reversed(rows) if row["strategy"] in queues and row["n"] > 0}
        # The largest number of jobs with a valid cell, by strategy.
        largest = {row["strategy"]: row for row in rows if row["n"] > 0 and row["replicas"] > 1}
        statements = [
            Statement(name, _makespan_sentence(row, queue.get(row["replicas"], {})))
            for name, row in largest.items()
            if name not in queues
        ]
        statements_of_jobs.append(JobStatements(workload, rows, statements))
    return statements_of_jobs


def _makespan_sentence(row: Row, queue: Row) -> str:
    """Sentences on the makespan of a strategy's jobs against that of the same number in a queue."""
    text = f"{row['replicas']} jobs shared by {row['strategy']} take {row['makespan_seconds']:.3g} s"
    if math.isnan(row["speedup"]):
        return text + "; one after another was not measured."
    text += (
        f" against {queue['makespan_seconds']:.3g} s one after another,"
        f" {row['speedup']:.2f} times as fast{_interval_text(row, 'speedup')}."
    )
    energies = row["energy_per_job_joules"], queue["energy_per_job_joules"]
    if not any(map(math.isnan, energies)):
        text += f" A job takes {format_number(energies[0])} J against {format_number(energies[1])} J."
    return text
