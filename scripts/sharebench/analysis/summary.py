"""tables/summary.csv: one row per strategy, workload, workload of the tenants and number of replicas, over its repeats.

Each cell gets its values first; the table has their geometric mean and 95 % interval over the valid repeats.
The tenants of a mix are taken apart by what they run. Mean latency and percentiles of a cell are those of all its
tenants' latencies together, throughput and memory
per tenant are means over tenants, power and energy are the device's, slowdown is the mean of the tenants' (ANTT:
Eyerman & Eeckhout, IEEE Micro 2008).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from sharebench.analysis.baseline import Baseline
from sharebench.analysis.reduction import NEEDED_COUNT, MeasuredCell
from sharebench.analysis.slowdown import group_slowdown
from sharebench.analysis.statistics import Estimate, log_interval
from sharebench.matrix import Cell

Group = tuple[str, str, str, int]
QUANTILES = {f"latency_{name}_seconds": name for name in NEEDED_COUNT}
METRICS = (
    "latency_mean_seconds",
    *QUANTILES,
    "throughput_per_tenant_hz",
    "throughput_total_hz",
    "slowdown",
    "memory_per_tenant_mib",
    "power_mean_watts",
    "energy_per_iteration_joules",
    "energy_above_idle_per_iteration_joules",
)
# Only a GPU knows them; elsewhere a note on each would say nothing.
OF_GPUS = METRICS[-3:]
# How a note calls a metric that may be unknown.
WORDS = {
    "memory_per_tenant_mib": "memory",
    "latency_mean_seconds": "mean latency",
    "power_mean_watts": "power",
    "energy_per_iteration_joules": "energy",
    "energy_above_idle_per_iteration_joules": "energy above idle",
}
GROUP = ("strategy", "workload", "tenant_workload", "replicas")
HEAD = (
    *GROUP,
    "status",
    "reason",
    "n_expected",
    "n",
    "n_excluded",
    "warnings",
    "notes",
    "tenants_that_fit",
    "scrape_error_percent",
)


def columns() -> list[str]:
    """All columns of summary.csv, in order."""
    names = list(HEAD)
    for metric in METRICS:
        names += [metric, f"{metric}_low", f"{metric}_high", f"{metric}_n", f"{metric}_n_excluded"]
        if metric in QUANTILES:
            names.append(f"{metric}_bucket_error_percent")
    return names


def summary_table(
    cells: Iterable[MeasuredCell], expected: Iterable[tuple[Cell, str]], baseline: Baseline
) -> pd.DataFrame:
    """One row per group of `expected`, in its order; cells that it does not name are left out.

    `cells` come apart by workload (`reduction.by_workload`); `expected` are cells with the workloads of their tenants.
    """
    wanted: dict[Group, set[int]] = defaultdict(set)
    for cell, tenant_workload in expected:
        wanted[cell.strategy, cell.workload, tenant_workload, cell.replicas].add(cell.repeat)
    found: dict[Group, list[MeasuredCell]] = defaultdict(list)
    for measured in cells:
        assert measured.tenant_workload is not None, "a mix that was not taken apart"
        group = (measured.strategy, measured.workload, measured.tenant_workload, measured.replicas)
        if measured.repeat in wanted.get(group, ()):
            found[group].append(measured)
    rows = [_row(group, len(repeats), found[group], baseline) for group, repeats in wanted.items()]
    return pd.DataFrame(rows, columns=columns()).astype({"tenants_that_fit": "Int64"})


def _row(group: Group, n_expected: int, cells: Sequence[MeasuredCell], baseline: Baseline) -> dict[str, Any]:
    valid = [cell for cell in cells if cell.valid]
    statuses = {cell.status for cell in cells} or {"missing"}
    row: dict[str, Any] = {
        **dict(zip(GROUP, group, strict=True)),
        "status": statuses.pop() if len(statuses) == 1 else "mixed",
        "reason": "; ".join(dict.fromkeys(cell.reason for cell in cells if cell.reason)),
        "n_expected": n_expected,
        "n": len(valid),
        "n_excluded": len(cells) - len(valid),
        "warnings": sum(bool(cell.warnings) for cell in cells),
    }
    notes = _notes_on_cells(n_expected, cells)
    values = _cell_values(valid)
    for metric in METRICS:
        if metric == "slowdown":
            estimate, note = group_slowdown(valid, baseline)
        else:
            estimate, note = _estimate(values[metric]), _note_on(metric, values[metric], valid)
        if valid and note:
            notes.append(note)
        row |= _columns_of(metric, estimate, len(cells))
    for metric, name in QUANTILES.items():
        bounds = [cell.percentiles[name].error_percent for cell in valid if name in cell.percentiles]
        row[f"{metric}_bucket_error_percent"] = max(bounds, default=None)
    errors = [row.scrape_error_percent for cell in valid for row in cell.rows if row.scrape_error_percent is not None]
    if errors:
        notes.append(f"between two scrapes: means and rates within {max(errors):.2g} %")
    row["scrape_error_percent"] = max(errors, default=None)
    if len(valid) == 1:
        notes.append("no intervals from one cell")
    fitting = min((cell.tenants_that_fit for cell in valid if cell.tenants_that_fit is not None), default=None)
    return row | {"notes": "; ".join(notes), "tenants_that_fit": fitting}


def _columns_of(metric: str, estimate: Estimate | None, n_cells: int) -> dict[str, Any]:
    n = estimate.n if estimate else 0
    return {
        metric: estimate and estimate.value,
        f"{metric}_low": estimate and estimate.low,
        f"{metric}_high": estimate and estimate.high,
        f"{metric}_n": n,
        f"{metric}_n_excluded": n_cells - n,
    }


def _cell_values(cells: Sequence[MeasuredCell]) -> dict[str, list[float | None]]:
    """Per metric (but slowdown) one value per cell, None where the cell has none."""
    values: dict[str, list[float | None]] = {metric: [] for metric in METRICS if metric != "slowdown"}
    for cell in cells:
        values["latency_mean_seconds"].append(cell.latency_mean_seconds)
        for metric, name in QUANTILES.items():
            values[metric].append(cell.percentiles[name].value_seconds if name in cell.percentiles else None)
        rates = [row.throughput_hz for row in cell.rows if row.throughput_hz is not None]
        values["throughput_total_hz"].append(sum(rates) or None)
        values["throughput_per_tenant_hz"].append(sum(rates) / len(rates) if rates else None)
        memory = [row.memory_mib for row in cell.rows if row.memory_mib is not None]
        values["memory_per_tenant_mib"].append(sum(memory) / len(memory) if memory else None)
        for metric in OF_GPUS:
            values[metric].append(cell.device[metric])
    return values


def _estimate(values: Sequence[float | None]) -> Estimate | None:
    # A geometric mean has no place for a zero, nor for less energy than an idle device needs.
    present = [value for value in values if value is not None and value > 0]
    return log_interval(present) if present else None


def _notes_on_cells(n_expected: int, cells: Sequence[MeasuredCell]) -> list[str]:
    """Why cells are missing, in no mean, or in it with a warning."""
    notes = []
    if len(cells) < n_expected:
        notes.append(f"{n_expected - len(cells)} of {n_expected} cells missing")
    for status, number in Counter(cell.status for cell in cells if cell.status != "ok").items():
        notes.append(f"{number} of {n_expected} cells {status}")
    for gate, number in Counter(gate for cell in cells for gate in cell.failed_gates).items():
        notes.append(f"{number} of {n_expected} cells excluded by {gate}")
    for gate, number in Counter(gate for cell in cells if cell.valid for gate in cell.warnings).items():
        notes.append(f"{number} of {n_expected} cells with a warning: {gate}")
    return notes


def _note_on(metric: str, values: Sequence[float | None], cells: Sequence[MeasuredCell]) -> str | None:
    """Why a metric is blank in some of the valid cells."""
    blank = [cell for cell, value in zip(cells, values, strict=True) if value is None or value <= 0]
    if not blank or (metric in OF_GPUS and len(blank) == len(cells)):
        return None
    share = "" if len(blank) == len(cells) else f" in {len(blank)} of {len(cells)} cells"
    if metric not in QUANTILES:
        return f"{WORDS.get(metric, metric)} not known{share}"
    name = QUANTILES[metric]
    most = max(cell.count for cell in blank)
    if most < NEEDED_COUNT[name]:
        return f"{name} needs {NEEDED_COUNT[name]} iterations, had {most}{share}"
    if any(row.scrape_error_percent is not None for cell in blank for row in cell.rows):
        return f"{name} is not told by the program's own metrics{share}"
    return f"{name} is outside the buckets (1 µs to 1000 s){share}"
