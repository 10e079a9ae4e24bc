"""Valid records for tests: `record` with given latencies, and synthetic clean loads."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from sharebench.model.records import record as records
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY
from sharebench.model.records.types import CellRecord, Conditions, GateVerdict, Record
from sharebench.model.spec import Spec, parse_spec
from sharebench.model.strategy import MECHANISMS
from sharebench.read.gates import gates
from tenant.contract import BUCKET_COUNT
from tenant.recorder import bucket_index, to_sparse

SLOTS = 40
WINDOW_SECONDS = 2.0
CODE = "code-1"
# Conditions of a run that nothing disturbed.
QUIET = dict.fromkeys(Conditions.__annotations__, 0)
# Peaks of a small GPU, which the tenants here nearly reach.
ROOFS = {"fp32": 2e12, "copy_bytes_per_second": 1e12, "read_bytes_per_second": 1.1e12, "l2_bytes": 50e6}
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Load:
    """Load of one tenant: intended starts (from the window's start) and latencies in seconds, shape (n,)."""

    starts: Floats
    latencies: Floats
    arrival: str = "closed"
    planned_rate_hz: float | None = None
    in_flight_mean: float = 1.0


def back_to_back(latencies: Sequence[float] | Floats) -> Load:
    """A closed load with these latencies, which starts with the window."""
    values = np.asarray(latencies, dtype=float)
    return Load(np.cumsum(values) - values, values)


def lognormal(rng: np.random.Generator, mean: float, cv: float, count: int) -> Floats:
    """Random values with this mean and coefficient of variation."""
    sigma = np.sqrt(np.log1p(cv * cv))
    return rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)


def closed_load(rng: np.random.Generator, mean: float, cv: float, window_seconds: float) -> Load:
    """A steady closed load; the window opens inside an iteration."""
    latencies = lognormal(rng, mean, cv, int(1.5 * window_seconds / mean) + 20)
    starts = np.cumsum(latencies) - latencies - rng.uniform(0, mean)
    inside = (starts >= 0) & (starts < window_seconds)
    return Load(starts[inside], latencies[inside])


def poisson_load(rng: np.random.Generator, mean: float, cv: float, window_seconds: float, utilisation: float) -> Load:
    """Poisson arrivals at a first-come-first-served server, which start long before the window."""
    rate, before = utilisation / mean, 200 * mean
    arrivals = np.sort(rng.uniform(-before, window_seconds, rng.poisson(rate * (before + window_seconds))))
    work = np.cumsum(service := lognormal(rng, mean, cv, arrivals.size))
    ends = work + np.maximum.accumulate(arrivals - (work - service))
    present = np.clip(np.minimum(ends, window_seconds) - np.maximum(arrivals, 0), 0, None)
    inside = arrivals >= 0
    return Load(arrivals[inside], (ends - arrivals)[inside], "poisson", rate, float(present.sum() / window_seconds))


def tenant(index: int, load: Load, window_seconds: float = 2.0, workload: str = "matmul") -> dict[str, Any]:
    """The record of a successful tenant."""
    latencies, count = load.latencies, load.latencies.size
    slots = np.clip((load.starts * SLOTS / window_seconds).astype(int), 0, SLOTS - 1)
    longest = np.zeros(SLOTS)
    np.maximum.at(longest, slots, latencies)
    buckets = bucket_index(np.rint(latencies * 1e9).astype(np.int64))
    return {
        "index": index,
        "workload": workload,
        "status": "ok",
        "exit": None,
        "view": None,
        "startup": {
            "process_seconds": 0.05,
            "import_seconds": 0.2,
            "context_seconds": 0.0,
            "load_seconds": 0.1,
            "warmup_seconds": 0.5,
            "first_iteration_seconds": 0.01,
        },
        "steady": {"is_steady": True, "batches": 2, "change_percent": 0.4},
        "count": count,
        "sum_seconds": float(latencies.sum()),
        "sum_squares_seconds2": float(latencies @ latencies),
        "min_seconds": float(latencies.min()) if count else None,
        "max_seconds": float(latencies.max()) if count else None,
        "errors": 0,
        "histogram": to_sparse(np.bincount(buckets, minlength=BUCKET_COUNT)),
        "device_histogram": None,
        "stages": {},
        "timeline": {
            "slot_seconds": window_seconds / SLOTS,
            "count": np.bincount(slots, minlength=SLOTS).tolist(),
            "sum_seconds": np.bincount(slots, latencies, minlength=SLOTS).tolist(),
            "max_seconds": longest.tolist(),
        },
        "load": {
            "arrival": load.arrival,
            "planned_rate_hz": load.planned_rate_hz,
            "achieved_rate_hz": count / window_seconds,
            "delay_p99_seconds": None if load.arrival == "closed" else 0.0,
            "in_flight_mean": load.in_flight_mean,
            "drops": 0,
            "censored": 0,
        },
        "coverage_ratio": 1.0,
        "drain_seconds": 0.0,
        "cpu": {"cpu_seconds": 1.9, "run_queue_seconds": 0.001, "affinity": [index]},
        "memory_bytes": 64 << 20,
        "output_digest": [1.5, -2.0],
        "work": {"flop": 1e9, "bytes": None, "items": 1, "precision": "fp32"},
    }


def scraped(tenant: dict[str, Any], upper_seconds: Sequence[float | None], count: Sequence[int]) -> dict[str, Any]:
    """The tenant as a program that measures itself with these buckets; its count is their sum."""
    blank = dict.fromkeys(("min_seconds", "max_seconds", "timeline", "output_digest", "work"))
    tenant = {key: value for key, value in tenant.items() if key != "sum_squares_seconds2"}
    load = tenant["load"] | dict.fromkeys(("planned_rate_hz", "delay_p99_seconds", "in_flight_mean"))
    errors = {"seconds_error": 0.002, "longest_seconds": None, "rate_error_ratio": 0.01, "mean_error_ratio": 0.02}
    return {
        **tenant,
        **blank,
        "count": sum(count),
        "measured_by": "scrape",
        "histogram": {},
        "foreign_histogram": {"upper_seconds": list(upper_seconds), "count": list(count)},
        "scrape": {"offset_seconds": 0.001, "seconds": 2.0, **errors},
        "load": load | {"arrival": "own"},
    }


def served(tenant: dict[str, Any], client_cpu_seconds: float | None = 0.01) -> dict[str, Any]:
    """The tenant as a server that our client measured with this CPU time."""
    generator = {"cpu_seconds": client_cpu_seconds, "run_queue_seconds": 0.0}
    return {**tenant, "output_digest": None, "work": None, "measured_by": "client", "generator": generator}


def streamed(
    tenant: dict[str, Any],
    starts: Sequence[float] | Floats,
    ttft: Sequence[float] | Floats,
    gaps: Sequence[Sequence[float]],
    source: str = "usage",
) -> dict[str, Any]:
    """The tenant as a streaming server: start, time to first token and gaps of each request, in seconds.

    Every event has one token, the last one ends the request, and the tenant has the latencies of the requests.
    """

    sent, first = np.asarray(starts).tolist(), np.asarray(ttft).tolist()

    def timed(seconds: Sequence[float]) -> dict[str, Any]:
        counts = np.bincount(bucket_index(np.rint(np.array(seconds) * 1e9).astype(np.int64)), minlength=BUCKET_COUNT)
        return {"count": len(seconds), "sum_seconds": sum(seconds), "histogram": to_sparse(counts)}

    tpot = [sum(own) / len(own) if own else None for own in gaps]
    requests = {
        "start_seconds": sent,
        "ttft_seconds": first,
        "tpot_seconds": tpot,
        "itl_max_seconds": [max(own, default=None) for own in gaps],
        "latency_seconds": [token + sum(own) for token, own in zip(first, gaps, strict=True)],
        "output_tokens": [1 + len(own) for own in gaps],
    }
    stages = {"ttft": first, "itl": [gap for own in gaps for gap in own], "tpot": [t for t in tpot if t is not None]}
    return {
        **served(tenant),
        "stages": {name: timed(seconds) for name, seconds in stages.items()},
        "requests": requests,
        "output_tokens": {"count": sum(requests["output_tokens"]), "source": source},
    }


def absent_tenant(index: int, status: str, workload: str = "matmul") -> dict[str, Any]:
    """The record of a tenant that measured nothing."""
    blank = tenant(index, back_to_back([]), workload=workload)
    for key in ("startup", "steady", "timeline", "load", "cpu", "memory_bytes", "output_digest", "work"):
        blank[key] = None
    ended = {"code": 1, "reason": "ended", "log_tail": "last line"}
    return blank | {"status": status, "exit": ended, "coverage_ratio": 0.0}


def spec(workload: Mapping[str, Any], **more: Any) -> Spec:
    """The spec of a cell of two MPS tenants on the simulator, with this workload and other keys."""
    parts = {"strategy": strategy_spec("mps"), "workload": workload, "replicas": 2, "repeat": 1, "window_seconds": 2}
    return parse_spec(json.dumps(parts | {"node": {"kind": "simulated", "options": {}}} | more))


def spec_text(
    workload: str = "matmul", window_seconds: float = 2.0, tenants_run: Sequence[str] | None = None, **more: Any
) -> str:
    """A canonical spec text of a cell on the simulator; `tenants_run` makes it a mix."""
    part: dict[str, Any] = {"name": workload, "output_tolerance": 1e-6}
    if tenants_run is not None:
        part = {"name": workload, "tenants": [{"name": name, "output_tolerance": 1e-6} for name in tenants_run]}
    return spec(part, **{"window_seconds": window_seconds, "replicas": len(tenants_run or [workload])} | more).text


def strategy_spec(name: str) -> dict[str, Any]:
    """The strategy in a spec: the mechanism of that name, or else MPS."""
    return {
        "name": name,
        "mechanism": [name if name in MECHANISMS else "mps"],
        "profile": "1g" if name == "mig" else None,
    }


def telemetry(tenants: int, is_gpu: bool, window_seconds: float) -> dict[str, Any]:
    """The telemetry of a clean window of a host, or of a GPU at a steady 300 W with 700 MiB per tenant."""
    host = {"host_steal_percent": 0.0, "host_throttled_percent": 0.0, "foreign_cpu_percent": 1.0}
    if not is_gpu:
        return {**UNKNOWN_TELEMETRY, "source": "host", "samples": 20, **host}
    return {
        "source": "nvml",
        "reason": None,
        "samples": int(10 * window_seconds),
        "utilisation_mean_percent": 97.0,
        "memory_used_max_mib": 700.0 * tenants + 500.0,
        "tenant_memory_mib": [700.0] * tenants,
        "server_memory_mib": None,
        "power_mean_watts": 300.0,
        "energy_joules": 300.0 * window_seconds,
        "energy_error_joules": 30.0,
        "sm_clock_mean_mhz": 1980.0,
        "sm_clock_cv": 0.001,
        "memory_clock_mean_mhz": 3201.0,
        "temperature_start_celsius": 45,
        "temperature_end_celsius": 46,
        "temperature_max_celsius": 47,
        "throttle_reasons": {"gpu_idle": 2.0},
        "foreign_processes": {"compute": 0, "graphics": 0, "mps": 0},
        "sampler_cpu_percent": 2.0,
        **host,
    }


def record(
    strategy: str = "exclusive",
    latencies: Sequence[Sequence[float] | Floats | Load] | None = None,
    *,
    workload: str = "matmul",
    repeat: int = 1,
    block: int | None = None,
    run_id: str = "run-1",
    window_seconds: float = 2.0,
    status: str = "ok",
    reason: str | None = None,
    replicas: int | None = None,
    device: str = "device-1",
    is_gpu: bool = False,
    tenants: list[dict[str, Any]] | None = None,
    tenants_run: Sequence[str] | None = None,
) -> dict[str, Any]:
    """A record that satisfies the schema, with its gates evaluated.

    `latencies` has seconds back to back, or a Load, for each tenant. The default is one tenant with 400 of 5 ms, or no
    tenant if the status is not `ok`. `tenants` replaces these tenants; `tenants_run` has their workloads in a mix.
    """
    if latencies is None:
        latencies = [np.full(400, 0.005)] if status == "ok" else []
    loads = [each if isinstance(each, Load) else back_to_back(each) for each in latencies]
    if tenants is None:
        names = tenants_run or [workload] * len(loads)
        tenants = [tenant(index, load, window_seconds, names[index]) for index, load in enumerate(loads)]
    replicas = replicas or len(tenants) or 1
    measured: dict[str, Any] = {
        "schema": 1,
        "spec": spec_text(
            workload, window_seconds, tenants_run, strategy=strategy_spec(strategy), replicas=replicas, repeat=repeat
        ),
        "code": CODE,
        "cell": {
            "strategy": strategy,
            "workload": workload,
            "replicas": replicas,
            "repeat": repeat,
            "block": repeat if block is None else block,
        },
        "status": status,
        "reason": reason,
        "provenance": {
            "run_id": run_id,
            "started_epoch_seconds": 1.7e9,
            "python": "3.11.7",
            "platform": "Linux x86_64",
            "packages": {"numpy": "2.4.6"},
            "git_commit": None,
            "git_dirty": None,
        },
        "node": {
            "kind": "nvidia" if is_gpu else "simulated",
            "device": device,
            "product": "A100 80GB PCIe (simulated)",
            "units": 108,
            "units_name": "SMs",
            "memory_bytes": 80 << 30,
            "is_gpu": is_gpu,
            "label": "" if is_gpu else "simulated",
            "details": {},
        },
        "limits": {"thread_percent": None, "memory_percent": None},
        "evidence": [{"name": "state", "expected": strategy, "observed": strategy, "holds": True, "source": "node"}],
        "calibration": {
            "output_digest": [1.5, -2.0],
            "capacity_hz": None,
            "roofs": ROOFS if is_gpu else None,
            "idle_power_watts": 100.0 if is_gpu else None,
        },
        "timing": {
            f"{part}_seconds": 0.1 for part in ("configure", "start", "ready", "settle", "window", "stop", "total")
        },
        "window": {
            "start_monotonic_seconds": 100.0,
            "end_monotonic_seconds": 100.0 + window_seconds,
            "start_epoch_seconds": 1.7e9,
            "end_epoch_seconds": 1.7e9 + window_seconds,
            "clock_error_seconds": 1e-4,
        },
        "tenants": tenants,
        "telemetry": telemetry(len(tenants), is_gpu, window_seconds),
        "gates": [],
    }
    if tenants_run is not None:
        alone = {"output_digest": [1.5, -2.0], "capacity_hz": None}
        measured["calibration"] |= {"output_digest": None, "workloads": dict.fromkeys(tenants_run, alone)}
    if status in ("infeasible", "not-measured"):
        measured |= {"evidence": [], "calibration": None, "window": None, "telemetry": None}
    return measured | {"gates": gates.evaluate(cast(CellRecord, measured))}


def with_changes(record: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """The record with other values at these dotted paths, changed in place."""
    for path, value in changes.items():
        *outer, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = record
        for part in outer:
            place = place[part]
        place[last] = value
    return record


def gate_verdict(record: Mapping[str, Any], name: str) -> GateVerdict | None:
    """The current verdict of the gate of that name; None if it does not apply."""
    found = [each for each in gates.evaluate(cast(CellRecord, record)) if each["name"] == name]
    assert len(found) <= 1
    return found[0] if found else None


def write_and_read(path: Path, measured: Mapping[str, Any]) -> Record:
    """The record of a measured cell, written as its job does, read back and judged."""
    provenance: dict[str, Any] = {
        "run_id": "run-1",
        "started_epoch_seconds": 1.0,
        "python": "3",
        "platform": "Linux",
        "packages": {},
        "git_commit": None,
        "git_dirty": None,
        **(measured["environment"] or {}),
    }
    whole = {key: value for key, value in measured.items() if key != "environment"}
    records.write(path, cast(Record, whole | {"code": CODE, "provenance": provenance}))
    return gates.read_judged(path)


def with_prometheus(measured: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The record with a Prometheus that saw every iteration; `changes` apply to its last tenant."""
    tenants = [
        {
            "index": tenant["index"],
            "scrapes": 20,
            "longest_gap_seconds": 1.0,
            "resets": 0,
            "count": float(tenant["count"]),
            "sum_seconds": tenant["sum_seconds"],
            "quantiles_seconds": {"0.5": 0.0055, "0.95": 0.008, "0.99": 0.009},
        }
        for tenant in measured["tenants"]
    ]
    tenants[-1] |= changes
    watched = {"discovery": "file", "scrape_seconds": 1, "error": None, "tenants": tenants}
    return measured | {"prometheus": watched}
