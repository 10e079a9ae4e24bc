"""What a cell's telemetry says of the device: power, energy, clock, temperature and memory."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from sharebench.gates.verdict import window_seconds

MIB = 1 << 20
# Memory is divided among their tenants before anything runs, or belongs to all of them together.
MEMORY_NOT_FREE = {"mig", "streams"}


def device_units(record: Mapping[str, Any]) -> int | None:
    """SMs of the whole GPU, or cores of the stand-in; None where neither the node nor a tenant says.

    A Kubernetes node does not say. There CUDA tells a tenant without a limit and outside of MIG.
    """
    node = record["node"]
    if node["units"] is not None:
        return int(node["units"])
    is_divided = "mig" in json.loads(record["spec"])["strategy"]["mechanisms"]
    if is_divided or not node["is_gpu"] or record["limits"]["thread_percent"] is not None:
        return None
    return max(filter(None, ((tenant["view"] or {}).get("sm_count") for tenant in record["tenants"])), default=None)


def device_columns(record: Mapping[str, Any], count: int) -> dict[str, float | None]:
    """Columns of cells.csv that are the whole device's; `count` is the number of all tenants' iterations.

    Energy per iteration only where all tenants run the same workload: an iteration of one is not one of another.
    """
    telemetry, window = record["telemetry"] or {}, record["window"]
    energy = telemetry.get("energy_joules")
    idle_watts = (record["calibration"] or {}).get("idle_power_watts")
    is_comparable = count > 0 and len({tenant["workload"] for tenant in record["tenants"]}) == 1
    each = above_idle = None
    # Ten samples a second may all fall into the same part of iterations that take a fraction of that: energy does not.
    watts = energy / window_seconds(record) if energy and window else telemetry.get("power_mean_watts")
    if energy is not None and window is not None and is_comparable:
        each = energy / count
        if idle_watts is not None:
            above_idle = (energy - idle_watts * window_seconds(record)) / count
    return {
        "server_memory_mib": telemetry.get("server_memory_mib"),
        "power_mean_watts": watts,
        "energy_joules": energy,
        "energy_per_iteration_joules": each,
        "energy_above_idle_per_iteration_joules": above_idle,
        "sm_clock_mean_mhz": telemetry.get("sm_clock_mean_mhz"),
        "temperature_max_celsius": telemetry.get("temperature_max_celsius"),
    }


def tenant_memory_mib(record: Mapping[str, Any]) -> list[float | None]:
    """Memory of each tenant: on a GPU what the driver counts for its process, elsewhere what the tenant itself does.

    The workload's own count on a GPU leaves out context and libraries, so it does not stand in where the driver is
    silent.
    """
    tenants = record["tenants"]
    if record["node"]["is_gpu"]:
        known = (record["telemetry"] or {}).get("tenant_memory_mib")
        return list(known) if known is not None else [None] * len(tenants)
    return [None if tenant["memory_bytes"] is None else tenant["memory_bytes"] / MIB for tenant in tenants]


def tenants_that_fit(record: Mapping[str, Any]) -> int | None:
    """How many tenants with the memory of this cell's largest one the GPU's memory holds.

    From what was measured: the GPU's memory, less what was in use besides the tenants (the driver's share, and an MPS
    server), over one tenant. None where that is unknown, and where memory is limited or divided by the strategy.
    """
    telemetry, total_bytes = record["telemetry"] or {}, record["node"]["memory_bytes"]
    tenants, used_mib = telemetry.get("tenant_memory_mib"), telemetry.get("memory_used_max_mib")
    if not record["node"]["is_gpu"] or not tenants or None in tenants or used_mib is None or total_bytes is None:
        return None
    mechanisms = json.loads(record["spec"])["strategy"]["mechanisms"]
    if MEMORY_NOT_FREE.intersection(mechanisms) or record["limits"]["memory_percent"] is not None:
        return None
    besides_mib = max(0.0, used_mib - sum(tenants))
    fitting: float = (total_bytes / MIB - besides_mib) / max(tenants)
    return math.floor(fitting)
