"""tables/isolation.csv: what became of the victims of each fault, and of the node, by strategy.

A victim is compared with itself: the slots of its timeline before the fault are the measure for those after it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from sharebench.analysis.cells.rows import group_by
from sharebench.gates.gates import is_valid
from sharebench.records.tables import TableRow, table_frame
from sharebench.records.types import FaultOutcome, Record, TenantRecord
from tenant.contract import Timeline

OUTCOMES = ("unharmed", "slowed", "failed", "unjudged")
# A slot counts as slow when its mean latency is larger than this many times that before the fault, and than that of all
# slots there but one, ...
SLOW_RATIO = 1.25
# ... and as slowed by the fault only in a run of at least this many.
MIN_SLOW_SLOTS = 3


@dataclass(frozen=True)
class FaultEffect:
    """What a timeline shows of a fault; slowdowns are mean latencies over that before it, None where nothing began."""

    slowdown_during: float | None
    slowdown_after: float | None
    slowed_seconds: float
    slowed_ratio: float | None
    """Mean latency in the slow slots; None without one."""
    recovery_seconds: float | None
    """From the fault to the end of the last slow slot; 0 if there is none, None if that is the window's last."""


def fault_effect(timeline: Timeline, at_seconds: float, ended_seconds: float | None) -> FaultEffect | None:
    """The effect on a victim of a fault at `at_seconds`, whose tenant ended at `ended_seconds` of the window.

    `timeline` is the victim's in its record. The slot before the fault already belongs to it: an iteration that was
    under way is in the slot in which it began. None without an iteration before that.
    """
    counts, sums, slot = timeline["count"], timeline["sum_seconds"], timeline["slot_seconds"]
    slots = len(counts)

    def mean(of: Iterable[int]) -> float | None:
        of = list(of)
        count = sum(counts[slot] for slot in of)
        return sum(sums[slot] for slot in of) / count if count else None

    def ratio(of: Iterable[int]) -> float | None:
        found = mean(of)
        return None if found is None or before is None else found / before

    first = max(0, math.floor(at_seconds / slot) - 1)
    last = slots - 1 if ended_seconds is None else min(slots - 1, math.floor(ended_seconds / slot))
    before = mean(range(first))
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
    # Neighbouring slots have one distance from their number in the list.
    runs = group_by(enumerate(slow), lambda pair: pair[1] - pair[0]).values()
    slowed = [index for run in runs if len(run) >= MIN_SLOW_SLOTS for _, index in run]
    recovery = max(0.0, (slowed[-1] + 1) * slot - at_seconds) if slowed else 0.0
    return FaultEffect(
        slowdown_during=ratio(range(first, last + 1)),
        slowdown_after=ratio(range(last + 1, slots)),
        slowed_seconds=len(slowed) * slot,
        slowed_ratio=ratio(slowed),
        recovery_seconds=None if slowed and slowed[-1] == slots - 1 else recovery,
    )


@dataclass(frozen=True)
class VictimCase:
    """One victim of one cell; `outcome` is unharmed, slowed, failed or unjudged, None where the cell says nothing."""

    strategy: str
    workload: str
    outcome: str | None
    note: str = ""
    fault_effect: FaultEffect | None = None
    aggressor: str = ""
    fault: FaultOutcome | None = None


def victim_cases(record: Record) -> list[VictimCase]:
    """The victims of a cell that was to have a fault; where it did not happen, one case with the reason."""
    cell, fault = record["cell"], record.get("fault")
    if fault is None or not fault["happened"]:
        note = record["reason"] or "the fault did not happen"
        return [VictimCase(strategy=cell["strategy"], workload=cell["workload"], outcome=None, note=note)]
    return [_case(record, tenant, fault) for tenant in record["tenants"] if tenant["index"] != fault["aggressor"]]


def _case(record: Record, victim: TenantRecord, fault: FaultOutcome) -> VictimCase:
    case = VictimCase(
        strategy=record["cell"]["strategy"],
        workload=record["cell"]["workload"],
        outcome="unjudged",
        aggressor=record["tenants"][fault["aggressor"]]["status"],
        fault=fault,
    )
    if victim["status"] != "ok":
        return replace(case, outcome="failed", note=victim["exit"]["reason"] if victim["exit"] else victim["status"])
    if not is_valid(record) and record["status"] == "ok":
        failed = [gate for gate in record["gates"] if not gate["passed"]]
        names = "; ".join(gate["name"] for gate in failed if gate["severity"] == "invalid")
        if any(gate["name"] == "evidence" for gate in failed):
            return replace(case, outcome=None, note=f"excluded by {names}")
        return replace(case, note=f"latencies excluded by {names}")
    if victim["timeline"] is None:
        return replace(case, note="no timeline")
    seen = fault_effect(victim["timeline"], fault["at_seconds"], fault["ended_seconds"][fault["aggressor"]])
    if seen is None:
        return replace(case, note="no iteration before the fault to compare with")
    return replace(case, outcome="slowed" if seen.slowed_seconds else "unharmed", fault_effect=seen)


def isolation_table(
    found: Iterable[VictimCase],
    expected: Iterable[tuple[str, str]],
    faults: Mapping[str, tuple[str, str]],
    repeats: int,
) -> pd.DataFrame:
    """One row per (strategy, name of a fault's cells) of `expected`; `faults` has victim and aggressor by that name."""
    by_row = group_by(found, lambda case: (case.strategy, case.workload))
    return table_frame(
        "isolation",
        (
            {
                "strategy": strategy,
                "fault": aggressor.removeprefix("fault-"),
                "victim": victim,
                "n_expected": repeats,
                **_values(by_row[strategy, name]),
            }
            for strategy, name in dict.fromkeys(expected)
            for victim, aggressor in [faults[name]]
        ),
    )


def _values(found: Sequence[VictimCase]) -> TableRow:
    known = [case for case in found if case.outcome is not None]
    effects = [case.fault_effect for case in known if case.fault_effect is not None]
    never = any(seen.recovery_seconds is None for seen in effects)
    notes = dict.fromkeys(case.note for case in found if case.note)
    if never:
        notes["slow until the window's end"] = None
    outcomes = [case.fault for case in known if case.fault is not None]
    return {
        "n": len(known),
        "n_excluded": len(found) - len(known),
        **{outcome: sum(case.outcome == outcome for case in known) for outcome in OUTCOMES},
        "worst_slowdown_during": _largest(seen.slowdown_during for seen in effects),
        "worst_slowdown_after": _largest(seen.slowdown_after for seen in effects),
        "slowed_seconds": _largest(seen.slowed_seconds for seen in effects),
        "slowed_ratio": _largest(seen.slowed_ratio for seen in effects),
        "victim_recovery_seconds": None if never else _largest(seen.recovery_seconds for seen in effects),
        "aggressor": "; ".join(dict.fromkeys(case.aggressor for case in known)),
        "new_tenant_seconds": _largest(fault["new_tenant_seconds"] for fault in outcomes),
        "node_recovery_seconds": _largest(fault["recovery_seconds"] for fault in outcomes),
        "set_up_again": sum(bool(fault["set_up_again"]) for fault in outcomes),
        "notes": "; ".join(notes),
    }


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
