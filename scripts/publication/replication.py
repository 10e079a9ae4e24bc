"""Compares two published studies of the same cells: how many differ, and how many would differ by chance."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from publication.numbers import DataSet, MissingNumber, Number, number_from
from publication.tables import markdown
from sharebench.read.statistics.intervals import Place, holm, welch_ratio

SIGNIFICANCE_LEVEL = 0.05
GROUP_COLUMNS = ["strategy", "tenant_workload", "replicas", "workload"]
Group = tuple[str, str, int, str]
"""Strategy, workload of the tenants, number of tenants in the cell, and the cell's workload, which may be a pair."""


@dataclass(frozen=True)
class Replication:
    """Welch's test for each group of cells with at least two valid repeats in both studies."""

    p: Mapping[Group, float]
    ratios: Mapping[Group, Number]
    """The second study's value over the first's."""

    def __str__(self) -> str:
        return f"{len(self.below)} of {self.tested}"

    @property
    def tested(self) -> int:
        return len(self.p)

    @property
    def expected(self) -> float:
        """The number of groups that chance alone would put below the level."""
        return SIGNIFICANCE_LEVEL * self.tested

    @property
    def below(self) -> list[Group]:
        """The groups below the level, each tested by itself."""
        return [group for group, p in self.p.items() if p < SIGNIFICANCE_LEVEL]

    @property
    def below_adjusted(self) -> list[Group]:
        """The groups below the level after Holm's adjustment."""
        adjusted = holm(list(self.p.values()))
        return [group for group, p in zip(self.p, adjusted, strict=True) if p < SIGNIFICANCE_LEVEL]

    @property
    def below_text(self) -> str:
        return ", ".join(map(describe, self.below))

    @property
    def table(self) -> str:
        """By workload: how many groups differ, without and with adjustment, and by how much."""
        rows = []
        for workload in dict.fromkeys(group[1] for group in self.p):
            tested, below, together = (
                sum(group[1] == workload for group in groups) for groups in (self.p, self.below, self.below_adjusted)
            )
            rows.append(
                {
                    "workload": f"`{workload}`",
                    "tested": str(tested),
                    f"p < {SIGNIFICANCE_LEVEL:g}": str(below),
                    "by chance": f"{SIGNIFICANCE_LEVEL * tested:.1f}",
                    f"Holm's p < {SIGNIFICANCE_LEVEL:g}": str(together),
                    "middle change": f"{self.middle_percent(workload):.1f} %",
                    "largest change": f"{self.largest_percent(workload):.1f} %",
                }
            )
        return markdown(rows)

    def ratio(self, strategy: str, workload: str, replicas: int) -> Number:
        """The ratio of one group without neighbours of another workload. Raises MissingNumber."""
        group = (strategy, workload, replicas, workload)
        if group not in self.ratios:
            raise MissingNumber(f"{strategy}, {workload}, {replicas} is not in both studies")
        return self.ratios[group]

    def largest_percent(self, workload: str) -> float:
        return max(self._changes(workload))

    def middle_percent(self, workload: str) -> float:
        return statistics.median(self._changes(workload))

    def _changes(self, workload: str) -> list[float]:
        changes = [100 * abs(ratio.value - 1) for group, ratio in self.ratios.items() if group[1] == workload]
        if not changes:
            raise MissingNumber(f"nothing of {workload} is in both studies")
        return changes


def describe(group: Group) -> str:
    strategy, workload, replicas, cell_workload = group
    if cell_workload == workload:
        return f"`{workload}` under {strategy} × {replicas}"
    first, _, second = cell_workload.partition("+")
    return f"`{workload}` next to `{second if workload == first else first}` under {strategy}"


def compare_collections(first: Sequence[DataSet], second: Sequence[DataSet], metric: str = "slowdown") -> Replication:
    """Compare `slowdown` or `latency_mean_seconds` of the tenants of two collections of studies that share no block.

    Where several studies of one collection have a group, its first one counts. The baseline and its A/A control have no
    slowdown to test.
    Raises MissingNumber where the collections have no group in common.
    """
    one, other = (_collect_values(studies, metric) for studies in (first, second))
    p, ratios = {}, {}
    for group in one:
        if min(len(one[group]), len(other.get(group, []))) < 2:
            continue
        samples = [list(zip(*sample[group], strict=True)) for sample in (other, one)]
        ratio = welch_ratio(samples[0][0], samples[1][0], (samples[0][1], samples[1][1]))
        if ratio.probability is not None:
            p[group], ratios[group] = ratio.probability, number_from(ratio)
    if not p:
        names, other_names = (", ".join(data.name for data in studies) or "nothing" for studies in (first, second))
        raise MissingNumber(f"{names} and {other_names} have no cells in common, each with two repeats")
    return Replication(p, ratios)


def _collect_values(studies: Sequence[DataSet], metric: str) -> dict[Group, list[tuple[float, Place]]]:
    found: dict[Group, list[tuple[float, Place]]] = {}
    for data in studies:
        if metric in data.table("cells"):
            found = _values_by_group(data, metric) | found
    return found


def _values_by_group(data: DataSet, metric: str) -> dict[Group, list[tuple[float, Place]]]:
    """The metric of each cell, and its place."""
    cells = data.rows("cells", {})
    if metric == "slowdown":
        cells = cells[~cells["strategy"].isin(data.alone_strategies) | (cells["replicas"] > 1)]
    found: dict[Group, list[tuple[float, Place]]] = {}
    repeats = cells.dropna(subset=[metric]).groupby([*GROUP_COLUMNS, "repeat"], sort=False)
    for (strategy, tenant_workload, replicas, workload, _), own in repeats:
        group = str(strategy), str(tenant_workload), int(str(replicas)), str(workload)
        found.setdefault(group, []).append((_cell_value(own, metric), data.places[own["device"].iloc[0]]))
    return found


def _cell_value(tenants: pd.DataFrame, metric: str) -> float:
    """The mean slowdown of the tenants, or the mean latency of all iterations, as in the tables."""
    if metric == "slowdown":
        return float(tenants[metric].mean())
    return float((tenants[metric] * tenants["count"]).sum() / tenants["count"].sum())
