"""One record reduced to what the tables need, so that records can stream: thousands are too large to hold."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from sharebench.model.records.record import window_seconds
from sharebench.model.records.types import Record, TenantRecord
from sharebench.model.spec import parse_spec
from sharebench.read.cells.gpu_columns import (
    DeviceColumns,
    device_columns,
    tenant_memory_mib,
    tenant_use,
    tenants_that_fit,
)
from sharebench.read.columns import TableRow
from sharebench.read.gates.answers import answers_difference
from sharebench.read.gates.gates import is_valid
from sharebench.read.gates.programs import largest_scrape_error
from sharebench.read.histogram import ForeignHistogram, Histogram, Quantile, merge, merge_foreign
from sharebench.read.slo import LATENCY, LimitsOf, goodput_hz, no_slo, request_seconds, served_hz
from sharebench.read.statistics.effective import Series, effective_count, latency_series, value_series
from sharebench.read.statistics.intervals import Place, required_count

SAMPLE_SIZE_STAGE = {"ttft": "ttft", "itl": "tpot", "tpot": "tpot"}
"""The stages that are metrics, each with the stage that gives its effective sample size."""
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99, "p999": 0.999}
STAGE_PERCENTILES = ("p50", "p99")
STAGE_METRICS = {f"{stage}_{name}": (stage, name) for stage in SAMPLE_SIZE_STAGE for name in STAGE_PERCENTILES}
"""Stage and percentile of each metric of a stream's stages."""
GroupKey = tuple[str, str, str, int]
"""Strategy, workload, workload of the tenants, and number of tenants of the cell."""
GROUP_COLUMNS = ("strategy", "workload", "tenant_workload", "replicas")
# The independent iterations that each percentile needs.
NEEDED_COUNT = {name: required_count(q) for name, q in PERCENTILES.items()}
# With device times for at least this share of its iterations, a tenant's device mean stands for all of them.
ALL_TIMED_RATIO = 0.99


@dataclass(frozen=True, slots=True)
class StageSample:
    """Times of one stage: their histogram, the number of requests that have any, and the effective sample size."""

    histogram: Histogram
    count: int
    effective_count: float


def stage_samples(tenants: Sequence[TenantRecord], window_seconds: float) -> Mapping[str, StageSample]:
    """The stages of these tenants together; empty where no tenant streams.

    TTFT and TPOT have one recorded value per request, so their effective sample size is computed like that of
    latencies. The gaps (ITL) of one request are alike, and requests that a server decodes together share their steps.
    So ITL gets the effective sample size of the requests, by their TPOT.
    """
    series = {name: _series(tenants, name, window_seconds) for name in set(SAMPLE_SIZE_STAGE.values())}
    samples = {}
    for stage, base in SAMPLE_SIZE_STAGE.items():
        stored = [timed["histogram"] for tenant in tenants if (timed := tenant["stages"].get(stage))]
        if stored and series[base]:
            histogram = merge(map(Histogram.from_sparse, stored))
            samples[stage] = StageSample(
                histogram, sum(each.count for each in series[base]), effective_count(series[base])
            )
    return samples


def _series(tenants: Sequence[TenantRecord], name: str, window_seconds: float) -> list[Series]:
    timed = [(requests, request_seconds(requests)[name]) for tenant in tenants if (requests := tenant.get("requests"))]
    series = []
    for requests, times in timed:
        pairs = [(start, t) for start, t in zip(requests["start_seconds"], times, strict=True) if t is not None]
        starts, seconds = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
        series.append(value_series(starts, seconds, window_seconds))
    return series


@dataclass(frozen=True, slots=True)
class TenantRow:
    """One tenant of a cell; None is a blank, also where it left no record. A cell without tenants has one empty row."""

    tenant_workload: str | None = None
    latency_mean_seconds: float | None = None
    throughput_hz: float | None = None
    memory_mib: float | None = None
    scrape_error_percent: float | None = None
    output_tokens_hz: float | None = None
    goodput_hz: float | None = None
    other_columns: Mapping[str, object] = field(default_factory=dict)
    """Its other columns of cells.csv."""

    def value(self, column: str) -> float | None:
        """The number in a column of cells.csv."""
        return cast(float | None, self.other_columns.get(column, getattr(self, column, None)))


@dataclass(frozen=True, slots=True)
class MeasuredCell:
    """One cell, or the tenants of a mix that run one workload: the rows of the tenants, and their values together."""

    strategy: str
    workload: str
    tenant_workload: str | None
    """What these tenants run; None where they do not all run the same."""
    replicas: int
    repeat: int
    block: int
    run_id: str
    pairing_scope: str
    """The run, or in a study on several devices the device; blocks are paired within it."""
    device: str
    machine: str | None
    boot: str | None
    status: str
    valid: bool
    reason: str | None
    failed_gates: tuple[str, ...]
    warnings: Mapping[str, str]
    """Messages of the failed warning gates, by name."""
    rows: tuple[TenantRow, ...]
    all_rows: tuple[TenantRow, ...]
    """The rows of the whole cell, whatever its tenants run."""
    count: int
    failed_ratio: float
    """The share of what began that failed."""
    effective_count: float
    window_seconds: float | None
    latency_mean_seconds: float | None
    percentiles: Mapping[str, Quantile]
    """PERCENTILES of all latencies together, and STAGE_METRICS, where the samples suffice and few enough failed."""
    histogram: Histogram
    """All latencies together, but those of scraped programs."""
    stages: Mapping[str, StageSample]
    """The stages of streams, over all tenants."""
    notes: tuple[str, ...]
    """Remarks on its streams and on the SLO."""
    device_columns: DeviceColumns
    """Columns that are the same in all its rows."""
    tenants_that_fit: int | None

    @property
    def group(self) -> GroupKey:
        """The group that it is a repeat of; a whole mix belongs to none."""
        return self.strategy, self.workload, str(self.tenant_workload), self.replicas

    @property
    def pair(self) -> tuple[str, int]:
        """What it has in common with the cells that it is paired with."""
        return self.pairing_scope, self.block

    @property
    def place(self) -> Place:
        return Place(self.device, self.machine)

    def values(self, column: str) -> list[float]:
        """What its rows have in a column."""
        return [value for row in self.rows if (value := row.value(column)) is not None]


def split_by_workload(record: Record, whole: MeasuredCell, limits: LimitsOf = no_slo) -> list[MeasuredCell]:
    """The cell `whole`, or a cell for each workload of a mix, with the tenants that run it; of a fault the victims."""
    spec = parse_spec(record["spec"])
    if whole.tenant_workload is not None and spec.fault is None:
        return [whole]
    parts = (reduce_record(record, name, limits) for name in spec.components)
    return [replace(cell, all_rows=whole.rows) for cell in parts]


def reduce_record(record: Record, tenant_workload: str | None = None, limits: LimitsOf = no_slo) -> MeasuredCell:
    """What the tables need of a record; slowdowns come later, when the baseline's records are known too.

    `tenant_workload` restricts it to the tenants that run this workload. `limits` has the SLO of the goodput.
    """
    workloads = [tenant_workload] if tenant_workload else parse_spec(record["spec"]).components
    failed = [gate for gate in record["gates"] if not gate["passed"]]
    invalid = [gate for gate in failed if gate["severity"] == "invalid"]
    all_tenants = zip(record["tenants"], tenant_memory_mib(record), tenant_use(record), strict=True)
    chosen = [each for each in all_tenants if tenant_workload in (None, each[0]["workload"])]
    tenants = [tenant for tenant, _, _ in chosen]
    count = sum(tenant["count"] for tenant in tenants)
    histograms = [Histogram.from_sparse(tenant["histogram"]) for tenant in tenants]
    length_seconds = None if record["window"] is None else window_seconds(record)
    for tenant, _, use in chosen:
        use["answers_difference_nats"] = answers_difference(record, tenant)
    rows = tuple(
        _tenant_row(*each, histogram, length_seconds, limits)
        for each, histogram in zip(chosen, histograms, strict=True)
    ) or (TenantRow(),)
    effective, merged = effective_count(list(map(latency_series, tenants))), merge(histograms)
    host = record.get("host")
    stages, run_id = stage_samples(tenants, length_seconds or 0.0), record["provenance"]["run_id"]
    return MeasuredCell(
        **record["cell"],
        tenant_workload=workloads[0] if len(workloads) == 1 else None,
        run_id=run_id,
        pairing_scope=run_id,
        device=record["node"]["device"],
        machine=host["machine"] if host else None,
        boot=host["boot"] if host else None,
        status=record["status"],
        valid=is_valid(record),
        reason=record["reason"] or "; ".join(f"{gate['name']}: {gate['message']}" for gate in invalid) or None,
        failed_gates=tuple(gate["name"] for gate in invalid),
        warnings={gate["name"]: gate["message"] for gate in failed if gate["severity"] == "warning"},
        rows=rows,
        all_rows=rows,
        count=count,
        failed_ratio=_failed_ratio(tenants),
        effective_count=effective,
        window_seconds=length_seconds,
        latency_mean_seconds=sum(tenant["sum_seconds"] for tenant in tenants) / count if count else None,
        percentiles=_percentiles(tenants, merged, effective, stages),
        histogram=merged,
        stages=stages,
        notes=_notes(tenants, stages, limits),
        device_columns=device_columns(record, count),
        tenants_that_fit=tenants_that_fit(record),
    )


def _tenant_row(
    tenant: TenantRecord,
    memory_mib: float | None,
    use: TableRow,
    histogram: Histogram,
    length_seconds: float | None,
    limits: LimitsOf,
) -> TenantRow:
    """The tenant's columns; those of the window only where it delivered a record."""
    known: TableRow = {"tenant": tenant["index"], "tenant_status": tenant["status"], **use}
    known |= {f"startup_{part}": seconds for part, seconds in (tenant["startup"] or {}).items()}
    row, load = TenantRow(tenant["workload"], memory_mib=memory_mib, other_columns=known), tenant["load"]
    if load is None or length_seconds is None:
        return row
    count, cpu, work, job = tenant["count"], tenant["cpu"], tenant["work"], tenant.get("job")
    mean = tenant["sum_seconds"] / count if count else None
    effective = effective_count([latency_series(tenant)])
    percentiles = _percentiles([tenant], histogram, effective, stage_samples([tenant], length_seconds))
    if (timed := tenant["device_histogram"]) and timed["count"]:
        known["device_mean_seconds"] = on_device = timed["sum_seconds"] / timed["count"]
        # A small sample may overrepresent rare long iterations, so that its mean exceeds that of the host.
        if mean and timed["count"] >= ALL_TIMED_RATIO * count:
            known["device_to_host_ratio"] = on_device / mean
    if work and work["flop"] is not None:
        known["flop_per_second"] = work["flop"] * count / length_seconds
    known |= {
        "count": count,
        "errors": tenant["errors"],
        "error_reasons": ", ".join(f"{why}: {number}" for why, number in tenant.get("errors_by_reason", {}).items()),
        "offered_hz": None
        if load["planned_rate_hz"] is None
        else (count + tenant["errors"] + load["drops"] + load["censored"]) / length_seconds,
        "censored": load["censored"],
        "effective_count": math.floor(effective),
        **{
            f"{'' if name in STAGE_METRICS else 'latency_'}{name}_seconds": quantile.value_seconds
            for name, quantile in percentiles.items()
        },
        "latency_max_seconds": tenant["max_seconds"],
        "completion_seconds": job and job["completion_seconds"],
        "coverage_ratio": tenant["coverage_ratio"],
        **(cpu or {}),
    }
    return replace(
        row,
        latency_mean_seconds=mean,
        # A job's own rate ends when it does, so that rates of jobs refer to the whole window.
        throughput_hz=served_hz(load) if job is None else count / length_seconds,
        scrape_error_percent=None if (error := largest_scrape_error(tenant)) is None else 100 * error,
        output_tokens_hz=(tokens := tenant.get("output_tokens")) and tokens["count"] / length_seconds,
        # An SLO does not apply to jobs, which have to end, not to be prompt.
        goodput_hz=None if job else goodput_hz(tenant, limits(tenant["workload"])),
    )


def _notes(tenants: Sequence[TenantRecord], stages: Mapping[str, StageSample], limits: LimitsOf) -> tuple[str, ...]:
    notes = []
    parts = {part for tenant in tenants for part in limits(tenant["workload"])}
    if any(tokens["source"] == "chunks" for tenant in tenants if (tokens := tenant.get("output_tokens"))):
        notes.append("output tokens are counted as events of the stream: the server gives no number")
    if not stages and parts - {LATENCY}:
        applying = "only the latency" if LATENCY in parts else "no part"
        notes.append(f"{applying} of the SLO applies to what does not stream")
    return tuple(notes)


def _failed_ratio(tenants: Sequence[TenantRecord]) -> float:
    failed = sum(tenant["errors"] for tenant in tenants)
    return failed / (failed + sum(tenant["count"] for tenant in tenants)) if failed else 0.0


def _percentiles(
    tenants: Sequence[TenantRecord], histogram: Histogram, effective: float, stages: Mapping[str, StageSample]
) -> dict[str, Quantile]:
    """Percentiles of all that began, as if what failed had taken longer than everything else."""
    failed = _failed_ratio(tenants)
    found = _latency_percentiles(tenants, histogram, effective, failed)
    for stage, sample in stages.items():
        known = supported_percentiles(sample.histogram, sample.effective_count, failed)
        found |= {f"{stage}_{name}": known[name] for name in STAGE_PERCENTILES if name in known}
    return found


def percentile_of(name: str) -> str:
    """The percentile in the name of a percentile of a latency or stage: p99 of ttft_p99."""
    return STAGE_METRICS[name][1] if name in STAGE_METRICS else name


def _latency_percentiles(
    tenants: Sequence[TenantRecord], histogram: Histogram, effective: float, failed: float
) -> dict[str, Quantile]:
    """Percentiles of these tenants together, from `histogram`, or from their own buckets for scraped programs."""
    counted = [tenant for tenant in tenants if tenant["count"]]
    scraped = [tenant for tenant in counted if tenant.get("measured_by") == "scrape"]
    if not scraped:
        smallest = min((tenant["min_seconds"] or 0.0 for tenant in counted), default=0.0)
        largest = max((tenant["max_seconds"] or 0.0 for tenant in counted), default=0.0)
        found = supported_percentiles(histogram, effective, failed)
        return {name: quantile.within(smallest, largest) for name, quantile in found.items()}
    stored = [buckets for tenant in scraped if (buckets := tenant.get("foreign_histogram")) is not None]
    merged = merge_foreign(map(ForeignHistogram.from_record, stored))
    return {} if merged is None or len(stored) < len(counted) else supported_percentiles(merged, merged.count, failed)


def supported_percentiles(
    histogram: Histogram | ForeignHistogram, count: float, failed: float = 0.0
) -> dict[str, Quantile]:
    """The percentiles for which `count` independent iterations suffice and whose bucket has two finite bounds.

    They are those of all that began, of which the share `failed` is not in the histogram.
    """
    places = {name: q / (1 - failed) for name, q in PERCENTILES.items() if q < 1 - failed}
    names = [name for name, place in places.items() if count >= required_count(place)]
    found = histogram.quantiles([places[name] for name in names]) if names else []
    return {name: quantile for name, quantile in zip(names, found, strict=True) if quantile.is_bounded}


def tenant_key(record: Record, tenant: TenantRecord) -> TableRow:
    return {
        **record["cell"],
        "tenant": tenant["index"],
        "tenant_workload": tenant["workload"],
        "valid": is_valid(record),
    }


def outcome_columns(
    statuses: Iterable[str], reasons: Iterable[str | None], n_expected: int, valid: Sequence[object]
) -> TableRow:
    distinct = set(statuses) or {"missing"}
    return {
        "status": distinct.pop() if len(distinct) == 1 else "mixed",
        "reason": "; ".join(dict.fromkeys(filter(None, reasons))),
        "n_expected": n_expected,
        "n": len(valid),
    }
