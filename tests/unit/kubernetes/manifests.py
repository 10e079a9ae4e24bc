"""The objects that each strategy of the catalogue creates in a cluster, as manifests for its page and for dry runs."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest import mock

import yaml
from unit.kubernetes.fake_cluster import CONFIGS, NODE, MigCluster, node_of
from unit.kubernetes.objects import UUID, gpu, in_slice, instance
from unit.studies import CONFIG, base_config

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import Settings, State
from sharebench.measure.nodes.kubernetes.access.device_plugin import mig_manager, plugin, readers
from sharebench.measure.nodes.kubernetes.access.dra import held
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import MEMORY_LABEL
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.kubernetes.pods import manifest, tenants
from sharebench.measure.nodes.kubernetes.pods.watch import PodWatcher
from sharebench.model.capabilities import unsupported_reason
from sharebench.model.config.load import load
from sharebench.model.strategies import all_strategies, is_control
from sharebench.study.study import Study

TENANTS = 3
# Base64 of "left out", in place of data that change with the tenant's code.
LEFT_OUT = "bGVmdCBvdXQ="
UID = "00000000-0000-4000-8000-000000000000"
SETTINGS: Settings = {"timeouts": {"start_seconds": 600, "record_seconds": 60}, "cell_folder": "any"}

# Suffix of strategies that are also shown by claims.
BY_CLAIMS = "-by-claims"
CLAIMING = ("mps-limited", "mig-unequal", "mig-time-slicing", "mig-mps")
# Placements of an H200's instances, which the driver creates when they are claimed.
PLACES = {"1g.18gb": (7, "16Gi"), "2g.35gb": (3, "32Gi"), "3g.71gb": (2, "69Gi"), "7g.141gb": (1, "140Gi")}


class Recorder(MigCluster):
    """Gives every object a uid, like an API server, and offers three H200s, one of them also as MIG instances."""

    def find(self, path: str) -> Json | None:
        if path == "/apis/resource.k8s.io/v1":
            return {}
        if path == "/apis/resource.k8s.io/v1/resourceslices":
            parts = [
                instance(profile, number, memory=memory, is_made=False)
                for profile, (count, memory) in PLACES.items()
                for number in range(count)
            ]
            others = (gpu(minor, f"{UUID[:-1]}{minor + 1}", "140Gi") for minor in (1, 2))
            return {"items": [in_slice(gpu(memory="140Gi"), *others, *parts)]}
        return {"items": []} if path.endswith("/resourceclaims") else super().find(path)

    def create(self, path: str, body: Json) -> Json:
        made = super().create(path, body)
        if HELD_LABEL in body["metadata"].get("labels", {}) and body["kind"] == "Pod":
            self.tenants.append(made | {"status": {"phase": "Running"}})
        return made | {"metadata": made["metadata"] | {"uid": UID}}


def names() -> list[str]:
    """The strategies that a cluster supports, by their own access or by the device plugin; some also by claims."""
    config = load({**base_config(), "node": "simulated"})
    known = all_strategies(config)
    catalogue = config["strategy_catalogue"]
    supported = [name for name in catalogue if not unsupported_reason("kubernetes", known[name], "device-plugin")]
    return supported + [f"{name}{BY_CLAIMS}" for name in CLAIMING]


@contextmanager
def _opened(study: Study) -> Iterator[tuple[Recorder, ClusterNode]]:
    with ExitStack() as stack:
        cluster = Recorder()
        cluster.store[NODE]["metadata"]["labels"][MEMORY_LABEL] = "143771"
        for module in (plugin, readers, mig_manager):
            stack.enter_context(mock.patch.object(module, "time", cluster))
        stack.enter_context(mock.patch.object(PodWatcher, "start", lambda watcher: None))
        for module in (held, tenants):
            stack.enter_context(mock.patch.object(module, "token_hex", lambda size: "0" * 2 * size))
        stack.enter_context(mock.patch.object(manifest, "as_base64", lambda code: LEFT_OUT))
        stack.enter_context(mock.patch.dict(os.environ, {RUN_ID_VARIABLE: "any"}))
        node = node_of(cluster, study.node_options(), Path(stack.enter_context(tempfile.TemporaryDirectory())))
        node._lease.acquire("any")
        cluster.log.clear()
        yield cluster, node


def manifests(name: str) -> list[Json]:
    """What a cell of three tenants makes (of one, where the strategy has no three): the plugin's config, then the rest.

    Empty for a strategy that this node, whose GPU may be cut, cannot do. Settings of the node come as parts of a Node:
    its labels.
    """
    ready_made = yaml.safe_load((CONFIG / "kubernetes.yaml").read_text())
    if name.endswith(BY_CLAIMS):
        name = name.removesuffix(BY_CLAIMS)
        ready_made["kubernetes"]["access"] = "dra"
    ready_made["kubernetes"]["may_change"] = ["mig"]
    # Manifests differ between workloads only in their name.
    ready_made["workloads"] = ["matmul-16384"]
    study = Study(load(base_config() | ready_made | {"strategies": [name], "replicas": [TENANTS], "null_cells": False}))
    cell = next(cell for cell in study.cells if cell.strategy == name)
    spec, strategy = study.spec(cell), study.strategies[name]
    with _opened(study) as (cluster, node):
        if strategy.access == "device-plugin" and node.infeasible(strategy, cell.replicas) is not None:
            return []
        if strategy.access != "static":
            node.ensure(State(strategy, cell.replicas if strategy.depends_on_replicas else None, 0))
        settings: Settings = {**SETTINGS, "loads": cast(Any, [{"arrival": "closed"}] * cell.replicas)}
        node.tenants(spec, settings).start(node.grants(strategy, cell.replicas))
        changes = [found for entry in cluster.log if (found := _as_manifest(*entry)) is not None]
    # Pods are created at the same time, in no order.
    changes.sort(key=lambda each: each["metadata"]["name"] if each["kind"] == "Pod" else "")
    return changes


def _as_manifest(verb: str, path: str, body: Any) -> Json | None:
    if verb == "create":
        return dict(body)
    if verb == "patch" and path == CONFIGS:
        _, namespace, _, name = path.rsplit("/", 3)
        # Its annotations name the nodes that need the keys.
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": body["data"]}
    given = body["metadata"].get("labels") if verb == "patch" and path == NODE else None
    labels = {key: value for key, value in (given or {}).items() if value is not None}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-node", "labels": labels}} if labels else None


@cache
def made() -> dict[str, list[Json]]:
    """The manifests of each strategy that has any."""
    found = {name: manifests(name) for name in names() if not is_control(name)}
    return {name: documents for name, documents in found.items() if documents}
