"""User programs on any kind of node: placeholders in their commands, and reports of programs that exit."""

import math
from collections.abc import Mapping

from sharebench.measure.nodes.contract import latency_bucket, own_load_report
from sharebench.model.programs import PLACEHOLDER
from sharebench.model.spec import Spec
from tenant.contract import CompletedJob, Environment, TenantReport


def memory_fraction(spec: Spec, index: int) -> float:
    """Fraction of the visible memory for tenant `index`: its limit, else an even part among those that share it.

    Tenants of a MIG instance see only the instance's memory.
    """
    if (percent := spec["strategy"].tenant_limits(spec["replicas"], index).memory_percent) is not None:
        return percent / 100
    return 1 / math.ceil(spec["replicas"] / spec["strategy"].group_count(spec["replicas"]))


def placeholder_values(spec: Spec, index: int) -> dict[str, object]:
    """The values of the placeholders that depend on the cell, by name."""
    return {"index": index, "replicas": spec["replicas"], "fraction": f"{memory_fraction(spec, index):.6g}"}


def fill_in(word: str, values: Mapping[str, object]) -> str:
    """A word of a command with its placeholders replaced."""
    return PLACEHOLDER.sub(lambda match: str(values.get(match[1], match[0])), word)


def exited_job(seconds: float | None, start_delay_seconds: float) -> CompletedJob:
    """The job of a program that exits; `seconds` is None where it did not end well in time."""
    return {
        "iterations": 1,
        "completed": 0 if seconds is None else 1,
        "start_delay_seconds": start_delay_seconds,
        "completion_seconds": seconds,
    }


def exited_report(index: int, workload: str, seconds: float | None) -> TenantReport:
    """The report of a program that exits, without its start and its use of the host."""
    nothing: Environment = {"python": "", "platform": "", "packages": {}}
    return {
        **own_load_report(index, workload, 1 / seconds if seconds else 0.0, nothing),
        "measured_by": "exit",
        "count": 0 if seconds is None else 1,
        "sum_seconds": seconds or 0.0,
        "min_seconds": seconds,
        "max_seconds": seconds,
        "histogram": {} if seconds is None else {str(latency_bucket(seconds)): 1},
    }
