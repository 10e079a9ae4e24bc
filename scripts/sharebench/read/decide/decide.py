"""From tables to a decision: cost, capacity and advice of a study."""

import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from sharebench.core.files import read_json, replace_atomically, write_json
from sharebench.model.capabilities import unsupported_reason
from sharebench.model.question import Question
from sharebench.model.records.references import device_name, read_device
from sharebench.model.strategies import all_strategies, is_control, node_strategies
from sharebench.model.strategy import Strategy
from sharebench.model.study_config import StudyConfig, from_json, sweeps_by_entry
from sharebench.read.cells.metrics import study_kinds
from sharebench.read.cells.rows import group_by
from sharebench.read.columns import TableRow, csv_text, read_table, table_frame
from sharebench.read.decide import advice_text
from sharebench.read.decide.advice import Demand
from sharebench.read.decide.advice_text import Answer, Reason
from sharebench.read.decide.capacity import capacity_table, describe_capacity
from sharebench.read.decide.cost import CostKey, cost_table
from sharebench.read.decide.device import DeviceLimits, device_limits
from sharebench.read.decide.documented import measured_faults
from sharebench.read.decide.options import strategy_options
from sharebench.read.decide.rows import SummaryRow, summary_rows
from sharebench.read.finished import NoResults
from sharebench.read.slo import LATENCY, slo_limits
from sharebench.study.cells import Cell

CELL_COLUMNS = ["strategy", "workload", "replicas", "repeat"]


@dataclass(frozen=True)
class Results:
    data: Path
    root: Path
    config: StudyConfig
    name: str
    strategies: Mapping[str, Strategy]
    """The strategies that this kind of node supports."""
    device: DeviceLimits
    raw: Mapping[CostKey, Sequence[Path]]
    """The existing records of the valid cells; records of another config may lie next to them."""
    summary: Sequence[SummaryRow]
    """The rows of plain workloads; mixes have unlike tenants, and jobs a table of their own."""

    @property
    def workloads(self) -> list[str]:
        return list(dict.fromkeys(row.workload for row in self.summary))

    def is_shared(self, workload: str) -> bool:
        """Whether it was run under a sharing strategy; otherwise there is nothing to choose from."""
        own = (row.strategy for row in self.summary if row.workload == workload)
        return any(name in self.strategies and self.strategies[name].mechanism != ("exclusive",) for name in own)


def read_results(data: Path, root: Path) -> Results:
    """Read the tables under `root` of the cells under `data`. Raises NoResults where there are none."""
    try:
        manifest = read_json(root / "manifest.json", "config", "node_kind")
        node = read_device(data / "nodes" / "device.json")["node"]
        summary = read_table(root / "tables" / "summary.csv")
        cells = read_table(root / "tables" / "cells.csv", columns=[*CELL_COLUMNS, "valid"])
    except OSError as error:
        raise NoResults(root, error) from None
    config = from_json(manifest["config"])
    kind = manifest["node_kind"]
    # Older manifests lack `device_units`.
    device = device_limits(node, config, node["units"] or manifest.get("device_units"))
    # Leave out the A/A control, and queues, which do not share.
    own = {
        name: each for name, each in node_strategies(config, kind).items() if not (is_control(name) or each.is_queue)
    }
    entries = all_strategies(config)
    supported = {
        name: each for name, each in own.items() if unsupported_reason(kind, entries[name], each.access) is None
    }
    valid = sorted({Cell(*found) for found in cells[cells["valid"]][CELL_COLUMNS].itertuples(index=False)})
    unmixed = summary[summary["workload"] == summary["tenant_workload"]]
    plain = [row for row in summary_rows(unmixed) if _is_plain(row.workload, config) and not is_control(row.strategy)]
    return Results(
        data=data,
        root=root,
        config=config,
        name=device_name(node),
        strategies=supported,
        device=device,
        raw={
            group: [path for cell in own if (path := data / cell.raw).exists()]
            for group, own in group_by(valid, lambda cell: (cell.strategy, cell.workload, cell.replicas)).items()
        },
        summary=plain,
    )


def _is_plain(workload: str, config: StudyConfig) -> bool:
    entry = config["workload_catalogue"].get(workload)
    is_mix_or_job = entry is not None and (entry.tenants is not None or entry.is_job)
    return "+" not in workload and not is_mix_or_job


def decide(data: Path, results: Path, question: Question, decided: Path) -> str:
    """Write the answer from the tables under `results`, then the marker `decided`, the only file in its folder.

    Returns the advice as text. Raises NoResults.
    """
    text = write_answer(read_results(data, results), question)
    shutil.rmtree(decided.parent, ignore_errors=True)
    decided.parent.mkdir(parents=True)
    decided.touch()
    return text


class Answered(NamedTuple):
    """The tables of a decision, by name, and the answer for each workload."""

    tables: Mapping[str, pd.DataFrame]
    answers: Sequence[Answer]
    caption: str

    def for_terminal(self) -> str:
        return advice_text.advice_for_terminal(self.tables["advice"], self.answers, self.caption)


def write_answer(results: Results, question: Question) -> str:
    """Write tables/cost.csv, capacity.csv and advice.csv, .md and .json. Returns the advice as text."""
    answered, folder = answer(results, question), results.root / "tables"
    for name, table in answered.tables.items():
        replace_atomically(folder / f"{name}.csv", csv_text(table))
    markdown = advice_text.advice_markdown(answered.tables["advice"], answered.answers, answered.caption)
    replace_atomically(folder / "advice.md", markdown)
    answers = [each._asdict() for each in answered.answers]
    write_json(folder / "advice.json", {"caption": answered.caption, "answers": answers})
    return f"{answered.for_terminal()}\n\nMore columns: {folder / 'advice.csv'}"


def answer(results: Results, question: Question) -> Answered:
    slo = slo_limits(question["slo"])
    studies = study_kinds({**results.config, "slo": question["slo"]})
    demand = Demand(
        tenants=question["tenants"] or max((row.replicas for row in results.summary), default=1),
        limits=slo,
        isolation=question["isolation"],
        price_per_hour=question["price_per_hour"],
    )
    cost = cost_table(results.summary, demand.price_per_hour, slo, results.raw, studies)
    levels = {workload: name for name, sweep in sweeps_by_entry(results.config).items() for workload in sweep.values}
    capacity = capacity_table(results.summary, slo, results.workloads, levels, studies)
    table, answers, caption = advice(results, demand, capacity, question.get("workloads"), studies)
    return Answered({"cost": cost, "capacity": capacity, "advice": table}, answers, caption)


def advice(
    results: Results,
    demand: Demand,
    capacity: pd.DataFrame,
    workloads: Collection[str] | None = None,
    studies: Collection[str] = (),
) -> tuple[pd.DataFrame, list[Answer], str]:
    """The table of the advice, the answer for each of these `workloads` (None: all), and the caption."""
    isolation = results.root / "tables" / "isolation.csv"
    faults = measured_faults(read_table(isolation) if isolation.exists() else None)
    rows: list[TableRow] = []
    answers = []
    for workload in results.workloads:
        if not results.is_shared(workload) or (workloads is not None and workload not in workloads):
            continue
        is_open = results.config["workload_catalogue"][workload].load.arrival != "closed"
        available = strategy_options(workload, results.summary, results.strategies, results.device, faults, is_open)
        streams = any(option.streams for option in available)
        applying = {part: limit for part, limit in demand.limits.items() if streams or part == LATENCY}
        own_demand = replace(demand, limits=applying)
        rows += advice_text.advice_rows(workload, available, own_demand, results.strategies)
        own = [row for row in results.summary if row.workload == workload]
        cells, warnings = (sum(numbers) for numbers in zip(*((row.n, row.warnings) for row in own), strict=True))
        found = advice_text.answer_question(workload, available, own_demand)
        scope = describe_capacity(capacity, workload) if streams and demand.limits else []
        if own_demand != demand:
            what = "only the latency" if applying else "no part"
            scope = [f"Of the SLO {what} applies to it: it does not stream."]
        more = [Reason("scope", text) for text in scope]
        if warnings:
            disturbed = f"Of the {cells} cells behind this, {warnings} carry a warning: see tables/summary.md."
            more.append(Reason("certainty", disturbed))
        answers.append(found._replace(reasons=[*found.reasons, *more]))
    caption = f"Advice for {advice_text.describe_question(demand)}, from {results.name}"
    return table_frame("advice", rows, studies=studies), answers, caption
