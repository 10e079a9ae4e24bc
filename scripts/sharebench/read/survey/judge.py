"""Which workloads leave their GPU empty, and which of them would fit on one together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby

import numpy as np
import pandas as pd

from sharebench.model.records.usage import ACTIVITIES, DRAM, MEMORY, POWER, QUANTITIES, GpuPlace, ObservedUsage, Usage
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.survey.limits import Limits

# A GPU below it is idle; tests/gpu/test_activity.py allows as much for one at rest.
IDLE_PERCENT = 1.0
# A series with fewer values has no usable 95th percentile.
MIN_STEPS = 20
# The 95th percentile of a group's summed activity must stay below it.
FULL_PERCENT = 100.0


class GpuUse(StrEnum):
    CANDIDATE = "leaves its GPU empty"
    BUSY = "uses its GPU"
    SHARED = "shares its GPU already"
    UNKNOWN = "may share its GPU already"
    SPREAD = "has several GPUs"
    INSTANCE = "has a MIG instance"
    SHORT = "seen too shortly"
    NOBODY = "no workload"


@dataclass(frozen=True)
class JudgedWorkload:
    """A workload on a GPU, with the measure that it was judged by and the verdict. What is not known is NaN."""

    usage: Usage
    measure: str
    verdict: GpuUse
    number: int = 0
    """Number of its group; 0 is none."""

    @property
    def activity(self) -> "pd.Series[float]":
        return self.usage.series[self.measure]

    @property
    def name(self) -> str:
        """The workload, or its GPU where none is known."""
        return self.usage.workload or str(self.usage.place)

    def mean(self, quantity: str) -> float:
        return float(self.usage.series[quantity].mean())

    def p95(self, quantity: str) -> float:
        return float(self.usage.series[quantity].quantile(0.95))

    @property
    def memory_mib(self) -> float:
        return float(self.usage.series[MEMORY].max())

    @property
    def busy_ratio(self) -> float:
        """Share of the time in which the GPU was in use at all."""
        return float((self.activity.dropna() >= IDLE_PERCENT).mean())


@dataclass(frozen=True)
class WorkloadGroup:
    """Workloads that would fit on one GPU. A sum is NaN where any of its parts is not known."""

    members: tuple[JudgedWorkload, ...]

    @property
    def activity_mean(self) -> float:
        """Sum of each member's mean over its own time."""
        return sum(float(each.activity.mean()) for each in self.members)

    @property
    def activity_p95(self) -> float:
        return float(pd.concat([each.activity for each in self.members]).groupby(level=0).sum().quantile(0.95))

    @property
    def dram_mean(self) -> float:
        return sum(each.mean(DRAM) for each in self.members)

    @property
    def memory_mib(self) -> float:
        """Sum of each member's largest memory."""
        return sum(each.memory_mib for each in self.members)

    @property
    def place(self) -> GpuPlace:
        return self.members[0].usage.place

    def fits(self, limits: Limits) -> bool:
        """Whether one GPU of their kind has room for all members."""
        return (
            len(self.members) <= limits.tenants
            and self.activity_mean <= limits.filled_percent
            and not self.dram_mean > limits.filled_percent
            and self.activity_p95 <= FULL_PERCENT
            # Memory cannot be oversubscribed, so that unknown memory does not fit.
            and self.memory_mib <= (self.place.memory_mib or np.nan) * limits.memory_percent / 100
        )


@dataclass(frozen=True)
class Survey:
    seen: ObservedUsage
    judged: list[JudgedWorkload]
    """In the order in which people read them: candidates by their groups, then the others."""
    groups: list[WorkloadGroup]
    """Groups of two and more, those that free most GPUs first, numbered from 1."""

    def with_verdict(self, *verdicts: GpuUse) -> list[JudgedWorkload]:
        return [each for each in self.judged if each.verdict in verdicts]


def judge_usage(seen: ObservedUsage, limits: Limits) -> Survey:
    wanted = set(limits.namespaces)
    judged = [
        _judge_workload(usage, limits)
        for usage in seen.usages
        if not wanted or usage.workload is None or usage.workload.partition("/")[0] in wanted
    ]
    groups = list(_group_candidates([each for each in judged if each.verdict is GpuUse.CANDIDATE], limits))
    groups.sort(key=lambda group: (-len(group.members), group.activity_p95))
    groups = [
        WorkloadGroup(tuple(replace(each, number=number) for each in group.members))
        for number, group in enumerate(groups, 1)
    ]
    numbered = {id(each.usage): each for group in groups for each in group.members}
    order = list(GpuUse)

    def rank(each: JudgedWorkload) -> tuple[int, float, float]:
        return order.index(each.verdict), each.number or float("inf"), -float(np.nan_to_num(each.mean(each.measure)))

    return Survey(seen, sorted((numbered.get(id(each.usage), each) for each in judged), key=rank), groups)


def _judge_workload(usage: Usage, limits: Limits) -> JudgedWorkload:
    series = usage.series
    measure = next((name for name in ACTIVITIES if series[name].notna().sum() >= MIN_STEPS), ACTIVITIES[-1])
    if usage.workload is None:
        is_used = series[measure].mean() >= IDLE_PERCENT
        verdict = GpuUse.UNKNOWN if usage.may_be_shared and is_used else GpuUse.NOBODY
    elif usage.is_shared:
        verdict = GpuUse.SHARED
    elif usage.is_spread:
        verdict = GpuUse.SPREAD
    elif usage.place.instance:
        verdict = GpuUse.INSTANCE
    elif series[measure].notna().sum() < MIN_STEPS:
        verdict = GpuUse.SHORT
    elif any(series[name].mean() > limits.empty_percent for name in (measure, DRAM)):
        verdict = GpuUse.BUSY
    else:
        verdict = GpuUse.UNKNOWN if usage.may_be_shared else GpuUse.CANDIDATE
    return JudgedWorkload(usage, measure, verdict)


def _group_candidates(candidates: Iterable[JudgedWorkload], limits: Limits) -> Iterable[WorkloadGroup]:
    """Groups of two and more by first fit, the most active first, each from GPUs of one kind."""

    def kind(each: JudgedWorkload) -> tuple[str, str]:
        # Activities by different measures cannot be added.
        return each.usage.place.product, each.measure

    for _, alike in groupby(sorted(candidates, key=kind), key=kind):
        groups: list[WorkloadGroup] = []
        for each in sorted(alike, key=lambda one: -one.activity.mean()):
            larger = ((index, WorkloadGroup((*group.members, each))) for index, group in enumerate(groups))
            fitting = next(((index, group) for index, group in larger if group.fits(limits)), None)
            if fitting is None:
                groups.append(WorkloadGroup((each,)))
            else:
                groups[fitting[0]] = fitting[1]
        yield from (group for group in groups if len(group.members) > 1)


def workload_table(survey: Survey) -> pd.DataFrame:
    return table_frame("survey_workloads", (_row(each, survey.seen.step_seconds) for each in survey.judged))


def _row(each: JudgedWorkload, step_seconds: float) -> TableRow:
    place, series = each.usage.place, each.usage.series
    row: TableRow = {
        "workload": each.usage.workload,
        "node": place.node,
        "gpu": place.gpu,
        "product": place.product,
        "instance": place.profile or place.instance or None,
        "verdict": each.verdict.value,
        "group": each.number or None,
        "judged_by": each.measure,
        "hours": round(len(series) * step_seconds / 3600, 3),
        "idle_percent": round(100 * (1 - each.busy_ratio), 2),
        "memory_max_mib": each.memory_mib,
        "memory_total_mib": place.memory_mib,
        "power_mean_watts": round(each.mean(POWER), 2),
        "image": each.usage.image,
    }
    for quantity in (each for each in QUANTITIES if each.endswith("_percent")):
        stem = quantity.removesuffix("_percent")
        row[f"{stem}_mean_percent"] = round(each.mean(quantity), 2)
        row[f"{stem}_p95_percent"] = round(each.p95(quantity), 2)
    return row


def group_table(survey: Survey) -> pd.DataFrame:
    rows: list[TableRow] = [
        {
            "group": number,
            "workloads": ";".join(each.name for each in group.members),
            "product": group.place.product,
            "judged_by": group.members[0].measure,
            "gpus_freed": len(group.members) - 1,
            "activity_mean_percent": round(group.activity_mean, 2),
            "activity_p95_percent": round(group.activity_p95, 2),
            "dram_active_mean_percent": round(group.dram_mean, 2),
            "memory_max_mib": group.memory_mib,
            "memory_total_mib": group.place.memory_mib,
        }
        for number, group in enumerate(survey.groups, 1)
    ]
    return table_frame("survey_groups", rows)


def gpu_counts(judged: Sequence[JudgedWorkload]) -> str:
    """`4 NVIDIA H200, 3 NVIDIA A100-SXM4-80GB`."""
    places = {(each.usage.place.node, each.usage.place.gpu): each.usage.place.product for each in judged}
    counts = pd.Series(list(places.values()), dtype=str).value_counts()
    return ", ".join(f"{count} {product or 'GPUs'}" for product, count in counts.items())
