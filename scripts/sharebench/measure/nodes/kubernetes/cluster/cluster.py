"""The measured node and its cluster, as every access needs them: API, pods, NVIDIA's stack, saved state."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster import claims_api, foreign_pods, reservation, restricted, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Api, ApiRefused, Json, conditions_of, patch_with_retry
from sharebench.measure.nodes.kubernetes.cluster.lease import node_digest
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import InstalledStack, find_stack, labels_of
from sharebench.measure.nodes.kubernetes.cluster.saved_state import AccessState, RunFacts, SavedState
from sharebench.model.strategy import Strategy

if TYPE_CHECKING:
    from sharebench.model.config_nodes import ClusterOptions

NODES = "/api/v1/nodes"
GPU_LABEL = "nvidia.com/gpu.present"


def select_node(nodes: Sequence[Json], wanted: str, dra_nodes: Collection[str] = ()) -> Json:
    """The node of the name `wanted`, or for `auto` the only one with a GPU. Raises NodeError.

    `dra_nodes` are the names of the nodes on which DRA drivers offer devices.
    """
    if wanted != "auto":
        found = [node for node in nodes if node["metadata"]["name"] == wanted]
        if not found:
            raise NodeError(f"the cluster has no node {wanted!r}; set kubernetes.node to one that it has")
        return found[0]
    found = [
        node
        for node in nodes
        if node["metadata"]["name"] in dra_nodes
        or labels_of(node).get(GPU_LABEL) == "true"
        or any(name.startswith("nvidia.com/") for name in node.get("status", {}).get("capacity", {}))
    ]
    if len(found) != 1:
        # What a run has left changed is the likeliest to be asked about.
        changed = [node["metadata"]["name"] for node in found if saved_state.load(node) is not None]
        names = sorted(node["metadata"]["name"] for node in found)
        problem = f"{len(found)} nodes have GPUs ({', '.join(names)})" if found else "no node has a GPU"
        problem += f", and a run has left {', '.join(changed)} changed" if changed else ""
        example = next(iter([*changed, *names]), "NAME")
        raise NodeError(f"{problem}; name the one to measure: --config 'kubernetes={{node: {example}}}'")
    return found[0]


def node_pool(api: Api, wanted: str | Sequence[str]) -> list[Json]:
    """The nodes of a list of names, or those that match a label selector, sorted by name. Raises NodeError."""
    if not isinstance(wanted, str):
        nodes = api.get(NODES)["items"]
        return [select_node(nodes, name) for name in wanted]
    if not (nodes := api.get(NODES, labelSelector=wanted)["items"]):
        raise NodeError(f"the cluster has no node with the labels {wanted!r}; see kubectl get nodes --show-labels")
    return sorted(nodes, key=lambda node: str(node["metadata"]["name"]))


def node_unready_reason(node: Json) -> str | None:
    ready = conditions_of(node).get("Ready")
    if ready is None or ready["status"] == "True":
        return None
    return ": ".join(filter(None, ["the node is not ready", ready.get("reason"), ready.get("message")]))


def closed_reasons(node: Json) -> list[str]:
    """Why the node takes no tenants; empty if it does."""
    cordon = f"the node is cordoned: kubectl uncordon {node['metadata']['name']}"
    return [*filter(None, [cordon if reservation.is_cordoned_by_others(node) else None, node_unready_reason(node)])]


class Cluster:
    """One node of a cluster. `note_phase` journals a phase of a switch and its duration in seconds."""

    def __init__(self, options: "ClusterOptions", note_phase: Callable[[str, float], None]) -> None:
        self.options = options
        self.note_phase = note_phase

    @cached_property
    def api(self) -> Api:
        return Api(self.options["context"])

    @cached_property
    def name(self) -> str:
        """The node's name. Raises NodeError unless exactly one node qualifies."""
        wanted, dra_nodes = str(self.options["node"]), set()
        if "dra" in self.options["accesses"] and wanted == "auto":
            dra_nodes = claims_api.nodes_with_devices(self.api)
        return str(select_node(self.nodes(), wanted, dra_nodes)["metadata"]["name"])

    @property
    def digest(self) -> str:
        """Digest that stands for the node's name in our labels and object names."""
        return node_digest(self.name)

    @property
    def path(self) -> str:
        return f"{NODES}/{self.name}"

    @property
    def run_id(self) -> str:
        return os.environ.get(RUN_ID_VARIABLE, "")

    def read_node(self) -> Json:
        return self.api.get(self.path)

    def read_own_node(self) -> Json:
        """The node, whose saved state may be changed by us. Raises NodeError if it is another run's."""
        node = self.read_node()
        if (problem := self.other_run_problem(node)) is not None:
            raise NodeError(problem)
        return node

    def labels(self) -> Mapping[str, str]:
        return labels_of(self.read_node())

    def nodes(self) -> list[Json]:
        return list(self.api.get(NODES)["items"])

    def pods(self) -> list[Json]:
        return list(self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")["items"])

    def daemon_sets(self) -> list[Json]:
        return list(self.api.get("/apis/apps/v1/daemonsets")["items"])

    @cached_property
    def pod_security(self) -> str:
        """The level of Pod Security that the tenants' namespace enforces; restricted if it may not be read."""
        try:
            namespace = self.api.find(f"/api/v1/namespaces/{self.options['namespace']}")
        except ApiRefused:
            return restricted.LEVEL
        if namespace is None:
            return restricted.LEVEL
        return labels_of(namespace).get(restricted.LEVEL_LABEL, "privileged")

    @property
    def run_facts(self) -> RunFacts:
        """The facts of our run."""
        return {"namespace": self.options["namespace"], "pod_monitor": self.options["has_pod_monitor"]}

    @property
    def tenants_path(self) -> str:
        return f"/api/v1/namespaces/{self.options['namespace']}/pods"

    @property
    def owner_selector(self) -> str:
        """Label selector of our objects for this node."""
        return f"{foreign_pods.OWNER_LABEL}={self.digest}"

    def held_pods(self) -> list[Json]:
        """The pods that belong to the node's state and outlast its cells: placeholders, or holders of claims."""
        selector = f"{self.owner_selector},{foreign_pods.HELD_LABEL}"
        return list(self.api.get(self.tenants_path, labelSelector=selector)["items"])

    def held_statuses(self) -> dict[str, Json]:
        return {pod["metadata"]["name"]: pod["status"] for pod in self.held_pods()}

    def max_tenants(self, strategy: Strategy) -> int:
        """The study's largest number of tenants under the strategy's innermost mechanism."""
        return max(self.options["tenants"].get(strategy.mechanism[-1], [1]))

    @cached_property
    def installed(self) -> InstalledStack:
        """The installed components of NVIDIA's stack, as first read."""
        return find_stack(self.daemon_sets(), self.pods())

    def foreign_pods(self, ended_too: bool = False) -> list[Json]:
        return foreign_pods.gpu_pods(self.pods(), self.options["namespace"], ended_too)

    def refuse_foreign_pods(self) -> None:
        """Raise NodeError if foreign GPU pods run on the node."""
        if found := self.foreign_pods():
            raise NodeError(foreign_pods.refusal_message(found))

    def reserve(self, by: reservation.Reserved | None) -> None:
        """Keep other pods away from the node, or with None give it back to them. Raises NodeError."""
        patch_with_retry(self.api, self.path, lambda node: reservation.patch(node, by))

    @contextmanager
    def reserved(self, by: reservation.Reserved) -> Iterator[None]:
        """Reserve the node for a restore and then give it back. Raises NodeError, but not where that is refused."""
        try:
            self.reserve(by)
        except NodeError:
            # Pods of DaemonSets, which a restore restarts, do not tolerate our taint.
            self.reserve(None)
        try:
            yield
        finally:
            self.reserve(None)

    def set_labels(self, labels: Mapping[str, str | None]) -> None:
        self.api.patch(self.path, {"metadata": {"labels": dict(labels)}})

    def saved_state(self) -> SavedState | None:
        return saved_state.load(self.read_node())

    def other_run_problem(self, node: Json) -> str | None:
        """Whose the node's saved state is, if it is that of a run whose Lease we do not look at; None otherwise."""
        namespace = saved_state.run_facts(node).get("namespace", self.options["namespace"])
        if namespace == self.options["namespace"] or self.installed.plugin is not None:
            return None
        return (
            f"a run in namespace {namespace} has changed the node, and its Lease is there, since there is no device "
            f"plugin; wait for it to end, or restore the node with kubernetes.namespace: {namespace} (where that is "
            "gone, or not allowed: docs/cluster/security.md, Undo without this tool)"
        )

    def write_saved_state(self, state: SavedState | None) -> None:
        """Replace the node's saved state; None removes it. Raises NodeError, also if it is another run's."""

        def patch(node: Json) -> Json:
            if (problem := self.other_run_problem(node)) is not None:
                raise NodeError(problem)
            run = saved_state.run_facts(node) or self.run_facts
            text = saved_state.dump(None if state is None else {**state, saved_state.RUN: run})
            return {"metadata": {"annotations": {saved_state.ANNOTATION: text}}}

        # A run in another namespace may write its own at the same moment.
        patch_with_retry(self.api, self.path, patch)

    def save_access(self, access: str, state: AccessState) -> None:
        self.write_saved_state((self.saved_state() or {}) | {access: state})
