"""The report of preflight."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.kubernetes.fake_cluster import CONFIGS, NODE, FakeCluster, node_of
from unit.kubernetes.objects import CONFIG, daemon_set
from unit.kubernetes.test_dra import driver_set
from unit.studies import study_with

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster import cluster as node_cluster
from sharebench.measure.nodes.kubernetes.cluster import reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import SHARING_LABEL
from sharebench.measure.nodes.kubernetes.cluster.restricted import LEVEL_LABEL
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.kubernetes.preflight import preflight, report
from sharebench.model.strategy import Strategy

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
NAMESPACE = "/api/v1/namespaces/sharebench"
STUDY = {"node": "kubernetes", "strategies": ["exclusive", "time-slicing", "mps"], "replicas": [1, 3]}


class Cluster(FakeCluster):
    """A fake cluster for preflight; `refused` has the rights (verb, resource) that we lack."""

    def __init__(self) -> None:
        super().__init__()
        self.retry_limit_seconds = 60.0
        self.refused: set[tuple[str, str]] = set()
        self.hidden: set[str] = set()
        self.asked: set[tuple[str, str, str | None]] = set()
        self.tried: list[dict[str, Any]] = []
        """Pods of dry runs."""
        self.verdict: str | None = None
        """Why the API server refuses pods."""
        self.store["/version"] = {"gitVersion": "v1.34.4"}
        self.store[NAMESPACE] = {"metadata": {"labels": {LEVEL_LABEL: "restricted"}}}
        for each in self.daemon_sets:
            # As the chart installs them.
            each["spec"]["template"]["spec"]["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        known = ("machineID", "kubeletVersion", "containerRuntimeVersion", "kernelVersion")
        self.store[NODE]["status"]["nodeInfo"] = dict.fromkeys(known, "x")
        self.store[NODE]["metadata"]["labels"]["nvidia.com/gpu.memory"] = "40960"

    def find(self, path: str) -> dict[str, Any] | None:
        if path in self.hidden:
            raise ApiRefused(403, "not allowed")
        return super().find(path)

    def create(self, path: str, body: dict[str, Any], **query: Any) -> dict[str, Any]:
        if query == {"dryRun": "All"}:
            self.tried.append(body)
            if self.verdict is not None:
                raise ApiRefused(403, self.verdict)
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


def inspected(workloads: dict[str, Any] | None = None, **options: Any) -> tuple[str, bool]:
    chosen = {"workloads": list(workloads), "workload_catalogue": workloads} if workloads else {}
    lines, is_fit = preflight.inspect(study_with(STUDY | chosen | {"kubernetes": options}))
    return re.sub(r"\n {6,}", " ", "\n".join(lines)), is_fit


def test_a_complete_cluster_passes_preflight(cluster: Cluster) -> None:
    text, is_fit = inspected()
    assert is_fit
    # a person waits for it
    assert cluster.retry_limit_seconds <= 10
    assert "device plugin             v0.19.3 (standalone, nvidia/plugin)" in text
    assert "ConfigMap of the plugin   nvidia/sharing, default default" in text
    assert "1 x NVIDIA Mock A100 SXM4 40GB, 40960 MiB, driver unknown" in text
    assert "feasible with 1, 3 tenants" in text
    assert "all that is needed" in text
    assert "known to go wrong" not in text, "its matmuls are of float32"
    half = {"half": {"description": "d", "module": "matmul", "params": {"dtype": "float16"}}}
    assert "known to go wrong: mps, 3 tenants: with 33" in inspected(half)[0]
    assert cluster.log == []


def test_gitops_of_the_plugins_config_map_is_said(cluster: Cluster) -> None:
    assert "GitOps" not in inspected()[0]
    cluster.store[CONFIGS]["metadata"]["annotations"]["argocd.argoproj.io/tracking-id"] = "gpu:/ConfigMap:x"
    assert "argocd.argoproj.io/tracking-id: GitOps may remove a run's keys" in inspected()[0]


def test_rows_fit_a_terminal_and_commands_stay_whole() -> None:
    prose = str(report.ReportRow("GPU", "word " * 40)).splitlines()
    assert max(map(len, prose)) <= 100 and {line[:28] for line in prose[1:]} == {" " * 28}
    command = f"kubectl patch {'x' * 90} --type merge"
    *said, last = str(report.ReportRow("", f"it has none; name one: {command}")).splitlines()
    assert [line.strip() for line in said] == ["it has none; name one:"] and last.strip() == command


def test_each_missing_component_comes_with_its_remedy(cluster: Cluster) -> None:
    del cluster.daemon_sets[1:], cluster.store["/api/v1/namespaces/sharebench"]
    text, is_fit = inspected()
    assert not is_fit
    assert "set gfd.enabled: true" in text
    assert "does not exist: kubectl apply -f config/cluster/namespace.yaml" in text
    cluster.daemon_sets.clear()
    text, is_fit = inspected()
    assert not is_fit
    assert "no NVIDIA device plugin; install it" in text
    cluster.daemon_sets.append(driver_set(""))
    assert "its DRA driver (standalone) gives GPUs to claims; set kubernetes.access: dra" in inspected()[0]


def test_a_missing_right_comes_with_the_command_that_grants_it(cluster: Cluster) -> None:
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
    assert "with sharing among its resourceNames, where these are listed" in text
    assert "get nodes gpu-node (in the whole cluster)" in text
    assert {("patch", "configmaps", "sharing"), ("get", "nodes", "gpu-node"), ("list", "nodes", None)} <= cluster.asked


@pytest.mark.parametrize(
    ("hidden", "refused", "rows"),
    [
        ("/api/v1/nodes", "nodes", ["list nodes (in the whole cluster)"]),
        (NODE, "nodes", ["list nodes (in the whole cluster)", "get nodes gpu-node (in the whole cluster)"]),
        ("/api/v1/pods", "pods", ["list pods (in the whole cluster)"]),
        ("/apis/apps/v1/daemonsets", "daemonsets", ["list daemonsets.apps (in the whole cluster)"]),
    ],
)
def test_a_cluster_that_may_not_be_looked_at_comes_with_the_missing_rights(
    cluster: Cluster, hidden: str, refused: str, rows: list[str]
) -> None:
    cluster.hidden = {hidden}
    cluster.refused = {("list", refused), ("get", refused)}
    text, is_fit = inspected()
    assert not is_fit
    assert all(row in text for row in rows)
    assert " kubectl apply -k config/cluster/tenants" in text
    assert "installed:" not in text


def test_the_right_to_the_mig_map_is_needed_only_with_may_change(cluster: Cluster) -> None:
    cluster.daemon_sets.append(daemon_set("mig", "nvidia-mig-manager"))
    cluster.refused = {("get", "configmaps")}
    assert "plugin/mig" not in inspected()[0]
    assert "kubectl apply --namespace nvidia -k config/cluster/plugin/mig" in inspected(may_change=["mig"])[0]


def test_another_namespace_comes_with_its_own_hint(cluster: Cluster) -> None:
    cluster.refused = {("watch", "pods")}
    text, is_fit = inspected(namespace="team-a")
    assert not is_fit
    assert "namespace team-a          does not exist: kubectl create namespace team-a" in text
    assert "granted by config/cluster/tenants, in a kustomization for team-a" in text


def test_without_a_plugin_no_rights_in_its_namespace_are_needed(cluster: Cluster) -> None:
    cluster.daemon_sets.clear()
    cluster.refused = {("delete", "leases"), ("watch", "pods")}
    text, _ = inspected()
    assert "watch pods (in sharebench)" in text
    assert "leases" not in text


def test_a_namespace_that_may_not_be_read_is_not_missing(cluster: Cluster) -> None:
    cluster.hidden = {"/api/v1/namespaces/sharebench"}
    assert inspected()[1]


def test_a_node_with_foreign_pods_fails_preflight(cluster: Cluster, tmp_path: Path) -> None:
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


def test_a_node_that_takes_no_pods_fails_preflight(cluster: Cluster) -> None:
    assert "ready, and no run has changed it" in inspected()[0]
    cluster.store[NODE]["spec"]["unschedulable"] = True
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "Kubelet stopped posting"}
    cluster.store[NODE]["status"]["conditions"] = [ready]
    text, is_fit = inspected()
    assert not is_fit
    assert "the node is cordoned: kubectl uncordon gpu-node" in text
    assert "the node is not ready: NodeStatusUnknown: Kubelet stopped posting" in text


def test_what_no_run_can_restore_fails_preflight(cluster: Cluster) -> None:
    """Someone has removed the saved state: the next run would take our label for theirs, and remove its key."""
    cluster.store[NODE]["metadata"]["labels"][CONFIG] = "sharebench-ts-3-7cf46c83"
    cluster.store[NODE]["spec"]["taints"] = [reservation.our_taint("taint")]
    text, is_fit = inspected()
    assert not is_fit
    assert f"left of a run: label {CONFIG}=sharebench-ts-3-7cf46c83 and taint sharebench/measuring" in text
    cluster.store[NODE]["metadata"]["annotations"] = {saved_state.ANNOTATION: "{}"}
    assert "left of a run" not in inspected()[0]


def test_what_a_run_has_changed_and_holds_is_said(cluster: Cluster, tmp_path: Path) -> None:
    assert "nvidia.com/gpu 1, shared by nothing\n" in inspected()[0]
    cluster.store[NODE]["metadata"]["labels"] |= {SHARING_LABEL: "time-slicing", CONFIG: "theirs"}
    cluster.store[NODE]["status"]["allocatable"] = {"nvidia.com/gpu.shared": "4"}
    cluster.store[NODE]["metadata"]["annotations"] = {saved_state.ANNOTATION: "{}"}
    lease = node_of(cluster, study_with(STUDY).node_options(), tmp_path)._lease
    cluster.store[lease.path] = {"metadata": {}, "spec": lease._spec("another")}
    text, is_fit = inspected()
    assert is_fit
    assert f"nvidia.com/gpu.shared 4, shared by time-slicing, by label {CONFIG}=theirs" in text
    assert "a run has left it changed: the next run restores it, or sharebench restore" in text
    assert "in use by run another (since " in text


def test_an_error_for_one_strategy_does_not_hide_the_others(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
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


WEB = {"web": {"kind": "http", "image": "web:1", "request": {"path": "/"}}}


def test_a_taint_that_nvidias_daemon_sets_do_not_tolerate_fails_preflight(cluster: Cluster) -> None:
    """A switch deletes their pods, and no other would start on the node."""
    cluster.store[NODE]["spec"]["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    cluster.daemon_sets[0]["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    text, is_fit = inspected(tolerations=[{"key": "team", "operator": "Exists"}])
    assert not is_fit
    assert "its taint team=a:NoSchedule keeps away new pods of discovery, mps, which a switch restarts" in text


def test_tenants_that_do_not_fit_on_the_node_fail_preflight(cluster: Cluster) -> None:
    cluster.store[NODE]["status"]["allocatable"] |= {"cpu": "2500m", "memory": "32Gi"}
    assert inspected(resources={"cpu": "500m", "memory": "8Gi"})[1]
    cluster.daemons["plugin"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", "memory": "10Gi"}}
    text, is_fit = inspected(resources={"cpu": "800m", "memory": "8Gi"})
    assert not is_fit
    assert "3 tenants request 2.4 CPUs, and other pods leave 1.5 CPUs of the node's 2.5 CPUs; lower" in text
    assert "3 tenants request 24.0 GiB, and other pods leave 22.0 GiB of the node's 32.0 GiB; lower" in text


def test_a_low_cpu_limit_is_named_wherever_it_comes_from(cluster: Cluster) -> None:
    def limited(cpu: str, **options: Any) -> tuple[str, bool]:
        resources = {"limits": {"cpu": cpu}}
        return inspected(pod={"spec": {"containers": [{"name": "tenant", "resources": resources}]}}, **options)

    text, is_fit = limited("500m")
    assert is_fit
    assert (
        "a CPU limit of 500m stops tenants that spin while they wait for the GPU; give none or 2 in the manifest, "
        in text
    )
    assert not any("CPU limit" in each for each, _ in (limited("2"), limited("1", device="cpu"), inspected()))


def test_strategies_have_the_order_of_the_config(cluster: Cluster) -> None:
    text, _ = inspected()
    places = [text.index(f"  {name} ") for name in ("exclusive", "time-slicing", "mps")]
    assert places == sorted(places)


MANIFEST = {
    "kind": "Pod",
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "volumes": [
            {"name": "models", "persistentVolumeClaim": {"claimName": "models"}},
            {"name": "all", "projected": {"sources": [{"configMap": {"name": "tuning"}}]}},
            {"name": "more", "secret": {"secretName": "more", "optional": True}},
        ],
        "containers": [
            {
                "name": "web",
                "image": "web:1",
                "ports": [{"containerPort": 9000}],
                "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}],
            },
            {"name": "logs", "image": "logs:1", "envFrom": [{"configMapRef": {"name": "logging"}}]},
        ],
    },
}


def test_what_a_manifest_leaves_open_or_the_namespace_lacks_is_said(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(MANIFEST))
    web = {"kind": "http", "manifest": str(tmp_path / "pod.yaml"), "port": 8000, "request": {"path": "/"}}
    cluster.store[f"{NAMESPACE}/configmaps/logging"] = {}
    cluster.hidden = {f"{NAMESPACE}/secrets/keys"}
    text, is_fit = inspected({"web": web}, client_image="client:1")
    assert not is_fit
    assert "its container web is measured, and logs only run next to it" in text
    assert "port 8000 is none of its containerPorts (9000)" in text
    assert "configmaps/tuning is not in namespace sharebench; copy it there" in text
    assert "persistentvolumeclaims/models is not in namespace sharebench" in text
    assert "without the right to see secrets/keys: make sure that namespace sharebench has it" in text
    assert not re.search("logging|secrets/more|sharebench-preflight", text)


def test_a_client_in_pytorchs_image_fails_preflight(cluster: Cluster) -> None:
    text, is_fit = inspected(WEB)
    assert not is_fit and "its client needs aiohttp, which PyTorch's image lacks; build envs/client" in text


@pytest.mark.parametrize("level", ["restricted", None])
def test_users_pods_are_tried_and_what_is_filled_in_is_said(cluster: Cluster, level: str | None) -> None:
    cluster.store[NAMESPACE]["metadata"]["labels"] = {LEVEL_LABEL: level} if level else {}
    text, is_fit = inspected(WEB, client_image="client:1")
    assert is_fit
    said = "Pod Security restricted of namespace sharebench adds allowPrivilegeEscalation false, capabilities"
    assert (said in text) == (level is not None)
    tried, *_ = cluster.tried
    assert [each["image"] for each in tried["spec"]["containers"]][:1] == ["web:1"]


def test_an_overlay_may_remove_the_tolerations(cluster: Cluster) -> None:
    cluster.store[NODE]["spec"]["taints"] = [{"key": "team", "effect": "NoSchedule"}]
    text, is_fit = inspected(pod={"spec": {"tolerations": None}})
    assert not is_fit and "the node's taint team:NoSchedule keeps it away" in text


def test_a_pod_that_the_server_refuses_fails_preflight(cluster: Cluster) -> None:
    cluster.verdict = 'Pod Security refuses the pod: violates PodSecurity "baseline:latest": host namespaces'
    text, is_fit = inspected(WEB)
    assert not is_fit and cluster.verdict in text
    text, is_fit = inspected()
    assert not is_fit and cluster.verdict in text, "also of built-in workloads, for a quota or a policy"


@pytest.mark.parametrize(
    ("taint", "tolerations", "is_tolerated"),
    [
        ({"key": "team", "value": "a", "effect": "NoSchedule"}, [], False),
        ({"key": "team", "value": "a", "effect": "NoExecute"}, [{"key": "team"}], True),
        ({"key": "team", "value": "a", "effect": "NoSchedule"}, [{"key": "team", "effect": "NoExecute"}], False),
        (
            {"key": "team", "value": "a", "effect": "NoSchedule"},
            [{"key": "team", "operator": "Equal", "value": "a"}],
            True,
        ),
        (
            {"key": "team", "value": "a", "effect": "NoSchedule"},
            [{"key": "team", "operator": "Equal", "value": "b"}],
            False,
        ),
        ({"key": "team", "effect": "PreferNoSchedule"}, [], True),
        ({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}, [], True),
        ({"key": reservation.TAINT, "value": "true", "effect": "NoSchedule"}, [], True),
    ],
)
def test_a_taint_that_keeps_tenants_away_comes_with_its_toleration(
    cluster: Cluster, taint: Any, tolerations: Any, is_tolerated: bool
) -> None:
    cluster.store[NODE]["spec"]["taints"] = [taint]
    cluster.store[NODE]["metadata"]["annotations"] = {saved_state.ANNOTATION: "{}"}
    for each in cluster.daemon_sets:
        each["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    text, is_fit = inspected(tolerations=tolerations)
    assert is_fit == is_tolerated
    said = f"kubernetes: {{tolerations: [{{key: team, operator: Exists, effect: {taint['effect']}}}]}}"
    assert (said in text) == (not is_tolerated)
