"""The device's columns of a cell, from its telemetry: power, energy, clock, temperature and memory."""

import math
from collections.abc import Mapping
from typing import cast

from sharebench.model.records.record import window_seconds
from sharebench.model.records.types import Record
from sharebench.model.spec import parse_spec
from sharebench.read.columns import TableRow

MIB = 1 << 20


TELEMETRY = {
    "server_memory_mib": "server_memory_mib",
    "power_mean_watts": "power_mean_watts",
    "energy_joules": "energy_joules",
    "sm_clock_mean_mhz": "sm_clock_mean_mhz",
    "sm_active_percent": "sm_active_mean_percent",
    "sm_occupancy_percent": "sm_occupancy_mean_percent",
    "dram_active_percent": "dram_active_mean_percent",
    "temperature_max_celsius": "temperature_max_celsius",
}
"""The columns that are in the telemetry, with their keys there."""
DeviceColumns = Mapping[str, float | None]


def device_units(record: Record) -> int | None:
    """SMs of the whole GPU, or cores of the stand-in; None where neither the node nor a tenant reports it.

    A Kubernetes node does not report it. There CUDA shows it to a tenant that has no limit and no MIG instance.
    """
    node = record["node"]
    if node["units"] is not None:
        return int(node["units"])
    is_divided = "mig" in parse_spec(record["spec"]).strategy.mechanism
    if is_divided or not node["is_gpu"] or record["limits"]["thread_percent"] is not None:
        return None
    views = (tenant["view"] for tenant in record["tenants"])
    return max((view["sm_count"] for view in views if view and view["sm_count"]), default=None)


def device_columns(record: Record, count: int) -> DeviceColumns:
    """The device's columns; `count` is the number of iterations. A mix has no energy per iteration."""
    telemetry, calibration = cast(Mapping[str, float | None], record["telemetry"] or {}), record["calibration"]
    seconds = window_seconds(record) if record["window"] else None
    idle_watts = calibration["idle_power_watts"] if calibration else None
    columns = {column: telemetry.get(key) for column, key in TELEMETRY.items()}
    energy = columns["energy_joules"]
    if energy and seconds:
        # Ten samples a second may all fall into the same part of short iterations; the energy counter misses nothing.
        columns["power_mean_watts"] = energy / seconds
    if energy is not None and seconds and count > 0 and len({tenant["workload"] for tenant in record["tenants"]}) == 1:
        columns["energy_per_iteration_joules"] = energy / count
        if idle_watts is not None:
            columns["energy_above_idle_per_iteration_joules"] = (energy - idle_watts * seconds) / count
    return columns


def tenant_memory_mib(record: Record) -> list[float | None]:
    """Memory of each tenant: on a GPU what the driver counts for its process, elsewhere what the tenant counts.

    A tenant's own count on a GPU leaves out context and libraries, so it does not replace a missing driver count.
    """
    tenants = record["tenants"]
    if record["node"]["is_gpu"]:
        telemetry = record["telemetry"]
        return list((telemetry and telemetry["tenant_memory_mib"]) or [None] * len(tenants))
    return [None if tenant["memory_bytes"] is None else tenant["memory_bytes"] / MIB for tenant in tenants]


def tenant_use(record: Record) -> list[TableRow]:
    """Columns of each tenant's own use of the GPU, as NVML attributes it to processes."""
    telemetry, rows = record["telemetry"], [TableRow() for _ in record["tenants"]]
    for key in ("tenant_sm_percent", "tenant_memory_busy_percent"):
        values = cast(Mapping[str, list[float | None] | None], telemetry or {}).get(key)
        for row, value in zip(rows, values or [None] * len(rows), strict=True):
            row[key] = value
    return rows


def tenants_that_fit(record: Record) -> int | None:
    """How many tenants as large as this cell's largest fit into the GPU's memory.

    It is the GPU's memory, less what others than the tenants used (the driver, an MPS server), over one tenant. None
    where that is unknown, and where the strategy limits or divides memory.
    """
    telemetry, total_bytes = record["telemetry"], record["node"]["memory_bytes"]
    if not record["node"]["is_gpu"] or telemetry is None or total_bytes is None:
        return None
    used_mib, by_tenant = telemetry["memory_used_max_mib"], telemetry["tenant_memory_mib"] or []
    tenants = [mib for mib in by_tenant if mib is not None]
    if not tenants or len(tenants) < len(by_tenant) or used_mib is None:
        return None
    strategy = parse_spec(record["spec"]).strategy
    has_limit = record["limits"]["memory_percent"] is not None or "memory_limit" in record["limits"]
    # MIG divides memory among tenants before anything runs, one process has it for all of them together.
    if has_limit or "mig" in strategy.mechanism or strategy.is_one_process:
        return None
    besides_mib = max(0.0, used_mib - sum(tenants))
    return math.floor((total_bytes / MIB - besides_mib) / max(tenants))
