"""What all our pods have in common: the measured node, tolerations of its taints, and no rights."""

from collections.abc import Mapping

from sharebench.core.config_nodes import ClusterOptions
from sharebench.nodes.kubernetes.cluster.api import Json
from sharebench.nodes.kubernetes.cluster.saved_state import TAINT

# Kubernetes' user without rights: images without a user of their own run as root, which restricted namespaces refuse.
USER = 65532
GRACE_SECONDS = 2
# Autoscalers that know one of these leave the pod's node alone.
NO_DISRUPTION_ANNOTATIONS = {
    "karpenter.sh/do-not-disrupt": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
SECURITY: Json = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
}
SECURITY_OF_POD: Json = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def pod_spec(node: str, options: ClusterOptions) -> Json:
    """The spec of a pod on the node, without containers; it runs once, without access to the API."""
    tolerations = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in (TAINT, "nvidia.com/gpu")]
    given = [{key: value for key, value in each.items() if value is not None} for each in options["tolerations"]]
    on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    spec: Json = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [on_node]}}
        },
        "tolerations": [*tolerations, *given],
        "securityContext": SECURITY_OF_POD,
    }
    if options["priority_class"] is not None:
        spec["priorityClassName"] = options["priority_class"]
    return spec


# Ends when it is asked to, although the first process of a container is deaf to signals that it does not handle.
IDLE = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit()); signal.pause()"
IDLE_REQUESTS = {"cpu": "10m", "memory": "64Mi"}


def idle_pod(node: str, options: ClusterOptions, name: str, labels: Mapping[str, str], first: str = "") -> Json:
    """A pod without work, which keeps what it was given as long as it is there; `first` is the Python that it runs."""
    container = {
        "name": "idle",
        "image": options["image"],
        "command": [options["python"], "-c", first + IDLE],
        "resources": {"limits": IDLE_REQUESTS | {"cpu": "100m"}, "requests": dict(IDLE_REQUESTS)},
        "securityContext": SECURITY,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels), "annotations": NO_DISRUPTION_ANNOTATIONS},
        "spec": pod_spec(node, options) | {"containers": [container]},
    }


def waits(status: Json) -> str:
    """What a pod's status says of why it does not run."""
    conditions = [each["message"] for each in status.get("conditions") or () if each.get("message")]
    waiting = [each.get("state", {}).get("waiting", {}) for each in status.get("containerStatuses") or ()]
    said = [" ".join(each[key] for key in ("reason", "message") if each.get(key)) for each in [*waiting, status]]
    return "; ".join(filter(None, [*said, *conditions])) or f"phase {status.get('phase', 'unknown')}"
