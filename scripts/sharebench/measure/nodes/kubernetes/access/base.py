"""Access: how a strategy's tenants reach the GPU of a cluster's node. `ClusterNode` has one object per access."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, cast

from sharebench.measure.nodes.contract import Evidence, Grant, State
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.reservation import Reserved
from sharebench.measure.nodes.kubernetes.cluster.saved_state import AccessState
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy
from tenant.contract import DeviceView, TenantReport


class GpuDescription(TypedDict, total=False):
    """Facts of the node's GPU; None for those that are unknown."""

    product: str
    memory_bytes: int | None
    driver: str | None
    gpus: int
    uuid: str | None
    """UUID of the GPU that cells use."""
    dra_driver: str | None
    dra_gates: list[str] | None
    """Feature gates of the DRA driver that are on."""


def view_of(record: TenantReport) -> DeviceView:
    """The tenant's report of its device; empty if it reported nothing."""
    return record.get("view") or cast(DeviceView, {})


@dataclass(frozen=True)
class PodNeeds:
    """The parts of a tenant's pod manifest that give it its share of the GPU.

    `limits` are quantities by resource. `claims` are ResourceClaims of the cell (`cell_objects`), by name, each with
    the request that the tenant uses, None for all. With `claims_prefix`, they are other claims whose names begin so.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, str | None] = field(default_factory=dict)
    claims_prefix: str | None = None
    is_template: bool = False
    """Whether `claims` are templates, from which each pod gets claims of its own."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    scheduler: str | None = None


class Access(ABC):
    """One way to the GPU of a cluster's node. `spec` is always a cell's spec."""

    name: str
    runs_mps = False
    """Whether MPS daemons of this access outlast a cell, so that `restart_mps` can restart them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def needs_cordon(self) -> bool:
        """Whether a switch waits for new pods that our taint keeps away."""
        return False

    @abstractmethod
    def missing(self) -> str | None:
        """What the cluster lacks for every strategy with this access; None if nothing."""

    @abstractmethod
    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        """Why `replicas` tenants cannot use the strategy with this access; None if they can."""

    def is_in_state(self, state: State) -> bool:
        """Whether the node is still in the state that was set last. Raises NodeError if someone else changed it."""
        return True

    def ensure(self, state: State) -> None:  # noqa: B027
        """Bring the node into the state and wait until it is there. Raises NodeError.

        Called while the node is reserved, without foreign pods on the GPU. `Cluster.save_access` saves what is to be
        changed first.
        """

    def restart_mps(self) -> None:  # noqa: B027
        """Restart a suspect MPS daemon; `ensure` is called next. Raises NodeError if only its owner can do that.

        Called with our taint set, or before the node was ever reserved.
        """

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        """One grant per tenant; the parts of the GPU are distributed round-robin."""
        return [Grant(index, index % strategy.group_count(replicas)) for index in range(replicas)]

    @abstractmethod
    def pod_needs(self, spec: Spec, grant: Grant) -> PodNeeds:
        """The parts of this tenant's pod manifest. Changes nothing."""

    def cell_objects(self, spec: Spec) -> list[Json]:
        """Objects that the cell needs next to its pods; `metadata.name` is the name within the cell. Changes nothing.

        The cell's ConfigMap owns them, so they are deleted with it.
        """
        return []

    @abstractmethod
    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        """Evidence, read while the tenants still run, that the strategy is active."""

    def start_failure(self, waiting: Sequence[str], seconds: float) -> str | None:
        """Why the waiting pods, given by name, will never start, if their status does not show it; None otherwise.

        Called repeatedly; `seconds` is the time since the cell's pods were created.
        """
        return None

    def clean_up(self, is_run_over: bool = False) -> None:  # noqa: B027
        """Wait until the cell's objects are gone, and with `is_run_over` those of its state too. Raises NodeError.

        Called after the cell's pods and ConfigMap are gone.
        """

    def restore(self, state: AccessState) -> None:  # noqa: B027
        """Undo what `ensure` changed on the node; `state` is what it had saved. Raises NodeError.

        Called while the node is reserved, for an access that saved something, before another one is used and after a
        run.
        """

    @abstractmethod
    def plan(self, strategy: Strategy) -> str:
        """A short description of what the strategy changes on the node, and how that is undone."""

    def describe(self) -> GpuDescription:
        """Facts of the node's GPU that this access knows."""
        return {}


def reserved_by(accesses: Iterable[Access]) -> Reserved:
    """How to keep other pods away from a node that these accesses switch."""
    return "cordon" if any(each.needs_cordon for each in accesses) else "taint"
