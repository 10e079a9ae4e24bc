"""The pods with a config-manager that reads the plugin's ConfigMap: plugin, GPU Feature Discovery and MPS daemon."""

import sys
import time
from datetime import datetime

from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused, Json, pod_path
from sharebench.measure.nodes.kubernetes.cluster.cluster import Cluster
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import CONFIG_LABEL, labels_of

SYNC_ANNOTATION = "sharebench/configs-changed"
# The kubelet syncs a pod's volumes every minute (syncFrequency), or up to half a minute later.
KUBELET_SYNC_SECONDS = 95.0
# By how much the clocks of a node and of the driver may differ.
CLOCK_SECONDS = 60.0


def _readers(cluster: Cluster, pods: list[Json]) -> list[Json]:
    installed = cluster.installed
    parts = filter(None, (installed.plugin, installed.discovery, installed.mps))
    owners = {part.daemon_set["metadata"]["uid"] for part in parts}
    return [
        pod
        for pod in pods
        if owners & {owner["uid"] for owner in pod["metadata"].get("ownerReferences") or ()}
        and not pod["metadata"].get("deletionTimestamp")
    ]


def force_sync(cluster: Cluster) -> None:
    """Wait until the kubelet has updated the ConfigMap in the node's pods that read it.

    A config-manager exits if its label names a key that it does not see yet, and restarts after growing pauses. The
    kubelet syncs a pod's volumes when the pod changes, so pods are annotated, if we may, to hurry it.
    """
    began = time.monotonic()
    try:
        for text in (str(time.time()), None):
            for pod in _readers(cluster, cluster.pods()):
                cluster.api.patch(pod_path(pod), {"metadata": {"annotations": {SYNC_ANNOTATION: text}}})
            time.sleep(cluster.options["publish_seconds"] / 2)
    except ApiRefused as refused:
        if refused.status != 403:
            raise
        seconds = f"{KUBELET_SYNC_SECONDS:g} s"
        print(f"waiting {seconds} for the kubelet to see a ConfigMap (config/cluster/plugin/hurry)", file=sys.stderr)
        time.sleep(KUBELET_SYNC_SECONDS)
    cluster.note_phase("publish", time.monotonic() - began)


def restart(cluster: Cluster) -> None:
    """Restart the node's pods that read the ConfigMap, so that they look again which of its keys is theirs."""
    for pod in _readers(cluster, cluster.pods()):
        cluster.api.delete(pod_path(pod))


def restart_elsewhere(cluster: Cluster, namespace: str, since_seconds: float) -> None:
    """Restart the pods on nodes without the label that have looked for their key since a time, in seconds since 1970.

    The key that they found is gone. The plugin would miss it at its next start, which may be months later.
    """
    labelled = {node["metadata"]["name"] for node in cluster.nodes() if CONFIG_LABEL in labels_of(node)}
    pods = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    for pod in _readers(cluster, pods):
        is_elsewhere = pod["spec"].get("nodeName") not in {cluster.name, None, *labelled}
        if is_elsewhere and _last_start(pod) > since_seconds - CLOCK_SECONDS:
            cluster.api.delete(pod_path(pod))


def _last_start(pod: Json) -> float:
    """When a container of the pod started last, in seconds since 1970."""
    states = [each.get("state") or {} for each in pod.get("status", {}).get("containerStatuses") or ()]
    started = filter(None, ((state.get("running") or {}).get("startedAt") for state in states))
    return max(datetime.fromisoformat(each).timestamp() for each in (*started, pod["metadata"]["creationTimestamp"]))
