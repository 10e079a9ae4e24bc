"""A real Prometheus that scrapes the tenants' pods, found by files and by the PodMonitor of a run."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import Run, study_of
from cluster.harness import Cluster, eventually
from cluster.test_runs import NAMESPACE, account, grant, left, names, run_in  # noqa: F401
from kubernetes import client, utils
from tables import rows
from watching import MISSING, PROGRAM, Prometheus, assert_quantiles_agree, prometheus

from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster import pod_monitor
from sharebench.nodes.kubernetes.cluster.api import Api

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(PROGRAM is None, reason=MISSING),
]
GROUP, VERSION, PLURAL = "monitoring.coreos.com", "v1", "podmonitors"
# Of the operator's own, as much as an API server needs to keep the objects.
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{PLURAL}.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"kind": "PodMonitor", "plural": PLURAL, "singular": "podmonitor", "listKind": "PodMonitorList"},
        "versions": [
            {
                "name": VERSION,
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def watched_study(server: Prometheus, **section: Any) -> dict[str, Any]:
    return study_of(
        NAMESPACE,
        strategies=["time-slicing"],
        baseline="none",
        null_cells=False,
        replicas=[3],
        window_seconds=6,
        prometheus={"url": server.url, "scrape_seconds": 0.5, **section},
    )


def checked(run: Run, how: str) -> None:
    """The run's one cell: what Prometheus says of its three tenants is what they say."""
    code, out = run.finish()
    assert code == 0, out
    (path,) = run.folder.glob("results/cells/time-slicing/*/n3/r1/raw.json")
    record = json.loads(path.read_text())
    said = record["prometheus"]
    assert (record["status"], said["discovery"], said["error"]) == ("ok", how, None)
    for tenant, seen in zip(record["tenants"], said["tenants"], strict=True):
        # Between two scrapes, on whatever machine.
        assert seen["count"] == pytest.approx(tenant["count"], rel=0.25)
        assert seen["scrapes"] >= 4 and seen["resets"] == 0
    assert_quantiles_agree(record)
    assert len(rows(run.folder / "results/tables/prometheus.csv")) == 3


def test_pods_are_found_by_a_file_of_their_addresses(
    plugin: Cluster,
    account: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    with prometheus(tmp_path / "prometheus") as server:
        run = run_in(tmp_path / "study", account, watched_study(server, folder=str(server.targets)))
        checked(run, "file")
        assert list(server.targets.iterdir()) == []
    assert left(plugin, NAMESPACE) == []
    secrets = (server.url, str(server.targets), plugin.node_name)
    for path in (run.folder / "results").rglob("*"):
        if path.is_file() and ".sharebench" not in path.parts:
            content = path.read_bytes()
            assert not [secret for secret in secrets if secret.encode() in content], path


class Operator:
    """Does for a test what an operator does: passes the pods that PodMonitors select to Prometheus."""

    def __init__(self, cluster: Cluster, server: Prometheus) -> None:
        self.cluster, self.server = cluster, server
        self.seen: list[dict[str, Any]] = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def monitors(self) -> list[dict[str, Any]]:
        api = client.CustomObjectsApi(self.cluster.api)
        found: list[dict[str, Any]] = api.list_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PLURAL)["items"]
        return found

    def run(self) -> None:
        while not self.ended.wait(0.5):
            groups = []
            for each in self.monitors():
                self.seen = [*self.seen, each] if each["metadata"]["uid"] not in self.uids() else self.seen
                wanted = ",".join(f"{key}={value}" for key, value in each["spec"]["selector"]["matchLabels"].items())
                (endpoint,) = each["spec"]["podMetricsEndpoints"]
                for pod in self.cluster.core.list_namespaced_pod(NAMESPACE, label_selector=wanted).items:
                    ports = {port.name: port.container_port for port in pod.spec.containers[0].ports}
                    if pod.status.pod_ip:
                        labels = {"__scrape_interval__": endpoint["interval"], "pod": pod.metadata.name}
                        address = f"{pod.status.pod_ip}:{ports[endpoint['port']]}"
                        groups.append({"targets": [address], "labels": labels | {"__scrape_timeout__": "500ms"}})
            (self.server.targets / "operator.json").write_text(json.dumps(groups))

    def uids(self) -> set[str]:
        return {each["metadata"]["uid"] for each in self.seen}


@pytest.fixture
def definition(plugin: Cluster) -> Iterator[None]:
    """The cluster knows PodMonitors."""
    extensions = client.ApiextensionsV1Api(plugin.api)
    utils.create_from_dict(plugin.api, DEFINITION)
    try:
        api = client.CustomObjectsApi(plugin.api)

        def is_served() -> bool:
            try:
                api.list_cluster_custom_object(GROUP, VERSION, PLURAL)
            except client.ApiException:
                return False
            return True

        eventually("PodMonitors", is_served)
        yield
    finally:
        extensions.delete_custom_resource_definition(DEFINITION["metadata"]["name"])  # type: ignore[index]


@pytest.mark.usefixtures("definition")
def test_pods_are_found_by_the_pod_monitor_of_the_run(
    plugin: Cluster,
    account: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    grant(plugin, "tenants/pod-monitor")
    with prometheus(tmp_path / "prometheus") as server:
        operator = Operator(plugin, server)
        operator.thread.start()
        try:
            given = watched_study(server, labels={"release": "kps"})
            checked(run_in(tmp_path / "study", account, given), "pod-monitor")
            (monitor,) = operator.seen
            assert monitor["metadata"]["labels"]["release"] == "kps"
            assert operator.monitors() == []
        finally:
            operator.ended.set()
            operator.thread.join(30)


def test_a_cluster_that_knows_no_pod_monitor_is_named(
    plugin: Cluster, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(plugin.kubeconfig))
    api = Api(None)
    wanted = pod_monitor.pod_monitor("abc", "sharebench/node", "run", {"labels": {}, "scrape_seconds": 1})
    with pytest.raises(NodeError, match="the cluster has no PodMonitor"):
        pod_monitor.ensure(api, namespace, wanted)
    pod_monitor.remove(api, namespace, "abc")
