"""What every part of the pipeline takes for granted in a cluster."""

from __future__ import annotations

import time
import urllib.request

import pytest
from cluster.harness import Cluster, eventually, pod
from cluster.testbed import cgroups, lifecycle
from kubernetes import client
from kubernetes.client.exceptions import ApiException

SERVER = """
import http.server
http.server.HTTPServer(("", 8000), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
# Version of the cgroups, memory in bytes, and how many hundredths of a core.
LIMITS = """
from pathlib import Path
root = Path("/sys/fs/cgroup")
if (root / "cgroup.controllers").exists():
    quota, period = (root / "cpu.max").read_text().split()
    print(2, (root / "memory.max").read_text().strip(), 100 * int(quota) // int(period))
else:
    quota, period = ((root / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
    print(1, (root / "memory/memory.limit_in_bytes").read_text().strip(), 100 * int(quota) // int(period))
"""
SERVER_POD = {"workingDir": "/etc", "ports": [{"containerPort": 8000}]}


@pytest.mark.existing
def test_a_restricted_pod_computes_and_its_log_is_readable(cluster: Cluster, namespace: str) -> None:
    cluster.start(namespace, "sum", "print(sum(range(10)))")
    cluster.wait_for_phase(namespace, "sum", "Succeeded", 120.0)
    assert cluster.core.read_namespaced_pod_log("sum", namespace) == "45\n"


def test_a_pod_has_its_limits_by_whatever_cgroups_the_machine_has(cluster: Cluster, namespace: str) -> None:
    resources = {"limits": {"memory": "64Mi", "cpu": "300m"}}
    cluster.start(namespace, "limited", LIMITS, resources=resources)
    cluster.wait_for_phase(namespace, "limited", "Succeeded", 120.0)
    version = "2" if cgroups.is_v2() else "1"
    assert cluster.core.read_namespaced_pod_log("limited", namespace).split() == [version, str(64 << 20), "30"]
    cluster.start(namespace, "greedy", "bytearray(200 << 20)", resources=resources)
    cluster.wait_for_phase(namespace, "greedy", "Failed", 120.0)
    (status,) = cluster.core.read_namespaced_pod("greedy", namespace).status.container_statuses
    assert status.state.terminated.reason == "OOMKilled"


@pytest.mark.existing
def test_pod_security_refuses_a_privileged_pod(cluster: Cluster, namespace: str) -> None:
    body = pod("privileged")
    body["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(ApiException, match="violates PodSecurity"):
        cluster.core.create_namespaced_pod(namespace, body)


@pytest.mark.existing
def test_rbac_forbids_what_no_role_allows(cluster: Cluster, namespace: str) -> None:
    token = cluster.token("default", namespace)
    settings = client.Configuration()
    settings.host, settings.ssl_ca_cert = cluster.api.configuration.host, cluster.api.configuration.ssl_ca_cert
    settings.api_key = {"authorization": f"Bearer {token}"}
    nobody = client.CoreV1Api(client.ApiClient(settings))
    with pytest.raises(ApiException) as refused:
        nobody.list_node()
    assert refused.value.status == 403


@pytest.mark.existing
def test_commands_run_in_a_pod(cluster: Cluster, namespace: str) -> None:
    cluster.start(namespace, "stays")
    cluster.wait_for_phase(namespace, "stays", seconds=120.0)
    assert cluster.execute(namespace, "stays", "echo", "hello") == "hello\n"


@pytest.mark.existing
def test_a_server_in_a_pod_answers_through_the_api_proxy(cluster: Cluster, namespace: str) -> None:
    cluster.start(namespace, "server", SERVER, **SERVER_POD)
    cluster.wait_for_phase(namespace, "server", seconds=120.0)

    def ask() -> str | None:
        try:
            proxy = cluster.core.connect_get_namespaced_pod_proxy_with_path
            answer = proxy("server:8000", namespace, "hostname", _preload_content=False)  # it is not JSON
            return str(answer.data.decode())
        except ApiException:
            return None

    assert eventually("an answer", ask).strip() == "server"


@pytest.mark.testbed
def test_a_pod_answers_the_host_on_its_own_address(cluster: Cluster, namespace: str) -> None:
    cluster.start(namespace, "server", SERVER, **SERVER_POD)
    cluster.wait_for_phase(namespace, "server")
    address = cluster.core.read_namespaced_pod("server", namespace).status.pod_ip

    def answer() -> str | None:
        try:
            with urllib.request.urlopen(f"http://{address}:8000/hostname", timeout=5) as response:
                return str(response.read().decode())
        except OSError:
            return None

    assert eventually("an answer", answer).strip() == "server"


@pytest.mark.testbed
def test_pods_outlive_the_api_server(cluster: Cluster, namespace: str) -> None:
    assert cluster.instance
    cluster.start(namespace, "stays")
    cluster.wait_for_phase(namespace, "stays")
    lifecycle.hold(cluster.instance, "kube-apiserver")
    try:
        eventually("an API server that is down", lambda: not cluster.is_up())
        time.sleep(5.0)
        assert not cluster.is_up()
    finally:
        cluster.bring_api_server_back()
    assert cluster.phase(namespace, "stays") == "Running"
    (status,) = cluster.core.read_namespaced_pod("stays", namespace).status.container_statuses
    assert status.restart_count == 0
