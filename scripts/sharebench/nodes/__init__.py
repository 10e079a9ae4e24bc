"""The kinds of node: what is shared, and how it is put into the state of a strategy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sharebench.nodes.node import Node


def open_node(kind: str, options: Mapping[str, Any], folder: Path) -> Node:
    """The node of that kind; `options` is its config section, `folder` keeps its state. Imports only its driver."""
    if kind == "cpu":
        from sharebench.nodes.host.cpu import CpuNode

        return CpuNode(options, folder)
    if kind == "nvidia":
        from sharebench.nodes.host.nvidia import NvidiaNode

        return NvidiaNode(options, folder)
    if kind == "simulated":
        from sharebench.nodes.simulated.node import SimulatedNode

        return SimulatedNode(options, folder)
    if kind == "kubernetes":
        from sharebench.nodes.kubernetes.node import ClusterNode

        return ClusterNode(options, folder)
    raise ValueError(f"no driver for node {kind}")
