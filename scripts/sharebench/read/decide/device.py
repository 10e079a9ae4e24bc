"""The limits of a device: how many tenants of a strategy it can hold, as far as its facts are known."""

import math
from dataclasses import dataclass

from sharebench.model.records.types import NodeFacts
from sharebench.model.strategy import MPS_CLIENTS, Strategy, slice_count
from sharebench.model.study_config import StudyConfig

MIG_SLICES = {"A30": 4}


@dataclass(frozen=True)
class DeviceLimits:
    kind: str
    mig_slices: int

    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        """The reason why the device cannot hold this number of tenants of the strategy; None if it can."""
        if strategy.mechanism[0] == "exclusive" and replicas > 1:
            return "exclusive means one tenant"
        if (own := strategy.lengths()) and replicas not in own.values():
            return "its limits are for another number of tenants"
        if sum(map(slice_count, strategy.layout(replicas))) > self.mig_slices:
            return f"more than {self.mig_slices} MIG slices"
        if (why := strategy.profile_shortage(replicas)) is not None:
            return why
        if strategy.mechanism[-1] == "mps" and self.kind != "cpu":
            crowded = math.ceil(replicas / strategy.group_count(replicas))
            return f"more than {MPS_CLIENTS} MPS clients" if crowded > MPS_CLIENTS else None
        return None


def device_limits(node: NodeFacts, config: StudyConfig, units: int | None) -> DeviceLimits:
    """The limits of a node's device under this config; `units` are its SMs, or the stand-in's cores."""
    kind = node["kind"]
    if kind == "simulated":
        return DeviceLimits(kind, int(config["simulated"]["mig_slices"]))
    if kind == "cpu" and units is not None:
        return DeviceLimits(kind, units)
    return DeviceLimits(kind, next((slices for name, slices in MIG_SLICES.items() if name in node["product"]), 7))
