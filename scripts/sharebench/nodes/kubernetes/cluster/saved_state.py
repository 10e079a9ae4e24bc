"""The node as it was found: noted on the node itself before the first change, and brought back from there.

A note on the node outlives the driver, so that any later run can undo what a dead one left.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sharebench.nodes.kubernetes.cluster.api import Json

ANNOTATION = "sharebench/original-state"
TAINT = "sharebench/measuring"


def text(noted: Json | None) -> str | None:
    """The annotation with the notes of all accesses, by their names; None removes it."""
    return None if noted is None else json.dumps(noted, sort_keys=True)


def of(node: Json) -> dict[str, Any] | None:
    """The notes on the node, by access; None where nothing of it was changed."""
    written = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    found: dict[str, Any] | None = json.loads(written) if written else None
    return found


def of_access(node: Json, access: str) -> dict[str, Any] | None:
    """The note of one access; None where it has changed nothing."""
    found: dict[str, Any] | None = (of(node) or {}).get(access)
    return found


def memory_mib(node: Json) -> int | None:
    """Memory of the whole GPU as it was shown before MIG cut it; None where nothing was noted."""
    return next((each["memory_mib"] for each in (of(node) or {}).values() if "memory_mib" in each), None)


def taints_without_ours(node: Json) -> list[Json]:
    """The node's taints but ours."""
    return [taint for taint in node["spec"].get("taints") or [] if taint["key"] != TAINT]


def others_in_use(nodes: Sequence[Json], name: str) -> bool:
    """Whether another node is being measured too, whose runs may need what all nodes share."""
    return any(of(node) is not None for node in nodes if node["metadata"]["name"] != name)
