"""When a node counts as switched: labels, allocatable values and DaemonSet pods agree, twice in a row.

No signal is trusted alone. GPU Feature Discovery writes the labels, the kubelet the values, in either order; a name
that was registered once stays in the node's status with the value 0, and capacity lags behind.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sharebench.nodes.kubernetes.access.device_plugin.keys import RESOURCE
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.labels import (
    CONFIG_LABEL,
    MPS_LABEL,
    REPLICAS_LABEL,
    SHARING_LABEL,
    allocatable,
)
from sharebench.nodes.kubernetes.cluster.nvidia_stack import Daemon

# The first words of what differs.
LABEL, ALLOCATABLE = "label", "allocatable"


@dataclass(frozen=True)
class Expected:
    """What a switched node must show; the config label is None where it must be absent."""

    config: str | None
    sharing: str
    replicas: int
    gpus: int
    instances: Mapping[str, int] | None = None
    """What it must offer where MIG cuts its GPUs, by resource."""
    besides: Mapping[str, str] = field(default_factory=dict)
    """Labels that MIG adds or changes."""

    @property
    def allocatable(self) -> dict[str, int]:
        """What the node must offer, by resource: the tenants that it has room for."""
        return {RESOURCE: self.gpus * self.replicas} if self.instances is None else dict(self.instances)

    @property
    def labels(self) -> dict[str, str | None]:
        """The labels that it must have, None for one that must be absent."""
        return {
            CONFIG_LABEL: self.config,
            SHARING_LABEL: self.sharing,
            REPLICAS_LABEL: str(self.replicas),
            MPS_LABEL: "true" if self.sharing == "mps" else "false",
            **self.besides,
        }


def unmet(node: Json, daemons: Sequence[Daemon], mps: Daemon | None, expected: Expected) -> list[str]:
    """What still differs from the expected state, a line each; empty when nothing does.

    `daemons` must run in any state. `mps` is the MPS control daemon, which must run under MPS and be gone otherwise.
    """
    labels = node["metadata"].get("labels", {})
    is_mps = expected.sharing == "mps"
    found = [
        f"{LABEL} {name} is {labels.get(name, 'absent')}, not {value or 'absent'}"
        for name, value in expected.labels.items()
        if labels.get(name) != value
    ]
    values = allocatable(node)
    if values != expected.allocatable:
        found.append(f"{ALLOCATABLE} is {_listed(values) or 'nothing'}, not {_listed(expected.allocatable)}")
    found += filter(None, (daemon.unready() for daemon in daemons))
    if is_mps:
        missing = "the MPS control daemon has no DaemonSet" if mps is None else mps.unready()
        found += [missing] if missing else []
    elif mps is not None and mps.pod is not None:
        found.append("the MPS control daemon still runs")
    return found


def _listed(values: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(values.items()))


def is_about_pods(problems: Iterable[str]) -> bool:
    """Whether one of the findings of `unmet` is about the pods of a DaemonSet, not about what the node shows."""
    return any(problem.split()[0] not in (LABEL, ALLOCATABLE) for problem in problems)


class Stability:
    """Two polls in a row, `apart_seconds` or more from the first to the last, without anything unmet."""

    def __init__(self, apart_seconds: float) -> None:
        self._apart_seconds = apart_seconds
        self.since_seconds: float | None = None
        """Since when nothing was found; None while something is."""

    def holds(self, now_seconds: float, problems: Sequence[str]) -> bool:
        """Take one poll's findings; True once nothing was found for long enough."""
        if problems:
            self.since_seconds = None
            return False
        if self.since_seconds is None:
            self.since_seconds = now_seconds
            return False
        return now_seconds - self.since_seconds >= self._apart_seconds
