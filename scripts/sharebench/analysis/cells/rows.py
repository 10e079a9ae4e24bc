"""One record reduced to what the tables need, so that records can stream: thousands are too large to hold."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sharebench.analysis.cells.gpu_columns import DeviceColumns, device_columns, tenant_memory_mib, tenants_that_fit
from sharebench.analysis.statistics.effective import effective_count
from sharebench.analysis.statistics.intervals import required_count
from sharebench.core.spec import components, parse
from sharebench.gates.gates import is_valid
from sharebench.gates.verdict import window_seconds
from sharebench.records.histogram import ForeignHistogram, Histogram, Quantile, merged, merged_foreign
from sharebench.records.tables import TableRow
from sharebench.records.types import Record, TenantRecord

PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p999": 0.999}
Group = tuple[str, str, str, int]
"""Strategy, workload, workload of the tenants, and number of tenants of the cell."""
GROUP = ("strategy", "workload", "tenant_workload", "replicas")
Item = TypeVar("Item")
Key = TypeVar("Key")
# Of independent iterations.
NEEDED_COUNT = {name: required_count(q) for name, q in PERCENTILES.items()}
# Where at least this part of a tenant's iterations has device times, these are the times of all, but for the edges.
ALL_TIMED_RATIO = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """One row of cells.csv but for the slowdown, named as its columns; None is a blank.

    A cell without tenants has one row, with no tenant.
    """

    strategy: str
    workload: str
    replicas: int
    repeat: int
    block: int
    tenant: int | None = None
    tenant_workload: str | None = None
    status: str
    tenant_status: str | None = None
    valid: bool
    reason: str | None = None
    warnings: str
    count: int | None = None
    errors: int | None = None
    censored: int | None = None
    effective_count: int | None = None
    latency_mean_seconds: float | None = None
    latency_p50_seconds: float | None = None
    latency_p95_seconds: float | None = None
    latency_p99_seconds: float | None = None
    latency_p999_seconds: float | None = None
    latency_max_seconds: float | None = None
    throughput_hz: float | None = None
    scrape_error_percent: float | None = None
    flop_per_second: float | None = None
    completion_seconds: float | None = None
    coverage_ratio: float | None = None
    device_mean_seconds: float | None = None
    device_to_host_ratio: float | None = None
    memory_mib: float | None = None
    server_memory_mib: float | None = None
    power_mean_watts: float | None = None
    energy_joules: float | None = None
    energy_per_iteration_joules: float | None = None
    energy_above_idle_per_iteration_joules: float | None = None
    sm_clock_mean_mhz: float | None = None
    temperature_max_celsius: float | None = None
    startup_process_seconds: float | None = None
    startup_import_seconds: float | None = None
    startup_context_seconds: float | None = None
    startup_load_seconds: float | None = None
    startup_warmup_seconds: float | None = None
    startup_first_iteration_seconds: float | None = None
    cpu_seconds: float | None = None
    run_queue_seconds: float | None = None
    run_id: str
    device: str


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
    """The effective sample size of the `count` iterations."""
    latency_mean_seconds: float | None
    percentiles: Mapping[str, Quantile]
    """Of all tenants' latencies together; without those that `effective_count` cannot carry."""
    device: DeviceColumns
    """The same in all its rows."""
    tenants_that_fit: int | None

    @property
    def group(self) -> Group:
        """Whose repeat it is; a whole mix is in none."""
        return self.strategy, self.workload, str(self.tenant_workload), self.replicas


def by_workload(record: Record, whole: MeasuredCell) -> list[MeasuredCell]:
    """The cell `whole`, or a cell for each workload of a mix, with the tenants that run it."""
    if whole.tenant_workload is not None:
        return [whole]
    each = (reduced(record, name) for name in components(parse(record["spec"])))
    return [replace(cell, all_rows=whole.rows) for cell in each]


def reduced(record: Record, tenant_workload: str | None = None) -> MeasuredCell:
    """What the tables need of a record; slowdowns come later, when the baseline's records are known too.

    With `tenant_workload` it is only about the tenants that run this.
    """
    cell, status, run_id = record["cell"], record["status"], record["provenance"]["run_id"]
    names = [tenant_workload] if tenant_workload else components(parse(record["spec"]))
    failed = [gate for gate in record["gates"] if not gate["passed"]]
    invalid = [gate for gate in failed if gate["severity"] == "invalid"]
    valid = is_valid(record)
    reason = record["reason"] or "; ".join(f"{gate['name']}: {gate['message']}" for gate in invalid) or None
    warnings = tuple(gate["name"] for gate in failed if gate["severity"] == "warning")
    row = TenantRow(
        **cell,
        status=status,
        valid=valid,
        reason=reason,
        warnings=";".join(warnings),
        run_id=run_id,
        device=record["node"]["device"],
    )
    all_tenants = zip(record["tenants"], tenant_memory_mib(record), strict=True)
    chosen = [(tenant, mib) for tenant, mib in all_tenants if tenant_workload in (None, tenant["workload"])]
    tenants = [tenant for tenant, _ in chosen]
    count = sum(tenant["count"] for tenant in tenants)
    device = device_columns(record, count)
    histograms = [Histogram.from_sparse(tenant["histogram"]) for tenant in tenants]
    length_seconds = None if record["window"] is None else window_seconds(record)
    rows = tuple(
        _measured(replace(row, **device, memory_mib=mib), tenant, histogram, length_seconds)
        for (tenant, mib), histogram in zip(chosen, histograms, strict=True)
    ) or (row,)
    effective = effective_count(tenants, histograms)
    return MeasuredCell(
        **cell,
        tenant_workload=names[0] if len(names) == 1 else None,
        run_id=run_id,
        status=status,
        valid=valid,
        reason=reason,
        failed_gates=tuple(gate["name"] for gate in invalid),
        warnings=warnings,
        rows=rows,
        all_rows=rows,
        count=count,
        effective_count=effective,
        latency_mean_seconds=sum(tenant["sum_seconds"] for tenant in tenants) / count if count else None,
        percentiles=_percentiles_of(tenants, merged(histograms), effective),
        device=device,
        tenants_that_fit=tenants_that_fit(record),
    )


def _measured(row: TenantRow, tenant: TenantRecord, histogram: Histogram, length_seconds: float | None) -> TenantRow:
    """The row with the columns of one tenant; those of the window only where it delivered a record."""
    row = replace(row, tenant=tenant["index"], tenant_workload=tenant["workload"], tenant_status=tenant["status"])
    if (startup := tenant["startup"]) is not None:
        row = replace(
            row,
            startup_process_seconds=startup["process_seconds"],
            startup_import_seconds=startup["import_seconds"],
            startup_context_seconds=startup["context_seconds"],
            startup_load_seconds=startup["load_seconds"],
            startup_warmup_seconds=startup["warmup_seconds"],
            startup_first_iteration_seconds=startup.get("first_iteration_seconds"),
        )
    load = tenant["load"]
    if load is None or length_seconds is None:
        return row
    count, cpu, work, job = tenant["count"], tenant["cpu"], tenant["work"], tenant.get("job")
    mean = tenant["sum_seconds"] / count if count else None
    effective = effective_count([tenant], [histogram])
    percentiles = _percentiles_of([tenant], histogram, effective)
    seconds = {name: quantile.value_seconds for name, quantile in percentiles.items()}
    on_device = to_host = None
    if (timed := tenant["device_histogram"]) and timed["count"]:
        on_device = timed["sum_seconds"] / timed["count"]
        # A sample may have more of the rare long ones than all have, and then more than all of the host's time.
        if mean and timed["count"] >= ALL_TIMED_RATIO * count:
            to_host = on_device / mean
    flop = work["flop"] if work else None
    return replace(
        row,
        count=count,
        errors=tenant["errors"],
        censored=load["censored"],
        effective_count=math.floor(effective),
        latency_mean_seconds=mean,
        latency_p50_seconds=seconds.get("p50"),
        latency_p95_seconds=seconds.get("p95"),
        latency_p99_seconds=seconds.get("p99"),
        latency_p999_seconds=seconds.get("p999"),
        latency_max_seconds=tenant["max_seconds"],
        # A job's own rate ends with it; in the cell it is one of several.
        throughput_hz=load["achieved_rate_hz"] if job is None else count / length_seconds,
        scrape_error_percent=_scrape_error_percent(tenant),
        flop_per_second=None if flop is None else flop * count / length_seconds,
        completion_seconds=None if job is None else job["completion_seconds"],
        coverage_ratio=tenant["coverage_ratio"],
        device_mean_seconds=on_device,
        device_to_host_ratio=to_host,
        cpu_seconds=cpu["cpu_seconds"] if cpu else None,
        run_queue_seconds=cpu["run_queue_seconds"] if cpu else None,
    )


def _scrape_error_percent(tenant: TenantRecord) -> float | None:
    """The largest error of mean or rate from a window between two scrapes; None without scrapes."""
    scrape = tenant.get("scrape")
    ratios = (scrape["rate_error_ratio"], scrape["mean_error_ratio"]) if scrape else ()
    known = [ratio for ratio in ratios if ratio is not None]
    return 100 * max(known) if known else None


def _percentiles_of(tenants: Sequence[TenantRecord], histogram: Histogram, effective: float) -> dict[str, Quantile]:
    """Percentiles of these tenants' latencies together; `histogram` is the sum of their histograms in our own buckets.

    Programs that measure themselves have buckets of their own, which cannot be added to others.
    """
    counted = [tenant for tenant in tenants if tenant["count"]]
    scraped = [tenant for tenant in counted if tenant.get("measured_by") == "scrape"]
    if not scraped:
        smallest = min((tenant["min_seconds"] or 0.0 for tenant in counted), default=0.0)
        largest = max((tenant["max_seconds"] or 0.0 for tenant in counted), default=0.0)
        found = bounded(histogram, effective)
        return {name: quantile.within(smallest, largest) for name, quantile in found.items()}
    stored = [buckets for tenant in scraped if (buckets := tenant.get("foreign_histogram")) is not None]
    together = merged_foreign(map(ForeignHistogram.from_record, stored))
    return {} if together is None or len(stored) < len(counted) else bounded(together, together.count)


def bounded(histogram: Histogram | ForeignHistogram, count: float) -> dict[str, Quantile]:
    """The percentiles that this number of independent iterations can carry and whose bucket has two finite bounds."""
    names = [name for name, needed in NEEDED_COUNT.items() if count >= needed]
    found = histogram.quantiles([PERCENTILES[name] for name in names]) if names else []
    return {name: quantile for name, quantile in zip(names, found, strict=True) if quantile.is_bounded}


def tenant_key(record: Record, tenant: TenantRecord) -> TableRow:
    """The columns that say which tenant of which cell a row is of."""
    return {
        **record["cell"],
        "tenant": tenant["index"],
        "tenant_workload": tenant["workload"],
        "valid": is_valid(record),
    }


def outcome(
    statuses: Iterable[str], reasons: Iterable[str | None], n_expected: int, valid: Sequence[object]
) -> TableRow:
    """The columns that say how the cells of a row ended."""
    different = set(statuses) or {"missing"}
    return {
        "status": different.pop() if len(different) == 1 else "mixed",
        "reason": "; ".join(dict.fromkeys(filter(None, reasons))),
        "n_expected": n_expected,
        "n": len(valid),
    }


def grouped(items: Iterable[Item], key: Callable[[Item], Key]) -> defaultdict[Key, list[Item]]:
    """The items by key, in the order in which they come; none under any other key."""
    groups: defaultdict[Key, list[Item]] = defaultdict(list)
    for item in items:
        groups[key(item)].append(item)
    return groups
