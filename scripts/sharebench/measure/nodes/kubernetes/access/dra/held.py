"""Claims that outlast a cell: an idle pod, the holder, keeps them prepared while the node is in a state.

Under MPS the driver starts a control daemon for a claim's first pod and stops it after the last one, which takes longer
than the start of the tenants. So all cells of a state use the same claims and the same daemons.
"""

import hashlib
import json
from collections.abc import Sequence
from secrets import token_hex

from sharebench.measure.nodes.kubernetes.access.dra import claims as dra_claims
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL, OWNER_LABEL
from sharebench.measure.nodes.kubernetes.cluster.restricted import idle_pod
from sharebench.model.strategy import Strategy

HELD_PREFIX = "sharebench-held-"


def outlasts_cells(strategy: Strategy) -> bool:
    """Whether the strategy's claims belong to its state, not to each of its cells."""
    return strategy.mechanism[-1] == "mps"


def name_prefix(cluster: Cluster) -> str:
    """The beginning of the names of the node's held claims, before the name within the cell."""
    return f"{HELD_PREFIX}{cluster.digest}"


def held_claims(cluster: Cluster, strategy: Strategy, groups: Sequence[dra_claims.DeviceGroup]) -> list[Json]:
    """The claims for these devices, under their names in the cluster."""
    claims = dra_claims.build_claims(strategy, groups)
    digest = hashlib.sha256(json.dumps(claims, sort_keys=True).encode()).hexdigest()[:16]
    labels = {OWNER_LABEL: cluster.digest, HELD_LABEL: digest}
    return [
        claim | {"metadata": {"name": f"{name_prefix(cluster)}-{claim['metadata']['name']}", "labels": labels}}
        for claim in claims
    ]


def holder_pod(cluster: Cluster, held: Sequence[Json]) -> Json:
    """The pod that keeps these claims prepared; its name is unique, since an earlier one may still be ending."""
    names = [claim["metadata"]["name"] for claim in held]
    name, labels = f"{name_prefix(cluster)}-{token_hex(4)}", held[0]["metadata"]["labels"]
    pod = idle_pod(cluster.name, cluster.options, name, labels)
    (container,) = pod["spec"]["containers"]
    container["resources"]["claims"] = [{"name": name} for name in names]
    pod["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in names]
    return pod


def are_held(wanted: Sequence[Json], claims: Sequence[Json], pods: Sequence[Json]) -> bool:
    """Whether exactly the wanted claims exist and a running pod holds them."""
    labels = wanted[0]["metadata"]["labels"]
    matching = [claim for claim in claims if claim["metadata"].get("labels") == labels]
    holders = [pod for pod in pods if pod["metadata"].get("labels") == labels]
    return (len(matching) == len(wanted)) and any(pod["status"].get("phase") == "Running" for pod in holders)


def tenant_consumers(claim: Json) -> list[Json]:
    """The consumers for which a claim is reserved, without its holder pod."""
    reserved: list[Json] = claim["status"].get("reservedFor") or []
    return [consumer for consumer in reserved if not consumer["name"].startswith(HELD_PREFIX)]
