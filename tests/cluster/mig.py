"""Helpers for tests of MIG on a test bed."""

from __future__ import annotations

from cluster.harness import Cluster, eventually

MIG_LABEL, STATE = "nvidia.com/mig.config", "mig.config.state"
ONE_G, TWO_G, THREE_G = ("nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb")
PAUSABLE = "gpu.deploy.device-plugin"


def configure(cluster: Cluster, mig_config: str, plugin_config: str = "mig-mixed") -> str:
    """Set both labels; returns the manager's final state. It ignores a value that it has seen last."""
    cluster.set_label(plugin_config)
    if cluster.labels().get("mig.config") == mig_config:
        return cluster.labels()[STATE]
    cluster.set_label(None, f"nvidia.com/{STATE}")
    cluster.set_label(mig_config, MIG_LABEL)
    return eventually("an end state", lambda: ended_state(cluster))


def ended_state(cluster: Cluster) -> str | None:
    state = cluster.labels().get(STATE)
    return state if state in ("success", "failed") else None


def await_allocatable(cluster: Cluster, wanted: dict[str, int]) -> None:
    eventually(f"allocatable {wanted}", lambda: offered(cluster) == wanted)


def offered(mig: Cluster) -> dict[str, int]:
    return {name: count for name, (_, count) in mig.resources().items() if count}
