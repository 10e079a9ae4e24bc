"""tables/capacity.csv: how many tenants a device serves within an SLO, and how many its memory holds."""

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import cast

import pandas as pd

from sharebench.core.console import format_count
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.decide.advice import Demand
from sharebench.read.decide.documented import MEASURED
from sharebench.read.decide.options import measured_level
from sharebench.read.decide.rows import SummaryRow, applying_limits, tenants_in_memory
from sharebench.read.decide.slo_rate import highest_rate
from sharebench.read.grouping import group_by
from sharebench.read.slo import LATENCY, LimitsOf, format_limits

AT_LEAST, NONE = "at least", "none"
Memory = Mapping[tuple[str, str], tuple[int, str]]


def capacity_table(
    summary: Sequence[SummaryRow],
    limits: LimitsOf,
    workloads: Sequence[str],
    sweeps: Mapping[str, str] = MappingProxyType({}),
    studies: Collection[str] = (),
    memory: Memory = MappingProxyType({}),
) -> pd.DataFrame:
    """One row per strategy and workload, in the order of the summary.

    `limits` has the SLO; `sweeps` maps each workload that is a level of a sweep, the lightest first, to its sweep;
    `memory` is what other studies know (`Known.memory`).
    """
    rows = []
    for workload in workloads:
        own = [row for row in summary if row.workload == workload]
        asked = limits(workload)
        applying = applying_limits(own, asked)
        for of_strategy in group_by(own, lambda row: row.strategy).values():
            rows.append(_row(sorted(of_strategy, key=lambda row: row.replicas), asked, applying, memory))
    of_sweeps = (row for row in rows if row["workload"] in sweeps)
    for levels in group_by(of_sweeps, lambda row: (row["strategy"], sweeps[str(row["workload"])])).values():
        serving = [row for row in levels if row.get("capacity_hz")]
        # The only measured level of a sweep is not the best of several.
        if serving and len(levels) > 1:
            best = max(serving, key=lambda row: cast(float, row.get("capacity_tokens_hz") or row["capacity_hz"]))
            best["best_of_sweep"] = True
            name, workload, tenants = best["strategy"], str(best["workload"]), best["capacity_tenants"]
            same = {row.workload: row for row in summary if (row.strategy, row.replicas) == (name, tenants)}
            heavier = same.get(_next_load(workload, sweeps))
            demand = Demand(1, applying_limits(same.values(), limits(workload)))
            if (within := measured_level(same[workload])) and heavier:
                best |= highest_rate(within, measured_level(heavier), demand)
    return table_frame("capacity", rows, studies=studies)


def _row(
    summary: Sequence[SummaryRow], limits: Mapping[str, float], applying: Mapping[str, float], memory: Memory
) -> TableRow:
    """The capacity of one strategy and workload, by the rule of the advice; rows are in ascending order of tenants."""
    levels = {row.replicas: measured_level(row) for row in summary}
    valid = [level for level in levels.values() if level]
    name, workload = summary[0].strategy, summary[0].workload
    own = tenants_in_memory(row for row in summary if row.n > 0)
    fitting, where = memory.get((name, workload), (own, MEASURED if own else ""))
    row: TableRow = {
        "strategy": name,
        "workload": workload,
        "slo_ms": 1e3 * limits[LATENCY] if LATENCY in limits else None,
        "slo": format_limits(applying),
        "max_tenants_by_memory": fitting,
        "max_tenants_by_memory_basis": where,
        "best_of_sweep": False,
    }
    if not valid or not applying:
        why = "no part of the SLO applies to it" if limits else "no SLO is set (slo)"
        return row | {"reason": why if valid else "no valid cell"}
    demand = Demand(1, applying)
    valid = [level.by_bounds(demand) for level in valid]
    # Numbers of tenants beyond the first that exceeds the SLO do not count.
    first_beyond = next((level for level in valid if level.exceeding_part(demand)), None)
    end = first_beyond.replicas if first_beyond else math.inf
    within = [level for level in valid if level.replicas < end and not level.lacking(demand)]
    most = within[-1] if within else None
    unknown = next((each for each in summary if (most.replicas if most else 0) < each.replicas < end), None)
    is_open = summary[0].strategy != "exclusive" and (unknown is not None or first_beyond is None)
    shown = most or first_beyond or valid[0]
    row |= {
        "percentile": ", ".join(each.name for each in shown.slo_parts(demand)),
        "capacity_tenants": most.replicas if most else None if unknown else 0,
        "bound": (AT_LEAST if is_open else "") if most else "" if unknown else NONE,
        "capacity_hz": most and most.throughput and most.throughput.value,
        "capacity_tokens_hz": most and most.tokens and most.tokens.value,
    }
    if unknown is not None:
        level = levels[unknown.replicas]
        # Cells that ran well but are not valid have a reason in place of a status.
        why = level.lacking(demand) if level else unknown.status if unknown.status != "ok" else unknown.reason
        row["reason"] = f"{format_count(unknown.replicas, 'tenant', 'tenants')}: {why}"
    elif not most and first_beyond:
        least = first_beyond.replicas
        row["reason"] = f"{least} tenant exceeds it already" if least == 1 else f"{least} tenants exceed it already"
    if most and most.harms:
        harmed = f"{format_count(most.replicas, 'tenant', 'tenants')}: {'; '.join(map(str, most.harms))}"
        row["reason"] = "; ".join(filter(None, (harmed, str(row.get("reason", "")))))
    return row


def _next_load(workload: str, sweeps: Mapping[str, str]) -> str:
    """The next heavier load of the same sweep; empty for the heaviest."""
    loads = [each for each, sweep in sweeps.items() if sweep == sweeps[workload]]
    return next(iter(loads[loads.index(workload) + 1 :]), "")


def describe_capacity(table: pd.DataFrame, workload: str) -> list[str]:
    """Sentences on the capacity of each strategy, and on those for which this level serves most of its sweep."""
    own = table[(table["workload"] == workload) & (table["capacity_tenants"] > 0)]
    served = [
        f"{row['strategy']} {row['capacity_tenants']} ({row['percentile']}, {row['capacity_hz']:.3g} requests/s, "
        f"{row['capacity_tokens_hz']:.4g} tokens/s)"
        for row in own.sort_values("capacity_hz", ascending=False, kind="stable").to_dict("records")
    ]
    best = own.loc[own["best_of_sweep"], "strategy"].tolist()
    sentences = [f"Tenants of one device within the SLO: {'; '.join(served)}."] if served else []
    return sentences + ([f"Of the sweep this level serves most within it under {', '.join(best)}."] if best else [])
