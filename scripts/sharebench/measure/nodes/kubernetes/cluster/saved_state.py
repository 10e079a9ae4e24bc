"""The state of a node before our first change, saved in an annotation of the node itself.

The annotation outlives the driver, so any later run can undo the changes of a dead one.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, cast

from sharebench.measure.nodes.kubernetes.cluster.api import Json

AccessState = Mapping[str, Any]
"""State saved by one access, as JSON."""
SavedState = dict[str, AccessState]
"""State saved by each access, by the access's name."""

ANNOTATION = "sharebench/original-state"
RUN = "run"
"""The key of the facts of the run that changed the node first, next to the names of accesses."""


class RunFacts(TypedDict, total=False):
    """Empty of version 0.1."""

    namespace: str
    """Namespace of its tenants, and without a device plugin of the node's Lease."""
    pod_monitor: bool
    """Whether it may have left a PodMonitor there."""


def dump(state: SavedState | None) -> str | None:
    """The annotation's text, or None to remove it."""
    return None if state is None else json.dumps(state, sort_keys=True)


def _parse(node: Json) -> Json | None:
    text = (node["metadata"].get("annotations") or {}).get(ANNOTATION)
    return dict(json.loads(text)) if text else None


def load(node: Json) -> SavedState | None:
    """The node's saved state; None if nothing of the node was changed."""
    found = _parse(node)
    return None if found is None else {name: state for name, state in found.items() if name != RUN}


def run_facts(node: Json) -> RunFacts:
    return cast(RunFacts, (_parse(node) or {}).get(RUN) or {})


def load_access(node: Json, access: str) -> AccessState | None:
    """The state saved by an access; None if it has changed nothing."""
    return (load(node) or {}).get(access)


def memory_mib(node: Json) -> int | None:
    """Memory of the whole GPU before MIG was enabled; None if no access saved it."""
    return next((state["memory_mib"] for state in (load(node) or {}).values() if "memory_mib" in state), None)


def is_another_node_measured(nodes: Sequence[Json], name: str) -> bool:
    """Whether a node other than `name` is being measured too, whose run may use what all nodes share."""
    return any(load(node) is not None for node in nodes if node["metadata"]["name"] != name)
