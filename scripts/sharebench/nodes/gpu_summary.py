"""The rows and the summary of a window, from the samples of a GPU."""

from __future__ import annotations

import bisect
import itertools
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypedDict, TypeVar

from sharebench.core.units import MEBIBYTE
from sharebench.records.telemetry import NOTHING_KNOWN, ForeignProcesses, Row, Telemetry
from tenant.contract import GpuProcess, GpuSample

# Bits of NVML's clocks event reasons (nvml.h, nvmlClocksEventReasons).
REASONS = {
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
T = TypeVar("T")
# Inode number that Linux gives the first process namespace (PROC_PID_INIT_INO in include/linux/proc_ns.h).
HOST_PID_NAMESPACE = "pid:[4026531836]"


def summarise(
    samples: Sequence[GpuSample],
    processes: Mapping[int, GpuProcess],
    families: Sequence[tuple[int, ...]],
    server_pids: Sequence[int],
    start_seconds: float,
    end_seconds: float,
) -> tuple[list[Row], Telemetry]:
    """The rows of the window, and the GPU's part of the record's summary; `processes` are those on the GPU, by pid."""
    inside = [sample for sample in samples if start_seconds <= sample.t_seconds <= end_seconds]
    return [_row(sample, start_seconds) for sample in inside], {
        **NOTHING_KNOWN,
        "source": "nvml",
        **_of_window(inside),
        **_counted(samples, start_seconds, end_seconds),
        **_occupancy(processes, families, server_pids, end_seconds),
    }


def sees_all_processes() -> bool:
    """Whether this process lives in the host's process namespace; elsewhere NVML leaves out what is not in its own."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()) == HOST_PID_NAMESPACE
    except OSError:
        return False


def _by_kind(processes: Sequence[GpuProcess]) -> ForeignProcesses:
    seen = Counter(process["kind"] for process in processes)
    return {"compute": seen["compute"], "graphics": seen["graphics"], "mps": seen["mps"]}


def _row(sample: GpuSample, window_start_seconds: float) -> Row:
    memory, reasons = sample.memory_used_bytes, sample.reasons
    return {
        "t_seconds": round(sample.t_seconds - window_start_seconds, 3),
        "gpu_util_percent": sample.gpu_util_percent,
        "memory_used_mib": None if memory is None else round(memory / MEBIBYTE, 1),
        "power_watts": sample.power_watts,
        "sm_clock_mhz": sample.sm_clock_mhz,
        "temperature_celsius": sample.temperature_celsius,
        "throttle_reasons": None if reasons is None else ";".join(_names(reasons)),
    }


def _names(reasons: int) -> list[str]:
    return [name for bit, name in REASONS.items() if reasons & bit]


def _present(values: Iterable[T | None]) -> list[T]:
    return [value for value in values if value is not None]


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are not None; None without one."""
    present = _present(values)
    return statistics.fmean(present) if present else None


class _WindowMeans(TypedDict):
    samples: int
    utilisation_mean_percent: float | None
    memory_used_max_mib: float | None
    power_mean_watts: float | None
    sm_clock_mean_mhz: float | None
    sm_clock_cv: float | None
    memory_clock_mean_mhz: float | None
    temperature_start_celsius: float | None
    temperature_end_celsius: float | None
    temperature_max_celsius: float | None
    throttle_reasons: dict[str, float] | None


class _Counters(TypedDict):
    energy_joules: float | None
    energy_error_joules: float | None
    sampler_cpu_percent: float | None


class _Occupancy(TypedDict):
    tenant_memory_mib: list[float | None] | None
    server_memory_mib: float | None
    foreign_processes: ForeignProcesses | None


def _of_window(inside: Sequence[GpuSample]) -> _WindowMeans:
    """The part of the summary that comes from the samples inside the window."""
    temperatures = _present(sample.temperature_celsius for sample in inside)
    clocks = _present(sample.sm_clock_mhz for sample in inside)
    reasons = _present(sample.reasons for sample in inside)
    seen = Counter(name for mask in reasons for name in _names(mask))
    memory = max(_present(sample.memory_used_bytes for sample in inside), default=None)
    return {
        "samples": len(inside),
        "utilisation_mean_percent": mean(sample.gpu_util_percent for sample in inside),
        "memory_used_max_mib": None if memory is None else memory / MEBIBYTE,
        "power_mean_watts": mean(sample.power_watts for sample in inside),
        "sm_clock_mean_mhz": mean(clocks),
        "sm_clock_cv": statistics.pstdev(clocks) / statistics.fmean(clocks) if any(clocks) else None,
        "memory_clock_mean_mhz": mean(sample.memory_clock_mhz for sample in inside),
        "temperature_start_celsius": temperatures[0] if temperatures else None,
        "temperature_end_celsius": temperatures[-1] if temperatures else None,
        "temperature_max_celsius": max(temperatures, default=None),
        "throttle_reasons": {name: 100 * count / len(reasons) for name, count in sorted(seen.items())}
        if reasons
        else None,
    }


def _counted(samples: Sequence[GpuSample], start_seconds: float, end_seconds: float) -> _Counters:
    """Energy and the sampler's own CPU time: differences of counters, interpolated to the window's exact ends.

    NVML renews the energy counter every 20 to 100 ms. A reading is at most one renewal old, so the difference is off
    by no more than the energy of one; that it was seen to change bounds how long a renewal takes. Without a counter,
    the energy is the integral of the power samples.
    """
    window_seconds = end_seconds - start_seconds
    cpu_seconds = _difference(samples, lambda sample: sample.cpu_seconds, start_seconds, end_seconds)
    energy = _difference(samples, lambda sample: sample.energy_joules, start_seconds, end_seconds)
    error = None
    powers = _present(sample.power_watts for sample in samples)
    if energy is not None:
        error = _renewal_seconds(samples) * max(powers, default=energy / window_seconds)
    else:
        power = mean(sample.power_watts for sample in samples if start_seconds <= sample.t_seconds <= end_seconds)
        energy = None if power is None else power * window_seconds
    return {
        "energy_joules": energy,
        "energy_error_joules": error,
        "sampler_cpu_percent": None if cpu_seconds is None else 100 * cpu_seconds / window_seconds,
    }


def _difference(
    samples: Sequence[GpuSample],
    counter: Callable[[GpuSample], float | None],
    start_seconds: float,
    end_seconds: float,
) -> float | None:
    """By how much a counter grew between two moments; None where it is not known on both sides of each."""
    known = [(sample.t_seconds, value) for sample in samples if (value := counter(sample)) is not None]
    ends = []
    for moment in (start_seconds, end_seconds):
        after = bisect.bisect_left(known, moment, key=lambda reading: reading[0])
        if not 0 < after < len(known):
            return None
        (before_seconds, before), (after_seconds, later) = known[after - 1], known[after]
        ends.append(before + (later - before) * (moment - before_seconds) / (after_seconds - before_seconds))
    return float(ends[1] - ends[0])


def _renewal_seconds(samples: Sequence[GpuSample]) -> float:
    """The longest time for which the energy counter was seen unchanged, up to the reading that had changed."""
    longest, since = 0.0, samples[0]
    for before, after in itertools.pairwise(samples):
        longest = max(longest, after.t_seconds - since.t_seconds)
        if after.energy_joules != before.energy_joules:
            since = after
    return longest


def _occupancy(
    processes: Mapping[int, GpuProcess],
    families: Sequence[tuple[int, ...]],
    server_pids: Sequence[int],
    end_seconds: float,
) -> _Occupancy:
    """Memory by tenant and of the MPS servers in MiB, and how many foreign processes were seen, by kind.

    A process belongs to a tenant when it, or one of its ancestors, is in the tenant's family. The largest reading of
    each counts, of those until the window's end: afterwards a tenant sums up its last output, which may take more than
    its work. Tenants of one family share its memory evenly. Where none of the tenants is among the processes, NVML
    counts pids of another namespace (a container's), and nothing of this is known.
    """
    lineages = {pid: {pid, *entry["ancestors"]} for pid, entry in processes.items()}
    members = {family: [pid for pid, line in lineages.items() if line & {*family}] for family in families}
    if not any(members.values()):
        return {"tenant_memory_mib": None, "server_memory_mib": None, "foreign_processes": None}
    ours = {*itertools.chain(*families), *server_pids}
    foreign = [processes[pid] for pid, line in lineages.items() if not line & ours]
    memory: dict[int, int] = {}
    for pid, entry in processes.items():
        if known := [size for t_seconds, size in entry["memory"] if t_seconds <= end_seconds]:
            memory[pid] = max(known)
    taken = {family: [memory[pid] for pid in pids if pid in memory] for family, pids in members.items()}
    servers = [memory[pid] for pid in server_pids if pid in memory]
    return {
        "tenant_memory_mib": [
            sum(taken[family]) / MEBIBYTE / families.count(family) if taken[family] else None for family in families
        ],
        "server_memory_mib": sum(servers) / MEBIBYTE if servers else None,
        "foreign_processes": _by_kind(foreign) if sees_all_processes() else None,
    }
