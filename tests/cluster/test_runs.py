"""Whole runs on a cluster with only the rights of config/cluster."""

from __future__ import annotations

import json
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml
from cluster.driving import REPOSITORY, Run, study_of
from cluster.harness import PLUGIN_NAMESPACE, Cluster, eventually
from cluster.test_switching import shown
from cluster.testbed import programs
from kubernetes import client
from tables import rows

from sharebench.measure.nodes.kubernetes.preflight.rights import granted_rights

MANIFESTS = REPOSITORY / "config" / "cluster"
NAMESPACE = "sharebench"
# Without the optional `hurry`, a run waits 90 s for the kubelet.
GRANTED = ("tenants", "plugin", "plugin/hurry")


def objects(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()) if each]


def kubectl() -> str:
    """The path of kubectl: the machine's, or the test bed's own."""
    return which("kubectl") or str(programs.obtain(programs.KUBE)["kubectl"])


def asked(cluster: Cluster, *arguments: str) -> str:
    """Output of kubectl."""
    done = subprocess.run([kubectl(), f"--kubeconfig={cluster.kubeconfig}", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def grant(cluster: Cluster, *folders: str, delete: bool = False) -> None:
    """Apply folders of config/cluster as documented, with the namespace of `tenants`, or delete their objects."""
    verb = ["delete", "--ignore-not-found"] if delete else ["apply", "--validate=strict"]
    commands = []
    for folder in folders:
        place = [f"--namespace={PLUGIN_NAMESPACE}"] if folder.startswith("plugin") else []
        commands.append([*place, "-k", str(MANIFESTS / folder)])
    if "tenants" in folders:
        commands.insert(len(commands) if delete else 0, ["-f", str(MANIFESTS / "namespace.yaml")])
    for command in commands:
        asked(cluster, *verb, *command)


@pytest.fixture
def account(plugin: Cluster, tmp_path: Path) -> Iterator[Path]:
    """Kubeconfig of the service account of the manifests."""
    try:
        grant(plugin, *GRANTED)
        yield plugin.kubeconfig_of("sharebench", NAMESPACE, tmp_path)
    finally:
        grant(plugin, *GRANTED, delete=True)
        eventually("the namespace's end", lambda: NAMESPACE not in names(plugin))


def names(cluster: Cluster) -> set[str]:
    return {each.metadata.name for each in cluster.core.list_namespace().items}


def left(cluster: Cluster, namespace: str) -> list[str]:
    """The remaining objects of a study."""
    found = cluster.core.list_namespaced_config_map(namespace, label_selector="sharebench/node").items
    found += cluster.core.list_namespaced_pod(namespace).items
    found += client.CoordinationV1Api(cluster.api).list_namespaced_lease(PLUGIN_NAMESPACE).items
    return [each.metadata.name for each in found if each.metadata.name.startswith("sharebench")]


def run_in(folder: Path, kubeconfig: Path, given: dict[str, Any]) -> Run:
    folder.mkdir()
    return Run(folder, kubeconfig, given)


def granted(*folders: str) -> dict[tuple[str, ...], str]:
    """Each right of the manifests, with the namespace that an audit log has for it; "" for the whole cluster."""
    places = {"cluster": "", "tenants": NAMESPACE, "plugin": PLUGIN_NAMESPACE}
    rights = [right for folder in folders for right in granted_rights(folder.rpartition("/")[2])]
    return {(right.verb, right.group, right.resource, places[right.where]): str(right) for right in rights}


def audited(cluster: Cluster) -> list[str]:
    """The lines of the API server's audit log, which has what the service account asks."""
    log = cluster.instance.folder / "log/audit.log"
    return log.read_text().splitlines() if log.exists() else []


def used(cluster: Cluster, since: int = 0) -> set[tuple[str, ...]]:
    """What the service account has asked of the API server after this many lines, as in `granted`."""
    found: set[tuple[str, ...]] = set()
    for event in map(json.loads, audited(cluster)[since:]):
        what = event.get("objectRef", {})
        resource = "/".join(filter(None, (what.get("resource"), what.get("subresource"))))
        # Everyone may ask what he may do.
        is_ours = event["user"]["username"].endswith(":sharebench")
        if is_ours and resource not in ("", "selfsubjectaccessreviews"):
            found.add((event["verb"], what.get("apiGroup", ""), resource, what.get("namespace", "")))
    return found


def unused(cluster: Cluster, since: int, *folders: str) -> set[str]:
    """The rights of these folders that were not used after this many lines."""
    rights, found = granted(*folders), used(cluster, since)
    everywhere = {(*right[:3], "") for right in found}
    return {text for right, text in rights.items() if right not in (found if right[3] else everywhere)}


def beyond(cluster: Cluster, since: int, *folders: str) -> set[tuple[str, ...]]:
    """What was asked for after this many lines without a right of these folders."""
    rights = granted(*folders)
    return {right for right in used(cluster, since) if rights.keys().isdisjoint({right, (*right[:3], "")})}


# What the study of the next test does not use, and for which moment it is granted.
KEPT = {"create pods/portforward": "newer API servers, which ask for it too where a WebSocket is opened by get"}


def test_a_study_with_only_the_rights_of_the_manifests(plugin: Cluster, account: Path, tmp_path: Path) -> None:
    before, since = shown(plugin), len(audited(plugin))
    # The config names the node, which must not appear in results.
    run = run_in(tmp_path / "study", account, study_of(NAMESPACE, kubernetes={"node": plugin.node_name}))
    out = run.passed("preflight")
    assert "all that is needed" in out
    assert "refuses replicas: 1" in " ".join(out.split())
    run.passed()
    cells = {(row["strategy"], row["replicas"]): row for row in rows(run.folder / "results/tables/summary.csv")}
    assert {key: row["status"] for key, row in cells.items()} == {
        ("exclusive", "1"): "ok",
        ("exclusive-again", "1"): "ok",
        ("time-slicing", "1"): "ok",
        ("time-slicing", "3"): "ok",
        ("mps", "1"): "infeasible",
        ("mps", "3"): "ok",
    }
    records = [json.loads(path.read_text()) for path in run.folder.glob("results/cells/*/*/*/*/raw.json")]
    three = [record for record in records if record["cell"]["replicas"] == 3]
    for record in three:
        assert len({tenant["view"]["device"] for tenant in record["tenants"]}) == 1
        assert all(item["holds"] for item in record["evidence"])
        assert record["node"]["label"] == "mock GPU, CPU work in pods"
        assert min(tenant["count"] for tenant in record["tenants"]) > 10
        assert min(tenant["startup"]["process_seconds"] for tenant in record["tenants"]) > 0
    report = (run.folder / "results" / "report.html").read_text()
    assert "mock GPU, CPU work in pods" in report
    assert left(plugin, NAMESPACE) == []
    assert shown(plugin) == before
    journal = (run.folder / "results/.sharebench/node/journal.jsonl").read_text().splitlines()
    states = [json.loads(line)["to"] for line in journal]
    assert len(states) == len(set(states)) == 5, "four states, each set up once, and the way back"
    assert not beyond(plugin, since, *GRANTED)
    assert unused(plugin, since, *GRANTED) == KEPT.keys()
    run.passed("archive")
    unnamed(run.folder / "results", plugin, account)
    out = run.passed()
    assert "cell 1 of" not in out


def unnamed(results: Path, cluster: Cluster, kubeconfig: Path, files: int = 100) -> None:
    """Results, logs and archive have no names of the cluster; `.sharebench` is private to this driver."""
    node = cluster.node()
    secrets = {
        cluster.node_name,
        node.metadata.uid,
        node.status.node_info.system_uuid,
        node.status.node_info.machine_id,
    }
    secrets |= {address.address for address in node.status.addresses}
    server = cluster.api.configuration.host
    secrets |= {server, server.partition("//")[2].partition(":")[0]}
    secrets |= {each.metadata.uid for each in cluster.core.list_namespace().items}
    secrets |= {user["user"]["token"] for user in yaml.safe_load(kubeconfig.read_text())["users"]}
    looked_at = 0
    for path in results.rglob("*"):
        if path.is_file() and ".sharebench" not in path.relative_to(results).parts:
            for name, content in contents(path):
                looked_at += 1
                found = [secret for secret in secrets if secret and secret.encode() in content]
                assert not found, f"{name}: {found}"
    assert looked_at > files


def contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """The contents of a file, or of every file in an archive."""
    yield str(path), path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as packed:
            for name in packed.namelist():
                yield f"{path}: {name}", packed.read(name)


def test_a_missing_right_is_named(plugin: Cluster, account: Path, tmp_path: Path) -> None:
    rbac = client.RbacAuthorizationV1Api(plugin.api)
    role = rbac.read_namespaced_role("sharebench-tenants", NAMESPACE)
    for rule in role.rules:
        if rule.resources == ["pods"]:
            rule.verbs.remove("create")
    rbac.replace_namespaced_role("sharebench-tenants", NAMESPACE, role)
    code, out = run_in(tmp_path / "study", account, study_of(NAMESPACE)).finish("preflight")
    assert code == 1
    assert "not allowed" in out
    assert f"create pods (in {NAMESPACE})" in out


def running(cluster: Cluster, namespace: str) -> list[str]:
    pods = cluster.core.list_namespaced_pod(namespace, label_selector="sharebench/cell").items
    return [pod.metadata.name for pod in pods if pod.status.phase == "Running"]
