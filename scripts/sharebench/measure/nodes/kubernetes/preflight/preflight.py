"""Preflight: what a cluster has installed for a study, which strategies are feasible, and which rights are missing."""

import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from sharebench.core import emphasis
from sharebench.core.files import REPOSITORY, Refusal
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.device_plugin import keys
from sharebench.measure.nodes.kubernetes.access.device_plugin.mig_manager import map_file
from sharebench.measure.nodes.kubernetes.access.dra.nvidia import find_driver
from sharebench.measure.nodes.kubernetes.cluster import foreign_pods, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Api, ApiRefused, Json, is_in_cluster
from sharebench.measure.nodes.kubernetes.cluster.cluster import closed_reasons
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import (
    CONFIG_LABEL,
    POLICY_KIND,
    SHARING_LABEL,
    allocatable,
)
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.kubernetes.preflight.lost_state import state_lines
from sharebench.measure.nodes.kubernetes.preflight.pods import infeasible_reason, own_taints, taint_text, workload_rows
from sharebench.measure.nodes.kubernetes.preflight.report import ReportRow
from sharebench.measure.nodes.kubernetes.preflight.rights import (
    OWN_NAMESPACE,
    Right,
    is_allowed,
    manifest_of,
    needed_rights,
)
from sharebench.model.config_nodes import NodeOptions
from sharebench.model.study_config import StudyConfig, uses_several_devices
from sharebench.study.study import Study
from sharebench.study.wrong_answers import wrong_answer_lines

PREFLIGHT_RETRY_SECONDS = 10.0
# Of Argo CD and Flux.
GITOPS_NAME = re.compile(r"argocd\.argoproj\.io/|(kustomize|helm)\.toolkit\.fluxcd\.io/")


def installed_rows(node: ClusterNode) -> Iterator[ReportRow]:
    """Rows for the components that the study's accesses use. Missing ones make strategies infeasible."""
    stack, accesses = node.cluster.installed, node.cluster.options["accesses"]
    facts = node.facts()
    memory, driver = facts["memory_bytes"], facts["details"]["driver"]
    gpu = [f"{node.gpus} x {facts['product']}", f"{memory >> 20} MiB" if memory else "memory unknown"]
    yield ReportRow("GPU", ", ".join([*gpu, f"driver {driver or 'unknown'}"]))
    if "device-plugin" in accesses:
        labels = node.cluster.labels()
        offered = ", ".join(f"{name} {count}" for name, count in allocatable(node.cluster.read_node()).items())
        sharing = labels.get(SHARING_LABEL, "none").replace("none", "nothing")
        by_label = f", by label {CONFIG_LABEL}={labels[CONFIG_LABEL]}" if CONFIG_LABEL in labels else ""
        yield ReportRow("offered now", f"{offered or 'no GPU'}, shared by {sharing}{by_label}")
        components = {
            "device plugin": stack.plugin,
            "GPU Feature Discovery": stack.discovery,
            "MPS control daemon": stack.mps,
            "MIG manager": stack.mig_manager,
        }
        for name, found in components.items():
            policy = found.owner(POLICY_KIND) if found else None
            manager = f"{POLICY_KIND} {policy}" if policy else "standalone"
            text = f"{found.version} ({manager}, {found.namespace}/{found.name})" if found else "not installed"
            yield ReportRow(name, text)
        if (config_map := stack.config_map) is not None:
            default, keeper = config_map.default or "not set", None
            with suppress(NodeError):
                current = node.cluster.api.get(config_map.path)
                keeper, key = _keeper(current), keys.hidden_key(current, config_map)
                default += f": {key}, the only one, which a run also names {keys.NAMED_KEY}" if key else ""
            yield ReportRow("ConfigMap of the plugin", f"{config_map.namespace}/{config_map.name}, default {default}")
            if keeper is not None:
                yield ReportRow("", f"{keeper}: GitOps may remove a run's keys, and the plugin crash then; pause it")
    if "dra" in accesses and (gpu_facts := node.access("dra").describe()):
        gates = ", ".join(gpu_facts["dra_gates"] or []) or "none"
        driver = find_driver(node.cluster.daemon_sets())
        version = f"{driver.version} ({driver.manager}, {driver.namespace})" if driver else "version unknown"
        yield ReportRow("DRA driver", f"{version}, gates that are on: {gates}")


def _keeper(config_map: Json) -> str | None:
    """The label or annotation by which GitOps, which restores what others change, knows the ConfigMap; None if none."""
    metadata = config_map["metadata"]
    names = [*(metadata.get("labels") or {}), *(metadata.get("annotations") or {})]
    return next((name for name in names if GITOPS_NAME.match(name)), None)


def node_rows(node: ClusterNode) -> tuple[list[ReportRow], bool]:
    """Rows on what keeps pods or a run away from the node; whether it takes pods."""
    now = node.cluster.read_node()
    other = node.cluster.other_run_problem(now)
    closed = [*filter(None, [*closed_reasons(now), *_daemons_kept_away(node), state_lines(node)[0], other])]
    said = [*closed]
    if other is None and saved_state.load(now) is not None:
        said.append("a run has left it changed: the next run restores it, or sharebench restore")
    with suppress(ApiRefused):
        if (holder := node.holder()) is not None:
            said.append(f"in use by {holder}")
    return [ReportRow("", each) for each in said or ["ready, and no run has changed it"]], not closed


def _daemons_kept_away(node: ClusterNode) -> Iterator[str]:
    """Lines on the owner's taints that parts of NVIDIA's stack do not tolerate, which a switch may restart."""
    is_switched = "device-plugin" in node.cluster.options["accesses"]
    for taint in own_taints(node.cluster.read_node()) if is_switched else ():
        if names := node.cluster.installed.intolerant(taint):
            yield (
                f"its taint {taint_text(taint)} keeps away new pods of {', '.join(names)}, which a switch restarts; "
                "add it to the tolerations of the plugin's chart, or of the ClusterPolicy (daemonsets.tolerations)"
            )


def missing_right_rows(
    api: Api, manifests: Mapping[str, Iterable[Right]], namespaces: Mapping[str, str | None], objects: Mapping[str, str]
) -> list[ReportRow]:
    """Rows for the missing rights of each folder of config/cluster, and one with what grants them.

    `namespaces` has the namespace of each `Right.where`, None for the whole cluster, and `objects` the name of each
    `Right.object`. No right is needed for a namespace or an object that does not exist.
    """
    rows: list[ReportRow] = []
    for folder, rights in manifests.items():
        needed = [each for each in rights if each.where in namespaces and (not each.object or each.object in objects)]
        missing = [
            right for right in needed if not is_allowed(api, right, namespaces[right.where], objects.get(right.object))
        ]
        for right in missing:
            where, name = namespaces[right.where], objects.get(right.object)
            place = f"in {where}" if where else "in the whole cluster"
            rows.append(ReportRow("not allowed", f"{right}{f' {name}' if name else ''} ({place})"))
        rows += [ReportRow("", _grant_hint(folder, namespaces))] if missing else []
        if names := ", ".join(sorted({objects[right.object] for right in missing if right.object})):
            rows.append(ReportRow("", f"with {names} among its resourceNames, where these are listed"))
    return rows


def _grant_hint(folder: str, namespaces: Mapping[str, str | None]) -> str:
    path = manifest_of(folder).parent.relative_to(REPOSITORY)
    if namespaces["tenants"] != OWN_NAMESPACE:
        return f"granted by {path}, in a kustomization for {namespaces['tenants']} (docs/cluster/install.md, Rights)"
    place = f"--namespace {namespaces['plugin']} " if "plugin" in path.parts else ""
    return f"kubectl apply {place}-k {path}"


def strategy_rows(study: Study, node: ClusterNode) -> tuple[list[ReportRow], bool]:
    """Rows with each strategy's feasible numbers of tenants and the reasons against others; whether any is feasible."""
    rows, is_any = [], False
    for name in sorted({cell.strategy for cell in study.cells}, key=list(study.strategies).index):
        sizes = sorted({cell.replicas for cell in study.cells if cell.strategy == name})
        reasons = {n: infeasible_reason(node, study.strategies[name], n) for n in sizes}
        feasible = [str(n) for n, reason in reasons.items() if reason is None]
        is_any = is_any or bool(feasible)
        rows.append(ReportRow(name, f"feasible with {', '.join(feasible)} tenants" if feasible else "not feasible"))
        for reason in dict.fromkeys(filter(None, reasons.values())):
            which = ", ".join(str(n) for n in sizes if reasons[n] == reason)
            rows.append(ReportRow("", f"not with {which}: {reason}"))
    return rows, is_any


def show(config: StudyConfig) -> int:
    """Print the report of `inspect`; returns 1 if the study could not run."""
    study = Study(config)
    if study.node_kind != "kubernetes":
        raise Refusal(
            f"preflight looks at a cluster, and the node is {study.node_kind!r}; add --configfile "
            "config/kubernetes.yaml, or your own with node: kubernetes"
        )
    options: list[NodeOptions] = [study.node_options()]
    try:
        if uses_several_devices(config, study.node_kind):
            # Without the right to list nodes, the report says so.
            with suppress(ApiRefused):
                options = [each.options for each in ClusterNode.devices(options[0])]
        reports = [inspect(study, each) for each in options]
    except NodeError as error:
        raise Refusal(f"failed: {error}") from None
    emphasis.show("\n".join(line for lines, _ in reports for line in lines))
    return 0 if all(is_fit for _, is_fit in reports) else 1


def inspect(study: Study, node_options: NodeOptions | None = None) -> tuple[list[str], bool]:
    """The report's lines on the study's node, or on one of several, and whether the study could run there.

    Raises NodeError if the cluster is unreachable.
    """
    with tempfile.TemporaryDirectory() as folder:
        node = ClusterNode(node_options or study.node_options(), Path(folder))
        api, options = node.cluster.api, node.cluster.options
        # A person waits, and a server that has never answered is more likely a wrong one than one that restarts.
        api.retry_limit_seconds = PREFLIGHT_RETRY_SECONDS
        version = api.get("/version")["gitVersion"]
        inside = options["reach"] == "pod-ip" or (options["reach"] == "auto" and is_in_cluster())
        rights = needed_rights(options, inside)
        try:
            lines, is_fit = _report(study, node, rights)
        except ApiRefused:
            objects = {}
            with suppress(NodeError):
                objects["node"] = node.cluster.name
            lacking = missing_right_rows(api, rights, {"cluster": None, "tenants": options["namespace"]}, objects)
            if not lacking:
                raise
            return [f"cluster: Kubernetes {version}", "rights:", *map(str, lacking)], False
        return [f"cluster: Kubernetes {version}, node {node.cluster.name}", *lines], is_fit


def _report(study: Study, node: ClusterNode, rights: Mapping[str, Iterable[Right]]) -> tuple[list[str], bool]:
    """The report of a cluster that lets us look, and whether the study could run there. Raises NodeError."""
    cluster, sections = node.cluster, {"installed": list(installed_rows(node))}
    namespace, stack = cluster.options["namespace"], cluster.installed
    sections["node"], is_open = node_rows(node)
    sections["strategies"], is_any = strategy_rows(study, node)
    sections["known to go wrong"] = [ReportRow("", line) for line in wrong_answer_lines(study)]
    places = {"cluster": None, "tenants": namespace} | ({"plugin": stack.plugin.namespace} if stack.plugin else {})
    objects = {"node": cluster.name} | ({"configs": stack.config_map.name} if stack.config_map else {})
    if stack.mig_manager is not None:
        objects["mig-map"] = map_file(stack.mig_manager, cluster.name).name
    lacking = missing_right_rows(cluster.api, rights, places, objects)
    sections["rights"] = lacking or [ReportRow("", "all that is needed")]
    found = cluster.foreign_pods()
    said = foreign_pods.refusal_message(found) if found else "no foreign GPU pods on the node"
    missing = list(_namespace_rows(cluster.api, namespace))
    sections["others"] = [ReportRow("", said), *missing]
    # Only then would the server say more than the rows above.
    sections["workloads"], is_accepted = ([], True) if missing or lacking else workload_rows(study, node)
    lines = [line for name, rows in sections.items() if rows for line in (f"{name}:", *map(str, rows))]
    return lines, is_open and is_any and is_accepted and not (missing or lacking or found)


def _namespace_rows(api: Api, name: str) -> Iterator[ReportRow]:
    try:
        is_there = api.find(f"/api/v1/namespaces/{name}") is not None
    except ApiRefused:
        # Without the right to read the namespace, only rights in it are known.
        return
    if not is_there:
        what = "apply -f config/cluster/namespace.yaml" if name == OWN_NAMESPACE else f"create namespace {name}"
        yield ReportRow(f"namespace {name}", f"does not exist: kubectl {what}")
