"""The cluster and its node as every way to the GPU needs them: API, pods, NVIDIA's stack, saved state, taint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from sharebench.core.run_record import RUN_ID_VARIABLE
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster import claims_api, foreign_pods, saved_state
from sharebench.nodes.kubernetes.cluster.api import Api, ApiRefused, Json
from sharebench.nodes.kubernetes.cluster.node_choice import chosen
from sharebench.nodes.kubernetes.cluster.nvidia_stack import Installed, look


class Cluster:
    """One node of a cluster, by the config's `kubernetes` section with the study's `accesses` and `tenants`.

    `took` journals how long a phase of a switch lasted, in seconds.
    """

    def __init__(self, options: Mapping[str, Any], took: Callable[[str, float], None]) -> None:
        self.options = options
        self.took = took

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
        """What of NVIDIA's stack there is."""
        return look(self.daemon_sets(), self.pods())

    def refresh_installed(self) -> None:
        """Forget what was installed: it has been changed."""
        self.__dict__.pop("installed", None)

    def refuse_foreign_pods(self) -> None:
        """Raise NodeError when GPU pods of others are on the node, after their eviction where that is allowed."""
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

    def note(self, access: str, make: Callable[[Json], Json]) -> Json:
        """The node's note of its original state in this way; made by `make` from the node where there is none yet."""
        node = self.read()
        noted = saved_state.of(node) or {}
        if access not in noted:
            noted[access] = make(node)
            self.write_note(noted)
        found: Json = noted[access]
        return found

    def amend_note(self, access: str, changed: Json) -> None:
        """Replace the note of this way by one that tells more of what was changed."""
        self.write_note((saved_state.of(self.read()) or {}) | {access: changed})

    def write_note(self, noted: Json | None) -> None:
        """Replace the notes of all accesses; None removes them."""
        self.api.patch(self.path, {"metadata": {"annotations": {saved_state.ANNOTATION: saved_state.text(noted)}}})
