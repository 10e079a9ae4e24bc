"""tables/isolation.csv: what became of the victims of each fault, and of the node, by strategy.

A victim is compared with itself: the slots of its timeline before the fault are the measure for those after it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from sharebench.analysis.cells.baseline import Baseline
from sharebench.gates.gates import is_valid
from sharebench.records.tables import TableRow
from sharebench.records.types import FaultOutcome, Record
from tenant.contract import Timeline

COLUMNS = (
    "strategy",
    "fault",
    "victim",
    "n_expected",
    "n",
    "n_excluded",
    "unharmed",
    "slowed",
    "failed",
    "unjudged",
    "worst_slowdown_during",
    "worst_slowdown_after",
    "worst_slowdown_of_baseline",
    "slowed_seconds",
    "slowed_ratio",
    "victim_recovery_seconds",
    "aggressor",
    "new_tenant_seconds",
    "node_recovery_seconds",
    "set_up_again",
    "notes",
)
OUTCOMES = ("unharmed", "slowed", "failed", "unjudged")
# A slot counts as slow when its mean latency exceeds that before the fault by so much, and all but one slot's there ...
SLOW_RATIO = 1.25
# ... and as slowed by the fault only in a run of at least this many.
LEAST_SLOTS = 3


@dataclass(frozen=True)
class Effect:
    """What a timeline shows of a fault; slowdowns are mean latencies over that before it, None where nothing began."""

    slowdown_during: float | None
    slowdown_after: float | None
    since_mean_seconds: float | None
    slowed_seconds: float
    slowed_ratio: float | None
    """Mean latency in the slow slots; None without one."""
    recovery_seconds: float | None
    """From the fault to the end of the last slow slot; 0 if there is none, None if that is the window's last."""


def effect(timeline: Timeline, at_seconds: float, ended_seconds: float | None) -> Effect | None:
    """The effect on a victim of a fault at `at_seconds`, whose tenant ended at `ended_seconds` of the window.

    `timeline` is the victim's in its record. The slot before the fault already belongs to it: an iteration that was
    under way is in the slot in which it began. None without an iteration before that.
    """
    counts, sums, slot = timeline["count"], timeline["sum_seconds"], timeline["slot_seconds"]
    slots = len(counts)
    first = max(0, math.floor(at_seconds / slot) - 1)
    last = slots - 1 if ended_seconds is None else min(slots - 1, math.floor(ended_seconds / slot))
    before = _mean(counts, sums, 0, first)
    if before is None:
        return None
    usual = [total / count for count, total in zip(counts[:first], sums[:first], strict=True) if count]
    # The slowest slot may be an outlier: the second slowest is the limit.
    limit_seconds = max(SLOW_RATIO * before, *sorted(usual)[-2:-1])
    # Where every slot before had an iteration, one without is part of an iteration that takes long.
    is_gapless = len(usual) == first
    slow = [
        index
        for index in range(first, slots)
        if (sums[index] / counts[index] > limit_seconds if counts[index] else is_gapless)
    ]
    slowed = [index for run in _runs(slow) if len(run) >= LEAST_SLOTS for index in run]
    during, after = _mean(counts, sums, first, last + 1), _mean(counts, sums, last + 1, slots)
    recovery = max(0.0, (slowed[-1] + 1) * slot - at_seconds) if slowed else 0.0
    return Effect(
        slowdown_during=None if during is None else during / before,
        slowdown_after=None if after is None else after / before,
        since_mean_seconds=_mean(counts, sums, first, slots),
        slowed_seconds=len(slowed) * slot,
        slowed_ratio=_ratio(counts, sums, slowed, before),
        recovery_seconds=None if slowed and slowed[-1] == slots - 1 else recovery,
    )


def _mean(counts: Sequence[int], sums: Sequence[float], begin: int, end: int) -> float | None:
    count = sum(counts[begin:end])
    return sum(sums[begin:end]) / count if count else None


def _ratio(counts: Sequence[int], sums: Sequence[float], slots: Sequence[int], before: float) -> float | None:
    count = sum(counts[slot] for slot in slots)
    return sum(sums[slot] for slot in slots) / count / before if count else None


def _runs(indices: Sequence[int]) -> list[list[int]]:
    """Runs of neighbouring indices."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and runs[-1][-1] == index - 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return runs


@dataclass(frozen=True)
class Case:
    """One victim of one cell; `outcome` is unharmed, slowed, failed or unjudged, None where the cell says nothing."""

    strategy: str
    workload: str
    outcome: str | None
    note: str
    effect: Effect | None
    aggressor: str
    fault: FaultOutcome | None


def cases(record: Record) -> list[Case]:
    """The victims of a cell that was to have a fault; where it did not happen, one case that says why."""
    cell, fault = record["cell"], record.get("fault")
    if fault is None or not fault["happened"]:
        reason = record["reason"] or "the fault did not happen"
        nothing = Case(
            strategy=cell["strategy"],
            workload=cell["workload"],
            outcome=None,
            note=reason,
            effect=None,
            aggressor="",
            fault=None,
        )
        return [nothing]
    aggressor = record["tenants"][fault["aggressor"]]["status"]
    unproven = any(gate["name"] == "evidence" and not gate["passed"] for gate in record["gates"])
    found = []
    for tenant in record["tenants"]:
        if tenant["index"] == fault["aggressor"]:
            continue
        seen, note = None, ""
        if tenant["status"] != "ok":
            outcome: str | None = "failed"
            note = tenant["exit"]["reason"] if tenant["exit"] else tenant["status"]
        elif not is_valid(record) and record["status"] == "ok":
            outcome = None if unproven else "unjudged"
            note = "; ".join(
                each["name"] for each in record["gates"] if each["severity"] == "invalid" and not each["passed"]
            )
            note = f"excluded by {note}" if unproven else f"latencies excluded by {note}"
        elif tenant["timeline"] is None:
            outcome, note = "unjudged", "no timeline"
        else:
            seen = effect(tenant["timeline"], fault["at_seconds"], fault["ended_seconds"][fault["aggressor"]])
            outcome = "unjudged" if seen is None else "slowed" if seen.slowed_seconds else "unharmed"
            note = "no iteration before the fault to compare with" if seen is None else ""
        found.append(
            Case(
                strategy=cell["strategy"],
                workload=cell["workload"],
                outcome=outcome,
                note=note,
                effect=seen,
                aggressor=aggressor,
                fault=fault,
            )
        )
    return found


def isolation_table(
    found: Iterable[Case],
    expected: Iterable[tuple[str, str]],
    faults: Mapping[str, tuple[str, str]],
    repeats: int,
    baseline: Baseline,
) -> pd.DataFrame:
    """One row per (strategy, name of a fault's cells) of `expected`; `faults` has victim and aggressor by that name."""
    by_row: dict[tuple[str, str], list[Case]] = defaultdict(list)
    for case in found:
        by_row[case.strategy, case.workload].append(case)
    rows = []
    for strategy, name in dict.fromkeys(expected):
        victim, aggressor = faults[name]
        own = by_row[strategy, name]
        rows.append(
            {
                "strategy": strategy,
                "fault": aggressor.removeprefix("fault-"),
                "victim": victim,
                "n_expected": repeats,
                **_values(own, baseline.mean_seconds(victim)),
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _values(found: Sequence[Case], alone_seconds: float | None) -> TableRow:
    told = [case for case in found if case.outcome is not None]
    effects = [case.effect for case in told if case.effect is not None]
    never = any(seen.recovery_seconds is None for seen in effects)
    since = _largest(seen.since_mean_seconds for seen in effects)
    notes = dict.fromkeys(case.note for case in found if case.note)
    if never:
        notes["slow until the window's end"] = None
    outcomes = [case.fault for case in told if case.fault is not None]
    return {
        "n": len(told),
        "n_excluded": len(found) - len(told),
        **{outcome: sum(case.outcome == outcome for case in told) for outcome in OUTCOMES},
        "worst_slowdown_during": _largest(seen.slowdown_during for seen in effects),
        "worst_slowdown_after": _largest(seen.slowdown_after for seen in effects),
        "worst_slowdown_of_baseline": since / alone_seconds if since and alone_seconds else None,
        "slowed_seconds": _largest(seen.slowed_seconds for seen in effects),
        "slowed_ratio": _largest(seen.slowed_ratio for seen in effects),
        "victim_recovery_seconds": None if never else _largest(seen.recovery_seconds for seen in effects),
        "aggressor": "; ".join(dict.fromkeys(case.aggressor for case in told)),
        "new_tenant_seconds": _largest(fault["new_tenant_seconds"] for fault in outcomes),
        "node_recovery_seconds": _largest(fault["recovery_seconds"] for fault in outcomes),
        "set_up_again": sum(bool(fault["set_up_again"]) for fault in outcomes),
        "notes": "; ".join(notes),
    }


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
