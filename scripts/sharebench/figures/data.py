"""What the figures read: the study's facts, its tables, and of the large files only what is drawn."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sharebench.core.files import read_json
from sharebench.core.strategies import catalogue, is_again
from sharebench.records.references import read_device
from sharebench.records.tables import read_table

Floats = npt.NDArray[np.float64]

ROWS_PER_CHUNK = 500_000
"""histograms.csv is read in pieces of this many rows (about 12 MB), whatever its size."""

TEXTS = ("strategy", "workload", "tenant_workload", "status", "reason", "notes")
"""Columns of summary.csv that hold words; blank ones are empty."""
OF_ROW = ("strategy", "workload", "replicas", "n", "status")
"""What a row of the summary is of, and why it may be blank: few of its many columns, with which all goes faster."""


@dataclass(frozen=True)
class DrawnStudy:
    """Where a study's files are, and what every figure says about it."""

    data: Path
    results: Path
    config: dict[str, Any]
    node: dict[str, Any]
    not_shown: str
    only: frozenset[str] = frozenset()
    """Workloads that figures of the summary show; empty for all."""

    @property
    def catalogue(self) -> list[str]:
        """Names of the strategies that the config knows, in reading order: the order of colours and legends."""
        return [name for name in catalogue(self.config) if not is_again(name)]

    @property
    def facts(self) -> list[str]:
        """Device, label, window and repeats, in words, for a subtitle."""
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

    def strategies(self, table: pd.DataFrame) -> list[str]:
        """Strategies of `table`, in the catalogue's order, any that it does not know last."""
        present = set(table["strategy"])
        known = [name for name in self.catalogue if name in present]
        return known + sorted(present.difference(known))

    def workloads(self, table: pd.DataFrame) -> list[str]:
        """Workloads of `table`, in the order in which they were asked for, others last."""
        present = set(table["workload"])
        asked = [name for name in self.config["workloads"] if name in present]
        return asked + sorted(present.difference(asked))

    def is_mix(self, workload: str) -> bool:
        """Whether its tenants need not all run the same."""
        entry = self.config["workload_catalogue"].get(workload, {})
        return "+" in workload or entry.get("tenants") is not None

    def without_mixes(self, table: pd.DataFrame) -> pd.DataFrame:
        """The rows of plain workloads: lines over the number of tenants say nothing where tenants differ.

        Nor those of what is measured again: it is the baseline, and its difference has a place in the tables.
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
        """Folder of one cell."""
        return self.data / "cells" / strategy / workload / f"n{replicas}" / f"r{repeat}"


def load(data: Path, results: Path) -> DrawnStudy:
    """Read the facts of the study whose cells are under `data` and whose tables are under `results`."""
    manifest = read_json(results / "manifest.json", "config", "not_shown")
    device = read_device(data / "nodes" / "device.json")
    return DrawnStudy(data, results, manifest["config"], device["node"], manifest["not_shown"])


def summary(study: DrawnStudy) -> pd.DataFrame:
    """tables/summary.csv: one row per strategy, workload and replicas."""
    found = table(study, "summary", TEXTS)
    return found[found["workload"].isin(study.only)] if study.only else found


def table(study: DrawnStudy, name: str, texts: Iterable[str]) -> pd.DataFrame:
    """tables/`name`.csv; blank `texts` are empty."""
    return read_table(study.results / "tables" / f"{name}.csv", texts)


def interference(study: DrawnStudy) -> pd.DataFrame:
    """tables/interference.csv: one row per strategy, victim and aggressor."""
    return table(study, "interference", ("strategy", "victim", "aggressor", "status", "reason"))


def startup(study: DrawnStudy) -> pd.DataFrame:
    """tables/startup.csv: one row per strategy, workload and number of tenants."""
    return table(study, "startup", ("strategy", "workload"))


def isolation(study: DrawnStudy) -> pd.DataFrame:
    """tables/isolation.csv: one row per strategy, fault and victim."""
    return table(study, "isolation", ("strategy", "fault", "victim", "aggressor", "notes"))


def jobs(study: DrawnStudy) -> pd.DataFrame:
    """tables/jobs.csv: one row per strategy, workload and number of jobs."""
    return table(study, "jobs", ("strategy", "workload", "status", "reason"))


def absence(row: Mapping[Any, Any]) -> str:
    """Why a metric of a row of the summary is blank, in a few words: `infeasible`, `excluded by a gate`."""
    words = {
        "ok": "excluded by a gate",
        "mixed": "no valid cell",
        "missing": "not measured",
        "not-measured": "not measured",
    }
    return "too few samples" if row["n"] > 0 else words.get(row["status"], row["status"])


@dataclass(frozen=True)
class Sample:
    """The measurement that stands for a strategy and workload: its largest N with a valid cell."""

    strategy: str
    workload: str
    largest: int
    """Largest number of tenants that anybody was asked for with this workload."""
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
    table = read_table(path, columns=columns, repeated=("strategy", "workload", "reason"))
    table = study.without_mixes(table).copy()
    table["usable"] = table["valid"] & (table["count"] > 0)
    found = []
    for workload in study.workloads(table):
        of_workload = table[table["workload"] == workload]
        for strategy in study.strategies(of_workload):
            rows = of_workload[of_workload["strategy"] == strategy]
            usable = rows[rows["usable"]]
            at_largest = usable[usable["replicas"] == usable["replicas"].max()]
            reasons = rows["reason"].dropna()
            found.append(
                Sample(
                    strategy,
                    workload,
                    largest=int(of_workload["replicas"].max()),
                    replicas=None if usable.empty else int(at_largest["replicas"].iloc[0]),
                    repeat=None if usable.empty else int(at_largest["repeat"].min()),
                    reason="" if reasons.empty else str(reasons.iloc[0]),
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


def timelines(study: DrawnStudy, sample: Sample) -> list[dict[str, Any]]:
    """Timelines of the tenants of the cell that `sample` names, by index of the tenant."""
    assert sample.replicas is not None and sample.repeat is not None, "a sample without a cell"
    folder = study.cell_folder(sample.strategy, sample.workload, sample.replicas, sample.repeat)
    record = read_json(folder / "raw.json")
    return [tenant["timeline"] for tenant in record["tenants"] if tenant["timeline"] is not None]
