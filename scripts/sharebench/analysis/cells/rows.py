"""One record reduced to what the tables need, so that records can stream: thousands are too large to hold."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from sharebench.analysis.cells.gpu_columns import device_columns, tenant_memory_mib, tenants_that_fit
from sharebench.analysis.statistics.effective import effective_count
from sharebench.analysis.statistics.intervals import required_count
from sharebench.core.spec import components
from sharebench.gates.gates import is_valid
from sharebench.gates.verdict import window_seconds
from sharebench.records.histogram import ForeignHistogram, Histogram, Quantile, merged, merged_foreign

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p999": 0.999}
# Of independent iterations.
NEEDED_COUNT = {name: required_count(q) for name, q in PERCENTILES.items()}
# The device times of so many of a tenant's iterations are those of all of them, but for the window's edges.
ALL_TIMED_RATIO = 0.99


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One row of cells.csv but for the slowdown, named as its columns; None is a blank.

    A cell without tenants has one row, with no tenant.
    """

    strategy: str
    workload: str
    replicas: int
    repeat: int
    block: int
    tenant: int | None
    tenant_workload: str | None
    status: str
    tenant_status: str | None
    valid: bool
    reason: str | None
    warnings: str
    count: int | None
    errors: int | None
    censored: int | None
    effective_count: int | None
    latency_mean_seconds: float | None
    latency_p50_seconds: float | None
    latency_p95_seconds: float | None
    latency_p99_seconds: float | None
    latency_p999_seconds: float | None
    latency_max_seconds: float | None
    throughput_hz: float | None
    scrape_error_percent: float | None
    flop_per_second: float | None
    completion_seconds: float | None
    coverage_ratio: float | None
    device_mean_seconds: float | None
    device_to_host_ratio: float | None
    memory_mib: float | None
    server_memory_mib: float | None
    power_mean_watts: float | None
    energy_joules: float | None
    energy_per_iteration_joules: float | None
    energy_above_idle_per_iteration_joules: float | None
    sm_clock_mean_mhz: float | None
    temperature_max_celsius: float | None
    startup_process_seconds: float | None
    startup_import_seconds: float | None
    startup_context_seconds: float | None
    startup_load_seconds: float | None
    startup_warmup_seconds: float | None
    startup_first_iteration_seconds: float | None
    cpu_seconds: float | None
    run_queue_seconds: float | None
    run_id: str
    device: str


COLUMNS = tuple(field.name for field in fields(TenantRow))


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One cell: its rows, and its tenants taken together; or of a mix the tenants that run one of its workloads."""

    strategy: str
    workload: str
    tenant_workload: str | None
    """What these tenants run; None where they do not all run the same."""
    replicas: int
    repeat: int
    block: int
    run_id: str
    status: str
    valid: bool
    reason: str | None
    failed_gates: tuple[str, ...]
    warnings: tuple[str, ...]
    rows: tuple[TenantRow, ...]
    all_rows: tuple[TenantRow, ...]
    """Those of the whole cell, whatever its tenants run."""
    count: int
    effective_count: float
    """How many independent iterations the `count` iterations are worth."""
    latency_mean_seconds: float | None
    percentiles: Mapping[str, Quantile]
    """Of all tenants' latencies together; without those that `effective_count` cannot carry."""
    device: Mapping[str, float | None]
    """The columns that are the device's, the same in all its rows."""
    tenants_that_fit: int | None


def by_workload(record: Mapping[str, Any], whole: MeasuredCell) -> list[MeasuredCell]:
    """The cell `whole`, or of a mix the tenants of each of its workloads apart, as if each were a cell."""
    if whole.tenant_workload is not None:
        return [whole]
    apart = (reduced(record, name) for name in components(json.loads(record["spec"])))
    return [replace(cell, all_rows=whole.rows) for cell in apart]


def reduced(record: Mapping[str, Any], tenant_workload: str | None = None) -> MeasuredCell:
    """What the tables need of a record; slowdowns come later, when the baseline's records are known too.

    With `tenant_workload` it is only about the tenants that run this.
    """
    cell = record["cell"]
    names = [tenant_workload] if tenant_workload else components(json.loads(record["spec"]))
    failed = [gate for gate in record["gates"] if not gate["passed"]]
    broken = [gate for gate in failed if gate["severity"] == "invalid"]
    shared: dict[str, Any] = {
        **cell,
        "status": record["status"],
        "valid": is_valid(record),
        "reason": record["reason"] or "; ".join(f"{gate['name']}: {gate['message']}" for gate in broken) or None,
        "run_id": record["provenance"]["run_id"],
    }
    warnings = tuple(gate["name"] for gate in failed if gate["severity"] == "warning")
    row = {
        **dict.fromkeys(COLUMNS),
        **shared,
        "warnings": ";".join(warnings),
        "device": record["node"]["device"],
    }
    all_tenants = zip(record["tenants"], tenant_memory_mib(record), strict=True)
    chosen = [(tenant, mib) for tenant, mib in all_tenants if tenant_workload in (None, tenant["workload"])]
    tenants = [tenant for tenant, _ in chosen]
    count = sum(tenant["count"] for tenant in tenants)
    device = device_columns(record, count)
    histograms = [Histogram.from_sparse(tenant["histogram"]) for tenant in tenants]
    length_seconds = None if record["window"] is None else window_seconds(record)
    rows = [
        TenantRow(**{**row, **device, **_measures(tenant, histogram, length_seconds), "memory_mib": mib})
        for (tenant, mib), histogram in zip(chosen, histograms, strict=True)
    ]
    made = tuple(rows or [TenantRow(**row)])
    worth = effective_count(tenants, histograms)
    return MeasuredCell(
        **shared,
        tenant_workload=names[0] if len(names) == 1 else None,
        failed_gates=tuple(gate["name"] for gate in broken),
        warnings=warnings,
        rows=made,
        all_rows=made,
        count=count,
        effective_count=worth,
        latency_mean_seconds=sum(tenant["sum_seconds"] for tenant in tenants) / count if count else None,
        percentiles=_percentiles_of(tenants, merged(histograms), worth),
        device=device,
        tenants_that_fit=tenants_that_fit(record),
    )


def _measures(tenant: Mapping[str, Any], histogram: Histogram, length_seconds: float | None) -> dict[str, Any]:
    """The columns of one tenant; those of the window only where it delivered a record."""
    measures: dict[str, Any] = {
        "tenant": tenant["index"],
        "tenant_workload": tenant["workload"],
        "tenant_status": tenant["status"],
    }
    for part, seconds in (tenant["startup"] or {}).items():
        measures[f"startup_{part}"] = seconds
    if tenant["load"] is None or length_seconds is None:
        return measures
    count = tenant["count"]
    worth = effective_count([tenant], [histogram])
    percentiles = _percentiles_of([tenant], histogram, worth)
    cpu = tenant["cpu"] or {}
    mean = tenant["sum_seconds"] / count if count else None
    timed = tenant["device_histogram"]
    flop = (tenant["work"] or {}).get("flop")
    # A job's own rate ends with it; in the cell it is one of several.
    job = tenant.get("job")
    on_device = timed["sum_seconds"] / timed["count"] if timed and timed["count"] else None
    # A sample may have more of the rare long ones than all have, and then more than all of the host's time.
    are_all_timed = bool(timed) and timed["count"] >= ALL_TIMED_RATIO * count
    return measures | {
        "count": count,
        "errors": tenant["errors"],
        "censored": tenant["load"]["censored"],
        "effective_count": math.floor(worth),
        "latency_mean_seconds": mean,
        **{f"latency_{name}_seconds": quantile.value_seconds for name, quantile in percentiles.items()},
        "latency_max_seconds": tenant["max_seconds"],
        "throughput_hz": tenant["load"]["achieved_rate_hz"] if job is None else count / length_seconds,
        "scrape_error_percent": _scrape_error_percent(tenant),
        "flop_per_second": None if flop is None else flop * count / length_seconds,
        "completion_seconds": None if job is None else job["completion_seconds"],
        "coverage_ratio": tenant["coverage_ratio"],
        "device_mean_seconds": on_device,
        "device_to_host_ratio": on_device / mean if are_all_timed and on_device is not None and mean else None,
        "cpu_seconds": cpu.get("cpu_seconds"),
        "run_queue_seconds": cpu.get("run_queue_seconds"),
    }


def _scrape_error_percent(tenant: Mapping[str, Any]) -> float | None:
    """By how much the ends of a window between two scrapes may put mean or rate off; None where there are none."""
    scrape = tenant.get("scrape") or {}
    known = [ratio for key in ("rate_error_ratio", "mean_error_ratio") if (ratio := scrape.get(key)) is not None]
    return 100 * max(known) if known else None


def _percentiles_of(
    tenants: Sequence[Mapping[str, Any]], histogram: Histogram, effective: float
) -> dict[str, Quantile]:
    """Percentiles of these tenants' latencies together; `histogram` is the sum of theirs in our own buckets.

    Programs that measure themselves have buckets of their own, which cannot be added to others.
    """
    counted = [tenant for tenant in tenants if tenant["count"]]
    scraped = [tenant for tenant in counted if tenant.get("measured_by") == "scrape"]
    if not scraped:
        smallest = min((tenant["min_seconds"] for tenant in counted), default=0.0)
        largest = max((tenant["max_seconds"] for tenant in counted), default=0.0)
        return _percentiles(histogram, effective, smallest, largest)
    stored = [tenant["foreign_histogram"] for tenant in scraped if tenant["foreign_histogram"] is not None]
    together = merged_foreign(map(ForeignHistogram.from_record, stored))
    if together is None or len(stored) < len(counted):
        return {}
    names = [name for name, needed in NEEDED_COUNT.items() if together.count >= needed]
    quantiles = together.quantiles([PERCENTILES[name] for name in names]) if names else []
    return {name: quantile for name, quantile in zip(names, quantiles, strict=True) if quantile.is_bounded}


def _percentiles(histogram: Histogram, effective: float, min_seconds: float, max_seconds: float) -> dict[str, Quantile]:
    """The percentiles that so many independent iterations can carry and whose bucket has two finite bounds."""
    names = [name for name, needed in NEEDED_COUNT.items() if effective >= needed]
    if not names:
        return {}
    quantiles = histogram.quantiles([PERCENTILES[name] for name in names])
    return {
        name: quantile.within(min_seconds, max_seconds)
        for name, quantile in zip(names, quantiles, strict=True)
        if quantile.is_bounded
    }
