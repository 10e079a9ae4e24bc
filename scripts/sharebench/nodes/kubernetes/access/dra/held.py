"""Claims that outlast a cell: as long as the node is in a state, a pod without work keeps them prepared.

Under MPS the driver starts a control daemon when a claim's first pod comes, and stops it after the last one, which
takes longer than the start of the tenants. So cells of one state use the same claims, and the same daemons.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from secrets import token_hex
from typing import Any

from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import State
from sharebench.nodes.kubernetes.access.dra import claims as dra_claims
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL, OWNER_LABEL
from sharebench.nodes.kubernetes.cluster.restricted import idle_pod

HELD_PREFIX = "sharebench-held-"


def outlasts_cells(strategy: Strategy) -> bool:
    """Whether the strategy's claims belong to its state, and not to each of its cells."""
    return strategy.mechanisms[-1] == "mps"


def name_prefix(cluster: Cluster) -> str:
    """What the names of the node's held claims begin with, before the name within the cell."""
    return f"{HELD_PREFIX}{cluster.digest}"


def strategy_of_state(state: State) -> Strategy:
    """The strategy with the limits of the state, as a cell's spec has them."""
    limits = state.strategy.limits(state.replicas or 1)
    found: dict[str, Any] = {key: tuple(own) if isinstance(own, list) else own for key, own in limits.items()}
    return replace(state.strategy, **found)


def held_claims(cluster: Cluster, strategy: Strategy, found: Sequence[dra_claims.DeviceGroup]) -> list[Json]:
    """The claims for these devices, under their names in the cluster."""
    wanted = dra_claims.build_claims(strategy, found)
    asked = hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]
    labels = {OWNER_LABEL: cluster.digest, HELD_LABEL: asked}
    return [
        each | {"metadata": {"name": f"{name_prefix(cluster)}-{each['metadata']['name']}", "labels": labels}}
        for each in wanted
    ]


def holder_pod(cluster: Cluster, held: Sequence[Json]) -> Json:
    """The pod that keeps these claims prepared, under a name of its own: one before it may still be ending."""
    names = [each["metadata"]["name"] for each in held]
    made = idle_pod(
        cluster.name, cluster.options, f"{name_prefix(cluster)}-{token_hex(4)}", held[0]["metadata"]["labels"]
    )
    (container,) = made["spec"]["containers"]
    container["resources"]["claims"] = [{"name": name} for name in names]
    made["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in names]
    return made


def are_held(wanted: Sequence[Json], claims: Sequence[Json], pods: Sequence[Json]) -> bool:
    """Whether these very claims are there, and a pod that runs holds them."""
    labels = wanted[0]["metadata"]["labels"]
    alike = [each for each in claims if each["metadata"].get("labels") == labels]
    holders = [each for each in pods if each["metadata"].get("labels") == labels]
    return (len(alike) == len(wanted)) and any(each["status"].get("phase") == "Running" for each in holders)


def tenant_consumers(claim: Json) -> list[Json]:
    """The consumers for which a claim is reserved, but for who holds it."""
    reserved: list[Json] = claim["status"].get("reservedFor") or []
    return [each for each in reserved if not each["name"].startswith(HELD_PREFIX)]
