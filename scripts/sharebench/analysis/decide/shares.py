"""What part of a device each tenant has, by strategy and number of tenants: the terms of the scaling model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sharebench.core.strategies import HAMI_CORE, MPS_CLIENTS, Strategy, slices_of
from sharebench.core.study_config import StudyConfig
from sharebench.records.types import NodeFacts

# SMs of a MIG instance by GPU and profile, after NVIDIA's MIG user guide and `nvidia-smi mig -lgip`; the first name
# that is part of the product's name counts.
MIG_UNITS: Mapping[str, Mapping[str, int]] = {
    "H200": {"1g": 16, "2g": 32, "3g": 60, "4g": 64, "7g": 132},
    "H100": {"1g": 16, "2g": 32, "3g": 60, "4g": 64, "7g": 132},
    "A100": {"1g": 14, "2g": 28, "3g": 42, "4g": 56, "7g": 98},
    "A30": {"1g": 14, "2g": 28, "4g": 56},
}
MIG_SLICES = {"A30": 4}


@dataclass(frozen=True)
class Device:
    kind: str
    units: int | None
    """Its SMs, or the cores of the stand-in; None where the number is not known, as of a GPU in a cluster may be."""
    mig_units: Mapping[str, int]
    """Units of an instance by the first part of its profile (`1g`); empty where it is not known."""
    mig_slices: int

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        """Why the device cannot hold this number of tenants of the strategy, as far as its facts are known."""
        if strategy.mechanisms[0] == "exclusive" and replicas > 1:
            return "exclusive means one tenant"
        if strategy.replicas is not None and replicas not in strategy.replicas:
            return "the strategy has other numbers of tenants"
        if sum(map(slices_of, strategy.layout(replicas))) > self.mig_slices:
            return f"more than {self.mig_slices} MIG slices"
        if (why := strategy.too_many(replicas)) is not None:
            return why
        if strategy.mechanisms[-1] == "mps" and self.kind != "cpu":
            crowded = math.ceil(replicas / strategy.groups(replicas))
            return f"more than {MPS_CLIENTS} MPS clients" if crowded > MPS_CLIENTS else None
        return None


def device_of(node: NodeFacts, config: StudyConfig, units: int | None) -> Device:
    """The device of a node (`nodes/device.json`) with `units` under this config."""
    kind, product = node["kind"], node["product"]
    if kind == "simulated":
        simulated = config["simulated"]
        sizes = {f"{n}g": n * int(simulated["mig_slice_sms"]) for n in range(1, int(simulated["mig_slices"]) + 1)}
        return Device(kind, units, sizes, int(simulated["mig_slices"]))
    if kind == "cpu" and units is not None:
        return Device(kind, units, {f"{n}g": n for n in range(1, units + 1)}, units)
    name = next((name for name in MIG_UNITS if name in product), None)
    return Device(kind, units, MIG_UNITS[name] if name else {}, MIG_SLICES.get(name or "", 7))


@dataclass(frozen=True)
class Part:
    """One part of the device (the whole, or an instance) and those of the tenants that share it."""

    tenants: int
    turns: int
    """Tenants that alternate on it, each with the whole part; 1 where they do not."""
    together: int
    """Tenants that run on it at the same time."""
    share: float
    """`together` over the units of the part, but at least one over the units that a tenant may use: what w is
    multiplied with."""


def parts(strategy: Strategy, replicas: int, device: Device) -> tuple[Part, ...] | None:
    """The parts that `replicas` tenants have; None where the size of one, or what slows them, is not known."""
    if HAMI_CORE in strategy.mechanisms or (
        strategy.mechanisms[-1] == "time-slicing" and strategy.thread_percent is not None
    ):
        # A library delays them besides.
        return None
    if strategy.is_unequal:
        # The parts know tenants that are alike.
        return None
    groups = strategy.groups(replicas)
    known = [device.units] * groups
    if strategy.mechanisms[0] == "mig":
        known = [device.mig_units.get(profile.split(".")[0]) for profile in strategy.layout(replicas)]
    if None in known:
        return None
    units = [each for each in known if each is not None][:groups]
    sizes = [replicas // groups + (index < replicas % groups) for index in range(groups)]
    return tuple(
        _part(strategy, replicas, size, each, device.kind) for size, each in zip(sizes, units, strict=False) if size
    )


def _part(strategy: Strategy, replicas: int, tenants: int, units: int, kind: str) -> Part:
    inner = strategy.mechanisms[-1]
    if inner == "time-slicing":
        return Part(tenants, tenants, 1, 1 / units)
    if inner not in ("mps", "streams"):
        return Part(tenants, 1, 1, 1 / units)
    share, percent = tenants / units, strategy.shared_limits(replicas).thread_percent
    if percent is not None:
        # The simulated node rounds down to SMs; a GPU takes whole percents and rounds down to pairs of SMs.
        allowed = units * percent / 100 if kind == "simulated" else units * math.floor(percent) / 100 // 2 * 2
        share = max(share, 1 / max(1, math.floor(allowed)))
    return Part(tenants, 1, tenants, share)
