"""What a DRA driver is asked, and how: what an adapter of one driver must say."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sharebench.core.strategies import Strategy
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.claims_api import Device


@dataclass(frozen=True)
class Build:
    """What is known of the driver that runs: version (`v0.4.1`), feature gates, and its namespace."""

    version: str
    gates: Mapping[str, bool]
    namespace: str


class Driver(ABC):
    """One DRA driver: the names of its device classes and attributes, and its opaque configuration."""

    name: str
    """As in ResourceSlices."""
    whole_class: str
    part_class: str | None
    """DeviceClass of MIG instances, None where it has none."""
    product: str
    """Attribute that names the GPU model."""
    retriable_errors: tuple[str, ...] = ()
    """Parts of messages about a device that is not ready yet: the kubelet tries again."""
    fatal_errors: tuple[str, ...] = ()
    """Parts of messages after which trying again does not help."""

    @abstractmethod
    def is_plugin(self, container: Json) -> bool:
        """Whether a DaemonSet's container is the driver."""

    @abstractmethod
    def is_whole(self, device: Device) -> bool:
        """Whether the device is a whole GPU."""

    def profile(self, device: Device) -> str | None:
        """The MIG profile of an instance; None for anything else."""
        return None

    def parent(self, device: Device) -> str | None:
        """What instances of one GPU have in common; None for anything else."""
        return None

    @property
    @abstractmethod
    def parent_attribute(self) -> str:
        """The attribute of `parent`, in full."""

    @abstractmethod
    def by_id(self, device: Device) -> list[str]:
        """CEL expressions that are all true for this very GPU alone."""

    @abstractmethod
    def by_profile(self, device: Device) -> list[str]:
        """CEL expressions that are all true for the instances of this one's profile on its GPU."""

    @abstractmethod
    def lacks(self, strategy: Strategy, build: Build | None) -> str | None:
        """Why this driver, as it is set up, cannot do the strategy; None if it can. `build` is None where unknown."""

    @abstractmethod
    def parameters(self, strategy: Strategy, device: Device) -> Json | None:
        """The opaque configuration of a request for this device, or one like it; None to leave it to the driver.

        The strategy's limits are those of one tenant (`strategies.of_spec`).
        """

    @abstractmethod
    def identity(self, device: Device) -> str | None:
        """The id by which CUDA knows the device; None where the slice does not say."""

    @abstractmethod
    def shows(self, device: Device, strategy: Strategy) -> Json:
        """Parts of the `view` of a tenant with this device (`tenant.granted_device`), next to its identity."""

    @abstractmethod
    def daemons(self, deployments: Sequence[Json]) -> list[Json]:
        """Those Deployments that the driver made for claims."""
