"""Two published studies of the same cells: how many of them differ, and how many would by chance."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from publication.numbers import DataSet, NoNumber, Number, number_of
from publication.tables import markdown
from sharebench.analysis.statistics.intervals import holm, welch_ratio

LEVEL = 0.05
GROUP = ["strategy", "workload", "replicas"]
Group = tuple[str, str, int]


@dataclass(frozen=True)
class Replication:
    """Welch's test of each group of cells that both studies have with two or more valid repeats."""

    p: Mapping[Group, float]
    ratios: Mapping[Group, Number]
    """The second study's value over that of the first."""

    def __str__(self) -> str:
        return f"{len(self.below)} of {self.tested}"

    @property
    def tested(self) -> int:
        return len(self.p)

    @property
    def expected(self) -> float:
        """How many of them chance alone would put below the level."""
        return LEVEL * self.tested

    @property
    def below(self) -> list[Group]:
        """Those below the level, each by itself."""
        return [group for group, p in self.p.items() if p < LEVEL]

    @property
    def below_together(self) -> list[Group]:
        """Those that stay below it when all are adjusted together (Holm)."""
        adjusted = holm(list(self.p.values()))
        return [group for group, p in zip(self.p, adjusted, strict=True) if p < LEVEL]

    @property
    def words(self) -> str:
        return ", ".join(f"`{workload}` under {strategy} × {count}" for strategy, workload, count in self.below)

    @property
    def table(self) -> str:
        """By workload how many differ, each by itself and all together, and how far."""
        rows = []
        for workload in dict.fromkeys(group[1] for group in self.p):
            tested, below, together = (
                sum(group[1] == workload for group in groups) for groups in (self.p, self.below, self.below_together)
            )
            rows.append(
                {
                    "workload": f"`{workload}`",
                    "tested": str(tested),
                    f"p < {LEVEL:g}": str(below),
                    "by chance": f"{LEVEL * tested:.1f}",
                    f"Holm's p < {LEVEL:g}": str(together),
                    "middle change": f"{self.middle_percent(workload):.1f} %",
                    "largest change": f"{self.largest_percent(workload):.1f} %",
                }
            )
        return markdown(rows)

    def ratio(self, strategy: str, workload: str, replicas: int) -> Number:
        """That of one group. Raises NoNumber."""
        group = (strategy, workload, replicas)
        if group not in self.ratios:
            raise NoNumber(f"{strategy}, {workload}, {replicas} is not in both studies")
        return self.ratios[group]

    def largest_percent(self, workload: str) -> float:
        return max(self._changes(workload))

    def middle_percent(self, workload: str) -> float:
        return statistics.median(self._changes(workload))

    def _changes(self, workload: str) -> list[float]:
        found = [100 * abs(ratio.value - 1) for group, ratio in self.ratios.items() if group[1] == workload]
        if not found:
            raise NoNumber(f"nothing of {workload} is in both studies")
        return found


def of(first: DataSet, second: DataSet, metric: str = "slowdown") -> Replication:
    """A metric of the cells of two studies that share no block: `slowdown` or `latency_mean_seconds`.

    The baseline has no slowdown to test. Raises NoNumber where the studies have nothing in common.
    """
    return of_several([first], [second], metric)


def of_several(first: Sequence[DataSet], second: Sequence[DataSet], metric: str = "slowdown") -> Replication:
    """`of` two collections of studies; of a group that several of one have, that of its first counts."""
    one, other = (_of_first(studies, metric) for studies in (first, second))
    p, ratios = {}, {}
    for group in one:
        if min(len(one[group]), len(other.get(group, []))) < 2:
            continue
        samples = [list(zip(*sample[group], strict=True)) for sample in (other, one)]
        ratio = welch_ratio(samples[0][0], samples[1][0], (samples[0][1], samples[1][1]))
        if ratio.probability is not None:
            p[group], ratios[group] = ratio.probability, number_of(ratio)
    if not p:
        names, others = (", ".join(data.name for data in studies) or "nothing" for studies in (first, second))
        raise NoNumber(f"{names} and {others} have no cells in common, each with two repeats")
    return Replication(p, ratios)


def _of_first(studies: Sequence[DataSet], metric: str) -> dict[Group, list[tuple[float, str]]]:
    found: dict[Group, list[tuple[float, str]]] = {}
    for data in studies:
        if metric in data.table("cells"):
            found = _by_group(data, metric) | found
    return found


def _by_group(data: DataSet, metric: str) -> dict[Group, list[tuple[float, str]]]:
    """The metric of each cell, and its device."""
    cells = data.table("cells")
    cells = cells[cells["valid"] & (cells["workload"] == cells["tenant_workload"])]
    if metric == "slowdown":
        cells = cells[(cells["strategy"] != data.baseline) | (cells["replicas"] > 1)]
    found: dict[Group, list[tuple[float, str]]] = {}
    for (strategy, workload, replicas, _), own in cells.dropna(subset=[metric]).groupby([*GROUP, "repeat"], sort=False):
        group = str(strategy), str(workload), int(str(replicas))
        found.setdefault(group, []).append((_of_cell(own, metric), str(own["device"].iloc[0])))
    return found


def _of_cell(tenants: pd.DataFrame, metric: str) -> float:
    """Slowdowns count by tenant, latencies by iteration, as in the tables."""
    if metric == "slowdown":
        return float(tenants[metric].mean())
    return float((tenants[metric] * tenants["count"]).sum() / tenants["count"].sum())
