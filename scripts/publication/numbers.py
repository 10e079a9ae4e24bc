"""Numbers of published data sets, as findings and documents ask for them: each from the tables, with its interval."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from sharebench.analysis.statistics.intervals import Estimate, log_interval, welch_ratio
from sharebench.core.capabilities import NODE_KINDS
from sharebench.core.files import read_json
from sharebench.core.strategies import control_name
from sharebench.records.tables import read_table
from sharebench.records.types import NodeFacts
from sharebench.report.words import digits

OF_TENANTS = {"throughput_hz": "sum", "output_tokens_hz": "sum", "latency_mean_seconds": "mean"}
"""Metrics of tables/cells.csv that make one number of a cell: the sum over its tenants, or the mean over iterations."""
STEADY_RATIO = 1.1
"""Where cells of one tenant alone differ by more than this, what is measured is not divided by them in documents."""
FULL_CLOCK = 0.95
"""Of the highest clock of a study: below this, clocks are part of what a strategy does to a workload."""
Key = tuple[str, ...]
Where = Mapping[str, object]
"""Column → the value that it has in the rows that are meant."""


class NoNumber(Exception):
    """The tables do not have it; one line with what was looked for."""


@dataclass(frozen=True)
class Number:
    """A value with its 95 % interval; without bounds where one repeat, or a table without intervals, has none."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def least(self) -> float:
        """What it is at least: the lower end of the interval, if there is one."""
        return self.value if self.low is None else self.low

    @property
    def most(self) -> float:
        """What it is at most."""
        return self.value if self.high is None else self.high

    @property
    def ends(self) -> tuple[float, ...]:
        return () if self.low is None or self.high is None else (self.low, self.high)

    @property
    def point(self) -> Number:
        """The value alone, where a text has its interval elsewhere."""
        return Number(self.value)

    def times(self, factor: float) -> Number:
        return Number(factor * self.value, *(factor * end for end in self.ends))

    def in_words(self, unit: str = "") -> str:
        """`2.94 ms (2.90 to 2.98)`; where there is no interval only the value."""
        text = digits(self.value)
        decimals = len(text.partition(".")[2])
        ends = " to ".join(f"{end:.{decimals}f}" for end in self.ends)
        return f"{text}{unit} ({ends})" if ends else f"{text}{unit}"

    def __str__(self) -> str:
        return self.in_words()


def number_of(estimate: Estimate) -> Number:
    return Number(estimate.value, estimate.low, estimate.high)


def number_in(row: Mapping[Any, Any], column: str) -> Number:
    """A column of a table's row, with its `_low` and `_high` where the table has them."""
    ends = [row.get(f"{column}{end}", math.nan) for end in ("_low", "_high")]
    return Number(float(row[column]), *(None if pd.isna(end) else float(end) for end in ends))


class DataSet:
    """The tables that `paper` made of a published data set; `name` is its folder under published/."""

    def __init__(self, name: str, published: Path, made: Path) -> None:
        self.name = name
        self.made = made / name
        self.about = f"published/{name.split('/')[0]}/README.md"
        self.folder = published / name
        self.device: NodeFacts = read_json(self.folder / "nodes" / "device.json")["node"]
        self.manifest: dict[str, Any] = read_json(self.made / "manifest.json")
        self._tables: dict[str, pd.DataFrame] = {}

    @property
    def is_of_a_gpu(self) -> bool:
        """Whether a real GPU was measured: no stand-in, no simulation, no mock."""
        return bool(NODE_KINDS[self.device["kind"]].has_gpus and self.device["is_gpu"] and not self.device["label"])

    @property
    def repeats(self) -> int:
        """How often each cell was measured, but for those that the config leaves out."""
        return int(self.table("cells")["repeat"].nunique())

    @property
    def window_seconds(self) -> float:
        return float(self.manifest["config"]["window_seconds"])

    def table(self, name: str) -> pd.DataFrame:
        """tables/`name`.csv. Raises NoNumber where the data set has none."""
        path = self.made / "tables" / f"{name}.csv"
        if not path.is_file():
            raise NoNumber(f"{self.name} has no tables/{name}.csv")
        if name not in self._tables:
            self._tables[name] = read_table(path)
        return self._tables[name]

    def rows(self, table: str, where: Where) -> pd.DataFrame:
        """Rows of a table whose columns have these values. Raises NoNumber where there are none, or no such column."""
        found = self.table(table)
        for column, wanted in where.items():
            if column not in found:
                raise NoNumber(f"tables/{table}.csv of {self.name} has no column {column}")
            found = found[found[column] == wanted]
        if found.empty:
            raise NoNumber(f"tables/{table}.csv of {self.name} has no row with {_words(where)}")
        return found

    def value(self, column: str, table: str = "summary", **where: Any) -> Number:
        """A column of the one row of a table with these values, with the interval if the table has it."""
        rows = self.rows(table, where)
        if len(rows) > 1:
            raise NoNumber(f"tables/{table}.csv of {self.name} has {len(rows)} rows with {_words(where)}; name one")
        row = rows.iloc[0].to_dict()
        if column not in row:
            raise NoNumber(f"tables/{table}.csv of {self.name} has no column {column}")
        if pd.isna(row[column]):
            raise NoNumber(f"{column} of {_words(where)} in {self.name} is blank")
        return number_in(row, column)

    def text(self, column: str, table: str, **where: Any) -> str:
        return str(self.rows(table, where).iloc[0].get(column, ""))

    def total(self, column: str, table: str, **where: Any) -> int:
        return round(sum(float(count) for count in self.rows(table, where)[column]))

    def mentions(self, word: str, column: str, table: str, **where: Any) -> int:
        """In how many rows with these values a column of words has this one."""
        return sum(word in str(text) for text in self.rows(table, where)[column])

    def each(self, column: str, table: str, **where: Any) -> list[Number]:
        """A column of the rows with these values, smallest first; blank ones are left out. Raises NoNumber for none."""
        return self._sorted(column, self.rows(table, where), where)

    def counted(self, column: str, **where: Any) -> list[Number]:
        """`each` of tables/cells.csv, of valid cells only."""
        return self._sorted(column, self.valid_cells(where), where)

    def _sorted(self, column: str, rows: pd.DataFrame, where: Where) -> list[Number]:
        values = sorted(rows[column].dropna())
        if not values:
            raise NoNumber(f"{column} of {_words(where)} in {self.name} is blank")
        return [Number(float(value)) for value in values]

    def valid_cells(self, where: Where) -> pd.DataFrame:
        """Rows of tables/cells.csv of valid cells. Raises NoNumber for none."""
        rows = self.rows("cells", where)
        rows = rows[rows["valid"]]
        if rows.empty:
            raise NoNumber(f"{self.name} has no valid cell with {_words(where)}")
        return rows

    def mean(self, column: str, table: str, **where: Any) -> Number:
        """Arithmetic mean of a column over the rows with these values: of clocks and such, without interval."""
        values = [each.value for each in self.each(column, table, **where)]
        return Number(sum(values) / len(values))

    def spread(self, column: str, table: str, **where: Any) -> Number:
        """Largest over smallest value of a column in the rows with these values."""
        values = self.each(column, table, **where)
        if not values[0].value > 0:
            raise NoNumber(f"{column} of {_words(where)} in {self.name} is 0")
        return Number(values[-1].value / values[0].value)

    def within(self, column: str, table: str = "cells", **where: Any) -> list[Number]:
        """Largest over smallest value of a column among the tenants of each cell with these values, smallest first."""
        rows = self.rows(table, where).dropna(subset=[column])
        found = rows.groupby(["strategy", "workload", "replicas", "repeat"])[column].agg(["max", "min"])
        if found.empty or not (found["min"] > 0).all():
            raise NoNumber(f"{column} of {_words(where)} in {self.name} is blank or 0")
        return [Number(float(value)) for value in sorted(found["max"] / found["min"])]

    def ratio(self, over: Where, under: Where, metric: str = "latency_mean_seconds") -> Number:
        """A metric of one group of valid cells over that of another, paired where each cell has its partner.

        Groups are named by columns of tables/cells.csv. Partners are of one run and block, or in a data set of several
        devices of one device and block: then only partners count, as no ratio mixes devices. Raises NoNumber.
        """
        return number_of(self.estimate(over, under, metric))

    def estimate(self, over: Where, under: Where, metric: str) -> Estimate:
        """`ratio` with what a test needs."""
        tops, bottoms = (self.by_block(where, metric) for where in (over, under))
        both = tops.keys() & bottoms.keys()
        if both and (tops.keys() == bottoms.keys() or self.device_count > 1):
            keys = sorted(both)
            devices = [key[0] for key in keys] if self.device_count > 1 else ()
            return log_interval([tops[key] / bottoms[key] for key in keys], devices)
        if self.device_count > 1:
            raise NoNumber(f"{_words(over)} and {_words(under)} of {self.name} were not measured on the same devices")
        return welch_ratio(list(tops.values()), list(bottoms.values()))

    def over(self, other: DataSet, mine: Where, theirs: Where, metric: str = "latency_mean_seconds") -> Number:
        """A metric of a group here over that of a group of another study, whose blocks were measured next to ours.

        Partners are of one device and block. Raises NoNumber.
        """
        tops, bottoms = self.by_block(mine, metric, "device"), other.by_block(theirs, metric, "device")
        if not (both := sorted(tops.keys() & bottoms.keys())):
            raise NoNumber(f"{_words(mine)} of {self.name} and {_words(theirs)} of {other.name} share no block")
        return number_of(log_interval([tops[key] / bottoms[key] for key in both], [key[0] for key in both]))

    @property
    def device_count(self) -> int:
        return int(self.table("cells")["device"].nunique())

    def devices(self, **where: Any) -> int:
        return int(self.rows("cells", where)["device"].nunique())

    @property
    def measured_on(self) -> str:
        """The day, or the first and the last, as `2026-11-20 to 2026-11-21`."""
        # A run's id begins with its time.
        days = sorted({f"{run[:4]}-{run[4:6]}-{run[6:8]}" for run in self.table("cells")["run_id"].astype(str)})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"

    @property
    def baseline(self) -> str:
        return str(self.manifest["config"]["baseline"])

    def alone(self, workload: str) -> list[Number]:
        """Mean latency in seconds of each valid cell of one tenant alone, A/A control included; smallest first."""
        cells = self.rows("cells", {"workload": workload, "replicas": 1})
        cells = cells[cells["strategy"].isin([self.baseline, control_name(self.baseline)])]
        return [Number(value) for value in sorted(cells[cells["valid"]]["latency_mean_seconds"])]

    def is_steady(self, workload: str) -> bool:
        """Whether cells of one tenant alone agree, so that a ratio to them describes what is above and not them."""
        own = self.alone(workload)
        return bool(own) and own[-1].value / own[0].value <= STEADY_RATIO

    def is_slowed_down(self, workload: str) -> bool:
        """Whether the SMs' clocks are lower with this workload than with others of the study: the power limit."""
        clocks = self.table("cells").groupby("workload")["sm_clock_mean_mhz"].mean()
        return bool(clocks[workload] < FULL_CLOCK * clocks.max())

    def by_block(self, where: Where, metric: str, who: str | None = None) -> dict[Key, float]:
        """The metric of each valid cell, by run (or device) and block."""
        rows = self.valid_cells(where)
        found: dict[Key, float] = {}
        who = who or ("device" if self.device_count > 1 else "run_id")
        for key, own in rows.groupby([who, "block", "repeat"]):
            if metric == "makespan_seconds":
                ends = own["completion_seconds"]
                value = float(ends.sum() if self._is_queue(str(own["strategy"].iloc[0])) else ends.max())
            elif OF_TENANTS.get(metric) == "sum":
                value = float(own[metric].sum())
            elif metric == "latency_mean_seconds":
                value = float((own[metric] * own["count"]).sum() / own["count"].sum())
            else:
                value = math.exp(float(own[metric].map(math.log).mean()))
            if not value > 0:
                raise NoNumber(f"{metric} of {_words(where)} in {self.name} is blank")
            found[tuple(map(str, key))] = value
        return found

    def _is_queue(self, strategy: str) -> bool:
        entry = self.manifest["config"].get("strategy_catalogue", {}).get(strategy, {})
        return entry.get("mechanism") in ("sequential", ["sequential"])

    def slice_ms(self, strategy: str = "time-slicing") -> Number:
        """Median length of a run on the device in ms, with 5 and 95 % of the runs as bounds: spread, not error."""
        run = self.watched(strategy)["run"]
        if run is None:
            raise NoNumber(f"under {strategy} no run ended while the probe of {self.name} watched")
        return Number(*(run[key] / 1e3 for key in ("p50_us", "p5_us", "p95_us")))

    def switch_us(self, strategy: str = "time-slicing") -> Number:
        """The same of the time in µs from one tenant's run to the next one's."""
        switch = self.watched(strategy)["switch"]
        if switch is None:
            raise NoNumber(f"under {strategy} no tenant took over while the probe of {self.name} watched")
        return Number(*(switch[key] for key in ("p50_us", "p5_us", "p95_us")))

    def watched(self, strategy: str) -> Mapping[str, Any]:
        """What the probe of time slices saw under a strategy (nodes/timeslice.json). Raises NoNumber."""
        path = self.folder / "nodes" / "timeslice.json"
        if not path.is_file():
            raise NoNumber(f"{self.name} has no nodes/timeslice.json")
        found: Mapping[str, Any] = read_json(path)["strategies"].get(strategy, {})
        if not found or found["infeasible"]:
            raise NoNumber(f"the probe of {self.name} has not watched {strategy}")
        return found


def _words(where: Where) -> str:
    return ", ".join(f"{key} {value}" for key, value in where.items())
