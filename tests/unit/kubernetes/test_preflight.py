"""What preflight reports of a cluster."""

import re
from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster
from unit.kubernetes.objects import daemon_set
from unit.studies import study_of

from sharebench.core.strategies import Strategy
from sharebench.nodes.contract import NodeError
from sharebench.nodes.kubernetes.cluster import cluster as node_cluster
from sharebench.nodes.kubernetes.cluster import nvidia_stack
from sharebench.nodes.kubernetes.cluster.api import ApiRefused
from sharebench.nodes.kubernetes.node import ClusterNode
from sharebench.nodes.kubernetes.preflight import components, preflight

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
STUDY = {"node": "kubernetes", "strategies": ["exclusive", "time-slicing", "mps"], "replicas": [1, 3]}


class Cluster(FakeCluster):
    """One that answers what preflight asks; `refused` are rights (verb, resource) that we lack."""

    def __init__(self) -> None:
        super().__init__()
        self.patience_seconds = 60.0
        self.dry_run: list[dict[str, Any]] = []
        self.against: ApiRefused | None = None
        self.refused: set[tuple[str, str]] = set()
        self.hidden: set[str] = set()
        self.asked: set[tuple[str, str, str | None]] = set()
        self.store["/version"] = {"gitVersion": "v1.34.4"}
        self.store["/api/v1/namespaces/sharebench"] = {
            "metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}
        }

    def find(self, path: str) -> dict[str, Any] | None:
        if path in self.hidden:
            raise ApiRefused(403, "not allowed")
        return super().find(path)

    def create(self, path: str, body: dict[str, Any], **query: Any) -> dict[str, Any]:
        if path.endswith("/pods"):
            assert query == {"dryRun": "All", "fieldValidation": "Strict"}, "preflight changes nothing"
            self.dry_run.append(body)
            if self.against is not None:
                raise self.against
            return body
        assert path == REVIEWS, "preflight changes nothing"
        asked = body["spec"]["resourceAttributes"]
        self.asked.add((asked["verb"], asked["resource"], asked.get("name")))
        return {"status": {"allowed": (asked["verb"], asked["resource"]) not in self.refused}}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr(node_cluster, "Api", lambda context: made)
    return made


def inspected(**options: Any) -> tuple[str, bool]:
    lines, is_fit = preflight.inspect(study_of(STUDY | {"kubernetes": options}))
    return re.sub(r"\n {6,}", " ", "\n".join(lines)), is_fit


def test_a_cluster_that_has_it_all(cluster: Cluster) -> None:
    text, is_fit = inspected()
    assert is_fit
    # somebody waits in front of it
    assert cluster.patience_seconds <= 10
    assert "device plugin             v0.19.3 (standalone, nvidia/plugin)" in text
    assert "its ConfigMap           nvidia/sharing, default default" in text
    assert "Pod Security restricted" in text
    assert "feasible with 1, 3 tenants" in text
    assert "all that is needed" in text
    assert cluster.log == []


def test_rows_fit_a_terminal_and_commands_stay_whole() -> None:
    prose = str(components.Row("GPU", "word " * 40)).splitlines()
    assert max(map(len, prose)) <= 100 and {line[:28] for line in prose[1:]} == {" " * 28}
    command = f"kubectl patch {'x' * 90} --type merge"
    *said, last = str(components.Row("", f"it has none; name one: {command}")).splitlines()
    assert [line.strip() for line in said] == ["it has none; name one:"] and last.strip() == command


def test_each_missing_part_comes_with_what_brings_it(cluster: Cluster) -> None:
    del cluster.daemon_sets[1:], cluster.store["/api/v1/namespaces/sharebench"]
    text, is_fit = inspected()
    assert not is_fit
    assert "gfd.enabled=true" in text
    assert "does not exist: kubectl apply -k config/cluster/tenants" in text
    cluster.daemon_sets.clear()
    text, is_fit = inspected()
    assert not is_fit
    assert "docs/cluster/install.md, The device plugin" in text


def test_a_right_that_is_missing_comes_with_the_command_that_grants_it(cluster: Cluster) -> None:
    cluster.refused = {("create", "pods"), ("delete", "leases")}
    text, is_fit = inspected()
    assert not is_fit
    assert "create pods (in sharebench)" in text
    assert "delete leases.coordination.k8s.io (in nvidia)" in text
    assert " kubectl apply -k config/cluster/tenants\n" in text
    assert " kubectl apply --namespace nvidia -k config/cluster/plugin\n" in text


def test_a_right_on_one_object_names_it(cluster: Cluster) -> None:
    cluster.refused = {("patch", "configmaps"), ("get", "nodes")}
    text, is_fit = inspected()
    assert not is_fit
    assert "patch configmaps sharing (in nvidia)" in text
    assert "with sharing among the resourceNames of configmaps, where these are listed" in text
    assert "get nodes gpu-node (in the whole cluster)" in text
    assert {("patch", "configmaps", "sharing"), ("get", "nodes", "gpu-node"), ("list", "nodes", None)} <= cluster.asked


def test_the_mig_managers_map_is_asked_for_only_where_it_may_be_changed(cluster: Cluster) -> None:
    cluster.daemon_sets.append(daemon_set("mig", "nvidia-mig-manager"))
    cluster.refused = {("get", "configmaps")}
    assert "plugin/mig" not in inspected()[0]
    assert "kubectl apply --namespace nvidia -k config/cluster/plugin/mig" in inspected(may_change=["mig"])[0]


def test_a_right_that_no_study_needs_is_shown_with_what_it_buys(cluster: Cluster) -> None:
    assert "not needed" not in inspected()[0]
    cluster.refused = {("patch", "pods")}
    text, is_fit = inspected()
    assert is_fit
    assert "all that is needed" in text
    assert "kubectl apply --namespace nvidia -k config/cluster/plugin/hurry" in text
    assert "not after a minute and a half" in text


def test_what_is_typed_for_a_namespace_of_ones_own_is_for_that_one(cluster: Cluster) -> None:
    cluster.refused = {("watch", "pods")}
    text, is_fit = inspected(namespace="team-a")
    assert not is_fit
    assert "namespace team-a          does not exist: kubectl create namespace team-a" in text
    assert "granted by config/cluster/tenants, in a kustomization for team-a" in text


def test_without_a_plugin_no_rights_in_its_namespace_are_asked_for(cluster: Cluster) -> None:
    cluster.daemon_sets.clear()
    cluster.refused = {("delete", "leases"), ("watch", "pods")}
    text, _ = inspected()
    assert "watch pods (in sharebench)" in text
    assert "leases" not in text


def test_what_we_may_not_look_at_is_unknown_and_not_absent(cluster: Cluster) -> None:
    cluster.hidden = {nvidia_stack.CLUSTER_POLICIES, "/api/v1/namespaces/sharebench"}
    text, is_fit = inspected()
    assert f"GPU operator              {components.HIDDEN}" in text
    assert is_fit


@pytest.mark.parametrize(
    ("compute", "most"), [(("7", "0"), 16), (("7", "5"), 48), (("9", "0"), 48), ((), "an unknown number of")]
)
def test_what_the_gpu_can_do(cluster: Cluster, compute: tuple[str, ...], most: int | str) -> None:
    labels = cluster.store[NODE]["metadata"]["labels"]
    labels["nvidia.com/mig.capable"] = "true"
    for name, value in zip(("major", "minor"), compute, strict=False):
        labels[f"nvidia.com/gpu.compute.{name}"] = value
    text, _ = inspected()
    assert "1 x NVIDIA-Mock-A100-SXM4-40GB" in text
    assert f"MPS                     up to {most} tenants" in text
    assert "MIG                     possible, not in use now" in text


def test_more_tenants_than_mps_clients_are_infeasible(cluster: Cluster) -> None:
    labels = cluster.store[NODE]["metadata"]["labels"]
    labels |= {"nvidia.com/gpu.compute.major": "7", "nvidia.com/gpu.compute.minor": "0"}
    many = study_of(STUDY | {"replicas": [1, 16, 17]})
    text = "\n".join(preflight.inspect(many)[0])
    assert "not with 17: the GPU takes 16 MPS clients at most" in text
    assert "feasible with 16 tenants" in text


@pytest.mark.parametrize(("gpus", "is_said"), [(8, True), (1, False)])
def test_a_plugin_that_spreads_tenants_over_several_gpus_is_said(cluster: Cluster, gpus: int, is_said: bool) -> None:
    cluster.store[NODE]["metadata"]["labels"]["nvidia.com/gpu.count"] = str(gpus)
    text, _ = inspected()
    assert ("spreads tenants over the GPUs: placeholder pods hold all but one" in text) == is_said


def test_another_version_of_the_plugin_is_said(cluster: Cluster) -> None:
    assert "another version" not in inspected()[0]
    containers = cluster.daemon_sets[0]["spec"]["template"]["spec"]["containers"]
    containers[0]["image"] = "x/plugin:v0.17.1"
    assert "another version than 0.19.3" in inspected()[0]


def test_a_node_in_use_is_not_fit(cluster: Cluster, tmp_path: Path) -> None:
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    cluster.foreign.append(
        {
            "metadata": {"name": "training", "namespace": "theirs", "labels": {}},
            "spec": {"containers": [{"name": "x", "resources": limits}]},
            "status": {"phase": "Running"},
        }
    )
    text, is_fit = inspected()
    assert not is_fit
    assert "theirs/training" in text


def test_what_keeps_one_strategy_from_being_judged_leaves_the_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = ClusterNode.infeasible

    def infeasible(self: ClusterNode, strategy: Strategy, *rest: Any) -> str | None:
        if strategy.name == "mps":
            raise NodeError("the MIG manager's map is of no use")
        return judged(self, strategy, *rest)

    monkeypatch.setattr(ClusterNode, "infeasible", infeasible)
    text, is_fit = inspected()
    assert is_fit
    assert "the MIG manager's map is of no use" in text
    assert "time-slicing              feasible with 1, 3 tenants" in text


@pytest.mark.parametrize(
    ("overlay", "against", "words", "is_fit"),
    [
        ({"runtimeClassName": "nvidia"}, None, "accepted", True),
        ({"nodeSelecter": {}}, ApiRefused(400, 'unknown field "spec.nodeSelecter"'), "refused: unknown field", False),
        ({"hostPID": True}, ApiRefused(403, "violates PodSecurity restricted"), "refused: violates PodSecurity", False),
        ({"a": {}}, ApiRefused(403, "not allowed: create pods"), None, True),
    ],
)
def test_an_overlay_is_tried_out(
    cluster: Cluster, overlay: dict[str, Any], against: ApiRefused | None, words: str | None, is_fit: bool
) -> None:
    cluster.against = against
    study = study_of(STUDY | {"kubernetes": {"pod": {"spec": overlay}}})
    lines, found = preflight.inspect(study)
    text = re.sub(r"\s+", " ", "\n".join(lines))
    assert (words is None or words in text, found) == (True, is_fit), text
    tried = cluster.dry_run[0]
    assert tried["spec"].items() >= overlay.items()


def test_without_an_overlay_and_a_container_no_pod_is_tried_out(cluster: Cluster) -> None:
    assert "pods:" not in inspected()[0]
    assert cluster.dry_run == []
