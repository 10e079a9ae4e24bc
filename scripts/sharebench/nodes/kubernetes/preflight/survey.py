"""What preflight knows of a cluster, and how its rows are made; each part of the stack adds rows of its own.

A part is a function from a `Survey` to rows, in the module of what it speaks about and in `preflight.PARTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json
from sharebench.nodes.kubernetes.cluster.options import ClusterOptions
from sharebench.nodes.kubernetes.node import ClusterNode
from sharebench.study.study import Study

WIDTH = 26
HIDDEN = "unknown (we may not look)"


class Row(NamedTuple):
    """A line of the report; an empty name continues the row before."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"  {self.name:{WIDTH}}{self.text}"


@dataclass(frozen=True)
class Survey:
    """A cluster, the node to measure in it, and the study."""

    study: Study
    node: ClusterNode

    @property
    def api(self) -> Api:
        """The cluster."""
        return self.node.cluster.api

    @property
    def options(self) -> ClusterOptions:
        """The node's options."""
        return self.node.cluster.options

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        found: Mapping[str, str] = self.node.cluster.read()["metadata"].get("labels") or {}
        return found

    def look(self, path: str) -> Json | None:
        """What is at the path, {} where there is nothing; None where the API server does not let us look."""
        try:
            return self.api.find(path) or {}
        except ApiRefused:
            return None

    def presence(self, path: str, otherwise: str = "not installed") -> str:
        """`installed` if the API server serves the path, with something in it if that is a list."""
        found = self.look(path)
        if found is None:
            return HIDDEN
        return "installed" if found and found.get("items", True) else otherwise


Part = Callable[[Survey], Iterable[Row]]
