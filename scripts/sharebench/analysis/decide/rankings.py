"""tables/which.csv and rankings.csv: what suits which class of workload, and five rankings, each with its evidence."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from sharebench.analysis.cells.rows import grouped
from sharebench.analysis.decide import cost, documented, scaling
from sharebench.analysis.decide.documented import DOCUMENTED, MEASURED, UNKNOWN, Evidence
from sharebench.analysis.decide.model import Model
from sharebench.analysis.decide.rows import MEAN, PERCENTILES, PREDICTED, Predicted, SummaryRow
from sharebench.analysis.statistics.intervals import Estimate
from sharebench.core.strategies import Strategy
from sharebench.core.study_config import StudyConfig
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
DOCUMENTED_ORDER: Mapping[str, Mapping[str, str]] = {
    # The order of KUBECON, where limits are not separate from MPS.
    "fault isolation": dict.fromkeys(("MIG", "time-slicing", "MPS", "MPS with limits"), documented.KUBECON),
    # What part of a device a tenant can be given, from the most flexible on.
    "partitioning flexibility": {
        "MPS with limits": (
            f"any percentage of the SMs and any memory limit for each client, at its start ({documented.MPS_GUIDE})"
        ),
        "MIG": f"a few fixed profiles, changed on an idle GPU only ({documented.MIG_GUIDE})",
        "MPS": f"no partition, any number of tenants up to the server's most ({documented.MPS_GUIDE})",
        "time-slicing": "no partition, only the length of a turn (NVIDIA k8s-device-plugin README)",
    },
    "ease": dict.fromkeys(("time-slicing", "MPS", "MPS with limits", "MIG"), documented.KUBECON),
}
"""By criterion the families from the best on, with the source."""
DEVICE_FAULTS = frozenset({"illegal-address", "assert"})
"""Faults of a kernel, which MPS reports to all clients of the server (NVIDIA MPS documentation, error containment)."""


def class_of(workload: str, declared: str, config: StudyConfig, model: Model) -> tuple[str | None, str]:
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
        members: list[str | None] = [name for name, (found, _) in classes.items() if found == wanted]
        for workload in members or ([None] if wanted else []):
            own = [row for row in summary if row.workload == workload]
            predicted = [row for row in predictions if row.workload == workload]
            rows += (
                {
                    "workload_class": wanted or UNKNOWN,
                    "class_basis": classes[workload][1] if workload else "no workload of this class in the study",
                    "workload": workload,
                    "family": family,
                    "basis": UNKNOWN,
                    "verdict": UNKNOWN,
                    **(_verdict(names, wanted in (LIGHT, HEAVY), own, predicted) if workload else {}),
                }
                for family, names in _members(strategies).items()
            )
    return frame("which", rows)


def _members(strategies: Mapping[str, Strategy]) -> dict[str, list[str]]:
    return {
        family: [name for name, strategy in strategies.items() if belongs(strategy)]
        for family, belongs in FAMILIES.items()
    }


def compared_at(rows: Sequence[SummaryRow]) -> int | None:
    """The largest number of tenants at which most of the strategies that share have a valid cell; of two such numbers
    the larger, None where there is no valid cell with two tenants."""
    valid = grouped((row for row in rows if row.n > 0 and row.replicas > 1), lambda row: row.replicas)
    strategies = {replicas: len({row.strategy for row in own}) for replicas, own in valid.items()}
    return max(strategies, key=lambda replicas: (strategies[replicas], replicas), default=None)


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
    name, top, bottom = next(
        (name, top, bottom)
        for name in PERCENTILES
        if (top := row.percentile(name)) and (bottom := alone.percentile(name))
    )
    ratio = Estimate(top.value / bottom.value)
    if top.high is not None and bottom.high is not None:
        half = math.exp(math.hypot(math.log(top.high / top.value), math.log(bottom.high / bottom.value)))
        ratio = Estimate(ratio.value, ratio.value / half, ratio.value * half)
    return _latency_verdict(f"{name} over alone", ratio)


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
    killed harms no other context. Without one there is no entry, unless a neighbour failed.
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
    """The five rankings of the families, the best first; equal values share a rank, families without data have none."""
    first = {family: names[0] for family, names in _members(strategies).items() if names}
    survived = {
        family: Ranked(float(bool(faults[name].holds)), faults[name].text)
        for family, name in first.items()
        if name in faults
    }
    rankings = {
        "performance isolation": _measured(_over_workloads(summary, first, _growth), GROWTH, is_least_best=True),
        "fault isolation": _measured(survived, "neighbours survived") if survived else None,
        "resource efficiency": _measured(_over_workloads(summary, first, _stp), WORK),
        "partitioning flexibility": None,
        "ease": None,
    }
    return frame(
        "rankings",
        (
            {"criterion": criterion, **row}
            for criterion, rows in rankings.items()
            for row in (_documented(DOCUMENTED_ORDER[criterion]) if rows is None else rows)
        ),
    )


def _growth(row: SummaryRow, rows: Sequence[SummaryRow]) -> float | None:
    """Mean latency over that of one tenant with the same strategy; `rows` are all of the workload."""
    alone = [one for one in rows if (one.strategy, one.replicas) == (row.strategy, 1) and one.n > 0]
    if not alone or MEAN not in alone[0].metrics or MEAN not in row.metrics:
        return None
    return row.metrics[MEAN].value / alone[0].metrics[MEAN].value


def _stp(row: SummaryRow, _: Sequence[SummaryRow]) -> float | None:
    work = cost.stp(row)
    return None if work is None else work.value


class Ranked(NamedTuple):
    value: float
    source: str


def _over_workloads(
    summary: Sequence[SummaryRow],
    strategies: Mapping[str, str],
    metric: Callable[[SummaryRow, Sequence[SummaryRow]], float | None],
) -> dict[str, Ranked]:
    """By family the geometric mean of a metric over the workloads, each at the number of tenants of `compared_at`.

    `strategies` has the strategy that stands for each family.
    """
    found = {}
    by_workload = grouped(summary, lambda row: row.workload)
    for family, strategy in strategies.items():
        rows = [
            (row, own)
            for own in by_workload.values()
            for row in own
            if (row.strategy, row.replicas) == (strategy, compared_at(own)) and row.n > 0
        ]
        values = [value for row, own in rows if (value := metric(row, own)) is not None]
        if values:
            source = "; ".join(f"{row.workload} with {row.replicas} tenants" for row, _ in rows)
            found[family] = Ranked(float(np.exp(np.mean(np.log(values)))), source)
    return found


def _measured(values: Mapping[str, Ranked], unit: str, is_least_best: bool = False) -> list[TableRow]:
    """From the best on; families that are not in `values` come last."""
    order = sorted(values, key=lambda family: values[family].value * (1 if is_least_best else -1))
    numbers = [values[family].value for family in order]
    rows: list[TableRow] = [
        {
            "rank": 1 + numbers.index(values[family].value),
            "family": family,
            "basis": MEASURED,
            "value": values[family].value,
            "unit": unit,
            "source": values[family].source,
        }
        for family in order
    ]
    unknown = (family for family in FAMILIES if family not in values)
    return rows + [{"family": family, "basis": UNKNOWN, "source": "not measured"} for family in unknown]


def _documented(sources: Mapping[str, str]) -> list[TableRow]:
    return [
        {"rank": rank, "family": family, "basis": DOCUMENTED, "source": source}
        for rank, (family, source) in enumerate(sources.items(), start=1)
    ]
