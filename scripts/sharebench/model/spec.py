"""The spec, which holds exactly what the measurement of a cell depends on.

A record holds its canonical text, which `parse_spec` reads. The tenants of a *mix* run different workloads. Every
measuring job starts this module, so it imports nothing heavy.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import Field

from sharebench.model.strategy import Strategy
from sharebench.model.values import Concept
from sharebench.model.workload import Mix, Workload


class NodeSpec(Concept):
    """The kind of node, and the options that results depend on."""

    kind: str
    options: dict[str, Any]


class FaultSpec(Concept):
    """The fault of the tenant `aggressor`, at a fraction of the window."""

    kind: str
    at_fraction: float
    aggressor: int


class WarmupSpec(Concept):
    min_iterations: int
    max_seconds: int | float
    tolerance_percent: int | float


class WatchSpec(Concept):
    scrape_seconds: int | float


class SetupSpec(Concept):
    """What the set-up of a strategy depends on."""

    strategy: Strategy
    node: NodeSpec

    @property
    def text(self) -> str:
        """Canonical text, which is the same for equal specs; a change of it makes what depends on it stale."""
        return canonical_json(self.spec())


class Spec(SetupSpec):
    """All that a cell depends on. On the simulator there is neither a warm-up nor an environment."""

    workload: Workload | Mix
    replicas: int
    repeat: int
    window_seconds: int | float
    files: dict[str, str] = Field(default={})
    """The digests of the study's files that workloads name, by their path."""
    fault: FaultSpec | None = None
    warmup: WarmupSpec | None = None
    environment: str | None = None
    prometheus: WatchSpec | None = None

    @property
    def workloads(self) -> tuple[Workload, ...]:
        """The workload of each tenant."""
        return self._listed if isinstance(self.workload, Mix) else self._listed * self.replicas

    @property
    def warmup_rule(self) -> dict[str, Any]:
        """The rule by which a tenant is warm; empty for a cell without a warm-up."""
        return {} if self.warmup is None else self.warmup.spec()

    @property
    def aggressor(self) -> int | None:
        """Index of the tenant that a fault is injected into; None without a fault."""
        return None if self.fault is None else self.fault.aggressor

    @property
    def components(self) -> list[str]:
        """Names of the cell's workloads without the aggressor's, each once, in the order of their first tenants."""
        names = [workload.name for workload in self._listed]
        if self.aggressor is not None:
            del names[self.aggressor]
        return list(dict.fromkeys(names))

    @property
    def runs_jobs(self) -> bool:
        """Whether all tenants of the cell run jobs, so that the cell ends with the last job.

        Next to a loop, a job repeats its iterations for the whole window.
        """
        return all(workload.job is not None for workload in self._listed)

    @property
    def job_iterations(self) -> list[int] | None:
        """Iterations of each tenant's job; None for a cell with a window of fixed length."""
        jobs = (workload.job for workload in self.workloads)
        return [job.iterations for job in jobs if job is not None] if self.runs_jobs else None

    @property
    def _listed(self) -> tuple[Workload, ...]:
        return self.workload.tenants if isinstance(self.workload, Mix) else (self.workload,)


@lru_cache(maxsize=256)
def parse_spec(text: str) -> Spec:
    """The spec in the text of a record's `spec`. Raises ValueError."""
    spec: dict[str, Any] = json.loads(text)
    # Until 2026-11 the files stood in the workloads.
    for workload in spec["workload"].get("tenants") or [spec["workload"]]:
        spec.setdefault("files", {}).update(workload.pop("files", {}))
    spec["strategy"] = _current_strategy(spec["strategy"])
    return Spec.model_validate(spec)


def _current_strategy(strategy: dict[str, Any]) -> dict[str, Any]:
    """The strategy of a spec, which until 2026-11 had `mechanisms`, and its limits apart."""
    if "mechanisms" not in strategy:
        return strategy
    kept = {key: value for key, value in strategy.items() if key not in ("mechanisms", "limits")}
    return {**kept, **strategy.get("limits", {}), "mechanism": strategy["mechanisms"]}


def canonical_json(value: Any) -> str:
    """JSON text that is the same for equal values, whatever the order of keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


SPEC_KEYS = tuple(Spec.model_fields)


def describe_part(spec: Concept, name: str) -> str:
    """One key of a spec, such as `warmup max_seconds 30, min_iterations 10`; empty where the spec lacks it."""
    part = spec.spec(include={name})
    return f"{name} {_describe(part[name])}" if part else ""


def describe_node(node: NodeSpec) -> str:
    """A node's kind and options, as `describe_part` says them of a spec."""
    return f"node {_describe(node.spec())}"


def _describe(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(
            f"{key} ({_describe(inner)})" if isinstance(inner, dict) else f"{key} {_describe(inner)}"
            for key, inner in sorted(value.items())
        )
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def workload_reference(calibration: Mapping[str, Any] | None, workload: str) -> Mapping[str, Any]:
    """The part of a record's `calibration` about one workload; empty where there is none."""
    if calibration is None:
        return {}
    part: Mapping[str, Any] = calibration["workloads"].get(workload, {}) if "workloads" in calibration else calibration
    return part


def workload_label(workload: str, tenant_workload: str) -> str:
    """Label of a table row's workload, which in a mix names the workload of the row's tenants too."""
    return workload if workload == tenant_workload else f"{tenant_workload} in {workload}"
