"""The base class of all kinds of node, with the book-keeping that they share."""

import contextlib
import json
import platform
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from sharebench.core.files import DamagedFile, read_json, write_json
from sharebench.measure.nodes.contract import (
    DeviceOptions,
    Evidence,
    Grant,
    NodeError,
    Settings,
    State,
    Tenants,
)
from sharebench.model.records.types import Host, NodeFacts, Switch, VisibleProcess
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy
from sharebench.model.values import Kind
from sharebench.model.workload import Workload
from tenant.contract import TenantReport

if TYPE_CHECKING:
    from sharebench.model.config_nodes import NodeOptions, PrometheusOptions

UNKNOWN_STATE = "unknown"
"""Key of a state that belongs to no strategy: in between, dirty, or not known."""


class Characteristics(TypedDict):
    """Measured properties of a device: idle power, and peak rates in FLOP/s and bytes/s; None where unknown."""

    idle_power_watts: float | None
    roofs: dict[str, float] | None


class Node(ABC):
    """A device that can be put into the states of strategies.

    `folder` holds the node's current state and the journal of its switches.
    """

    kind: Kind
    # Whether the node may keep its last state after a run, until `restore`; false where a state needs running programs.
    state_outlives_run = True
    number: int | None = None
    """The number of the device, where a study measures on several."""

    def __init__(self, options: "NodeOptions", folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.switched: Switch | None = None
        """The last change of state by this object: the record's `switch`."""
        self._left_seconds: float | None = None
        self._phases: dict[str, float] = {}

    @property
    def host(self) -> str:
        """The machine's name in monitoring systems; never in a record."""
        return platform.node()

    @classmethod
    def devices(cls, options: "NodeOptions") -> list[DeviceOptions]:
        """The devices that a section of a config names. Raises NodeError."""
        return [DeviceOptions(options, None)]

    @property
    def device(self) -> str:
        """Hashed identity of the device."""
        return self.facts()["device"]

    @property
    def identity(self) -> str:
        """The identity of the device throughout a study (`references.device_identity`)."""
        return self.device

    @property
    def lock_path(self) -> Path | None:
        """The file whose lock reserves a host's device; None where the results' lock is enough."""
        return None

    @abstractmethod
    def facts(self) -> NodeFacts:
        """The record's `node` object."""

    @abstractmethod
    def host_facts(self) -> Host:
        """The record's `host` object."""

    def characterise(self) -> Characteristics:
        """Measure the device itself, where the kind of node can. Raises NodeError."""
        return {"idle_power_watts": None, "roofs": None}

    @abstractmethod
    def infeasible(self, strategy: Strategy, replicas: int, workloads: Sequence[Workload] = ()) -> str | None:
        """The reason why this device cannot give `replicas` tenants that strategy, or None.

        `workloads` are the specs of the tenants' workloads; empty means any workload.
        """

    def not_attempted(self, strategy: Strategy, workloads: Sequence[Workload]) -> str | None:
        """The reason why the harness does not attempt these workloads under a feasible strategy, or None."""
        return None

    def additions(self, workload: Workload) -> str | None:
        """What the node adds to a user's program, as a line of the plan; None if nothing."""
        return None

    @abstractmethod
    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        """One grant per tenant."""

    @abstractmethod
    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        """Evidence, collected after the window, that the strategy was active."""

    @abstractmethod
    def tenants(self, spec: Spec, settings: Settings) -> Tenants:
        """Tenants that run this cell's workloads on this node; `settings` has the resolved `loads`, one per tenant."""

    def visible_processes(self, pids: Sequence[int], since_seconds: float) -> list[VisibleProcess | None] | None:
        """Each tenant's process as the driver lists it, None for one that it does not list.

        Utilisation is a mean since an epoch time. None where nothing on this kind of node lists processes.
        """
        return None

    @abstractmethod
    def switch(self, state: State | None) -> None:
        """Put the device into the state, None being the original one. Raises NodeError.

        Calls `mark_old_state_left` in between, which separates the time of the way out from that of the way in.
        """

    def mark_old_state_left(self) -> None:
        """Note the moment at which the old state is gone; the time after it belongs to the new state."""
        self._left_seconds, self._phases = time.monotonic(), {}

    def note_phase(self, phase: str, seconds: float) -> None:
        """Add to the duration of one phase of entering the new state, for a node whose switch has several."""
        self._phases[phase] = self._phases.get(phase, 0.0) + seconds

    @abstractmethod
    def plan(self, strategy: Strategy) -> str:
        """A short text: what the strategy changes on the node and how that is undone."""

    def claim(self, run_id: str) -> None:  # noqa: B027
        """Reserve the node for this run, where a host's lock file cannot. Raises NodeError, with the owner's name."""

    def release(self) -> None:  # noqa: B027
        """Release what `claim` took. Raises NodeError."""

    def sweep(self) -> None:  # noqa: B027
        """Remove what a dead run left on the device. Raises NodeError."""

    def add_pod_monitor(self, options: "PrometheusOptions") -> None:
        """Have a cluster's Prometheus scrape all tenants of the run, until `restore`. Raises NodeError."""
        raise NodeError(f"the node {self.kind!r} cannot register its tenants with Prometheus; set prometheus.folder")

    def mark_dirty(self) -> None:  # noqa: B027
        """Set the state up again before its next use: a crashed tenant may have broken daemons that it shared."""

    def current(self) -> str | None:
        """Key of the node's current state, None for the original one."""
        try:
            key = read_json(self.folder / "state.json", "state")["state"]
        except FileNotFoundError:
            return None
        except DamagedFile:
            return UNKNOWN_STATE
        return key if key is None or isinstance(key, str) else UNKNOWN_STATE

    def ensure(self, state: State) -> None:
        """Put the device into the state unless it is there already. Raises NodeError."""
        if self.current() != state.key:
            self._change_state(state)

    def restore(self) -> bool:
        """Restore the device's original state; False when it was there already."""
        if self.current() is None:
            return False
        self._change_state(None)
        return True

    def _change_state(self, state: State | None) -> None:
        before, after = self.current(), state.key if state else None
        # Restoring must work on a full disk, too.
        with contextlib.suppress(OSError) if state is None else contextlib.nullcontext():
            self._write_state(UNKNOWN_STATE)
        began, self._left_seconds, self._phases = time.monotonic(), None, {}
        self.switch(state)
        left, ended = self._left_seconds, time.monotonic()
        self.switched = {
            "from": before,
            "out_seconds": None if left is None else left - began,
            "in_seconds": ended - (began if left is None else left),
        }
        if self._phases:
            self.switched["phases"] = self._phases
        with (self.folder / "journal.jsonl").open("a") as journal:
            line = {"epoch_seconds": time.time(), "to": after} | self.switched
            journal.write(json.dumps(line) + "\n")
        self._write_state(after)

    def _write_state(self, key: str | None) -> None:
        write_json(self.folder / "state.json", {"state": key})
