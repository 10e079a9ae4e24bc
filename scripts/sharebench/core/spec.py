"""Mixes: cells whose tenants need not all run the same workload, as spec and record have them.

Every measuring job starts this module, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def workload_of(spec: Mapping[str, Any], index: int) -> Mapping[str, Any]:
    """The spec of what tenant `index` of the cell runs."""
    workload: Mapping[str, Any] = spec["workload"]
    return workload["tenants"][index] if "tenants" in workload else workload


def tenant_workloads(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The spec of what each tenant of the cell runs, in order."""
    return [workload_of(spec, index) for index in range(spec["replicas"])]


def aggressor_of(spec: Mapping[str, Any]) -> int | None:
    """The tenant that goes wrong in the cell on purpose; None where all are to be well."""
    return spec["fault"]["aggressor"] if "fault" in spec else None


def components(spec: Mapping[str, Any]) -> list[str]:
    """The names of the workloads in the cell, each once, in the order of their first tenants; without an aggressor."""
    workload = spec["workload"]
    tenants = [each["name"] for each in workload.get("tenants", [workload])]
    if (aggressor := aggressor_of(spec)) is not None:
        del tenants[aggressor]
    return list(dict.fromkeys(tenants))


def reference(calibration: Mapping[str, Any] | None, workload: str) -> Mapping[str, Any]:
    """Of a record's `calibration`, what is known of that workload alone; empty where there is none."""
    if calibration is None:
        return {}
    of_workload: Mapping[str, Any] = calibration["workloads"][workload] if "workloads" in calibration else calibration
    return of_workload


def in_words(workload: str, tenant_workload: str) -> str:
    """The workload of a row of tables; of a mix what the row's tenants run in it."""
    return workload if workload == tenant_workload else f"{tenant_workload} in {workload}"


def runs_jobs(spec: Mapping[str, Any]) -> bool:
    """Whether all tenants of the cell run jobs, so that it ends with the last of them.

    Beside a loop a job has no end of its own: its iterations follow each other for the whole window.
    """
    workload = spec["workload"]
    return all(tenant.get("job") for tenant in workload.get("tenants", [workload]))


def job_iterations(spec: Mapping[str, Any]) -> list[int] | None:
    """Fixed work of each tenant of a cell of jobs; None for a cell with a window of fixed length."""
    return [workload["job"]["iterations"] for workload in tenant_workloads(spec)] if runs_jobs(spec) else None


def is_job(config: Mapping[str, Any], workload: str) -> bool:
    """Whether all tenants of an entry of the config's workload catalogue run jobs."""
    catalogue = config["workload_catalogue"]
    return all(catalogue[name]["kind"] == "job" for name in catalogue[workload].get("tenants") or [workload])


def has_jobs(config: Mapping[str, Any]) -> bool:
    """Whether the study has cells of jobs."""
    return any(is_job(config, workload) for workload in config["workloads"])
