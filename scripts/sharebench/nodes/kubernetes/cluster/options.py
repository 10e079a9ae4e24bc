"""The options of a node in a cluster: the config's `kubernetes` section, with what `Study.node_options` adds."""

from typing import Literal, TypedDict


class Resources(TypedDict):
    """Quantities of one tenant; None sets none."""

    cpu: str | None
    memory: str | None


class Toleration(TypedDict):
    """As in a pod; None is any."""

    key: str | None
    operator: Literal["Exists", "Equal"]
    value: str | None
    effect: str | None


class ClusterOptions(TypedDict):
    """config/README.md explains the keys of the section; the last three are the study's."""

    context: str | None
    node: str
    namespace: str
    image: str
    python: str
    device: Literal["cuda", "cpu"]
    reach: Literal["auto", "pod-ip", "port-forward"]
    resources: Resources
    tolerations: list[Toleration]
    priority_class: str | None
    may_change: list[str]
    drain: bool
    switch_seconds: float
    stable_seconds: float
    publish_seconds: float
    accesses: list[str]
    """Every access that a strategy of the study uses."""
    tenants: dict[str, list[int]]
    """Numbers of tenants under the device plugin, by the inner mechanism."""
    has_pod_monitor: bool
    """Whether the run makes a PodMonitor."""
