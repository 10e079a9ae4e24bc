"""Whether a node has room for the CPUs and the memory that tenants request."""

from collections.abc import Iterable, Sequence
from decimal import Decimal

from sharebench.core.console import format_count
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import ENDED_PHASES, OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import exact_quantity


def _request(container: Json, resource: str) -> Decimal:
    resources = container.get("resources") or {}
    # A limit is the request, too, where none is given.
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return exact_quantity(amounts.get(resource, 0))


def _requested(pod: Json, resource: str) -> Decimal:
    """What a pod requests, as the scheduler counts it."""
    inits = pod["spec"].get("initContainers") or []
    staying = [*pod["spec"]["containers"], *(each for each in inits if each.get("restartPolicy") == "Always")]
    together = sum((_request(each, resource) for each in staying), Decimal(0))
    return max([together, *(_request(each, resource) for each in inits)])


def shortages(tenants: Sequence[Json], node: Json, pods: Iterable[Json]) -> list[str]:
    """A line for each resource of which these tenants request more than the node's other pods leave."""
    others = [
        pod
        for pod in pods
        if OWNER_LABEL not in (pod["metadata"].get("labels") or {})
        and pod.get("status", {}).get("phase") not in ENDED_PHASES
    ]
    lines = []
    for name in ("cpu", "memory"):
        wanted, used = (sum((_requested(pod, name) for pod in several), Decimal(0)) for several in (tenants, others))
        offered = exact_quantity(node["status"]["allocatable"].get(name, 0))
        left = max(offered - used, Decimal(0))
        if wanted > left:
            lines.append(
                f"{format_count(len(tenants), 'tenant requests', 'tenants request')} {_shown(name, wanted)}, and "
                f"other pods leave {_shown(name, left)} of the node's {_shown(name, offered)}"
            )
    return lines


def _shown(resource: str, amount: Decimal) -> str:
    return f"{float(amount):.3g} CPUs" if resource == "cpu" else f"{amount / 2**30:.1f} GiB"
