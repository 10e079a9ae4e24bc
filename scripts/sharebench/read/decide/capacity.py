"""tables/capacity.csv: how many tenants a device serves within an SLO, and how many its memory holds."""

from collections.abc import Collection, Mapping, Sequence
from typing import cast

import pandas as pd

from sharebench.read.cells.rows import group_by
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.decide.rows import TOKENS, TOTAL, SummaryRow, common_percentile, known_parts, tenants_in_memory
from sharebench.read.slo import LATENCY, PART_LABELS, format_limits, percentile_label

AT_LEAST, NONE = "at least", "none"
NO_SWEEPS: Mapping[str, str] = {}


def capacity_table(
    summary: Sequence[SummaryRow],
    limits: Mapping[str, float],
    workloads: Sequence[str],
    sweeps: Mapping[str, str] = NO_SWEEPS,
    studies: Collection[str] = (),
) -> pd.DataFrame:
    """One row per strategy and workload, in the order of the summary.

    `limits` is the SLO; `sweeps` maps each workload that is a level of a sweep to its sweep.
    """
    groups = group_by((row for row in summary if row.workload in workloads), lambda row: (row.strategy, row.workload))
    applying = {name: known_parts([row for row in summary if row.workload == name]) for name in workloads}
    rows = []
    for strategy, workload in sorted(groups, key=lambda group: workloads.index(group[1])):
        applicable = {part: seconds for part, seconds in limits.items() if part in applying[workload]}
        rows.append(_row(sorted(groups[strategy, workload], key=lambda row: row.replicas), limits, applicable))
    of_sweeps = (row for row in rows if row["workload"] in sweeps)
    for levels in group_by(of_sweeps, lambda row: (row["strategy"], sweeps[str(row["workload"])])).values():
        serving = [row for row in levels if row.get("capacity_hz")]
        # The only measured level of a sweep is not the best of several.
        if serving and len(levels) > 1:
            best = max(serving, key=lambda row: cast(float, row.get("capacity_tokens_hz") or row["capacity_hz"]))
            best["best_of_sweep"] = True
    return table_frame("capacity", rows, studies=studies)


def _row(summary: Sequence[SummaryRow], limits: Mapping[str, float], applying: Mapping[str, float]) -> TableRow:
    """The capacity of one strategy and workload: the largest number of tenants that meets every applicable part.

    Parts are compared by the best percentile that all rows have; rows are in ascending order of tenants.
    """
    valid = [row for row in summary if row.n > 0]
    row: TableRow = {
        "strategy": summary[0].strategy,
        "workload": summary[0].workload,
        "slo_ms": 1e3 * limits[LATENCY] if LATENCY in limits else None,
        "slo": format_limits(applying),
        "max_tenants_by_memory": tenants_in_memory(valid),
        "best_of_sweep": False,
    }
    names = {part: name for part in applying if (name := common_percentile(valid, part))}
    if not valid or not applying or len(names) < len(applying):
        unknown = ", ".join(PART_LABELS[part] for part in applying if part not in names)
        why = f"{unknown}: not known with every number of tenants" if applying else "no part of the SLO applies to it"
        return row | {"reason": "no valid cell" if not valid else why if limits else "no SLO is set (slo)"}
    exceeds = [
        any((time := each.percentile(name, part)) and time.value > limits[part] for part, name in names.items())
        for each in valid
    ]
    # Numbers of tenants beyond the first that exceeds the SLO do not count.
    within = valid[: exceeds.index(True)] if True in exceeds else valid
    is_open = len(within) == len(valid) and summary[0].strategy != "exclusive"
    row |= {
        "percentile": ", ".join(percentile_label(part, name) for part, name in names.items()),
        "capacity_tenants": within[-1].replicas if within else 0,
        "bound": AT_LEAST if is_open else "" if within else NONE,
    }
    for column, metric in (("capacity_hz", TOTAL), ("capacity_tokens_hz", TOKENS)):
        row[column] = within[-1].metrics[metric].value if within and metric in within[-1].metrics else None
    invalid = next((row for row in summary if row.n == 0), None)
    if not within:
        least = valid[0].replicas
        row["reason"] = f"{least} tenant exceeds it already" if least == 1 else f"{least} tenants exceed it already"
    elif is_open and invalid is not None:
        # Cells that ran well but are not valid have a reason in place of a status.
        why = invalid.status if invalid.status != "ok" else invalid.reason
        row["reason"] = f"{invalid.replicas} tenants: {why}"
    return row


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
