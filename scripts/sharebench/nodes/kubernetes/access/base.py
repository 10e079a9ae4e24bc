"""Access: how a strategy's tenants reach the GPU of a cluster's node. `ClusterNode` asks one object per access."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypedDict, cast

from sharebench.core.spec import Spec
from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import Evidence, Grant, State
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.nodes.kubernetes.cluster.saved_state import AccessState
from tenant.contract import DeviceView, TenantReport


class GpuDescription(TypedDict, total=False):
    """The node's GPU; None for what is not known."""

    product: str
    memory_bytes: int | None
    driver: str | None
    gpus: int
    uuid: str | None
    """That of the GPU which cells get."""
    dra_driver: str | None
    dra_gates: list[str] | None
    """Those that are on."""


def view_of(record: TenantReport) -> DeviceView:
    """What the tenant saw of its device; empty where it reported nothing."""
    return record.get("view") or cast(DeviceView, {})


@dataclass(frozen=True)
class PodNeeds:
    """What one tenant's pod needs to get its share of the GPU, as parts of its manifest.

    `limits` are quantities by resource; `claims` are ResourceClaims among the cell's `objects`, each with the
    request of it that is meant, None for all; with `claims_prefix` they are not the cell's, and their names begin so.
    """

    limits: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, str | None] = field(default_factory=dict)
    claims_prefix: str | None = None
    is_template: bool = False
    """Whether they are templates, of which each pod has claims of its own."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    scheduler: str | None = None


class Access(ABC):
    """One way to the GPU of the node in `cluster`. `spec` is a cell's spec everywhere."""

    name: str
    runs_mps = False
    """Whether MPS daemons of this access outlast a cell, and `restart_mps` can restart them."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @abstractmethod
    def missing(self) -> str | None:
        """What the cluster lacks for any strategy with this access; None if nothing."""

    @abstractmethod
    def infeasible(self, strategy: Strategy, replicas: int) -> str | None:
        """Why `replicas` tenants cannot have that strategy with this access; None if they can."""

    def holds(self, state: State) -> bool:
        """Whether the node, last set to this state, still is in it. Raises NodeError when somebody else changed it."""
        return True

    def ensure(self, state: State) -> None:  # noqa: B027
        """Bring the node into the state and wait until it is. Raises NodeError.

        Called with our taint off, and no foreign pod on the GPU. What is changed is saved on the node first
        (`Cluster.save_access`).
        """

    def restart_mps(self) -> None:  # noqa: B027
        """Restart a suspect MPS daemon; `ensure` comes next. Raises NodeError where only its owner can do that.

        Called with our taint on, or where it was never set.
        """

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        """One for each tenant, the parts of the GPU dealt to one after another."""
        return [Grant(index, index % strategy.group_count(replicas)) for index in range(replicas)]

    @abstractmethod
    def pod(self, spec: Spec, grant: Grant) -> PodNeeds:
        """What this tenant's pod needs. Changes nothing."""

    def objects(self, spec: Spec) -> list[Json]:
        """What the cell needs in the tenants' namespace next to its pods; `metadata.name` is the name within the cell.

        They belong to the cell's ConfigMap and go with it. Changes nothing.
        """
        return []

    @abstractmethod
    def evidence(self, strategy: Strategy, grants: Sequence[Grant], records: Sequence[TenantReport]) -> Evidence:
        """What proves, while the tenants still run, that the strategy is active."""

    def trouble(self, waiting: Sequence[str], seconds: float) -> str | None:
        """Why the pods of these names will not start, where their status does not say so; None while there is hope.

        Asked again and again; `seconds` is how long the cell's pods have been there.
        """
        return None

    def clean(self, is_over: bool = False) -> None:  # noqa: B027
        """Wait until the cell's `objects` are gone, once the run `is_over` those of its state, too. Raises NodeError.

        Their pods and ConfigMaps are gone already.
        """

    def restore(self, state: AccessState) -> None:  # noqa: B027
        """Undo what `ensure` changed on the node; `state` is what it had saved before. Raises NodeError.

        Called for an access that saved something, before another one is used and at the end of a run, with our taint
        off.
        """

    @abstractmethod
    def plan(self, strategy: Strategy) -> str:
        """In a few words: what the strategy changes on the node and how that is undone."""

    def describe(self) -> GpuDescription:
        """The node's GPU as this access knows it; empty where it knows nothing."""
        return {}
