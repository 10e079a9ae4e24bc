"""Pods for other schedulers: their templates, their requirements, and the evidence of sharing."""

import copy
from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster, leased
from unit.studies import S, config_with, study_with

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import Evidence, Grant, NodeError, State
from sharebench.measure.nodes.kubernetes.access import static
from sharebench.measure.nodes.kubernetes.cluster import reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import Json
from sharebench.measure.nodes.kubernetes.cluster.lease import node_digest
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.model.config.load import load
from sharebench.model.pod_template import WHOLE_GPU, PodTemplate
from sharebench.model.strategies import all_strategies, effective_strategy
from sharebench.model.strategy import Strategy

NAMES = ["hami", "volcano-vgpu", "hami-mig", "kai-fraction", "as-found"]
AS_FOUND = {"mechanism": "time-slicing", "access": "static", "pod": {"resources": {"nvidia.com/gpu": 1}}}
GIVEN = {"node": "kubernetes", "replicas": [1, 3, 7], "strategies": NAMES, f"{S}.as-found": AS_FOUND}
STUDY = study_with(GIVEN)
MEMORY = "nvidia.com/gpu.memory"


def scheduler_pod(deployment: str, ready: bool = True) -> Json:
    """A pod of a Deployment's ReplicaSet."""
    return {
        "metadata": {
            "name": f"{deployment}-7d9f-x2x4z",
            "namespace": "system",
            "labels": {"pod-template-hash": "7d9f"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": f"{deployment}-7d9f", "uid": "r"}],
        },
        "spec": {"containers": [{"name": "scheduler"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def tenant(scheduler: str = "hami-scheduler", **annotations: str) -> Json:
    metadata = {"name": "t", "namespace": "sharebench", "labels": {"sharebench/node": node_digest("gpu-node")}}
    return {
        "metadata": metadata | {"annotations": annotations},
        "spec": {"schedulerName": scheduler, "containers": []},
        "status": {"phase": "Running"},
    }


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    monkeypatch.setattr(static, "time", made)
    monkeypatch.setenv(RUN_ID_VARIABLE, "a-run")
    for name in ("hami-scheduler", "volcano-scheduler", "kai-scheduler-default"):
        made.foreign.append(scheduler_pod(name))
    made.store[NODE]["status"]["allocatable"] |= {"nvidia.com/gpu": "10", "volcano.sh/vgpu-number": "10"}
    return made


@pytest.fixture
def node(cluster: FakeCluster, tmp_path: Path) -> ClusterNode:
    return leased(cluster, STUDY.node_options(), tmp_path)


def state(name: str) -> State:
    return State(STUDY.strategies[name], None, 0)


def needs(node: ClusterNode, name: str, replicas: int) -> Any:
    cell = next(each for each in STUDY.cells if (each.strategy, each.replicas) == (name, replicas))
    return node.access("static").pod_needs(STUDY.spec(cell), Grant(0, 0))


def infeasible_reason(node: ClusterNode, name: str, replicas: int = 3) -> str | None:
    return node.infeasible(STUDY.strategies[name], replicas)


@pytest.mark.parametrize(
    "there", [[], [scheduler_pod("hami-scheduler", ready=False)], [scheduler_pod("hami-scheduler-extender")]]
)
def test_a_missing_scheduler_is_infeasible(cluster: FakeCluster, node: ClusterNode, there: list[Json]) -> None:
    cluster.foreign = there
    assert (infeasible_reason(node, "hami") or "").startswith(
        "no Deployment hami-scheduler with a ready pod is in the cluster;"
    )
    with pytest.raises(NodeError, match="no Deployment hami-scheduler"):
        node.ensure(state("hami"))
    assert infeasible_reason(node, "as-found") is None


def test_a_node_that_offers_too_little_is_infeasible(cluster: FakeCluster, node: ClusterNode) -> None:
    offered = cluster.store[NODE]["status"]["allocatable"]
    offered["nvidia.com/gpu"] = "4"
    assert infeasible_reason(node, "as-found", 3) is None
    assert infeasible_reason(node, "as-found", 7) == "the node offers 4 of nvidia.com/gpu, and 7 tenants ask for 7"
    offered["nvidia.com/gpu"] = "1k"
    assert infeasible_reason(node, "as-found", 7) is None
    del offered["volcano.sh/vgpu-number"]
    cluster.store[NODE]["metadata"]["labels"][MEMORY] = "40960"
    assert (infeasible_reason(node, "volcano-vgpu") or "").startswith("the node offers no volcano.sh/vgpu-number or")


def test_room_is_not_judged_while_another_access_is_active(cluster: FakeCluster, node: ClusterNode) -> None:
    """That access is restored before these pods start, and a reason would stay in the records."""
    cluster.store[NODE]["status"]["allocatable"]["nvidia.com/gpu"] = "1"
    saved = saved_state.dump({"device-plugin": {}})
    cluster.store[NODE]["metadata"]["annotations"] = {saved_state.ANNOTATION: saved}
    assert infeasible_reason(node, "as-found", 7) is None
    cluster.store[NODE]["metadata"]["annotations"] = {}
    assert infeasible_reason(node, "as-found", 7) is not None


def test_unknown_memory_is_infeasible_for_mib(cluster: FakeCluster, node: ClusterNode) -> None:
    assert "no label nvidia.com/gpu.memory" in (infeasible_reason(node, "volcano-vgpu") or "")
    cluster.store[NODE]["metadata"]["labels"][MEMORY] = "40960"
    assert infeasible_reason(node, "volcano-vgpu") is None


def test_without_nvidias_plugin_the_lease_is_in_the_tenants_namespace(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.daemon_sets.clear()
    made = leased(cluster, STUDY.node_options(), tmp_path)
    assert any("/namespaces/sharebench/leases/" in path for path in cluster.store)
    assert made.infeasible(STUDY.strategies["hami"], 3) is None


def test_only_the_taint_is_changed(cluster: FakeCluster, node: ClusterNode) -> None:
    before = copy.deepcopy(cluster.store[NODE])
    node.ensure(state("hami"))
    changed = cluster.store[NODE]
    assert changed["metadata"]["labels"] == before["metadata"]["labels"]
    assert [taint["key"] for taint in changed["spec"]["taints"]] == [reservation.TAINT]
    node.restore()
    assert not cluster.store[NODE]["spec"].get("taints")
    assert saved_state.load(cluster.store[NODE]) is None


def test_a_suspect_foreign_mps_daemon_is_refused(node: ClusterNode, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = State(STUDY.strategies["as-found"].changed(mechanism=("mps",)), None, 0)
    node.ensure(shared)
    node.mark_dirty()
    for _ in range(2):
        with pytest.raises(NodeError, match=r"under an MPS daemon that is not ours to restart.*then run again"):
            node.ensure(shared)
    node.ensure(state("hami"))
    monkeypatch.setattr(static.StaticAccess, "evidence", lambda *_: [])
    node.evidence(STUDY.strategies["hami"], node.grants(STUDY.strategies["hami"], 1), [{"view": None}])  # type: ignore[typeddict-item]
    with pytest.raises(NodeError, match="not ours to restart"):
        node.ensure(shared)
    # A run after one that was killed.
    node.sweep()
    with pytest.raises(NodeError, match="not ours to restart"):
        node.ensure(shared)
    # At the end of the run the mark is removed: a user who starts another one has read the message.
    node.restore()
    node.ensure(shared)


def test_a_schedulers_reservation_pods_are_waited_for(cluster: FakeCluster, node: ClusterNode) -> None:
    holder = scheduler_pod("holder")
    holder["metadata"]["namespace"] = "kai-resource-reservation"
    cluster.foreign.append(holder)
    needs(node, "hami", 3)
    node.access("static").clean_up()
    assert cluster.now == 1000.0
    needs(node, "kai-fraction", 3)
    node.access("static").clean_up()
    assert cluster.now >= 1000.0 + static.RELEASE_SECONDS
    cluster.foreign.remove(holder)
    began = cluster.now
    node.access("static").clean_up()
    assert cluster.now == began


def view(**changes: Any) -> Json:
    seen = {"device": "0" * 16, "memory_total_bytes": None, "over_limit_refused": None}
    return {"view": seen | {"variables": {"CUDA_DEVICE_SM_LIMIT": "50"}} | changes}


def failed(evidence: Evidence) -> set[str]:
    return {item["name"] for item in evidence if not item["holds"]}


def hami_evidence(cluster: FakeCluster, node: ClusterNode, *records: Json) -> Evidence:
    if not any(
        "labels" in pod["metadata"] and "sharebench/node" in pod["metadata"]["labels"] for pod in cluster.foreign
    ):
        cluster.foreign += [tenant(**{"hami.io/vgpu-devices-allocated": "GPU-x,NVIDIA,1,50:;"})] * 2
    grants = [Grant(index, 0) for index in range(len(records))]
    return node.evidence(STUDY.strategies["hami"], grants, records)


def test_without_cuda_evidence_comes_from_pods_and_variables(cluster: FakeCluster, node: ClusterNode) -> None:
    evidence = hami_evidence(cluster, node, view(), view())
    assert failed(evidence) == set()
    assert not any("memory" in item["name"] for item in evidence)


def test_a_share_that_was_not_allocated_contradicts_the_strategy(cluster: FakeCluster, node: ClusterNode) -> None:
    cluster.foreign += [tenant("default-scheduler"), tenant()]
    evidence = hami_evidence(cluster, node, view(), view(variables={"CUDA_DEVICE_SM_LIMIT": None}, device="1" * 16))
    assert failed(evidence) == {
        "pods of the scheduler hami-scheduler",
        "pods with the annotation hami.io/vgpu-devices-allocated",
        "devices that the tenants were given",
        "variable CUDA_DEVICE_SM_LIMIT",
    }


def test_a_whole_gpu_is_not_requested_as_a_fraction(cluster: FakeCluster, node: ClusterNode) -> None:
    kai = STUDY.strategies["kai-fraction"]
    cluster.foreign += [tenant("kai-scheduler", **{"received-resource-type": "Fraction"})]
    assert failed(node.evidence(kai, [Grant(0, 0)], [view()])) == set()
    cluster.foreign[-1]["metadata"]["annotations"]["received-resource-type"] = "Regular"
    assert failed(node.evidence(kai, [Grant(0, 0)], [view()])) == {
        "pods with the annotation received-resource-type=Fraction"
    }


def test_in_a_mig_mode_each_tenant_must_have_an_instance_of_its_own(cluster: FakeCluster, node: ClusterNode) -> None:
    cluster.store[NODE]["metadata"]["labels"][MEMORY] = "40960"
    cluster.foreign += [tenant(**{"hami.io/vgpu-devices-allocated": "MIG-x,NVIDIA,5120,0:;"})] * 2
    mig, instance = STUDY.strategies["hami-mig"], view(memory_total_bytes=5120 << 20)
    grants = node.grants(mig, 2)
    apart = [instance, view(device="1" * 16, memory_total_bytes=5120 << 20)]
    assert failed(node.evidence(mig, grants, apart)) == set()  # type: ignore[arg-type]
    assert failed(node.evidence(mig, grants, [instance] * 2)) == {"devices that the tenants were given"}  # type: ignore[list-item]


def test_an_allocation_beyond_the_limit_must_fail(cluster: FakeCluster, node: ClusterNode) -> None:
    cluster.store[NODE]["metadata"]["labels"][MEMORY] = "40960"
    assert (
        0.33 * (40960 << 20) < int(needs(node, "hami", 3).environment["SHAREBENCH_PROBE_BYTES"]) < 0.4 * (40960 << 20)
    )
    half = 20480 << 20
    kept = view(memory_total_bytes=half, over_limit_refused=True)
    assert failed(hami_evidence(cluster, node, kept, kept)) == set()
    loose = view(memory_total_bytes=2 * half, over_limit_refused=False)
    assert failed(hami_evidence(cluster, node, kept, loose)) == {
        "memory that CUDA shows, in bytes",
        "allocation beyond the limit refused",
    }


def strategy(thread_percent: Any = "100/N", memory_percent: Any = "100/N", **pod: Any) -> Strategy:
    made = Strategy.model_construct(
        name="own",
        mechanism=("time-slicing",),
        thread_percent=thread_percent,
        memory_percent=memory_percent,
        access="static",
        pod=PodTemplate.model_construct(**pod),
    )
    return effective_strategy(made)


def filled(made: Strategy, replicas: int, memory_mib: int | None = None) -> PodTemplate:
    assert made.pod is not None
    return made.pod.filled_in(replicas, made.shared_limits(replicas), memory_mib)


@pytest.mark.parametrize(
    ("replicas", "percent", "fraction", "mib"),
    [(1, "100", "1.00", "40960"), (3, "33", "0.33", "13516"), (7, "14", "0.14", "5734")],
)
def test_shares_are_rounded_down_so_that_all_tenants_fit(replicas: int, percent: str, fraction: str, mib: str) -> None:
    """33 % of 40960 MiB are 13516.8, 14 % are 5734.4."""
    resources = {"a.b/cores": "$thread_percent", "a.b/mem": "$memory_mib", "a.b/gpu": "1"}
    annotations = {"share": "$fraction", "of": "$replicas tenants"}
    made = filled(strategy(resources=resources, annotations=annotations), replicas, 40960)
    assert made.resources == {"a.b/cores": percent, "a.b/mem": mib, "a.b/gpu": "1"}
    assert made.annotations == {"share": fraction, "of": f"{replicas} tenants"}
    assert int(percent) * replicas <= 100
    assert float(fraction) * replicas <= 1


def test_only_mib_need_the_size_of_the_memory() -> None:
    in_percent = strategy(resources={"a.b/mem": "$memory_percent"})
    assert in_percent.pod and not in_percent.pod.needs_memory()
    assert filled(in_percent, 4).resources == {"a.b/mem": "25"}
    in_mib = strategy(resources={"a.b/mem": "$memory_mib"})
    assert in_mib.pod and in_mib.pod.needs_memory()


def test_the_limits_of_the_record_are_what_the_pods_ask_for() -> None:
    """In whole percent, since resources in Kubernetes are whole numbers."""
    assert strategy("100/N", 12.5).limits(7) == {"thread_percent": 14.0, "memory_percent": 12.0}
    assert strategy(None, None).limits(7) == {"thread_percent": None, "memory_percent": None}


def test_a_template_of_the_config_reaches_the_strategy() -> None:
    entry = {"mechanism": "time-slicing", "access": "static", "pod": {"resources": {"nvidia.com/gpu": 1}}}
    known = all_strategies(load(config_with({"strategy_catalogue.own": entry})))
    assert known["own"].pod == WHOLE_GPU
    assert known["mps"].pod is None
    assert effective_strategy(known["exclusive"].changed(access="static")).pod == WHOLE_GPU
    assert effective_strategy(known["exclusive"].changed(access="device-plugin")).pod is None
