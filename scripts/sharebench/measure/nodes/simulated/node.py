"""The simulated node: virtual time, latencies drawn from analytic models with planted parameters.

For tests and what-if studies, never chosen by `auto`. With S SMs, N tenants, a slice of k SMs, and a workload whose
iteration takes a seconds that no SM shortens and w SM-seconds that spread over the SMs (a + w/S alone):

* time-slicing: N (a + w/S) (1 + eps) for N >= 2, eps being the cost of switching over the slice;
* MPS and streams: a + N w/S; with a thread limit p at least a + w/floor(p S), which is all of it in green contexts;
* MIG: a + w/k; layered, the inner rule inside the slice.

In a mix of closed loads each tenant has its own a and w, and the rule assumes that its neighbours are as busy.

A file `outage.json` in the node's folder simulates a failing device: {"strategies": [...]} cannot be set up,
{"cells": [folders]} fail, {"cells_left": n} fails everything after n more cells, {"tenants": {folder: status}} ends
tenant 0 with that status.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from sharebench.measure.nodes.contract import (
    DeviceOptions,
    Evidence,
    Grant,
    NodeError,
    Settings,
    State,
    Tenants,
    item,
)
from sharebench.measure.nodes.node import Node
from sharebench.measure.nodes.simulated.load import has_model
from sharebench.measure.nodes.simulated.tenants import SimulatedTenants
from sharebench.model.records.types import Host, NodeFacts, TenantStatus
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy, slice_count
from sharebench.model.workload import Workload
from tenant.contract import TenantReport

if TYPE_CHECKING:
    from sharebench.model.config_nodes import NodeOptions, SimulatedOptions

LABEL = "simulated"


class SimulatedNode(Node):
    """A GPU that exists only in the config."""

    kind = "simulated"
    options: "SimulatedOptions"

    @classmethod
    def devices(cls, options: "NodeOptions") -> list[DeviceOptions]:
        count = cast("SimulatedOptions", options)["devices"]
        return [DeviceOptions(options, None)] * count

    def facts(self) -> NodeFacts:
        product = f"{self.options['product']} (simulated)"
        details = {key: value for key, value in self.options.items() if key != "devices"}
        identity = json.dumps(details, sort_keys=True) + ("" if self.number is None else f" {self.number}")
        return {
            "kind": self.kind,
            "device": hashlib.sha256(identity.encode()).hexdigest()[:16],
            "product": product,
            "units": self.options["sms"],
            "units_name": "SMs",
            "memory_bytes": int(self.options["memory_gib"] * (1 << 30)),
            "is_gpu": False,
            "label": LABEL,
            "details": {key: value for key, value in details.items() if key != "product"},
        }

    def host_facts(self) -> Host:
        return {"machine": self.device, "boot": None, "cpu": None, "topology": None}

    def infeasible(self, strategy: Strategy, replicas: int, workloads: Sequence[Workload] = ()) -> str | None:
        if (unknown := _unknown(strategy)) is not None:
            return unknown
        sizes = list(map(slice_count, strategy.layout(replicas)))
        if sum(sizes) > self.options["mig_slices"]:
            each = "/".join(map(str, sorted(set(sizes))))
            return f"{len(sizes)} instances of {each} slice(s) do not fit into {self.options['mig_slices']} slices"
        return strategy.profile_shortage(replicas)

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        return [Grant(index, index % strategy.group_count(replicas)) for index in range(replicas)]

    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        expected = State(strategy, len(grants) if strategy.depends_on_replicas else None, 0)
        current = (self.current() or "none").partition(" block ")[0]
        return [item("state", expected.setting, current, "node")]

    def tenants(self, spec: Spec, settings: Settings) -> Tenants:
        return SimulatedTenants(spec, settings, self.options, self._planted_status)

    def _planted_status(self, folder: str) -> TenantStatus | None:
        """The status with which tenant 0 of the cell ends, if any. Raises NodeError for a cell that fails."""
        outage = self._outage()
        if folder in outage.get("cells", []) or outage.get("cells_left") == 0:
            raise NodeError("the simulated device does not answer")
        if "cells_left" in outage:
            self._outage_file.write_text(json.dumps(outage | {"cells_left": outage["cells_left"] - 1}))
        status: TenantStatus | None = outage.get("tenants", {}).get(folder)
        return status

    def switch(self, state: State | None) -> None:
        if state is not None and state.strategy.name in self._outage().get("strategies", []):
            raise NodeError(f"the simulated device cannot be set to {state.strategy.name}")
        self.mark_old_state_left()

    def plan(self, strategy: Strategy) -> str:
        return _unknown(strategy) or "changes nothing; the device is simulated"

    @property
    def _outage_file(self) -> Path:
        return self.folder / "outage.json"

    def _outage(self) -> dict[str, Any]:
        return dict(json.loads(self._outage_file.read_text())) if self._outage_file.exists() else {}


def _unknown(strategy: Strategy) -> str | None:
    """The reason why its cells cannot be simulated; None if they can."""
    inner = strategy.mechanism[-1]
    return None if has_model(inner) else f"the simulated node has no model of {inner}"
