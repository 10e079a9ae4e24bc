"""What figures and report show: the study's facts, its tables, and words about their rows."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sharebench.core.files import read_json
from sharebench.model.records.references import read_device
from sharebench.model.records.types import NodeFacts
from sharebench.model.strategies import all_strategies, is_control
from sharebench.model.study_config import StudyConfig, Sweep, from_json, is_stream, sweeps_by_entry
from sharebench.read.columns import read_table
from sharebench.read.figures.looks import StrategyLook, strategy_looks
from sharebench.read.finished import NoResults
from sharebench.read.slo import slo_limits
from sharebench.read.text import repeats_text

Row = dict[str, Any]
"""A row of a table: values by column, each of the column's type."""

POINT_COLUMNS = ("strategy", "workload", "replicas", "n", "status")
"""Columns with the point of a row of the summary and its status; drawing is faster without the many others."""
MAX_LOADS = 8
"""The most loads of a sweep with a panel each. A panel takes half a second in three kinds of file."""
ABSENCE_REASONS = {
    "ok": "excluded by a gate",
    "mixed": "no valid cell",
    "missing": "not measured",
    "not-measured": "not measured",
}
LOAD_LABELS = {
    "concurrency": "requests in flight per tenant",
    "concurrency_total": "requests in flight at all tenants",
    "rate_hz": "requests/s per tenant",
    "rate_of_capacity": "load over the capacity of one tenant",
}
LABELS_FOR_ALL = {
    "rate_hz": "requests/s for all tenants",
    "rate_of_capacity": "load of all tenants over the capacity of one",
}


@dataclass(frozen=True)
class DrawnStudy:
    """A study's tables, and the facts that every figure shows."""

    data: Path
    results: Path
    config: StudyConfig
    node: NodeFacts
    not_shown: str
    only_workloads: frozenset[str] = frozenset()
    """The workloads that figures of the summary show; empty for all."""

    @property
    def catalogue(self) -> list[str]:
        """Names of the strategies that the config knows, in reading order: the order of colours and legends."""
        return [name for name in all_strategies(self.config) if not is_control(name)]

    @property
    def facts(self) -> list[str]:
        """Device, label, window and repeats, for a subtitle."""
        product, label = self.node["product"], self.node["label"]
        facts = [
            product,
            "" if label in product else label,
            f"{self.config['window_seconds']:g} s window",
            repeats_text(self.config, self.only_workloads),
        ]
        return [fact for fact in facts if fact]

    @property
    def job_facts(self) -> list[str]:
        """The facts for jobs, which have no window of fixed length."""
        return [fact for fact in self.facts if not fact.endswith(" s window")]

    def table(self, name: str) -> pd.DataFrame:
        """tables/`name`.csv; the summary of the study's `only_workloads`."""
        table = read_table(self.results / "tables" / f"{name}.csv")
        only = self.only_workloads if name == "summary" else ()
        return table[table["workload"].isin(only)] if only else table

    def plain_summary(self) -> pd.DataFrame:
        return self.without_mixes(self.table("summary"))

    def strategies(self, table: pd.DataFrame) -> list[str]:
        """Strategies of `table` in the catalogue's order, unknown ones last."""
        return _ordered(self.catalogue, table["strategy"])

    def looks(self, table: pd.DataFrame) -> dict[str, StrategyLook]:
        """The look of each of its strategies, in their order."""
        names = self.strategies(table)
        every = strategy_looks(self.catalogue, names)
        return {name: every[name] for name in names}

    def workloads(self, table: pd.DataFrame) -> list[str]:
        """Workloads of `table` in the config's order, others last."""
        return _ordered(self.config["workloads"], table["workload"])

    def by_strategy(self, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {name: table[table["strategy"] == name] for name in self.strategies(table)}

    def by_workload(self, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
        return {name: table[table["workload"] == name] for name in self.workloads(table)}

    def rows_by_workload(self, table: pd.DataFrame) -> dict[str, list[Row]]:
        """The rows of each workload by strategy and number of tenants."""
        in_order = self.by_workload(table.sort_values("replicas", kind="stable"))
        return {name: table_rows(pd.concat(self.by_strategy(own).values())) for name, own in in_order.items()}

    def drawn_by_workload(self, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """The rows for the panels of a figure, without the loads that `undrawn_note` names."""
        undrawn = {each for loads in self._loads.values() for each in set(loads).difference(_evenly_spaced(loads))}
        return {name: rows for name, rows in self.by_workload(table).items() if name not in undrawn}

    @property
    def undrawn_note(self) -> str:
        """A remark on the loads of sweeps that have no panel; empty where all have one."""
        return " ".join(
            f"Of the {len(loads)} loads of {name}, {MAX_LOADS} are drawn, evenly spaced; the tables have all."
            for name, loads in self._loads.items()
            if len(loads) > MAX_LOADS
        )

    @property
    def _loads(self) -> dict[str, list[str]]:
        """The workloads of each sweep, in the order of their load."""
        return {
            name: sorted(set(sweep.values) & (self.only_workloads or set(sweep.values)), key=sweep.values.__getitem__)
            for name, sweep in sweeps_by_entry(self.config).items()
        }

    def is_mix(self, workload: str) -> bool:
        """Whether its tenants may run different workloads."""
        entry = self.config["workload_catalogue"].get(workload)
        return "+" in workload or (entry is not None and entry.tenants is not None)

    def is_stream(self, workload: str) -> bool:
        return is_stream(self.config, workload)

    def slo_ms(self, workload: str) -> dict[str, float]:
        """Limit in ms of each part of the workload's SLO that has one: `latency`, `ttft`, `itl`, `tpot`."""
        limits = slo_limits(self.config.get("slo", {}), workload)
        return {part: 1e3 * seconds for part, seconds in limits.items()}

    def without_mixes(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows without the A/A control and without mixes, whose tenants differ."""
        plain = table[~table["workload"].map(self.is_mix).astype(bool)]
        return plain[~plain["strategy"].map(is_control).astype(bool)]

    @property
    def omissions(self) -> str:
        """A remark on what a figure of plain workloads leaves out; empty if nothing."""
        mixes = self.config["interference"] or any(map(self.is_mix, self.config["workloads"]))
        note = "Mixes of workloads are not drawn here; tables and report have them."
        return " ".join(filter(None, [self.not_shown, note if mixes and not self.only_workloads else ""]))

    @property
    def panel_omissions(self) -> str:
        """The same of a figure with a panel for each workload."""
        return f"{self.omissions} {self.undrawn_note}".strip()


def _evenly_spaced(loads: Sequence[str]) -> Sequence[str]:
    """At most MAX_LOADS of these, with the first and the last."""
    if len(loads) <= MAX_LOADS:
        return loads
    return [loads[round(k * (len(loads) - 1) / (MAX_LOADS - 1))] for k in range(MAX_LOADS)]


def _ordered(order: Iterable[str], present: Iterable[str]) -> list[str]:
    """The present names in this order, others last."""
    names = set(present)
    known = [name for name in order if name in names]
    return known + sorted(names.difference(known))


def load_study(data: Path, results: Path) -> DrawnStudy:
    """Read the facts of the study with cells under `data` and tables under `results`. Raises NoResults."""
    try:
        manifest = read_json(results / "manifest.json", "config", "not_shown")
        device = read_device(data / "nodes" / "device.json")
    except FileNotFoundError as error:
        raise NoResults(results, error) from None
    return DrawnStudy(data, results, from_json(manifest["config"]), device["node"], manifest["not_shown"])


def table_rows(table: pd.DataFrame) -> list[Row]:
    return [{str(column): value for column, value in row.items()} for row in table.to_dict("records")]


def absence_reason(row: Mapping[str, Any]) -> str:
    """The reason why a metric of a row of the summary is blank: `infeasible`, `excluded by a gate`."""
    return "too few samples" if row["n"] > 0 else ABSENCE_REASONS.get(row["status"], row["status"])


def absences(rows: pd.DataFrame, metrics: Iterable[str]) -> list[str]:
    """A text for each row of the summary that lacks one of the metrics: the row, and the reason."""
    return [
        f"{row['workload']}: {row['strategy']} at {row['replicas']} tenants is {absence_reason(row)}"
        for row in table_rows(rows[rows[list(metrics)].isna().any(axis="columns")])
    ]


def load_label(sweep: Sweep) -> str:
    return (LABELS_FOR_ALL if sweep.is_for_all else LOAD_LABELS).get(sweep.by, LOAD_LABELS[sweep.by])


def format_factor(value: float) -> str:
    """A factor without an exponent: 1.02, 24.4, 1,220; two decimals below ten, three figures above."""
    if value < 9.995:
        return f"{value:.2f}"
    return f"{float(f'{value:.3g}'):,.{1 if value < 99.95 else 0}f}"


def worst_outcome(rows: pd.DataFrame) -> tuple[str, str]:
    """The worst outcome over the victims of one strategy and fault (empty if not known), and its text."""
    total = {name: int(rows[name].sum()) for name in ("failed", "slowed", "unharmed", "unjudged")}
    count = sum(total.values())
    if not count:
        return "", "no value"
    worst = next(name for name in total if total[name])
    if worst == "unjudged":
        return "survived", "survived"
    is_whole = count == 1 or (worst == "unharmed" and not total["unjudged"])
    share = "" if is_whole else f" {total[worst]} of {count}"
    return worst, worst + share + (_slowdown_text(rows) if worst == "slowed" else "")


def _slowdown_text(rows: pd.DataFrame) -> str:
    slowed = rows[rows["slowed"] > 0]
    worst = float(slowed["slowed_ratio"].max())
    factor = "" if math.isnan(worst) else f"{format_factor(worst)} × "
    return f"\n{factor}for {slowed['slowed_seconds'].max():.2g} s"
