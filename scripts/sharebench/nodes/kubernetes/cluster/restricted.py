"""What all our pods have in common: the measured node, tolerations of its taints, and no rights."""

from sharebench.core.study_config import ClusterOptions
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
