"""Telemetry rows and summary of a window, from the samples of a GPU."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

from sharebench.core.units import MEBIBYTE
from sharebench.measure.nodes.counters import value_at
from sharebench.model.records.telemetry import UNKNOWN_TELEMETRY, ForeignProcesses, Row, Telemetry
from tenant.contract.gpu import GpuProcess, GpuSample

# Bits of NVML's clocks event reasons (nvml.h, nvmlClocksEventReasons).
EVENT_REASONS = {
    0x001: "gpu_idle",
    0x002: "applications_clocks_setting",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
# NVML averages the use of processes over a second at most.
LONGEST_READING_SECONDS = 1.0
T = TypeVar("T")
# Inode number that Linux gives the first process namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h).
HOST_PID_NAMESPACE = "pid:[4026531836]"


class TenantUse(TypedDict):
    """The telemetry of each tenant's own use of the GPU."""

    tenant_sm_percent: list[float | None] | None
    tenant_memory_busy_percent: list[float | None] | None


def summarise(
    samples: Sequence[GpuSample],
    processes: Mapping[int, GpuProcess],
    families: Sequence[tuple[int, ...]],
    server_pids: Sequence[int],
    start_seconds: float,
    end_seconds: float,
    activity_reason: str | None = None,
) -> tuple[list[Row], Telemetry]:
    """The rows of the window, and the GPU's part of the record's summary; `processes` are those on the GPU, by pid.

    `activity_reason` is the reason why the samples have no activity, if so.
    """

    def active_percent(counter: Callable[[GpuSample], float | None]) -> float | None:
        active_seconds = _difference(samples, counter, start_seconds, end_seconds)
        return None if active_seconds is None else 100 * active_seconds / (end_seconds - start_seconds)

    inside = [sample for sample in samples if start_seconds <= sample.t_seconds <= end_seconds]
    temperatures = _known_values(sample.temperature_celsius for sample in inside)
    clocks = _known_values(sample.sm_clock_mhz for sample in inside)
    masks = _known_values(sample.reasons for sample in inside)
    throttled = Counter(name for mask in masks for name in _reason_names(mask))
    used_bytes = max(_known_values(sample.memory_used_bytes for sample in inside), default=None)
    power_watts = mean(sample.power_watts for sample in inside)
    energy_joules, energy_error_joules = _energy(samples, power_watts, start_seconds, end_seconds)
    cpu_seconds = _difference(samples, lambda sample: sample.cpu_seconds, start_seconds, end_seconds)
    tenant_memory_mib, server_memory_mib, foreign = _occupancy(processes, families, server_pids, end_seconds)
    return [_row(sample, start_seconds) for sample in inside], {
        **UNKNOWN_TELEMETRY,
        "source": "nvml",
        "samples": len(inside),
        "utilisation_mean_percent": mean(sample.gpu_util_percent for sample in inside),
        "sm_active_mean_percent": active_percent(lambda sample: sample.sm_active_seconds),
        "sm_occupancy_mean_percent": active_percent(lambda sample: sample.sm_occupancy_seconds),
        "dram_active_mean_percent": active_percent(lambda sample: sample.dram_active_seconds),
        "activity_reason": activity_reason,
        "memory_used_max_mib": None if used_bytes is None else used_bytes / MEBIBYTE,
        "tenant_memory_mib": tenant_memory_mib,
        **_tenant_use(processes, families, start_seconds, end_seconds),
        "server_memory_mib": server_memory_mib,
        "power_mean_watts": power_watts,
        "energy_joules": energy_joules,
        "energy_error_joules": energy_error_joules,
        "sm_clock_mean_mhz": mean(clocks),
        "sm_clock_cv": statistics.pstdev(clocks) / statistics.fmean(clocks) if any(clocks) else None,
        "memory_clock_mean_mhz": mean(sample.memory_clock_mhz for sample in inside),
        "temperature_start_celsius": temperatures[0] if temperatures else None,
        "temperature_end_celsius": temperatures[-1] if temperatures else None,
        "temperature_max_celsius": max(temperatures, default=None),
        "throttle_reasons": {name: 100 * count / len(masks) for name, count in sorted(throttled.items())}
        if masks
        else None,
        "foreign_processes": foreign,
        "sampler_cpu_percent": None if cpu_seconds is None else 100 * cpu_seconds / (end_seconds - start_seconds),
    }


def sees_all_processes() -> bool:
    """Whether this process is in the host's process namespace; elsewhere NVML omits processes of other namespaces."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == HOST_PID_NAMESPACE
    except OSError:
        return False


def _row(sample: GpuSample, window_start_seconds: float) -> Row:
    memory, reasons = sample.memory_used_bytes, sample.reasons
    return {
        "t_seconds": round(sample.t_seconds - window_start_seconds, 3),
        "gpu_util_percent": sample.gpu_util_percent,
        "memory_used_mib": None if memory is None else round(memory / MEBIBYTE, 1),
        "power_watts": sample.power_watts,
        "sm_clock_mhz": sample.sm_clock_mhz,
        "temperature_celsius": sample.temperature_celsius,
        "throttle_reasons": None if reasons is None else ";".join(_reason_names(reasons)),
    }


def _reason_names(reasons: int) -> list[str]:
    return [name for bit, name in EVENT_REASONS.items() if reasons & bit]


def _known_values(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are not None; None without one."""
    present = _known_values(values)
    return statistics.fmean(present) if present else None


def _energy(
    samples: Sequence[GpuSample], power_watts: float | None, start_seconds: float, end_seconds: float
) -> tuple[float | None, float | None]:
    """Energy in the window in joules, and the bound of its error (None where it is not known).

    NVML renews the energy counter every 20 to 100 ms. A reading is at most one renewal old, so the difference is off
    by no more than the energy of one renewal, whose length the observed changes bound. Without a counter, the energy is
    the integral of the power samples.
    """
    window_seconds = end_seconds - start_seconds
    energy = _difference(samples, lambda sample: sample.energy_joules, start_seconds, end_seconds)
    if energy is None:
        return (None if power_watts is None else power_watts * window_seconds), None
    largest_watts = max(_known_values(sample.power_watts for sample in samples), default=energy / window_seconds)
    return energy, _renewal_seconds(samples) * largest_watts


def _difference(
    samples: Sequence[GpuSample], counter: Callable[[GpuSample], float | None], start_seconds: float, end_seconds: float
) -> float | None:
    """The increase of a counter between two moments; None where it has no reading on both sides of each."""
    readings = [(sample.t_seconds, value) for sample in samples if (value := counter(sample)) is not None]
    start, end = value_at(readings, start_seconds), value_at(readings, end_seconds)
    return None if start is None or end is None else end - start


def _renewal_seconds(samples: Sequence[GpuSample]) -> float:
    """The longest time for which the energy counter was unchanged, up to the first changed reading."""
    longest, since = 0.0, samples[0]
    for before, after in itertools.pairwise(samples):
        longest = max(longest, after.t_seconds - since.t_seconds)
        if after.energy_joules != before.energy_joules:
            since = after
    return longest


def _tenant_use(
    processes: Mapping[int, GpuProcess], families: Sequence[tuple[int, ...]], start_seconds: float, end_seconds: float
) -> TenantUse:
    """Each tenant's own use of the GPU in percent of the window; None for a tenant of which NVML lists no process.

    A reading holds from the one before it, for at most LONGEST_READING_SECONDS: NVML lists only processes that used
    something, so that a longer gap is idle time. Tenants of one family share its use evenly.
    """
    times = sorted({t_seconds for process in processes.values() for t_seconds, _, _ in process["use"]})
    lengths = {
        now: max(0.0, min(now, end_seconds) - max(before, now - LONGEST_READING_SECONDS, start_seconds))
        for before, now in itertools.pairwise([-math.inf, *times])
    }

    def shares(column: int) -> list[float | None] | None:
        used = {
            family: [
                reading[column] * lengths[reading[0]]
                for pid in _members(processes, family)
                for reading in processes[pid]["use"]
            ]
            for family in {*families}
        }
        seconds = end_seconds - start_seconds
        shares = [sum(used[family]) / seconds / families.count(family) if used[family] else None for family in families]
        return shares if any(used.values()) else None

    return {"tenant_sm_percent": shares(1), "tenant_memory_busy_percent": shares(2)}


def _members(processes: Mapping[int, GpuProcess], family: Collection[int]) -> list[int]:
    """The pids of the processes that are in the family, or whose ancestors are."""
    return [pid for pid, process in processes.items() if {pid, *process["ancestors"]} & {*family}]


def _occupancy(
    processes: Mapping[int, GpuProcess],
    families: Sequence[tuple[int, ...]],
    server_pids: Sequence[int],
    end_seconds: float,
) -> tuple[list[float | None] | None, float | None, ForeignProcesses | None]:
    """Memory by tenant and of the MPS servers in MiB, and the number of foreign processes by kind.

    A process belongs to a tenant when it, or one of its ancestors, is in the tenant's family. The largest reading of
    each process until the window's end counts: afterwards a tenant digests its last output, which may take more memory
    than its work. Tenants of one family share its memory evenly. If no tenant is among the processes, NVML counts pids
    of another namespace (a container's), and all values are None.
    """
    members = {family: _members(processes, family) for family in families}
    if not any(members.values()):
        return None, None, None
    memory = {
        pid: max(readings) / MEBIBYTE
        for pid, entry in processes.items()
        if (readings := [size for t_seconds, size in entry["memory"] if t_seconds <= end_seconds])
    }

    def total_mib(pids: Iterable[int]) -> float | None:
        return sum(memory[pid] for pid in pids if pid in memory) if memory.keys() & {*pids} else None

    shares = {family: total_mib(pids) for family, pids in members.items()}
    by_tenant = [None if (mib := shares[family]) is None else mib / families.count(family) for family in families]
    ours = _members(processes, {*itertools.chain(*families), *server_pids})
    kinds = Counter(processes[pid]["kind"] for pid in processes.keys() - ours)
    foreign: ForeignProcesses = {"compute": kinds["compute"], "graphics": kinds["graphics"], "mps": kinds["mps"]}
    return by_tenant, total_mib(server_pids), foreign if sees_all_processes() else None
