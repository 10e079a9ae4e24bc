"""Gates, evidence, outcomes and provenance in the records of a study."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from sharebench.model.records.types import Record
from sharebench.read.columns import read_table
from sharebench.read.figures.data import DrawnStudy
from sharebench.read.gates.answers import answers_difference
from sharebench.read.gates.gates import read_judged


class Outcome(NamedTuple):
    """The outcome of cells of one point of the matrix that did not end well."""

    strategy: str
    workload: str
    replicas: int
    status: str
    reason: str


@dataclass
class Audit:
    """Counts and lists over all cells of the study."""

    cells: int = 0
    gates: dict[tuple[str, str], Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """(Gate, severity) → how many cells `passed`, `failed`, or were `unjudged` as the value is not known."""
    failures: dict[str, list[tuple[str, str, str]]] = field(default_factory=lambda: {"invalid": [], "warning": []})
    """Severity → (cell, gate, message) of every failed gate."""
    outcomes: dict[Outcome, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Outcome of cells that did not end well → their repeats."""
    logs: dict[Outcome, str] = field(default_factory=dict)
    """Outcome → the last lines of the log of the first tenant that failed."""
    evidence: dict[tuple[str, str], Counter[bool]] = field(default_factory=lambda: defaultdict(Counter))
    """(Strategy, evidence item) → how often it held and how often not."""
    answers: dict[tuple[str, str, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """(Strategy, workload, tenants) → how far the answers of each of their servers are from those alone, in nat."""
    provenance: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Name (run, Python, a package …) → each value with its number of cells."""

    def add(self, record: Record) -> None:
        self.cells += 1
        cell = record["cell"]
        strategy, workload, replicas, repeat = cell["strategy"], cell["workload"], cell["replicas"], cell["repeat"]
        for gate in record["gates"]:
            outcome = "failed" if not gate["passed"] else "passed" if gate["value"] is not None else "unjudged"
            self.gates[gate["name"], gate["severity"]][outcome] += 1
            if outcome == "failed":
                where = f"{strategy}, {workload}, N = {replicas}, repeat {repeat}"
                self.failures[gate["severity"]].append((where, gate["name"], gate["message"]))
        for tenant in record["tenants"]:
            if (difference := answers_difference(record, tenant)) is not None:
                self.answers[strategy, workload, replicas].append(difference)
        for item in record["evidence"]:
            self.evidence[strategy, item["name"]][item["holds"]] += 1
        if record["status"] != "ok":
            key = Outcome(strategy, workload, replicas, record["status"], record["reason"] or "")
            self.outcomes[key].append(repeat)
            for tenant in record["tenants"]:
                if tenant["exit"] and tenant["exit"]["log_tail"]:
                    self.logs.setdefault(key, f"tenant {tenant['index']}: {tenant['exit']['log_tail']}")
        provenance = record["provenance"]
        commit = provenance["git_commit"] or "not known"
        values = {
            "run": provenance["run_id"],
            "commit of the measuring code": commit + " with local changes" * bool(provenance["git_dirty"]),
            "Python of the tenants": provenance["python"],
            "platform": provenance["platform"],
            **provenance["packages"],
        }
        for name, value in values.items():
            self.provenance[name][value] += 1


def study_records(study: DrawnStudy) -> Iterator[Record]:
    """The records of all cells of tables/cells.csv, judged by today's gates as in the tables. Raises RecordError."""
    columns = ["strategy", "workload", "replicas", "repeat"]
    cells = read_table(study.results / "tables" / "cells.csv", columns=columns).drop_duplicates()
    for strategy, workload, replicas, repeat in cells[columns].itertuples(index=False):
        yield read_judged(study.cell_folder(strategy, workload, replicas, repeat) / "raw.json")
