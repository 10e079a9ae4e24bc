"""Preflight's look at the pods of a study's workloads: what keeps them away from the node, or from starting."""

from collections.abc import Iterator, Sequence

from sharebench.measure.nodes.contract import NodeError, PlannedLoad
from sharebench.measure.nodes.kubernetes.access.base import PodNeeds
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import RESOURCE, config_for_strategy
from sharebench.measure.nodes.kubernetes.cluster import reservation
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused, Json
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import exact_quantity, is_tolerated
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.kubernetes.pods.manifest import CODE_VOLUME, TENANT_CONTAINER, Place, TenantPlan
from sharebench.measure.nodes.kubernetes.pods.overlay import apply_overlay
from sharebench.measure.nodes.kubernetes.pods.program import tenant_pod
from sharebench.measure.nodes.kubernetes.preflight import room
from sharebench.measure.nodes.kubernetes.preflight.report import ReportRow
from sharebench.model.spec import Spec
from sharebench.model.strategy import Strategy
from sharebench.model.workload import Workload
from sharebench.study.study import Study

# A pod's deadline, where no pod is made.
DRY_RUN_SECONDS = 60
# Set by Kubernetes for what `closed_reasons` reports; pods of DaemonSets tolerate them.
CLOSED_TAINTS = {f"node.kubernetes.io/{name}" for name in ("unschedulable", "not-ready", "unreachable")}
BUILT_IN = "built-in workloads"
# Keys of a pod that refer to an object of its namespace, with the object's kind.
REFERENCES = {
    **dict.fromkeys(("configMap", "configMapRef", "configMapKeyRef"), "configmaps"),
    **dict.fromkeys(("secret", "secretRef", "secretKeyRef"), "secrets"),
    "persistentVolumeClaim": "persistentvolumeclaims",
}
# One to spin while the tenant waits for the GPU, and one for its other threads.
SPINNING_CPUS = 2
# PyTorch's own image, of any version.
IMAGE_WITHOUT_AIOHTTP = "pytorch/pytorch"


def own_taints(node: Json) -> list[Json]:
    """The taints that the node's owner has set."""
    return [each for each in reservation.foreign_taints(node) if each["key"] not in CLOSED_TAINTS]


def taint_text(taint: Json) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def infeasible_reason(node: ClusterNode, strategy: Strategy, replicas: int) -> str | None:
    try:
        return node.infeasible(strategy, replicas)
    except NodeError as problem:
        return str(problem)


def workload_rows(study: Study, node: ClusterNode) -> tuple[list[ReportRow], bool]:
    """Rows on the pods of the workloads, by a dry run, the node's taints and its room; whether all of them can start.

    Pods of all built-in workloads differ in their programs only.
    """
    rows, is_accepted, taints = [], True, own_taints(node.cluster.read_node())
    specs = list(map(study.spec, study.cells))
    tenants = [(_name(workload), spec, index) for spec in specs for index, workload in enumerate(spec.workloads)]
    pods: dict[str, Json] = {}
    for name, spec, index in tenants:
        if name in pods:
            continue
        pod, workload = _pod(node.cluster, spec, index), spec.workloads[index]
        pods[name] = pod
        as_it_is = "runs as its manifest says" if workload.is_program else "run with kubernetes.image and resources"
        rows.append(ReportRow(name, node.additions(workload) or as_it_is))
        # An overlay may remove them.
        tolerations = pod["spec"].get("tolerations") or []
        problems = [
            f"the node's taint {taint_text(taint)} keeps it away; "
            f"kubernetes: {{tolerations: [{{key: {taint['key']}, operator: Exists, effect: {taint['effect']}}}]}}"
            for taint in taints
            if not is_tolerated(taint, tolerations)
        ]
        problems += _client_problems(node, workload)
        lacking, notes = _lacking_objects(node.cluster, pod)
        problems += lacking
        try:
            made = node.cluster.api.create(node.cluster.tenants_path, pod, dryRun="All")
            notes += [] if node.is_mock else _cpu_limit_notes(made)
        except ApiRefused as refused:
            problems.append(str(refused))
        rows += [ReportRow("", each) for each in [*problems, *notes]]
        is_accepted = is_accepted and not problems
    lacking, notes = _quota_lines(node, specs) if is_accepted else ([], [])
    lines = [*_room_problems(node, specs, pods), *lacking]
    return [*rows, *(ReportRow("", line) for line in [*lines, *notes])], is_accepted and not lines


def _name(workload: Workload) -> str:
    return workload.name if workload.is_program else BUILT_IN


def _pod(cluster: Cluster, spec: Spec, index: int, gpus: int = 1) -> Json:
    place, owner = Place(cluster.name, "preflight", cluster.options), {"metadata": {"uid": "preflight"}}
    load: PlannedLoad = {"arrival": "closed", "seed": 0, "before": 0}
    plan = TenantPlan(place, owner, spec, load, index, "", None, DRY_RUN_SECONDS)
    # Quotas and policies may be about GPUs alone.
    needs = PodNeeds(limits={RESOURCE: str(gpus)}) if _takes_gpu(spec) else PodNeeds()
    return apply_overlay(tenant_pod(plan, needs, cluster), cluster.options["pod"])


def _takes_gpu(spec: Spec) -> bool:
    return spec.strategy.access == "device-plugin" and spec.strategy.mechanism[0] != "mig"


def _cpu_limit_notes(pod: Json) -> list[str]:
    """A line on a CPU limit that is too low, whether from a manifest, kubernetes.pod or the namespace's LimitRange."""
    (tenant,) = (each for each in pod["spec"]["containers"] if each["name"] == TENANT_CONTAINER)
    limit = tenant.get("resources", {}).get("limits", {}).get("cpu")
    if limit is None or exact_quantity(limit) >= SPINNING_CPUS:
        return []
    return [
        f"a CPU limit of {limit} stops tenants that spin while they wait for the GPU; give none or {SPINNING_CPUS} "
        "in the manifest, kubernetes.pod or the LimitRange"
    ]


def _client_problems(node: ClusterNode, workload: Workload) -> list[str]:
    options = node.cluster.options
    image = options["client_image"] or options["image"]
    if not workload.is_program or workload.kind != "http" or not image.startswith(IMAGE_WITHOUT_AIOHTTP):
        return []
    return [
        "its client needs aiohttp, which PyTorch's image lacks; build envs/client.Containerfile and name it in "
        "kubernetes.client_image"
    ]


def references(part: object) -> Iterator[tuple[str, str]]:
    """Kind and name of each object of the namespace that a part of a pod cannot do without."""
    for key, value in part.items() if isinstance(part, dict) else ():
        if key in REFERENCES and isinstance(value, dict) and not value.get("optional"):
            yield REFERENCES[key], str(value.get("name") or value.get("secretName") or value.get("claimName"))
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from references(inner)


def _lacking_objects(cluster: Cluster, pod: Json) -> tuple[list[str], list[str]]:
    """Lines on objects that a pod refers to and that its namespace lacks, and on those that we may not look for."""
    namespace, unknown, lacking = cluster.options["namespace"], [], []
    spec = pod["spec"] | {"volumes": [each for each in pod["spec"]["volumes"] if each["name"] != CODE_VOLUME]}
    for kind, name in sorted(set(references(spec))):
        try:
            if cluster.api.find(f"/api/v1/namespaces/{namespace}/{kind}/{name}") is None:
                lacking.append(f"{kind}/{name} is not in namespace {namespace}; copy it there")
        except ApiRefused:
            unknown.append(f"{kind}/{name}")
    shown = ", ".join(unknown)
    return lacking, [f"without the right to see {shown}: make sure that namespace {namespace} has it"] if shown else []


def _gpus_at_once(node: ClusterNode, spec: Spec) -> int:
    """Number of GPUs that the namespace has at once: its tenants', or those of the placeholders before them."""
    if node.gpus == 1:
        return len(spec.workloads)
    return (
        node.gpus * config_for_strategy(spec.strategy, spec.replicas, node.cluster.max_tenants(spec.strategy)).replicas
    )


def _quota_lines(node: ClusterNode, specs: Sequence[Spec]) -> tuple[list[str], list[str]]:
    """A problem if the namespace's quota has too few GPUs for a cell, by a dry run of one pod with all; or a note."""
    feasible = (each for each in specs if infeasible_reason(node, each.strategy, each.replicas) is None)
    wanted = [(_gpus_at_once(node, spec), spec) for spec in filter(_takes_gpu, feasible)]
    if not wanted:
        return [], []
    gpus, spec = max(wanted, key=lambda each: each[0])
    try:
        node.cluster.api.create(node.cluster.tenants_path, _pod(node.cluster, spec, 0, gpus), dryRun="All")
    except ApiRefused as refused:
        if "exceeded quota" in str(refused):
            return [f"{gpus} GPUs are needed at once: {refused}"], []
        # No cell has such a pod, but a quota is asked last.
        return [], [f"make sure that a quota of the namespace has {gpus} GPUs; not tried, as in one pod: {refused}"]
    return [], []


def _room_problems(node: ClusterNode, specs: Sequence[Spec], tenants: dict[str, Json]) -> list[str]:
    """Lines on the largest cell of each resource that does not fit on the node."""
    here, pods = node.cluster.read_node(), node.cluster.pods()
    remedy = "; lower kubernetes.resources, or what the manifest requests, or replicas"
    for spec in sorted(specs, key=lambda each: -len(each.workloads)):
        lines = room.shortages([tenants[_name(each)] for each in spec.workloads], here, pods)
        if lines and infeasible_reason(node, spec.strategy, spec.replicas) is None:
            return [line + remedy for line in lines]
    return []
