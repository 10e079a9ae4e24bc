"""What a cluster has for a study, which of its strategies it can do, and what each missing one needs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from sharebench.matrix import Study
from sharebench.nodes.base import NodeError
from sharebench.nodes.kubernetes import parts, strangers
from sharebench.nodes.kubernetes.api import Api, is_in_cluster
from sharebench.nodes.kubernetes.cluster_node import ClusterNode
from sharebench.nodes.kubernetes.rights import OWN_NAMESPACE, Right, is_allowed, needed
from sharebench.nodes.kubernetes.survey import Part, Row, Survey
from sharebench.strategies import Strategy

PATIENCE_SECONDS = 10.0
# In the order in which they are shown. What serves another access or collector adds its own.
PARTS: tuple[Part, ...] = (
    parts.operator,
    parts.device_plugin,
    parts.discovery,
    parts.mps,
    parts.mig_manager,
    parts.dra_driver,
    parts.prometheus,
    parts.gpu,
    parts.namespace,
)


def missing_rights(
    api: Api, manifests: Mapping[str, tuple[Right, ...]], namespaces: Mapping[str, str | None]
) -> list[Row]:
    """A row for every right that we lack, and one with the command that grants those of a manifest.

    `namespaces` says where each kind of place is, and None for the whole cluster; what has no place is not needed.
    """
    rows = []
    for manifest, rights in manifests.items():
        asked = [right for right in rights if right.where in namespaces]
        lacking = [right for right in asked if not is_allowed(api, right, namespaces[right.where])]
        for right in lacking:
            where = namespaces[right.where]
            rows.append(Row("not allowed", f"{right} ({f'in {where}' if where else 'in the whole cluster'})"))
        if lacking:
            # Roles of the plugin's namespace name none: it is not the same everywhere.
            in_plugin = any(right.where == "plugin" for right in asked)
            place = f" --namespace {namespaces['plugin']}" if in_plugin else ""
            rows.append(Row("", f"kubectl apply{place} -f config/cluster/{manifest}"))
            if namespaces["tenants"] != OWN_NAMESPACE and any(right.where == "tenants" for right in lacking):
                rows.append(Row("", f"with {namespaces['tenants']} in place of its namespace {OWN_NAMESPACE}"))
    return rows


def _infeasible(node: ClusterNode, strategy: Strategy, replicas: int) -> str | None:
    try:
        return node.infeasible(strategy, replicas)
    except NodeError as problem:
        return str(problem)


def strategies(study: Study, node: ClusterNode) -> tuple[list[Row], bool]:
    """A row for each strategy: with how many tenants it can be done, and why not with others; whether any can."""
    rows, is_any = [], False
    for name in dict.fromkeys(cell.strategy for cell in study.cells):
        sizes = sorted({cell.replicas for cell in study.cells if cell.strategy == name})
        reasons = {n: _infeasible(node, study.strategies[name], n) for n in sizes}
        can = [str(n) for n, reason in reasons.items() if reason is None]
        is_any = is_any or bool(can)
        rows.append(Row(name, f"feasible with {', '.join(can)} tenants" if can else "not feasible"))
        for reason in dict.fromkeys(filter(None, reasons.values())):
            which = ", ".join(str(n) for n in sizes if reasons[n] == reason)
            rows.append(Row("", f"not with {which}: {reason}"))
    return rows, is_any


def inspect(study: Study) -> tuple[list[str], bool]:
    """The lines of the report, and whether the study could run. Raises NodeError where the cluster cannot be asked."""
    with tempfile.TemporaryDirectory() as folder:
        node = ClusterNode(study.node_options(), Path(folder))
        survey = Survey(study, node)
        api, options = node.api, node.options
        # A person waits for the answer, and a server that never answered is a wrong one rather than one that restarts.
        api.patience_seconds = PATIENCE_SECONDS
        version = api.get("/version")["gitVersion"]
        lines = [f"cluster: Kubernetes {version}, node {node.name}, {node.gpus} GPU(s)", "installed:"]
        lines += [str(row) for part in PARTS for row in part(survey)]
        rows, is_any = strategies(study, node)
        lines += ["strategies:", *map(str, rows)]
        inside = options["reach"] == "pod-ip" or (options["reach"] == "auto" and is_in_cluster())
        plugin = node.installed.plugin
        places = {"cluster": None, "tenants": options["namespace"]} | ({"plugin": plugin.namespace} if plugin else {})
        lacking = missing_rights(api, needed(options, inside), places)
        lines += ["rights:", *map(str, lacking or [Row("", "all that is needed")])]
        found = strangers.gpu_pods(node.pods(), options["namespace"])
        said = strangers.refusal(found) if found else "no GPU pods of others on the node"
        lines += ["others:", str(Row("", said))]
        is_free = not found or options["drain"]
        exists = survey.look(f"/api/v1/namespaces/{options['namespace']}") != {}
        return lines, is_any and exists and not lacking and is_free
