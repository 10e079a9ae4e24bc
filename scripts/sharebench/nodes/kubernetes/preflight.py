"""What a cluster has for a study, which of its strategies it can do, and what each missing one needs."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from sharebench.matrix import Study
from sharebench.nodes.kubernetes import strangers
from sharebench.nodes.kubernetes.api import Api, ApiRefused, is_in_cluster
from sharebench.nodes.kubernetes.device_plugin import DevicePluginNode
from sharebench.nodes.kubernetes.installed import Installed, Part
from sharebench.nodes.kubernetes.rights import Right, is_allowed, needed

WIDTH = 26
ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"


def _row(name: str, text: str) -> str:
    return f"  {name:{WIDTH}}{text}"


def _part(part: Part | None) -> str:
    if part is None:
        return "not installed"
    manager = "GPU operator" if part.is_operators else "standalone"
    return f"{part.version} ({manager}, {part.namespace}/{part.name})"


def _has(api: Api, path: str) -> bool | None:
    """Whether the API server serves that path with something in it; None where it does not let us look."""
    try:
        found = api.find(path)
    except ApiRefused:
        return None
    return bool(found and found.get("items", True))


def _words(there: bool | None, otherwise: str = "not installed") -> str:
    return {True: "installed", False: otherwise, None: "unknown (we may not look)"}[there]


def what_is_installed(api: Api, installed: Installed) -> list[str]:
    """Rows on the parts of NVIDIA's stack."""
    configs = installed.configs
    return [
        _row("GPU operator", _words(_has(api, "/apis/nvidia.com/v1/clusterpolicies"))),
        _row("device plugin", _part(installed.plugin)),
        _row("  its ConfigMap", f"{configs.namespace}/{configs.name}" if configs else "none: it cannot be switched"),
        _row("GPU Feature Discovery", _part(installed.discovery)),
        _row("Node Feature Discovery", _words(_has(api, "/apis/nfd.k8s-sigs.io/v1alpha1"))),
        _row("MPS control daemon", _part(installed.mps)),
        _row("MIG manager", _part(installed.mig_manager)),
        _row("DRA driver", _words(_has(api, "/apis/resource.k8s.io/v1/deviceclasses/gpu.nvidia.com"))),
        _row("Prometheus operator", _words(_has(api, "/apis/monitoring.coreos.com/v1"))),
    ]


def pod_security(api: Api, namespace: str) -> str:
    """What the tenants' namespace demands of pods; ours satisfy the strictest. Empty where there is none."""
    try:
        found = api.find(f"/api/v1/namespaces/{namespace}")
    except ApiRefused:
        return "unknown (we may not look)"
    if found is None:
        return ""
    level = (found["metadata"].get("labels") or {}).get(ENFORCE_LABEL, "not set")
    return f"Pod Security {level}; the tenants satisfy restricted"


def missing_rights(api: Api, rights: list[Right], namespaces: Mapping[str, str | None]) -> list[str]:
    """One row for every right that we lack; `namespaces` says where each kind of place is."""
    rows = []
    for right in rights:
        namespace = namespaces[right.where]
        if not is_allowed(api, right, namespace):
            rows.append(_row("not allowed", f"{right} ({f'in {namespace}' if namespace else 'in the whole cluster'})"))
    return rows


def strategies(study: Study, node: DevicePluginNode) -> tuple[list[str], bool]:
    """A row for each strategy: with how many tenants it can be done, and why not with others; whether any can."""
    rows, is_any = [], False
    for name in dict.fromkeys(cell.strategy for cell in study.cells):
        sizes = sorted({cell.replicas for cell in study.cells if cell.strategy == name})
        reasons = {n: node.infeasible(study.strategies[name], n) for n in sizes}
        can = [str(n) for n, reason in reasons.items() if reason is None]
        is_any = is_any or bool(can)
        rows.append(_row(name, f"feasible with {', '.join(can)} tenants" if can else "not feasible"))
        for reason in dict.fromkeys(filter(None, reasons.values())):
            which = ", ".join(str(n) for n in sizes if reasons[n] == reason)
            rows.append(_row("", f"not with {which}: {reason}"))
    return rows, is_any


def inspect(study: Study) -> tuple[list[str], bool]:
    """The lines of the report, and whether the study could run. Raises NodeError where the cluster cannot be asked."""
    with tempfile.TemporaryDirectory() as folder:
        node = DevicePluginNode(study.node_options(), Path(folder))
        api, options = node.api, node.options
        version = api.get("/version")["gitVersion"]
        lines = [f"cluster: Kubernetes {version}, node {node.name}, {node.gpus} GPU(s)"]
        lines += ["installed:", *what_is_installed(api, node.installed)]
        namespace = options["namespace"]
        demands = pod_security(api, namespace)
        exists = bool(demands)
        said = demands or "does not exist: kubectl create namespace, or `make cluster-install`"
        lines.append(_row(f"namespace {namespace}", said))
        rows, is_any = strategies(study, node)
        lines += ["strategies:", *rows]
        inside = options["reach"] == "pod-ip" or (options["reach"] == "auto" and is_in_cluster())
        plugin = node.installed.plugin
        places = {"cluster": None, "plugin": plugin.namespace if plugin else None, "tenants": namespace}
        lacking = missing_rights(api, needed(options, inside), places)
        lines += ["rights:", *(lacking or [_row("", "all that is needed")])]
        found = strangers.gpu_pods(node.pods())
        lines += ["others:", _row("", strangers.refusal(found) if found else "no GPU pods of others on the node")]
        is_free = not found or options["drain"]
        return lines, is_any and exists and not lacking and is_free
