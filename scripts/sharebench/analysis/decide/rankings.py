"""tables/which.csv and rankings.csv: what suits which class of workload, and five rankings, each with its evidence."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sharebench.analysis.decide import cost, documented, scaling
from sharebench.analysis.decide.documented import DOCUMENTED, MEASURED, UNKNOWN, Evidence
from sharebench.analysis.decide.model import Model
from sharebench.analysis.decide.rows import MEAN, PERCENTILES, PREDICTED, Predicted, SummaryRow
from sharebench.analysis.statistics.intervals import Estimate
from sharebench.core.strategies import Strategy
from sharebench.records.tables import TableRow, frame

LIGHT, HEAVY, SMALL, INTENSIVE = "inference-light", "inference-heavy", "small-batch", "gpu-intensive"
CLASSES = (LIGHT, HEAVY, SMALL, INTENSIVE)
LIGHT_RATE = 0.5
"""An open load of less than this part of what one tenant could do alone is light."""
FILLED = 0.5
"""A closed loop is GPU-intensive where at least this part of its time alone gets shorter with more of the device."""
GOOD_LATENCY, FAIR_LATENCY = 1.5, 3.0
"""Inference: latency over that of one exclusive tenant up to which a strategy suits, and up to which it may do."""
GOOD_WORK, FAIR_WORK = 1.25, 0.95
"""Batch: work done over that of one exclusive tenant from which a strategy suits, and from which it only divides."""
FAMILIES: Mapping[str, Callable[[Strategy], bool]] = {
    "time-slicing": lambda strategy: strategy.mechanisms == ("time-slicing",) and not documented.limited(strategy),
    "MPS": lambda strategy: strategy.mechanisms == ("mps",) and not documented.limited(strategy),
    "MPS with limits": lambda strategy: strategy.mechanisms == ("mps",) and documented.limited(strategy),
    "MIG": lambda strategy: strategy.mechanisms == ("mig",),
}
GROWTH = "mean latency over that of one tenant with the same strategy"
WORK = "work over one exclusive tenant"
# Partitions: what part of a device a tenant can be given, from the most flexible on.
PARTITIONS: Mapping[str, str] = {
    "MPS with limits": (
        f"any percentage of the SMs and any memory limit for each client, at its start ({documented.MPS_GUIDE})"
    ),
    "MIG": f"a few fixed profiles, changed on an idle GPU only ({documented.MIG_GUIDE})",
    "MPS": f"no partition, any number of tenants up to the server's most ({documented.MPS_GUIDE})",
    "time-slicing": "no partition, only the length of a turn (NVIDIA k8s-device-plugin README)",
}
EASE = ("time-slicing", "MPS", "MPS with limits", "MIG")
FAULTS = ("MIG", "time-slicing", "MPS", "MPS with limits")
"""The order of KUBECON, where limits are not told apart from MPS."""
DEVICE_FAULTS = frozenset({"illegal-address", "assert"})
"""Faults of a kernel, which MPS reports to all clients of the server (NVIDIA MPS documentation, error containment)."""


def class_of(workload: str, declared: str, config: Mapping[str, Any], model: Model) -> tuple[str | None, str]:
    """Class of a workload, declared or by its load and model, and how that is known; None where it is not."""
    if declared != "auto":
        return declared, "declared"
    load = config["workload_catalogue"][workload]["load"]
    if load["arrival"] != "closed":
        part = load["rate_of_capacity"]
        if part is None:
            return None, "an open load with a rate of its own; declare the class"
        return (LIGHT if part < LIGHT_RATE else HEAVY), f"an open load of {part:g} of one tenant's capacity"
    if model.choice is None or scaling.PARALLEL not in model.choice.fit.parameters:
        return None, "how much of the device it fills is not known; declare the class"
    fitted = model.choice.fit
    spread = fitted.parameters[scaling.PARALLEL] * min(part.share for point in model.points for part in point.parts)
    serial = fitted.parameters[scaling.SERIAL]
    filled = spread / max(spread, serial) if fitted.shape == "floor" else spread / (spread + serial)
    basis = f"by the model, {100 * filled:.0f} % of its time alone is spread over the device"
    return (INTENSIVE if filled >= FILLED else SMALL), basis


def which_table(
    summary: Sequence[SummaryRow],
    classes: Mapping[str, tuple[str | None, str]],
    predictions: Sequence[Predicted],
    strategies: Mapping[str, Strategy],
) -> pd.DataFrame:
    """One row per class, workload of it and family: the verdict at the largest number of tenants that most have.

    `classes` is `class_of` each workload of the summary.
    """
    rows: list[TableRow] = []
    for wanted in (*CLASSES, None) if classes else ():
        members = [name for name, (found, _) in classes.items() if found == wanted]
        for workload in [*members, *([None] if wanted and not members else [])]:
            own = [row for row in summary if row.workload == workload]
            predicted = [row for row in predictions if row.workload == workload]
            shared: TableRow = {
                "workload_class": wanted or UNKNOWN,
                "class_basis": classes[workload][1] if workload else "no workload of this class in the study",
                "workload": workload,
                "basis": UNKNOWN,
                "verdict": UNKNOWN,
            }
            for family in FAMILIES:
                names = _members(family, strategies)
                verdict = _verdict(names, wanted in (LIGHT, HEAVY), own, predicted) if workload else {}
                rows.append(shared | {"family": family} | verdict)
    return frame("which", rows)


def _members(family: str, strategies: Mapping[str, Strategy]) -> list[str]:
    return [name for name, strategy in strategies.items() if FAMILIES[family](strategy)]


def compared_at(rows: Sequence[SummaryRow]) -> int | None:
    """The largest number of tenants at which most of the strategies that share have a valid cell; of two such numbers
    the larger, None where there is no valid cell with two tenants."""
    strategies: dict[int, set[str]] = defaultdict(set)
    for row in rows:
        if row.n > 0 and row.replicas > 1:
            strategies[row.replicas].add(row.strategy)
    return max(strategies, key=lambda replicas: (len(strategies[replicas]), replicas), default=None)


def _verdict(
    names: Sequence[str], is_inference: bool, rows: Sequence[SummaryRow], predictions: Sequence[Predicted]
) -> TableRow:
    """What a row of which.csv says of the strategies `names`; `rows` and `predictions` are those of one workload."""
    replicas = compared_at(rows)
    alone = next((row for row in rows if (row.strategy, row.replicas) == ("exclusive", 1) and row.n > 0), None)
    if replicas is None or alone is None:
        reason = "no valid cell with two tenants" if replicas is None else "no valid baseline"
        return {"replicas": replicas, "reason": reason}
    own = [row for row in rows if row.strategy in names and row.replicas == replicas]
    for row in own:
        if row.n > 0:
            verdict = _latency(row, alone) if is_inference else _work(cost.stp(row))
            return {"replicas": replicas, "strategy": row.strategy, "basis": MEASURED, **verdict}
    for each in predictions:
        if each.strategy in names and each.replicas == replicas and MEAN in alone.metrics:
            slowdown = each.mean.over(alone.metrics[MEAN].value)
            latency, work = _latency_verdict("mean latency over alone", slowdown), _work(slowdown.under(replicas))
            verdict = latency if is_inference else work
            return {"replicas": replicas, "strategy": each.strategy, "basis": PREDICTED, **verdict}
    reason = own[0].reason or own[0].status if own else "not measured, and not predicted"
    return {"replicas": replicas, "reason": reason}


def _latency(row: SummaryRow, alone: SummaryRow) -> TableRow:
    """Latency over that alone, of the highest percentile that both know. The intervals are taken as independent."""
    for name in PERCENTILES:
        top, bottom = row.percentile(name), alone.percentile(name)
        if top and bottom:
            value = top.value / bottom.value
            if top.high is None or bottom.high is None:
                return _latency_verdict(f"{name} over alone", Estimate(value))
            half = math.exp(math.hypot(*(math.log((each.high or 0) / each.value) for each in (top, bottom))))
            return _latency_verdict(f"{name} over alone", Estimate(value, value / half, value * half))
    raise AssertionError("a valid cell has a mean latency")


def _latency_verdict(metric: str, ratio: Estimate) -> TableRow:
    verdict = "suits" if ratio.value <= GOOD_LATENCY else "may do" if ratio.value <= FAIR_LATENCY else "does not suit"
    return {"metric": metric, "verdict": verdict, "value": ratio.value, "low": ratio.low, "high": ratio.high}


def _work(stp: Estimate | None) -> TableRow:
    if stp is None:
        return {"metric": WORK, "verdict": UNKNOWN, "reason": "not known"}
    verdict = "suits" if stp.value >= GOOD_WORK else "may do" if stp.value >= FAIR_WORK else "does not suit"
    return {"metric": WORK, "verdict": verdict, "value": stp.value, "low": stp.low, "high": stp.high}


def measured_faults(isolation: pd.DataFrame | None) -> dict[str, Evidence]:
    """What tables/isolation.csv says of each strategy: whether the neighbours survived every fault that was tried.

    Surviving proves isolation only where one of DEVICE_FAULTS was among them: a process that runs out of memory or is
    killed leaves the device's context to nobody else. Without one there is no entry, unless a neighbour failed.
    """
    found: dict[str, Evidence] = {}
    if isolation is None:
        return found
    for strategy, rows in isolation[isolation["n"] > 0].groupby("strategy", sort=False):
        fatal = list(dict.fromkeys(rows.loc[rows["failed"] > 0, "fault"]))
        if not fatal and DEVICE_FAULTS.isdisjoint(rows["fault"]):
            continue
        tried = ", ".join(dict.fromkeys(rows["fault"]))
        text = f"neighbours failed after {', '.join(fatal)}" if fatal else f"no neighbour failed after {tried}"
        found[str(strategy)] = Evidence(not fatal, MEASURED, text)
    return found


def rankings_table(
    summary: Sequence[SummaryRow], strategies: Mapping[str, Strategy], faults: Mapping[str, Evidence]
) -> pd.DataFrame:
    """The five rankings of the families, the best first; equal values share a rank, what is unknown has none."""
    first = {family: name for family in FAMILIES for name in _members(family, strategies)[:1]}
    growth, work = (_over_workloads(summary, first, metric) for metric in (_growth, _stp))
    rows = [
        *_measured("performance isolation", sorted(growth, key=lambda name: growth[name][0]), growth, GROWTH),
        *_fault_ranking({family: faults[name] for family, name in first.items() if name in faults}),
        *_measured("resource efficiency", sorted(work, key=lambda name: -work[name][0]), work, WORK),
        *_documented("partitioning flexibility", PARTITIONS),
        *_documented("ease", dict.fromkeys(EASE, documented.KUBECON)),
    ]
    return frame("rankings", rows)


def _growth(row: SummaryRow, rows: Sequence[SummaryRow]) -> float | None:
    """Mean latency over that of one tenant with the same strategy; `rows` are all of the workload."""
    alone = [one for one in rows if (one.strategy, one.replicas) == (row.strategy, 1) and one.n > 0]
    if not alone or MEAN not in alone[0].metrics or MEAN not in row.metrics:
        return None
    return row.metrics[MEAN].value / alone[0].metrics[MEAN].value


def _stp(row: SummaryRow, _: Sequence[SummaryRow]) -> float | None:
    work = cost.stp(row)
    return None if work is None else work.value


def _over_workloads(
    summary: Sequence[SummaryRow],
    strategies: Mapping[str, str],
    metric: Callable[[SummaryRow, Sequence[SummaryRow]], float | None],
) -> dict[str, tuple[float, str]]:
    """Geometric mean of a metric over the workloads, each at the number of tenants at which most can be compared.

    By family, with what it is a mean of; `strategies` has the strategy that stands for each.
    """
    found = {}
    for family, strategy in strategies.items():
        values, at = [], []
        for workload in dict.fromkeys(row.workload for row in summary):
            own = [row for row in summary if row.workload == workload]
            replicas = compared_at(own)
            for row in own:
                if (row.strategy, row.replicas) == (strategy, replicas) and row.n > 0:
                    at.append(f"{workload} with {replicas} tenants")
                    value = metric(row, own)
                    values += [] if value is None else [value]
        if values:
            found[family] = float(np.exp(np.mean(np.log(values)))), "; ".join(at)
    return found


def _measured(
    criterion: str, ordered: Sequence[str], values: Mapping[str, tuple[float, str]], unit: str
) -> list[TableRow]:
    rows: list[TableRow] = [
        {
            "criterion": criterion,
            "rank": rank,
            "family": family,
            "basis": MEASURED,
            "value": values[family][0],
            "unit": unit,
            "source": values[family][1],
        }
        for rank, family in enumerate(ordered, start=1)
    ]
    return rows + [_unknown(criterion, family) for family in FAMILIES if family not in values]


def _unknown(criterion: str, family: str) -> TableRow:
    return {"criterion": criterion, "family": family, "basis": UNKNOWN, "source": "not measured"}


def _documented(criterion: str, sources: Mapping[str, str]) -> list[TableRow]:
    return [
        {"criterion": criterion, "rank": rank, "family": family, "basis": DOCUMENTED, "source": source}
        for rank, (family, source) in enumerate(sources.items(), start=1)
    ]


def _fault_ranking(measured: Mapping[str, Evidence]) -> list[TableRow]:
    """Measured where any family was: those whose neighbours survived first; else the documented order."""
    criterion = "fault isolation"
    if not measured:
        return _documented(criterion, dict.fromkeys(FAULTS, documented.KUBECON))
    survivors = sum(bool(each.holds) for each in measured.values())
    rows: list[TableRow] = [
        {
            "criterion": criterion,
            "rank": 1 if evidence.holds else 1 + survivors,
            "family": family,
            "basis": MEASURED,
            "value": float(bool(evidence.holds)),
            "unit": "neighbours survived",
            "source": evidence.text,
        }
        for family, evidence in sorted(measured.items(), key=lambda each: not each[1].holds)
    ]
    return rows + [_unknown(criterion, family) for family in FAMILIES if family not in measured]
