"""A real Prometheus that finds the tenants' pods in the cluster itself: by annotations, and by its own operator.

Both are built for it, which takes minutes: Debian's Prometheus knows nothing of Kubernetes.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.driving import REPOSITORY
from cluster.harness import Cluster, eventually
from cluster.test_config_manifests import api, defining  # noqa: F401
from cluster.test_prometheus import checked, watched_study
from cluster.test_runs import (  # noqa: F401
    GRANTED,
    NAMESPACE,
    account,
    audited,
    beyond,
    grant,
    left,
    run_in,
    unused,
)
from cluster.testbed import programs, sources
from kubernetes import client
from watching import Prometheus, prometheus

from sharebench.measure.nodes.kubernetes.cluster.api import Api

pytestmark = pytest.mark.slow
GROUP, VERSION = "monitoring.coreos.com", "v1"
CUSTOM_RESOURCES = tuple(
    (sources.OPERATOR, f"example/prometheus-operator-crd/{GROUP}_{kind}.yaml")
    for kind in ("prometheuses", "podmonitors", "servicemonitors", "probes", "prometheusrules", "scrapeconfigs")
)


def scrape_config() -> dict[str, Any]:
    """The documented scrape config for pods with annotations."""
    blocks = re.findall(
        r"^```yaml\n(scrape_configs:.*?)^```", (REPOSITORY / "docs/prometheus.md").read_text(), re.S | re.M
    )
    (job,) = yaml.safe_load(blocks[0])["scrape_configs"]
    return dict(job)


@pytest.fixture
def reader(plugin: Cluster, account: Path, tmp_path: Path) -> dict[str, Any]:  # noqa: F811
    """Credentials of a Prometheus outside of the cluster, which may only read pods."""
    rbac = client.RbacAuthorizationV1Api(plugin.api)
    name = {"metadata": {"name": "prometheus"}}
    plugin.core.create_namespaced_service_account(NAMESPACE, name)
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}]
    rbac.create_namespaced_role(NAMESPACE, name | {"rules": rules})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "prometheus"}
    subject = {"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}
    rbac.create_namespaced_role_binding(NAMESPACE, name | {"roleRef": role, "subjects": [subject]})
    (cluster,) = yaml.safe_load(plugin.kubeconfig.read_text())["clusters"]
    files = {
        "token": plugin.token("prometheus", NAMESPACE).encode(),
        "ca.crt": base64.b64decode(cluster["cluster"]["certificate-authority-data"]),
    }
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    return {
        "api_server": cluster["cluster"]["server"],
        "authorization": {"credentials_file": str(tmp_path / "token")},
        "tls_config": {"ca_file": str(tmp_path / "ca.crt")},
    }


def test_pods_are_found_by_their_annotations(
    plugin: Cluster,
    account: Path,  # noqa: F811
    reader: dict[str, Any],
    tmp_path: Path,
) -> None:
    job = scrape_config()
    (discovery,) = job["kubernetes_sd_configs"]
    discovery |= reader
    job |= {"scrape_interval": "500ms", "scrape_timeout": "500ms"}
    program = programs.obtain(programs.PROMETHEUS)["prometheus"]
    # A foreign pod that must not be scraped.
    plugin.start(NAMESPACE, "other")
    with prometheus(tmp_path / "prometheus", program=program, jobs=(job,)) as server:
        given = watched_study(server, discovery="annotations")
        checked(run_in(tmp_path / "study", account, given), "annotations")
        up = server.query("count by (pod) (count_over_time(up[10m]))")
        assert len(up) == 3 and "other" not in {each["metric"]["pod"] for each in up}
    plugin.core.delete_namespaced_pod("other", NAMESPACE, grace_period_seconds=0)
    assert left(plugin, NAMESPACE) == []


def test_the_token_of_a_prometheus_need_not_read_anything_but_pods(plugin: Cluster, reader: dict[str, Any]) -> None:
    settings = client.Configuration(host=reader["api_server"])
    settings.ssl_ca_cert = reader["tls_config"]["ca_file"]
    token = Path(reader["authorization"]["credentials_file"]).read_text()
    core = client.CoreV1Api(client.ApiClient(settings, "Authorization", f"Bearer {token}"))
    assert core.list_namespaced_pod(NAMESPACE).items == []
    for ask in (lambda: core.list_node(), lambda: core.list_namespaced_secret(NAMESPACE)):
        with pytest.raises(client.ApiException) as refused:
            ask()
        assert refused.value.status == 403


class Reloader:
    """Hands what the operator has written for its Prometheus to one outside of the cluster.

    In a cluster the kubelet and the operator's config-reloader do. `reader` is how one outside asks the API server.
    """

    def __init__(self, cluster: Cluster, server: Prometheus, reader: dict[str, Any]) -> None:
        self.cluster, self.server, self.reader = cluster, server, reader
        self.jobs: list[dict[str, Any]] = []
        self.seen: list[str] = []
        self.ended = threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.5):
            secrets = self.cluster.core.list_namespaced_secret(NAMESPACE, field_selector="metadata.name=prometheus-kps")
            written = [(secret.data or {}).get("prometheus.yaml.gz") for secret in secrets.items]
            text = gzip.decompress(base64.b64decode(written[0])).decode() if any(written) else "{}"
            # A variable of the pod names its replica of Prometheus.
            config = yaml.safe_load(text.replace("$(SHARD)", "0"))
            jobs = config.get("scrape_configs") or []
            if jobs != self.jobs:
                self.jobs = json.loads(json.dumps(jobs))
                self.seen += [job["job_name"] for job in jobs]
                for job in jobs:
                    for discovery in job["kubernetes_sd_configs"]:
                        discovery |= self.reader
                self.server.reload(tuple(jobs))


@contextmanager
def operator(cluster: Cluster, folder: Path) -> Iterator[None]:
    """A Prometheus Operator outside of the cluster, and a Prometheus for it to configure, without pods."""
    (user,) = yaml.safe_load(cluster.kubeconfig.read_text())["users"]
    (known,) = yaml.safe_load(cluster.kubeconfig.read_text())["clusters"]
    given = {
        "cert-file": user["user"]["client-certificate-data"],
        "key-file": user["user"]["client-key-data"],
        "ca-file": known["cluster"]["certificate-authority-data"],
    }
    for name, content in given.items():
        (folder / name).write_bytes(base64.b64decode(content))
    command = [str(programs.obtain(programs.PROMETHEUS)["operator"]), f"--apiserver={known['cluster']['server']}"]
    command += [f"--{name}={folder / name}" for name in given] + ["--web.listen-address=127.0.0.1:0"]
    selected = {
        "metadata": {"name": "kps"},
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "Prometheus",
        "spec": {
            "replicas": 0,
            "podMonitorSelector": {"matchLabels": {"release": "kps"}},
            "podMonitorNamespaceSelector": {},
        },
    }
    client.CustomObjectsApi(cluster.api).create_namespaced_custom_object(
        GROUP, VERSION, NAMESPACE, "prometheuses", selected
    )
    with (folder / "operator.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.terminate()


def test_pods_are_found_by_an_operator_that_reads_the_pod_monitor(
    plugin: Cluster,
    account: Path,  # noqa: F811
    api: Api,  # noqa: F811
    reader: dict[str, Any],
    tmp_path: Path,
) -> None:
    program = programs.obtain(programs.PROMETHEUS)["prometheus"]
    grant(plugin, "tenants/pod-monitor")
    since = len(audited(plugin))
    with (
        defining(plugin, api, *CUSTOM_RESOURCES),
        prometheus(tmp_path / "prometheus", program=program) as server,
        operator(plugin, tmp_path),
    ):
        reloader = Reloader(plugin, server, reader)
        thread = threading.Thread(target=reloader.run, daemon=True)
        thread.start()
        try:
            given = watched_study(server, labels={"release": "kps"})
            run = run_in(tmp_path / "study", account, given)
            checked(run, "pod-monitor")
            assert any(name.startswith(f"podMonitor/{NAMESPACE}/sharebench-") for name in reloader.seen)
            # The run has removed its PodMonitor, so the operator removes the job again.
            eventually("no job", lambda: not reloader.jobs)
            assert not beyond(plugin, since, *GRANTED, "tenants/pod-monitor")
            assert not unused(plugin, since, "tenants/pod-monitor")
        finally:
            reloader.ended.set()
            thread.join(30)
