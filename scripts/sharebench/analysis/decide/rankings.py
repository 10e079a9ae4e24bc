"""tables/which.csv and rankings.csv: what suits which class of workload, and five rankings, each with its evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sharebench.analysis.decide import cost, documented, scaling
from sharebench.analysis.decide.capacity import PERCENTILES, column
from sharebench.analysis.decide.documented import DOCUMENTED, MEASURED, UNKNOWN, Evidence
from sharebench.analysis.decide.model import PREDICTED, Model
from sharebench.core.strategies import Strategy

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
WHICH_COLUMNS = (
    "workload_class",
    "class_basis",
    "workload",
    "family",
    "strategy",
    "replicas",
    "verdict",
    "metric",
    "value",
    "low",
    "high",
    "basis",
    "reason",
)
RANKING_COLUMNS = ("criterion", "rank", "family", "basis", "value", "unit", "source")
# Partitions: what part of a device a tenant can be given, from the most flexible on.
PARTITIONS: Sequence[tuple[str, str]] = (
    (
        "MPS with limits",
        f"any percentage of the SMs and any memory limit for each client, at its start ({documented.MPS_GUIDE})",
    ),
    ("MIG", f"a few fixed profiles, changed on an idle GPU only ({documented.MIG_GUIDE})"),
    ("MPS", f"no partition, any number of tenants up to the server's most ({documented.MPS_GUIDE})"),
    ("time-slicing", "no partition, only the length of a turn (NVIDIA k8s-device-plugin README)"),
)
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
    summary: pd.DataFrame,
    classes: Mapping[str, tuple[str | None, str]],
    predictions: pd.DataFrame,
    strategies: Mapping[str, Strategy],
) -> pd.DataFrame:
    """One row per class, workload of it and family: the verdict at the largest number of tenants that most have.

    `classes` is `class_of` each workload of the summary.
    """
    rows: list[dict[str, Any]] = []
    for wanted in (*CLASSES, None) if classes else ():
        members = [name for name, (found, _) in classes.items() if found == wanted]
        for workload in [*members, *([None] if wanted and not members else [])]:
            shared: dict[str, Any] = {"workload_class": wanted or UNKNOWN, "workload": workload}
            shared["class_basis"] = classes[workload][1] if workload else "no workload of this class in the study"
            for family in FAMILIES:
                verdict = _verdict(family, workload, wanted, summary, predictions, strategies) if workload else {}
                rows.append({"basis": UNKNOWN, "verdict": UNKNOWN, "family": family} | shared | verdict)
    return pd.DataFrame(rows, columns=list(WHICH_COLUMNS)).astype({"replicas": "Int64"})


def compared_at(summary: pd.DataFrame) -> int | None:
    """The largest number of tenants at which most of the strategies that share have a valid cell; of two such numbers
    the larger, None where there is no valid cell with two tenants."""
    valid = summary[(summary["n"] > 0) & (summary["replicas"] > 1)]
    counts = valid.groupby("replicas")["strategy"].nunique()
    return None if counts.empty else int(max(counts[counts == counts.max()].index))


def _verdict(
    family: str,
    workload: str,
    wanted: str | None,
    summary: pd.DataFrame,
    predictions: pd.DataFrame,
    strategies: Mapping[str, Strategy],
) -> dict[str, Any]:
    own = summary[summary["workload"] == workload]
    replicas = compared_at(own)
    names = [name for name, each in strategies.items() if FAMILIES[family](each)]
    is_inference = wanted in (LIGHT, HEAVY)
    found: dict[str, Any] = {"replicas": replicas}
    alone = own[(own["strategy"] == "exclusive") & (own["replicas"] == 1) & (own["n"] > 0)].to_dict("records")
    if replicas is None or not alone:
        return found | {"reason": "no valid cell with two tenants" if replicas is None else "no valid baseline"}
    rows = own[own["strategy"].isin(names) & (own["replicas"] == replicas)].to_dict("records")
    for row in (row for row in rows if row["n"] > 0):
        found |= {"strategy": row["strategy"], "basis": MEASURED}
        return found | (_latency(row, alone[0]) if is_inference else _work(row))
    predicted = predictions[
        (predictions["workload"] == workload)
        & predictions["strategy"].isin(names)
        & (predictions["replicas"] == replicas)
        & (predictions["basis"] == PREDICTED)
    ].to_dict("records")
    if predicted:
        row, mean = predicted[0], alone[0]["latency_mean_seconds"]
        ends = [row[f"predicted_mean_seconds{end}"] / mean for end in ("", "_low", "_high")]
        found |= {"strategy": row["strategy"], "basis": PREDICTED}
        if is_inference:
            return found | _judged("mean latency over alone", ends[0], ends[1], ends[2], True)
        return found | _judged("work over one exclusive tenant", *(replicas / ends[each] for each in (0, 2, 1)))
    return found | {"reason": rows[0]["reason"] or rows[0]["status"] if rows else "not measured, and not predicted"}


def _latency(row: Mapping[Any, Any], alone: Mapping[Any, Any]) -> dict[str, Any]:
    """Latency over that alone, of the highest percentile that both know. The intervals are taken as independent."""
    name = next(p for p in PERCENTILES if not math.isnan(row[column(p)]) and not math.isnan(alone[column(p)]))
    metric = column(name)
    value = row[metric] / alone[metric]
    halves = [math.log(each[f"{metric}_high"] / each[metric]) for each in (row, alone)]
    half = math.exp(math.hypot(*halves))
    return _judged(f"{name} over alone", value, value / half, value * half, True)


def _work(row: Mapping[Any, Any]) -> dict[str, Any]:
    value, low, high = cost.stp(row)
    return _judged("work over one exclusive tenant", value, low, high)


def _judged(metric: str, value: float, low: float, high: float, is_latency: bool = False) -> dict[str, Any]:
    if math.isnan(value):
        return {"metric": metric, "verdict": UNKNOWN, "reason": "not known"}
    if is_latency:
        verdict = "suits" if value <= GOOD_LATENCY else "may do" if value <= FAIR_LATENCY else "does not suit"
    else:
        verdict = "suits" if value >= GOOD_WORK else "may do" if value >= FAIR_WORK else "does not suit"
    return {"metric": metric, "verdict": verdict, "value": value, "low": low, "high": high}


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
    summary: pd.DataFrame, strategies: Mapping[str, Strategy], faults: Mapping[str, Evidence]
) -> pd.DataFrame:
    """The five rankings of the families, the best first; equal values share a rank, what is unknown has none."""
    growth, work = _over_workloads(summary, strategies, _growth), _over_workloads(summary, strategies, _stp)
    rows = _measured_ranking(
        "performance isolation",
        {family: (value, at) for family, (value, at) in growth.items()},
        "mean latency over that of one tenant with the same strategy",
        is_less_better=True,
    )
    rows += _fault_ranking(strategies, faults)
    rows += _measured_ranking("resource efficiency", work, "work over one exclusive tenant", is_less_better=False)
    rows += _documented("partitioning flexibility", [(family, text) for family, text in PARTITIONS])
    rows += _documented("ease", [(family, documented.KUBECON) for family in EASE])
    return pd.DataFrame(rows, columns=list(RANKING_COLUMNS)).astype({"rank": "Int64"})


def _growth(row: Mapping[Any, Any], own: pd.DataFrame) -> float:
    one = own[(own["strategy"] == row["strategy"]) & (own["replicas"] == 1) & (own["n"] > 0)]["latency_mean_seconds"]
    return float(row["latency_mean_seconds"] / one.iloc[0]) if len(one) else math.nan


def _stp(row: Mapping[Any, Any], own: pd.DataFrame) -> float:
    return cost.stp(row)[0]


def _over_workloads(
    summary: pd.DataFrame,
    strategies: Mapping[str, Strategy],
    metric: Callable[[Mapping[Any, Any], pd.DataFrame], float],
) -> dict[str, tuple[float, str]]:
    """Geometric mean of a metric over the workloads, each at the number of tenants at which most can be compared."""
    found = {}
    for family, belongs in FAMILIES.items():
        names = [name for name, strategy in strategies.items() if belongs(strategy)][:1]
        values, at = [], []
        for workload in dict.fromkeys(summary["workload"]):
            own = summary[summary["workload"] == workload]
            replicas = compared_at(own)
            rows = own[own["strategy"].isin(names) & (own["replicas"] == replicas) & (own["n"] > 0)]
            values += [value for row in rows.to_dict("records") if not math.isnan(value := metric(row, own))]
            at += [f"{workload} with {replicas} tenants"] * (len(rows) > 0)
        if values:
            found[family] = float(np.exp(np.mean(np.log(values)))), "; ".join(at)
    return found


def _measured_ranking(
    criterion: str, values: Mapping[str, tuple[float, str]], unit: str, is_less_better: bool
) -> list[dict[str, Any]]:
    ordered = sorted(values, key=lambda family: values[family][0] * (1 if is_less_better else -1))
    rows = [
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
    missing = [family for family in FAMILIES if family not in values]
    return rows + [
        {"criterion": criterion, "family": name, "basis": UNKNOWN, "source": "not measured"} for name in missing
    ]


def _documented(criterion: str, ordered: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"criterion": criterion, "rank": rank, "family": family, "basis": DOCUMENTED, "source": source}
        for rank, (family, source) in enumerate(ordered, start=1)
    ]


def _fault_ranking(strategies: Mapping[str, Strategy], faults: Mapping[str, Evidence]) -> list[dict[str, Any]]:
    """Measured where any family was: those whose neighbours survived first; else the documented order."""
    measured = {
        family: faults[name]
        for family, belongs in FAMILIES.items()
        for name in [name for name, strategy in strategies.items() if belongs(strategy)][:1]
        if name in faults
    }
    if not measured:
        return _documented("fault isolation", [(family, documented.KUBECON) for family in FAULTS])
    rows = []
    for family in sorted(
        FAMILIES, key=lambda name: (name not in measured, not (name in measured and measured[name].holds))
    ):
        row: dict[str, Any] = {
            "criterion": "fault isolation",
            "family": family,
            "basis": UNKNOWN,
            "source": "not measured",
        }
        if family in measured:
            holds = bool(measured[family].holds)
            row |= {"rank": 1 if holds else 1 + sum(bool(each.holds) for each in measured.values())}
            row |= {
                "basis": MEASURED,
                "value": float(holds),
                "unit": "neighbours survived",
                "source": measured[family].text,
            }
        rows.append(row)
    return rows
