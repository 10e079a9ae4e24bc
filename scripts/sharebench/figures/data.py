"""What the figures read: the study's facts, its tables, and of the large files only what is drawn."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from sharebench.core.files import read_json
from sharebench.core.strategies import catalogue, is_again
from sharebench.core.study_config import StudyConfig, is_stream
from sharebench.records.references import read_device
from sharebench.records.tables import read_table
from sharebench.records.types import NodeFacts
from tenant.contract import Timeline

Floats = npt.NDArray[np.float64]
Row = dict[str, Any]
"""A row of a table: values by column, each of the column's type."""

ROWS_PER_CHUNK = 500_000
"""histograms.csv is read in pieces of this many rows (about 12 MB), whatever its size."""

ISOLATION = tuple(f"{kind}_isolation{end}" for kind in ("performance", "fault") for end in ("", "_basis"))
TEXTS = {
    "summary": ("strategy", "workload", "tenant_workload", "status", "reason", "notes"),
    "jobs": ("strategy", "workload", "status", "reason"),
    "interference": ("strategy", "victim", "aggressor", "status", "reason"),
    "isolation": ("strategy", "fault", "victim", "aggressor", "notes"),
    "startup": ("strategy", "workload"),
    "devices": ("strategy", "workload", "tenant_workload", "device"),
    "contrasts": ("strategy", "reference", "workload", "tenant_workload", "separable", "reason"),
    "cost": ("strategy", "workload"),
    "capacity": ("strategy", "workload", "percentile", "bound", "reason"),
    "advice": ("workload", "strategy", "verdict", "percentile", "effort", "reason", "isolation", *ISOLATION),
}
"""Columns of each table that hold text; blank ones are empty."""
OF_ROW = ("strategy", "workload", "replicas", "n", "status")
"""The point of a row of the summary, and why it may be blank: with few of its many columns, drawing is faster."""
ABSENCES = {
    "ok": "excluded by a gate",
    "mixed": "no valid cell",
    "missing": "not measured",
    "not-measured": "not measured",
}


@dataclass(frozen=True)
class DrawnStudy:
    """Where a study's files are, and what every figure says about it."""

    data: Path
    results: Path
    config: StudyConfig
    node: NodeFacts
    not_shown: str
    only: frozenset[str] = frozenset()
    """Workloads that figures of the summary show; empty for all."""

    @property
    def catalogue(self) -> list[str]:
        """Names of the strategies that the config knows, in reading order: the order of colours and legends."""
        return [name for name in catalogue(self.config) if not is_again(name)]

    @property
    def facts(self) -> list[str]:
        """Device, label, window and repeats, for a subtitle."""
        repeats = self.config["repeats"]
        product, label = self.node["product"], self.node["label"]
        facts = [
            product,
            "" if label in product else label,
            f"{self.config['window_seconds']:g} s window",
            f"{repeats} repeat{'s' * (repeats != 1)}",
        ]
        return [fact for fact in facts if fact]

    @property
    def job_facts(self) -> list[str]:
        """The same of jobs, which have no window of fixed length."""
        return [fact for fact in self.facts if not fact.endswith(" s window")]

    def table(self, name: str) -> pd.DataFrame:
        """tables/`name`.csv; the summary of the study's `only` workloads."""
        table = read_table(self.results / "tables" / f"{name}.csv", TEXTS[name])
        return table[table["workload"].isin(self.only)] if self.only and name == "summary" else table

    def plain_summary(self) -> pd.DataFrame:
        return self.without_mixes(self.table("summary"))

    def strategies(self, table: pd.DataFrame) -> list[str]:
        """Strategies of `table`, in the catalogue's order, any that it does not know last."""
        return _in_order(self.catalogue, table["strategy"])

    def workloads(self, table: pd.DataFrame) -> list[str]:
        """Workloads of `table`, in the order in which they were asked for, others last."""
        return _in_order(self.config["workloads"], table["workload"])

    def by_strategy(self, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """The rows of each strategy, in the order of `strategies`."""
        return {name: table[table["strategy"] == name] for name in self.strategies(table)}

    def by_workload(self, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """The rows of each workload, in the order of `workloads`."""
        return {name: table[table["workload"] == name] for name in self.workloads(table)}

    def is_mix(self, workload: str) -> bool:
        """Whether its tenants need not all run the same."""
        entry = self.config["workload_catalogue"].get(workload)
        return "+" in workload or (entry is not None and entry.get("tenants") is not None)

    def is_stream(self, workload: str) -> bool:
        return is_stream(self.config, workload)

    @property
    def slo_ms(self) -> dict[str, float]:
        """What the SLO allows the parts of a request: `latency`, `ttft`, `itl`, `tpot`, those that it has."""
        slo = cast(Mapping[str, float | None], self.config.get("slo", {}))
        return {part.removesuffix("_ms"): limit for part, limit in slo.items() if limit is not None}

    def without_mixes(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of plain workloads: lines over the number of tenants mean nothing where tenants differ.

        Without those of the A/A control: it is the baseline, and its difference has a place in the tables.
        """
        plain = table[~table["workload"].map(self.is_mix).astype(bool)]
        return plain[~plain["strategy"].map(is_again).astype(bool)]

    @property
    def left_out(self) -> str:
        """What a figure of plain workloads does not show; empty if nothing."""
        has_mixes = self.config["interference"] or any(map(self.is_mix, self.config["workloads"]))
        mixes = "Mixes of workloads are not drawn here; tables and report have them." if has_mixes else ""
        return " ".join(filter(None, [self.not_shown, mixes]))

    def cell_folder(self, strategy: str, workload: str, replicas: int, repeat: int) -> Path:
        return self.data / "cells" / strategy / workload / f"n{replicas}" / f"r{repeat}"


def _in_order(order: Iterable[str], present: Iterable[str]) -> list[str]:
    """The names that are present, in this order, others last."""
    names = set(present)
    known = [name for name in order if name in names]
    return known + sorted(names.difference(known))


def load(data: Path, results: Path) -> DrawnStudy:
    """Read the facts of the study whose cells are under `data` and whose tables are under `results`."""
    manifest = read_json(results / "manifest.json", "config", "not_shown")
    device = read_device(data / "nodes" / "device.json")
    return DrawnStudy(data, results, manifest["config"], device["node"], manifest["not_shown"])


def rows_of(table: pd.DataFrame) -> list[Row]:
    return [{str(column): value for column, value in row.items()} for row in table.to_dict("records")]


def absence(row: Mapping[str, Any]) -> str:
    """Why a metric of a row of the summary is blank: `infeasible`, `excluded by a gate`."""
    return "too few samples" if row["n"] > 0 else ABSENCES.get(row["status"], row["status"])


def absences(rows: pd.DataFrame, metrics: Iterable[str]) -> list[str]:
    """Of each row of the summary that lacks one of the metrics, which one it is and why it is blank."""
    return [
        f"{row['workload']}: {row['strategy']} at {row['replicas']} tenants is {absence(row)}"
        for row in rows_of(rows[rows[list(metrics)].isna().any(axis="columns")])
    ]


@dataclass(frozen=True)
class Sample:
    """The measurement that stands for a strategy and workload: its largest N with a valid cell."""

    strategy: str
    workload: str
    largest: int
    """Largest number of tenants that any strategy was asked for with this workload."""
    replicas: int | None
    """Largest number of tenants with a valid cell of this strategy; None where there is none."""
    repeat: int | None
    """First valid repeat there."""
    reason: str
    """Why there is no valid cell, where it is known."""


def samples(study: DrawnStudy) -> list[Sample]:
    """One sample per plain workload and strategy of tables/cells.csv, in the order of the study."""
    columns = ["strategy", "workload", "replicas", "repeat", "valid", "count", "reason"]
    path = study.results / "tables" / "cells.csv"
    table = study.without_mixes(read_table(path, columns=columns, repeated=("strategy", "workload", "reason")))
    found = []
    for workload, of_workload in study.by_workload(table).items():
        for strategy, rows in study.by_strategy(of_workload).items():
            # The first repeat at the largest number of tenants comes first.
            usable = rows[rows["valid"] & (rows["count"] > 0)].sort_values(
                ["replicas", "repeat"], ascending=[False, True]
            )
            found.append(
                Sample(
                    strategy,
                    workload,
                    largest=int(of_workload["replicas"].max()),
                    replicas=None if usable.empty else int(usable["replicas"].iloc[0]),
                    repeat=None if usable.empty else int(usable["repeat"].iloc[0]),
                    reason=next(map(str, rows["reason"].dropna()), ""),
                )
            )
    return found


def histogram(study: DrawnStudy, sample: Sample) -> tuple[Floats, Floats]:
    """Upper bounds (seconds, ascending) and counts of the buckets of all valid repeats and tenants."""
    path = study.data / "cells" / sample.strategy / sample.workload / "histograms.csv"
    columns = ["replicas", "bucket_upper_seconds", "count"]
    total: pd.Series[float] = pd.Series(dtype=float)
    with pd.read_csv(path, usecols=columns, chunksize=ROWS_PER_CHUNK) as chunks:
        for chunk in chunks:
            rows = chunk[chunk["replicas"] == sample.replicas]
            total = total.add(rows.groupby("bucket_upper_seconds")["count"].sum(), fill_value=0)
    return np.asarray(total.index, dtype=np.float64), np.asarray(total, dtype=np.float64)


def timelines(study: DrawnStudy, sample: Sample) -> list[Timeline]:
    """Timelines of the tenants of the cell that `sample` names, by index of the tenant."""
    assert sample.replicas is not None and sample.repeat is not None, "a sample without a cell"
    folder = study.cell_folder(sample.strategy, sample.workload, sample.replicas, sample.repeat)
    record = read_json(folder / "raw.json")
    return [tenant["timeline"] for tenant in record["tenants"] if tenant["timeline"] is not None]
