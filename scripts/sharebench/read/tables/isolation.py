"""tables/isolation.csv: the outcome of each fault for its victims and the node, by strategy.

A victim is compared with itself: the slots of its timeline after the fault with those before it.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd

from sharebench.model.records.types import FaultOutcome, Record, TenantRecord
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.gates.gates import is_valid
from sharebench.read.grouping import group_by
from tenant.contract import Timeline

OUTCOMES = ("unharmed", "slowed", "failed", "unjudged")
# A slot is slow when its mean latency exceeds this many times that before the fault, and that of all earlier slots but
# one, ...
SLOW_RATIO = 1.25
# ... and counts as slowed by the fault only in a run of at least this many slow slots.
MIN_SLOW_SLOTS = 3


@dataclass(frozen=True)
class FaultEffect:
    """The effect of a fault on a timeline; slowdowns are mean latencies over that before, None without iterations."""

    slowdown_during: float | None
    slowdown_after: float | None
    slowed_seconds: float
    slowed_ratio: float | None
    """Slowdown in the slow slots; None without any."""
    recovery_seconds: float | None
    """From the fault to the end of the last slow slot: 0 if there is none, None if it is the window's last slot."""


def fault_effect(timeline: Timeline, at_seconds: float, ended_seconds: float | None) -> FaultEffect | None:
    """The effect of a fault at `at_seconds` of the window, whose tenant ended at `ended_seconds`, on a victim.

    `timeline` is the victim's. The slot before the fault counts as affected, since an iteration belongs to the slot in
    which it begins. None without an iteration before that slot.
    """
    counts, sums, slot = timeline["count"], timeline["sum_seconds"], timeline["slot_seconds"]
    slots = len(counts)

    first = max(0, math.floor(at_seconds / slot) - 1)
    last = slots - 1 if ended_seconds is None else min(slots - 1, math.floor(ended_seconds / slot))
    if not sum(counts[:first]):
        return None
    before = sum(sums[:first]) / sum(counts[:first])

    def slowdown(indices: Collection[int]) -> float | None:
        count = sum(counts[index] for index in indices)
        return sum(sums[index] for index in indices) / count / before if count else None

    usual = [total / count for count, total in zip(counts[:first], sums[:first], strict=True) if count]
    # The slowest slot may be an outlier, so the second slowest is the limit.
    limit_seconds = max([SLOW_RATIO * before, *sorted(usual)[-2:-1]])
    # If every earlier slot had an iteration, an empty slot is part of a long iteration.
    is_gapless = len(usual) == first
    slow = [
        index
        for index in range(first, slots)
        if (sums[index] / counts[index] > limit_seconds if counts[index] else is_gapless)
    ]
    # Neighbouring slots share the difference between slot number and list index.
    runs = group_by(enumerate(slow), lambda pair: pair[1] - pair[0]).values()
    slowed = [index for run in runs if len(run) >= MIN_SLOW_SLOTS for _, index in run]
    recovery = max(0.0, (slowed[-1] + 1) * slot - at_seconds) if slowed else 0.0
    return FaultEffect(
        slowdown_during=slowdown(range(first, last + 1)),
        slowdown_after=slowdown(range(last + 1, slots)),
        slowed_seconds=len(slowed) * slot,
        slowed_ratio=slowdown(slowed),
        recovery_seconds=None if slowed and slowed[-1] == slots - 1 else recovery,
    )


@dataclass(frozen=True)
class VictimCase:
    """One victim of one cell; `outcome` is unharmed, slowed, failed or unjudged, None where the cell has no result."""

    strategy: str
    workload: str
    outcome: str | None
    note: str = ""
    fault_effect: FaultEffect | None = None
    aggressor: str = ""
    fault: FaultOutcome | None = None


def victim_cases(record: Record) -> list[VictimCase]:
    """The victims of a cell with a fault; if the fault did not happen, one case with the reason."""
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
    effect = fault_effect(victim["timeline"], fault["at_seconds"], fault["ended_seconds"][fault["aggressor"]])
    if effect is None:
        return replace(case, note="no iteration before the fault to compare with")
    return replace(case, outcome="slowed" if effect.slowed_seconds else "unharmed", fault_effect=effect)


def isolation_table(
    found: Iterable[VictimCase],
    expected: Iterable[tuple[str, str]],
    faults: Mapping[str, tuple[str, str]],
    repeats: int,
) -> pd.DataFrame:
    """One row per (strategy, fault workload) of `expected`; `faults` has victim and aggressor by fault workload."""
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


def _values(cases: Sequence[VictimCase]) -> TableRow:
    known = [case for case in cases if case.outcome is not None]
    effects = [case.fault_effect for case in known if case.fault_effect is not None]
    never = any(seen.recovery_seconds is None for seen in effects)
    notes = dict.fromkeys(case.note for case in cases if case.note)
    if never:
        notes["slow until the window's end"] = None
    outcomes = [case.fault for case in known if case.fault is not None]
    return {
        "n": len(known),
        "n_excluded": len(cases) - len(known),
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
