"""The cluster and the node that is measured, as every access needs them: API, pods, NVIDIA's stack, saved state."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cached_property

from sharebench.core.run_record import RUN_ID_VARIABLE
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster import claims_api, foreign_pods, saved_state
from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json
from sharebench.nodes.kubernetes.cluster.node_choice import chosen
from sharebench.nodes.kubernetes.cluster.nvidia_stack import Installed, look
from sharebench.nodes.kubernetes.cluster.options import ClusterOptions
from sharebench.nodes.kubernetes.cluster.saved_state import AccessState, SavedState


class Cluster:
    """One node of a cluster.

    `note_phase` journals a phase of a switch and its duration in seconds.
    """

    def __init__(self, options: ClusterOptions, note_phase: Callable[[str, float], None]) -> None:
        self.options = options
        self.note_phase = note_phase

    @cached_property
    def api(self) -> Api:
        """The API server."""
        return Api(self.options["context"])

    @cached_property
    def name(self) -> str:
        """The node's name. Raises NodeError where none or several would do."""
        wanted, offering = self.options["node"], set()
        if "dra" in self.options["accesses"] and wanted == "auto":
            offering = claims_api.nodes(self.api)
        return str(chosen(self.api.get("/api/v1/nodes")["items"], wanted, offering)["metadata"]["name"])

    @property
    def path(self) -> str:
        """The node's object in the API."""
        return f"/api/v1/nodes/{self.name}"

    @property
    def run_id(self) -> str:
        """The run that this process works for."""
        return os.environ.get(RUN_ID_VARIABLE, "")

    def read(self) -> Json:
        """The node's object."""
        return self.api.get(self.path)

    def pods(self) -> list[Json]:
        """All pods that are on the node or bound to it."""
        found: list[Json] = self.api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={self.name}")["items"]
        return found

    def daemon_sets(self) -> list[Json]:
        """All DaemonSets of the cluster."""
        found: list[Json] = self.api.get("/apis/apps/v1/daemonsets")["items"]
        return found

    @cached_property
    def installed(self) -> Installed:
        """The installed parts of NVIDIA's stack, as found first."""
        return look(self.daemon_sets(), self.pods())

    def refuse_foreign_pods(self) -> None:
        """Raise NodeError when foreign GPU pods run on the node; with `drain` they are evicted first."""
        found = foreign_pods.gpu_pods(self.pods(), self.options["namespace"])
        if found and self.options["drain"]:
            foreign_pods.drain(self.api, found, self.options["switch_seconds"])
        elif found:
            raise NodeError(foreign_pods.refusal(found))

    def set_taint(self, present: bool) -> None:
        """Add our taint to the node, or remove it."""
        for attempt in range(5):
            node = self.read()
            taints = saved_state.taints_without_ours(node)
            if present:
                taints.append({"key": saved_state.TAINT, "value": "true", "effect": "NoSchedule"})
            if taints == (node["spec"].get("taints") or []):
                return
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            try:
                self.api.patch(self.path, {"metadata": version, "spec": {"taints": taints or None}})
            except ApiRefused as refused:
                if refused.status != 409 or attempt == 4:
                    raise

    def saved_state(self) -> SavedState | None:
        """The node's saved state; None where nothing of the node was changed."""
        return saved_state.load(self.read())

    def write_saved_state(self, state: SavedState | None) -> None:
        """Replace the node's saved state; None removes it."""
        self.api.patch(self.path, {"metadata": {"annotations": {saved_state.ANNOTATION: saved_state.dump(state)}}})

    def save_access(self, access: str, state: AccessState) -> None:
        """Replace what that access saved."""
        self.write_saved_state((self.saved_state() or {}) | {access: state})
