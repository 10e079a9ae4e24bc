"""Numbers from the tables of published data sets, with their intervals, for findings and documents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from sharebench.core.files import read_json
from sharebench.datasets import dataset
from sharebench.model.capabilities import NODE_KINDS
from sharebench.model.records.types import NodeFacts
from sharebench.model.strategies import control_name
from sharebench.read.cells.metrics import QUANTILES, cell_value
from sharebench.read.cells.rows import reduce_record
from sharebench.read.columns import read_table
from sharebench.read.gates.gates import read_judged
from sharebench.read.report.words import format_fixed, format_number
from sharebench.read.statistics.intervals import Estimate, Place, log_interval, welch_ratio
from sharebench.study.cells import Cell

SUMMED_METRICS = {"throughput_hz", "offered_hz", "output_tokens_hz"}
"""Metrics of tables/cells.csv whose number for a cell is the sum over its tenants."""
LATENCY = "latency_mean_seconds"
STEADY_RATIO = 1.1
"""Where cells of one tenant alone differ by more than this, documents show no ratios to them."""
FULL_CLOCK_RATIO = 0.95
"""A workload whose mean clock is below this share of the study's highest counts as slowed down."""
CELL_COLUMNS = ["strategy", "workload", "replicas", "repeat"]
BlockKey = tuple[str, ...]
RowFilter = Mapping[str, object]
"""Column → the value that selects a row."""


class MissingNumber(Exception):
    """The tables lack a number; one line with what was looked for."""


@dataclass(frozen=True)
class Number:
    """A value with its 95 % interval; no bounds for a single repeat or a table without intervals."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def least(self) -> float:
        """The lower end of the interval, or the value where there is none."""
        return self.value if self.low is None else self.low

    @property
    def most(self) -> float:
        """The upper end of the interval, or the value where there is none."""
        return self.value if self.high is None else self.high

    @property
    def ends(self) -> tuple[float, ...]:
        return () if self.low is None or self.high is None else (self.low, self.high)

    @property
    def point(self) -> Number:
        """The value without its interval."""
        return Number(self.value)

    def scaled(self, factor: float) -> Number:
        return Number(factor * self.value, *(factor * end for end in self.ends))

    def formatted(self, unit: str = "") -> str:
        """`2.94 ms (2.90 to 2.98)`, or only `2.94 ms` without one; more digits where its ends look alike."""
        text = format_number(self.value)
        if not self.ends:
            return f"{text}{unit}"
        low, high = self._ends_with(len(text.partition(".")[2]))
        if low == high and self.ends[0] < self.value < self.ends[1]:
            decimals = next(n for n in range(16) if len({f"{self.value:.{n}f}", *self._ends_with(n)}) == 3)
            text, (low, high) = f"{self.value:.{decimals}f}", self._ends_with(decimals)
        return f"{text}{unit} ({low} to {high})"

    def _ends_with(self, decimals: int) -> tuple[str, ...]:
        return tuple(format_fixed(end, decimals) for end in self.ends)

    def __str__(self) -> str:
        return self.formatted()


def number_from(estimate: Estimate) -> Number:
    return Number(estimate.value, estimate.low, estimate.high)


def read_number(row: Mapping[Any, Any], column: str) -> Number:
    """A value of a row, with the bounds of its columns `_low` and `_high` where the table has them."""
    ends = [row.get(f"{column}{end}", math.nan) for end in ("_low", "_high")]
    return Number(float(row[column]), *(None if pd.isna(end) else float(end) for end in ends))


class DataSet:
    """A published data set, whose folder under published/ is `name`, and its tables as `paper` rebuilt them."""

    def __init__(self, name: str, published: Path, rebuilt: Path) -> None:
        self.name = name
        self.rebuilt = rebuilt / name
        self.readme = f"published/{name.split('/')[0]}/README.md"
        self.folder = published / name
        self.device: NodeFacts = read_json(self.folder / "nodes" / "device.json")["node"]
        self.manifest: dict[str, Any] = read_json(self.rebuilt / "manifest.json")
        self._tables: dict[str, pd.DataFrame] = {}

    @cached_property
    def unpacked(self) -> Path:
        """The folder with all its files. Raises DataSetError."""
        return dataset.verified_folder(self.folder)

    @property
    def is_of_a_gpu(self) -> bool:
        """Whether a real GPU was measured, and no stand-in, simulation or mock."""
        return bool(NODE_KINDS[self.device["kind"]].has_gpus and self.device["is_gpu"] and not self.device["label"])

    @property
    def repeats(self) -> int:
        """How often each cell was measured, except those that the config excludes, of the workload with the most."""
        return max(self.repeats_by_workload.values())

    @property
    def repeats_by_workload(self) -> dict[str, int]:
        return {str(name): int(own.nunique()) for name, own in self.table("cells").groupby("workload")["repeat"]}

    @property
    def window_seconds(self) -> float:
        return float(self.manifest["config"]["window_seconds"])

    def table(self, name: str) -> pd.DataFrame:
        """The table tables/`name`.csv. Raises MissingNumber where the data set has none."""
        path = self.rebuilt / "tables" / f"{name}.csv"
        if not path.is_file():
            raise MissingNumber(f"{self.name} has no tables/{name}.csv")
        if name not in self._tables:
            self._tables[name] = read_table(path)
        return self._tables[name]

    def rows(self, table: str, where: RowFilter, all_cells: bool = False) -> pd.DataFrame:
        """Rows of a table whose columns have these values, of valid cells unless `all_cells`.

        Raises MissingNumber for none, or for an unknown column.
        """
        found = self.table(table)
        if "valid" in found and not all_cells:
            found = found[found["valid"]]
        for column, wanted in where.items():
            if column not in found:
                raise MissingNumber(f"tables/{table}.csv of {self.name} has no column {column}")
            found = found[found[column] == wanted]
        if found.empty:
            what = "row" if all_cells or "valid" not in found else "valid cell"
            raise MissingNumber(f"tables/{table}.csv of {self.name} has no {what} with {_describe(where)}")
        return found

    def records(self, **where: Any) -> pd.DataFrame:
        """Records of the valid cells with these values; nested keys are columns, as `telemetry.energy_joules`.

        Raises MissingNumber for no cell.
        """
        cells = self.rows("cells", where)[CELL_COLUMNS].drop_duplicates().itertuples(index=False)
        return pd.json_normalize([read_json(self.unpacked / Cell(*cell).raw) for cell in cells])

    def value(self, column: str, table: str = "summary", **where: Any) -> Number:
        """A value of the only row with these values, with its interval if the table has one. Raises MissingNumber."""
        rows = self.rows(table, where)
        if len(rows) > 1:
            raise MissingNumber(
                f"{len(rows)} rows of tables/{table}.csv of {self.name} have {_describe(where)}; name one"
            )
        row = rows.iloc[0].to_dict()
        if column not in row:
            raise MissingNumber(f"tables/{table}.csv of {self.name} has no column {column}")
        if pd.isna(row[column]):
            raise MissingNumber(f"{column} of {_describe(where)} in {self.name} is blank")
        return read_number(row, column)

    def total(self, column: str, table: str, **where: Any) -> int:
        return round(sum(float(count) for count in self.rows(table, where)[column]))

    def mentions(self, word: str, column: str, table: str, **where: Any) -> int:
        """The number of rows with these values whose text in a column contains the word, in excluded cells too."""
        return sum(word in str(text) for text in self.rows(table, where, all_cells=True)[column])

    def sorted_values(self, column: str, table: str, **where: Any) -> list[Number]:
        """A column of the rows with these values, without blanks, smallest first. Raises MissingNumber for none."""
        values = sorted(self.rows(table, where)[column].dropna())
        if not values:
            raise MissingNumber(f"{column} of {_describe(where)} in {self.name} is blank")
        return [Number(float(value)) for value in values]

    def mean(self, column: str, table: str, **where: Any) -> Number:
        """Arithmetic mean of a column, such as clocks, over the rows with these values; without an interval."""
        values = [each.value for each in self.sorted_values(column, table, **where)]
        return Number(sum(values) / len(values))

    def max_over_min(self, column: str, table: str, **where: Any) -> Number:
        """Largest over smallest value of a column in the rows with these values."""
        values = self.sorted_values(column, table, **where)
        if not values[0].value > 0:
            raise MissingNumber(f"{column} of {_describe(where)} in {self.name} is 0")
        return Number(values[-1].value / values[0].value)

    def spreads(
        self, column: str, table: str = "cells", by: Sequence[str] = CELL_COLUMNS, **where: Any
    ) -> list[Number]:
        """Largest over smallest value of a column in each group of rows with these values, smallest first.

        The groups are the tenants of each cell, unless `by` names other columns.
        """
        rows = self.rows(table, where).dropna(subset=[column])
        found = rows.groupby([*by])[column].agg(["max", "min"])
        if found.empty or not (found["min"] > 0).all():
            raise MissingNumber(f"{column} of {_describe(where)} in {self.name} is blank or 0")
        return [Number(float(value)) for value in sorted(found["max"] / found["min"])]

    def ratio(self, over: RowFilter, under: RowFilter, metric: str = LATENCY) -> Number:
        """A metric of one group of valid cells over that of another, paired where each cell has a partner.

        Partners share run and block. In a data set of several devices they share device and block, and only partners
        count, so that no ratio mixes devices. One tenant alone is the mean of both its measurements (`both_by_block`).
        Raises MissingNumber.
        """
        return number_from(self.estimate(over, under, metric))

    def ratios_in_blocks(self, over: RowFilter, under: RowFilter, metric: str) -> list[Number]:
        """A metric of one group over that of another in each block that has both, smallest first."""
        tops, bottoms = self.both_by_block(over, under, metric)
        return [Number(value) for value in sorted(tops[key] / bottoms[key] for key in tops.keys() & bottoms.keys())]

    def estimate(self, over: RowFilter, under: RowFilter, metric: str) -> Estimate:
        """The same as `ratio`, as an estimate that can be tested."""
        tops, bottoms = self.both_by_block(over, under, metric)
        both = tops.keys() & bottoms.keys()
        if both and (tops.keys() == bottoms.keys() or self.device_count > 1):
            keys = sorted(both)
            places = [self.places[key[0]] for key in keys] if self.device_count > 1 else ()
            return log_interval([tops[key] / bottoms[key] for key in keys], places)
        if self.device_count > 1:
            raise MissingNumber(f"{_describe(over)} and {_describe(under)} of {self.name} share no device")
        return welch_ratio(list(tops.values()), list(bottoms.values()))

    def ratio_to(self, other: DataSet, over: RowFilter, under: RowFilter, metric: str = LATENCY) -> Number:
        """A metric of a group over that of a group of another study, whose blocks were interleaved with this one's.

        Partners share device and block. Raises MissingNumber.
        """
        tops, bottoms = self.values_by_block(over, metric, "device"), other.values_by_block(under, metric, "device")
        if not (both := sorted(tops.keys() & bottoms.keys())):
            raise MissingNumber(f"no common block: {self.name}, {_describe(over)}; {other.name}, {_describe(under)}")
        places = [self.places[key[0]] for key in both]
        return number_from(log_interval([tops[key] / bottoms[key] for key in both], places))

    @cached_property
    def places(self) -> Mapping[str, Place]:
        """The place of each device; in old records without its machine."""
        cells = self.table("cells")
        machines = cells["machine"] if "machine" in cells else [""] * len(cells)
        return {name: Place(name, machine or None) for name, machine in zip(cells["device"], machines, strict=True)}

    @property
    def device_count(self) -> int:
        return int(self.table("cells")["device"].nunique())

    def devices(self, **where: Any) -> int:
        return int(self.rows("cells", where)["device"].nunique())

    @property
    def measured_on(self) -> str:
        """The day of the measurement, or the first and last day, as `2026-11-20 to 2026-11-21`."""
        # A run's id begins with its time.
        days = sorted({f"{run[:4]}-{run[4:6]}-{run[6:8]}" for run in self.table("cells")["run_id"].astype(str)})
        return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"

    @property
    def baseline(self) -> str:
        return str(self.manifest["config"]["baseline"])

    @property
    def alone_strategies(self) -> tuple[str, str]:
        """The baseline and its A/A control."""
        return self.baseline, control_name(self.baseline)

    def alone_latencies(self, workload: str) -> list[Number]:
        """Mean latency in seconds of each valid cell of one tenant alone, with the A/A control, smallest first."""
        cells = self.rows("cells", {"workload": workload, "replicas": 1})
        cells = cells[cells["strategy"].isin(self.alone_strategies)]
        return [Number(value) for value in sorted(cells["latency_mean_seconds"])]

    def is_steady(self, workload: str) -> bool:
        """Whether cells of one tenant alone agree, so that a ratio describes its numerator and not them."""
        own = self.alone_latencies(workload)
        return bool(own) and own[-1].value / own[0].value <= STEADY_RATIO

    def is_slowed_down(self, workload: str) -> bool:
        """Whether the SMs' clocks are lower with this workload than with others, as at the power limit."""
        clocks = self.rows("cells", {}).groupby("workload")["sm_clock_mean_mhz"].mean()
        return bool(clocks[workload] < FULL_CLOCK_RATIO * clocks.max())

    def both_by_block(
        self, over: RowFilter, under: RowFilter, metric: str, pair_by: str | None = None
    ) -> tuple[dict[BlockKey, float], dict[BlockKey, float]]:
        """The metric of the cells of both groups, by block. Raises MissingNumber.

        The baseline of one tenant is the geometric mean of it and its A/A control where a block has both, as in
        slowdowns; except in a ratio of these two.
        """
        values = [self.values_by_block(where, metric, pair_by) for where in (over, under)]
        baseline, control = self.alone_strategies
        for own, where, other in zip(values, (over, under), (under, over), strict=True):
            if (where["strategy"], where["replicas"]) == (baseline, 1) and other["strategy"] not in (baseline, control):
                with suppress(MissingNumber):
                    again = self.values_by_block({**where, "strategy": control}, metric, pair_by)
                    own |= {block: math.sqrt(own[block] * again[block]) for block in own.keys() & again.keys()}
        return values[0], values[1]

    def values_by_block(self, where: RowFilter, metric: str, pair_by: str | None = None) -> dict[BlockKey, float]:
        """The metric of each valid cell, by run (or device) and block. Raises MissingNumber."""
        pair_by = pair_by or ("device" if self.device_count > 1 else "run_id")
        found: dict[BlockKey, float] = {}
        for key, own in self.rows("cells", where).groupby([pair_by, "block", "repeat"]):
            value = self._cell_value(own, metric)
            if not (value and value > 0):
                raise MissingNumber(f"{metric} of {_describe(where)} in {self.name} is blank")
            found[tuple(map(str, key))] = value
        return found

    def _cell_value(self, tenants: pd.DataFrame, metric: str) -> float | None:
        """A metric of a cell from its rows of tables/cells.csv; a percentile of several tenants from its record."""
        first = tenants.iloc[0]
        if metric == "makespan_seconds":
            ends = tenants["completion_seconds"]
            return float(ends.sum() if self._is_queue(first["strategy"]) else ends.max())
        if metric in SUMMED_METRICS:
            return float(tenants[metric].sum())
        if metric == LATENCY:
            return float((tenants[metric] * tenants["count"]).sum() / tenants["count"].sum())
        if metric in QUANTILES and len(tenants) > 1:
            cell = Cell(*first[CELL_COLUMNS])
            return cell_value(reduce_record(read_judged(self.unpacked / cell.raw), first["tenant_workload"]), metric)
        return math.exp(float(tenants[metric].map(math.log).mean()))

    def _is_queue(self, strategy: str) -> bool:
        entry = self.manifest["config"].get("strategy_catalogue", {}).get(strategy, {})
        return entry.get("mechanism") in ("sequential", ["sequential"])

    def slice_ms(self, strategy: str = "time-slicing") -> Number:
        """Median length of a run on the device in ms, with the 5th and 95th percentile as bounds."""
        return self._probed("run", "no run ended", strategy).scaled(1e-3)

    def switch_us(self, strategy: str = "time-slicing") -> Number:
        """Median time in µs between one tenant's run and the next tenant's, with the same percentiles."""
        return self._probed("switch", "no tenant took over", strategy)

    def _probed(self, what: str, lacking: str, strategy: str) -> Number:
        if (found := self.probe_result(strategy)[what]) is None:
            raise MissingNumber(f"under {strategy} {lacking} while the probe of {self.name} watched")
        return Number(*(found[key] for key in ("p50_us", "p5_us", "p95_us")))

    def probe_result(self, strategy: str) -> Mapping[str, Any]:
        """The result of the time-slice probe under a strategy (nodes/timeslice.json). Raises MissingNumber."""
        found: Mapping[str, Any] = self._node_file("timeslice")["strategies"].get(strategy, {})
        if not found or found["infeasible"]:
            raise MissingNumber(f"the probe of {self.name} has not watched {strategy}")
        return found

    def answers_by_percent(self) -> dict[int, Mapping[str, Any]]:
        """What was found under each share of the SMs (nodes/answers.json). Raises MissingNumber."""
        found = {int(percent): found for percent, found in self._node_file("answers")["percent"].items()}
        return dict(sorted(found.items()))

    def _node_file(self, name: str) -> Any:
        path = self.unpacked / "nodes" / f"{name}.json"
        if not path.is_file():
            raise MissingNumber(f"{self.name} has no nodes/{name}.json")
        return read_json(path)

    def plugin_tenants(self, is_wrong: bool) -> list[int]:
        """Numbers of tenants, 2 to 10, whose share of the SMs by the device plugin gave wrong results, or none."""
        shares = self.answers_by_percent()
        return [tenants for tenants in range(2, 11) if bool(shares[100 // tenants]["wrong"]) == is_wrong]

    def shared_memory_percent(self, strategy: str) -> str:
        """How much of the SMs' shared memory had a neighbour's pattern, of what a conformance cell looked at."""
        (looks,) = self.records(strategy=strategy, workload="conformance")["promises.tasks.look_shared"]
        found, seen = (sum(each[f"shared_{key}_bytes"] for each in looks) for key in ("found", "looked"))
        return format_number(100 * found / seen).removesuffix(".00")


def _describe(where: RowFilter) -> str:
    return ", ".join(f"{key} {value}" for key, value in where.items())
