"""The PodMonitor of a run, by which the Prometheus of an operator finds its tenants."""

import re
from typing import TYPE_CHECKING

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster.api import Api, ApiRefused, Json
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import SERVER_LABEL

if TYPE_CHECKING:
    from sharebench.model.config_nodes import PrometheusOptions

COLLECTION = "/apis/monitoring.coreos.com/v1/namespaces/{namespace}/podmonitors"
RUN_LABEL = "sharebench/run"
NAME = "sharebench-{digest}"


def pod_monitor(digest: str, node_label: str, run_id: str, section: "PrometheusOptions") -> Json:
    """The PodMonitor for the pods with the node's label; `section` is the config's `prometheus`."""
    interval = f"{round(1000 * section['scrape_seconds'])}ms"
    run = re.sub(r"[^A-Za-z0-9._-]", "-", run_id).strip("-._")[:63]
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": {
            "name": NAME.format(digest=digest),
            "labels": {**section["labels"], node_label: digest, RUN_LABEL: run},
        },
        "spec": {
            "selector": {
                "matchLabels": {node_label: digest},
                "matchExpressions": [{"key": SERVER_LABEL, "operator": "DoesNotExist"}],
            },
            "podMetricsEndpoints": [{"port": "metrics", "interval": interval, "scrapeTimeout": interval}],
        },
    }


def ensure(api: Api, namespace: str, monitor: Json) -> None:
    """Create the PodMonitor unless it exists. Raises NodeError."""
    try:
        api.create(COLLECTION.format(namespace=namespace), monitor)
    except ApiRefused as refused:
        if refused.status == 409:
            return
        if refused.status == 404:
            line = "the cluster has no PodMonitor (Prometheus Operator); set prometheus.discovery: annotations or file"
            raise NodeError(line) from None
        raise


def remove(api: Api, namespace: str, digest: str) -> None:
    """Delete the PodMonitor if it exists. Raises NodeError."""
    api.delete(f"{COLLECTION.format(namespace=namespace)}/{NAME.format(digest=digest)}")
