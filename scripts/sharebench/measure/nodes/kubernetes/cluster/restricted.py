"""The base of all our pods: they run on the measured node, tolerate its taints, and have no rights."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.reservation import CORDON_TAINT, TAINT

if TYPE_CHECKING:
    from sharebench.model.config_nodes import ClusterOptions

# Images without a user of their own would run as root, which restricted namespaces refuse.
USER_ID = 65532
GRACE_SECONDS = 2
LEVEL = "restricted"
LEVEL_LABEL = "pod-security.kubernetes.io/enforce"
# Autoscalers that know one of these annotations do not remove the pod's node.
NO_DISRUPTION_ANNOTATIONS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
CONTAINER_SECURITY: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": USER_ID,
    "runAsGroup": USER_ID,
}
POD_SECURITY: Json = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def base_pod_spec(node: str, options: "ClusterOptions") -> Json:
    """The spec, without containers, of a pod that runs once on the node and has no access to the API."""
    tolerations = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (TAINT, "nvidia.com/gpu")]
    configured = [{key: value for key, value in each.items() if value is not None} for each in options["tolerations"]]
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    spec: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [on_node]}}
        },
        "tolerations": [*tolerations, *configured],
        "securityContext": POD_SECURITY,
    }
    if options["priority_class"] is not None:
        spec["priorityClassName"] = options["priority_class"]
    return spec


# The first process of a container ignores signals that it does not handle, so this one handles SIGTERM.
IDLE_PROGRAM = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
IDLE_REQUESTS = {"cpu": "10m", "memory": "64Mi"}


def idle_pod(node: str, options: "ClusterOptions", name: str, labels: Mapping[str, str], program: str = "") -> Json:
    """A pod that keeps its devices while it exists and does no work; it first runs `program`, which is Python."""
    container = {
        "name": "idle",
        "image": options["image"],
        "command": [options["python"], "-c", program + IDLE_PROGRAM],
        "resources": {"limits": IDLE_REQUESTS | {"cpu": "100m"}, "requests": dict(IDLE_REQUESTS)},
        "securityContext": CONTAINER_SECURITY,
    }
    spec = base_pod_spec(node, options)
    # It may be made during a switch, when the node is cordoned.
    spec["tolerations"].append({"key": CORDON_TAINT, "operator": "Exists", "effect": "NoSchedule"})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels), "annotations": NO_DISRUPTION_ANNOTATIONS},
        "spec": spec | {"containers": [container]},
    }


def waiting_reason(status: Json) -> str:
    """Why a pod does not run, by its status."""
    conditions = [each["message"] for each in status.get("conditions") or () if each.get("message")]
    waiting = [each.get("state", {}).get("waiting", {}) for each in status.get("containerStatuses") or ()]
    reasons = [" ".join(each[key] for key in ("reason", "message") if each.get(key)) for each in [*waiting, status]]
    return "; ".join(filter(None, [*reasons, *conditions])) or f"phase {status.get('phase', 'unknown')}"
