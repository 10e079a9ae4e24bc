"""The saved state of a node: what it was like before the first change, in an annotation of the node itself.

The annotation outlives the driver, so that any later run can undo what a dead one left.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sharebench.nodes.kubernetes.cluster.api import Json

AccessState = Mapping[str, Any]
"""What one access saved: a TypedDict of its own, as JSON."""
SavedState = dict[str, AccessState]
"""What each access saved, by the access's name."""

ANNOTATION = "sharebench/original-state"
TAINT = "sharebench/measuring"


def dump(state: SavedState | None) -> str | None:
    """The annotation's text; None removes it."""
    return None if state is None else json.dumps(state, sort_keys=True)


def load(node: Json) -> SavedState | None:
    """The node's saved state; None where nothing of the node was changed."""
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    return dict(json.loads(text)) if text else None


def load_access(node: Json, access: str) -> AccessState | None:
    """What that access saved; None where it has changed nothing."""
    return (load(node) or {}).get(access)


def memory_mib(node: Json) -> int | None:
    """Memory of the whole GPU before MIG was enabled; None where no access saved it."""
    return next((state["memory_mib"] for state in (load(node) or {}).values() if "memory_mib" in state), None)


def taints_without_ours(node: Json) -> list[Json]:
    return [taint for taint in node["spec"].get("taints") or [] if taint["key"] != TAINT]


def others_in_use(nodes: Sequence[Json], name: str) -> bool:
    """Whether another node than `name` is being measured, too; its run may need what all nodes share."""
    return any(load(node) is not None for node in nodes if node["metadata"]["name"] != name)
