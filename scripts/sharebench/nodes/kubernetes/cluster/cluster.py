"""The cluster and the node that is measured, as every access needs them: API, pods, NVIDIA's stack, saved state."""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property

from sharebench.core.config_nodes import ClusterOptions
from sharebench.core.run_record import RUN_ID_VARIABLE
from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster import claims_api, foreign_pods, saved_state
from sharebench.nodes.kubernetes.cluster.api import Api, Json, change
from sharebench.nodes.kubernetes.cluster.lease import node_digest
from sharebench.nodes.kubernetes.cluster.nvidia_stack import Installed, labels_of, look
from sharebench.nodes.kubernetes.cluster.saved_state import AccessState, SavedState

NODES = "/api/v1/nodes"
GPU_LABEL = "nvidia.com/gpu.present"


def chosen(nodes: Sequence[Json], wanted: str, offering: Collection[str] = ()) -> Json:
    """The node by its name, or the only one with a GPU for `auto`; DRA drivers offer theirs on nodes `offering`.

    Raises NodeError.
    """
    if wanted != "auto":
        found = [node for node in nodes if node["metadata"]["name"] == wanted]
        if not found:
            raise NodeError(f"the cluster has no node {wanted!r}; set kubernetes.node to one that it has")
        return found[0]
    found = [
        node
        for node in nodes
        if node["metadata"]["name"] in offering
        or labels_of(node).get(GPU_LABEL) == "true"
        or any(name.startswith("nvidia.com/") for name in node.get("status", {}).get("capacity", {}))
    ]
    if len(found) != 1:
        names = ", ".join(sorted(node["metadata"]["name"] for node in found))
        what = f"{len(found)} nodes have GPUs ({names})" if found else "no node has a GPU"
        raise NodeError(f"{what}; name the one to measure: kubernetes.node")
    return found[0]


def pool(api: Api, wanted: str | Sequence[str]) -> list[Json]:
    """The nodes of a list of names, or those with the labels of a selector, by their names. Raises NodeError."""
    if not isinstance(wanted, str):
        nodes = api.get(NODES)["items"]
        return [chosen(nodes, name) for name in wanted]
    if not (found := api.get(NODES, labelSelector=wanted)["items"]):
        raise NodeError(f"the cluster has no node with the labels {wanted!r}; see kubectl get nodes --show-labels")
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


class Cluster:
    """One node of a cluster.

    `note_phase` journals a phase of a switch and its duration in seconds.
    """

    def __init__(self, options: ClusterOptions, note_phase: Callable[[str, float], None]) -> None:
        self.options = options
        self.note_phase = note_phase

    @cached_property
    def api(self) -> Api:
        return Api(self.options["context"])

    @cached_property
    def name(self) -> str:
        """The node's name. Raises NodeError where none or several would do."""
        wanted, offering = str(self.options["node"]), set()
        if "dra" in self.options["accesses"] and wanted == "auto":
            offering = claims_api.nodes(self.api)
        return str(chosen(self.nodes(), wanted, offering)["metadata"]["name"])

    @property
    def digest(self) -> str:
        """Stands for the node's name in our labels and names."""
        return node_digest(self.name)

    @property
    def path(self) -> str:
        return f"{NODES}/{self.name}"

    @property
    def run_id(self) -> str:
        return os.environ.get(RUN_ID_VARIABLE, "")

    def read(self) -> Json:
        return self.api.get(self.path)

    def labels(self) -> Mapping[str, str]:
        return labels_of(self.read())

    def nodes(self) -> list[Json]:
        return list(self.api.get(NODES)["items"])

    def pods(self) -> list[Json]:
        return list(self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")["items"])

    def daemon_sets(self) -> list[Json]:
        return list(self.api.get("/apis/apps/v1/daemonsets")["items"])

    @property
    def tenants_path(self) -> str:
        return f"/api/v1/namespaces/{self.options['namespace']}/pods"

    @property
    def mine(self) -> str:
        """The selector of our objects for this node."""
        return f"{foreign_pods.OWNER_LABEL}={self.digest}"

    def held_pods(self) -> list[Json]:
        """The pods that keep what the node's state has: outlasting cells, placeholders or claims' holders."""
        return list(self.api.get(self.tenants_path, labelSelector=f"{self.mine},{foreign_pods.HELD_LABEL}")["items"])

    def most_tenants(self, strategy: Strategy) -> int:
        """The study's largest number of tenants under the strategy's innermost mechanism."""
        return max(self.options["tenants"].get(strategy.mechanisms[-1], [1]))

    @cached_property
    def installed(self) -> Installed:
        """The installed parts of NVIDIA's stack, as found first."""
        return look(self.daemon_sets(), self.pods())

    def refuse_foreign_pods(self) -> None:
        """Raise NodeError when foreign GPU pods run on the node."""
        if found := foreign_pods.gpu_pods(self.pods(), self.options["namespace"]):
            raise NodeError(foreign_pods.refusal(found))

    def set_taint(self, present: bool) -> None:
        """Add our taint to the node, or remove it. Raises NodeError."""
        ours = [{"key": saved_state.TAINT, "value": "true", "effect": "NoSchedule"}] if present else []

        def patch(node: Json) -> Json:
            taints = [*saved_state.taints_without_ours(node), *ours]
            return {} if taints == (node["spec"].get("taints") or []) else {"spec": {"taints": taints or None}}

        change(self.api, self.path, patch)

    def set_labels(self, labels: Mapping[str, str | None]) -> None:
        self.api.patch(self.path, {"metadata": {"labels": dict(labels)}})

    def saved_state(self) -> SavedState | None:
        """The node's saved state; None where nothing of the node was changed."""
        return saved_state.load(self.read())

    def write_saved_state(self, state: SavedState | None) -> None:
        """Replace the node's saved state; None removes it."""
        self.api.patch(self.path, {"metadata": {"annotations": {saved_state.ANNOTATION: saved_state.dump(state)}}})

    def save_access(self, access: str, state: AccessState) -> None:
        self.write_saved_state((self.saved_state() or {}) | {access: state})
