"""A server measured by a client in another pod, through a Service and a real kube-proxy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import Run, study_of
from cluster.harness import Cluster, eventually
from cluster.test_pods_that_fail import left
from cluster.test_runs import GRANTED, NAMESPACE, account, audited, beyond, grant, unused  # noqa: F401
from cluster.test_user_containers import SERVER, server
from cluster.testbed import lifecycle, node

__all__ = ["server"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("nft"), reason="no nft on PATH: apt-get install nftables"),
]


@pytest.fixture
def proxied(server: Cluster) -> Iterator[Cluster]:
    lifecycle.release(server.instance, node.HELD)
    try:
        yield server
    finally:
        lifecycle.hold(server.instance, node.HELD)


def latency(folder: Path) -> float:
    (record,) = (json.loads(path.read_text()) for path in folder.glob("results/cells/*/*/*/*/raw.json"))
    assert record["status"] == "ok", record["reason"]
    assert all(item["holds"] for item in record["evidence"]), record["evidence"]
    for tenant in record["tenants"]:
        assert (tenant["errors"], tenant["count"] > 0, tenant["measured_by"]) == (0, True, "client")
        assert tenant["memory_bytes"] > 1 << 20 and tenant["cpu"]["affinity"], "seen next to the server"
    return float(
        sum(each["sum_seconds"] for each in record["tenants"]) / sum(each["count"] for each in record["tenants"])
    )


def test_a_server_is_measured_through_its_service_with_only_the_rights_of_the_manifests(
    proxied: Cluster,
    account: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    grant(proxied, "tenants/service")
    since = len(audited(proxied))
    given: dict[str, Any] = {
        "strategies": ["time-slicing"],
        "replicas": [2],
        "baseline": "none",
        "workloads": ["web"],
        "workload_catalogue": {"web": {**SERVER, "ready": {"path": "/status/200"}}},
    }
    for client in ("next-to-server", "service"):
        (folder := tmp_path / client).mkdir()
        Run(folder, account, study_of(NAMESPACE, **given, kubernetes={"client": client})).passed()
        assert latency(folder) > 0
    eventually("the end of the Services", lambda: not proxied.core.list_namespaced_service(NAMESPACE).items)
    assert left(proxied, NAMESPACE) == []
    assert not beyond(proxied, since, *GRANTED, "tenants/service")
    assert not unused(proxied, since, "tenants/service")
