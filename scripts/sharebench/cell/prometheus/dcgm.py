"""Telemetry of a GPU as dcgm-exporter has it, by way of Prometheus.

Every value is of the whole device, or of a MIG instance (labels GPU_I_ID and GPU_I_PROFILE), and never of a pod: with
several pods on a device the exporter names one of them, none, or repeats the same value for each. So series that differ
only by pod are one, nothing is added up over pods, and no value is a tenant's.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from sharebench.cell.prometheus.server import Labels, Server, selector
from sharebench.core.counters import Samples
from sharebench.records.telemetry import Dcgm

# The exporter's names (etc/dcp-metrics-included.csv), ours, and the factor between them. SM_ACTIVE is off unless
# it was asked for in the exporter's own list.
GAUGES = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("gr_engine_active_percent", 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": ("sm_active_percent", 100.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": ("dram_active_percent", 100.0),
    "DCGM_FI_DEV_GPU_UTIL": ("gpu_util_percent", 1.0),
    "DCGM_FI_DEV_POWER_USAGE": ("power_watts", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_mib", 1.0),
    "DCGM_FI_DEV_SM_CLOCK": ("sm_clock_mhz", 1.0),
    "DCGM_FI_DEV_GPU_TEMP": ("temperature_celsius", 1.0),
}
INSTANCE, PROFILE = "GPU_I_ID", "GPU_I_PROFILE"
# DCGM's smallest value that stands for none (dcgm_structs.h, DCGM_INT32_BLANK); no gauge of these gets there.
BLANK = 0x7FFFFFF0
Key = tuple[str, str]


def device_of(labels: Labels) -> Key:
    """What identifies a device: the node, and the GPU's UUID (or its index)."""
    return labels.get("Hostname", ""), labels.get("UUID") or labels.get("gpu", "")


def chosen(devices: set[Key], node: str | None) -> tuple[Key | None, str | None]:
    """The shared device among those that were found, or why it is not known."""
    on_node = {device for device in devices if node is not None and device[0] == node} or devices
    if len(on_node) == 1:
        return next(iter(on_node)), None
    if not on_node:
        return None, "Prometheus has no series of dcgm-exporter for this device and window; is its interval longer?"
    return None, f"dcgm-exporter knows {len(on_node)} devices; name the shared one: prometheus.dcgm"


def telemetry(server: Server, labels: Labels, node: str | None, start: float, end: float) -> Dcgm:
    """The record's `telemetry.dcgm` of the window (epoch seconds of the server). Raises PrometheusSilent."""
    names = "|".join(GAUGES)
    inside = selector("", labels)[1:-1]
    series = f'{{__name__=~"{names}"{"," if inside else ""}{inside}}}'
    return summarise(server.samples(series, end - start, end), node)


def summarise(found: Sequence[tuple[Labels, Samples]], node: str | None) -> Dcgm:
    """The same from the series of the window."""
    device, reason = chosen({device_of(labels) for labels, _ in found}, node)
    instances: dict[str, dict[str, Samples]] = {}
    profiles: dict[str, str] = {}
    for labels, samples in found:
        if device is not None and device_of(labels) == device:
            instance = labels.get(INSTANCE, "")
            profiles[instance] = labels.get(PROFILE, "")
            known = [(at, value) for at, value in samples if value == value and abs(value) < BLANK]
            # Of series that differ by pod alone, the first: all have the device's value.
            instances.setdefault(instance, {}).setdefault(labels["__name__"], known)
    scrapes = max((len(samples) for series in instances.values() for samples in series.values()), default=0)
    # Keys made from GAUGES, which are those of DcgmInstance.
    entries: list[Any] = [
        {"instance": instance or None, "profile": profiles[instance] or None, **_means(series)}
        for instance, series in sorted(instances.items())
    ]
    return {"reason": reason, "scrapes": scrapes, "instances": entries}


def _means(series: Mapping[str, Samples]) -> dict[str, float | None]:
    return {
        f"{column.rpartition('_')[0]}_mean_{column.rpartition('_')[2]}": (
            factor * statistics.fmean(value for _, value in series[name]) if series.get(name) else None
        )
        for name, (column, factor) in GAUGES.items()
    }
