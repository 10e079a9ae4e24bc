"""The spec, which holds exactly what the measurement of a cell depends on.

A record holds its canonical text, which `parse_spec` reads. The tenants of a *mix* run different workloads. Every
measuring job starts this module, so it imports nothing heavy.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict, cast

from sharebench.model.strategy import Strategy
from sharebench.model.workload import Mix, Workload

if TYPE_CHECKING:
    from tenant.contract import Answer


class NodeSpec(TypedDict):
    """The kind of node, and the options that results depend on."""

    kind: str
    options: Mapping[str, object]


class FaultSpec(TypedDict):
    """The fault of the tenant `aggressor`, at a fraction of the window."""

    kind: str
    at_fraction: float
    aggressor: int


class WarmupSpec(TypedDict):
    min_iterations: int
    max_seconds: float
    tolerance_percent: float


class WatchSpec(TypedDict):
    scrape_seconds: float


class Spec(TypedDict):
    """All that a cell depends on. On the simulator there is neither a warm-up nor an environment.

    `files` has the digests of the study's files that workloads name, by their path.
    """

    strategy: Strategy
    workload: Workload | Mix
    replicas: int
    repeat: int
    window_seconds: float
    node: NodeSpec
    files: NotRequired[dict[str, str]]
    fault: NotRequired[FaultSpec]
    warmup: NotRequired[WarmupSpec]
    environment: NotRequired[str]
    prometheus: NotRequired[WatchSpec]


class Conditions(TypedDict):
    """What may have disturbed the run that gave a capacity; None where a node does not know it."""

    halves_change_ratio: float | None
    foreign_processes: int | None
    gpu_slowdown_percent: float | None
    cpu_throttled_percent: float | None
    cpu_steal_percent: float | None


class Calibration(TypedDict):
    """The part of calibration/{workload}.json that cells use."""

    workload: str
    output_digest: list[float] | None
    capacity_hz: float
    conditions: Conditions
    answers: NotRequired[list[list[Answer]] | None]
    roofs: dict[str, float] | None
    idle_power_watts: float | None


def parse_spec(text: str) -> Spec:
    """The spec in the text of a record's `spec` or of a job's argument. Raises ValueError."""
    spec: dict[str, Any] = json.loads(text)
    workload, mixed = spec["workload"], spec["workload"].get("tenants")
    # Until 2026-11 the files stood in the workloads.
    found = [each.pop("files") for each in mixed or [workload] if "files" in each]
    if files := {path: digest for own in found for path, digest in own.items()}:
        spec["files"] = files
    spec["strategy"] = Strategy.model_validate(_current_strategy(spec["strategy"]))
    spec["workload"] = (Mix if mixed else Workload).model_validate(workload)
    return cast(Spec, spec)


def _current_strategy(strategy: dict[str, Any]) -> dict[str, Any]:
    """The strategy of a spec, which until 2026-11 had `mechanisms`, and its limits apart."""
    if "mechanisms" not in strategy:
        return strategy
    kept = {key: value for key, value in strategy.items() if key not in ("mechanisms", "limits")}
    return {**kept, **strategy.get("limits", {}), "mechanism": strategy["mechanisms"]}


def canonical_text(spec: Spec) -> str:
    """Canonical text of the spec, which is the same for equal ones; a change of it makes the cell stale."""
    return canonical_json({**spec, "strategy": spec["strategy"].spec(), "workload": spec["workload"].spec()})


def canonical_json(value: Any) -> str:
    """JSON text that is the same for equal values, whatever the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


SPEC_KEYS = tuple(Spec.__annotations__)
_parsed = cache(json.loads)


def describe_part(text: str, name: str) -> str:
    """One key of a spec, such as `warmup max_seconds 30, min_iterations 10`; empty where the spec lacks it."""
    spec = _parsed(text)
    return f"{name} {_describe(spec[name])}" if name in spec else ""


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key} ({_describe(inner)})" if isinstance(inner, dict) else f"{key} {_describe(inner)}"
            for key, inner in value.items()
        )
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def tenant_workload(spec: Spec, index: int) -> Workload:
    workload = spec["workload"]
    return workload.tenants[index] if isinstance(workload, Mix) else workload


def tenant_workloads(spec: Spec) -> list[Workload]:
    return [tenant_workload(spec, index) for index in range(spec["replicas"])]


def aggressor_index(spec: Spec) -> int | None:
    """Index of the tenant that a fault is injected into; None without a fault."""
    return spec["fault"]["aggressor"] if "fault" in spec else None


def components(spec: Spec) -> list[str]:
    """Names of the cell's workloads without the aggressor's, each once, in the order of their first tenants."""
    names = [workload.name for workload in _listed_workloads(spec)]
    if (aggressor := aggressor_index(spec)) is not None:
        del names[aggressor]
    return list(dict.fromkeys(names))


def runs_jobs(spec: Spec) -> bool:
    """Whether all tenants of the cell run jobs, so that the cell ends with the last job.

    Next to a loop, a job repeats its iterations for the whole window.
    """
    return all(workload.job is not None for workload in _listed_workloads(spec))


def job_iterations(spec: Spec) -> list[int] | None:
    """Iterations of each tenant's job; None for a cell with a window of fixed length."""
    jobs = (workload.job for workload in tenant_workloads(spec))
    return [job.iterations for job in jobs if job is not None] if runs_jobs(spec) else None


def _listed_workloads(spec: Spec) -> Sequence[Workload]:
    workload = spec["workload"]
    return workload.tenants if isinstance(workload, Mix) else [workload]


def workload_reference(calibration: Mapping[str, Any] | None, workload: str) -> Mapping[str, Any]:
    """The part of a record's `calibration` about one workload; empty where there is none."""
    if calibration is None:
        return {}
    part: Mapping[str, Any] = calibration["workloads"].get(workload, {}) if "workloads" in calibration else calibration
    return part


def workload_label(workload: str, tenant_workload: str) -> str:
    """Label of a table row's workload, which in a mix names the workload of the row's tenants too."""
    return workload if workload == tenant_workload else f"{tenant_workload} in {workload}"
