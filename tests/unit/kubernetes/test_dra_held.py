"""Claims that a state holds: cells reuse them, and they end with the state."""

from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import leased
from unit.kubernetes.test_dra import CLAIMS, STUDY, Claims, cluster, driver_set

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.cell.cell import refuse_contradiction
from sharebench.measure.nodes.contract import NodeError, State
from sharebench.measure.nodes.kubernetes.access.dra import nvidia
from sharebench.measure.nodes.kubernetes.cluster import saved_state
from sharebench.measure.nodes.kubernetes.cluster.foreign_pods import HELD_LABEL
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.model.spec import Spec

__all__ = ["cluster"]
PODS = "/api/v1/namespaces/sharebench/pods"


@pytest.fixture
def node(cluster: Claims, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ClusterNode:
    monkeypatch.setenv(RUN_ID_VARIABLE, "a-run")
    cluster.daemon_sets[-1] = driver_set("TimeSlicingSettings=true,MPSSupport=true")
    cluster.looks_left = 0
    return leased(cluster, STUDY.node_options(), tmp_path)


def next_job_node(node: ClusterNode, cluster: Claims) -> ClusterNode:
    """The node as in the next job of the run."""
    cluster.log.clear()
    return leased(cluster, STUDY.node_options(), node.folder)


def state(strategy: str = "mps") -> State:
    return State(STUDY.strategies[strategy], None, 0)


def made(cluster: Claims) -> list[str]:
    """Collections of the objects created since the log was cleared."""
    return [path.rpartition("/")[2] for verb, path, _ in cluster.log if verb == "create" and "leases" not in path]


def spec_of(strategy: str) -> Spec:
    return STUDY.spec(next(cell for cell in STUDY.cells if cell.strategy == strategy))


def test_a_state_under_mps_holds_the_claim_that_its_cells_use(cluster: Claims, node: ClusterNode) -> None:
    node.ensure(state())
    assert made(cluster) == ["resourceclaims", "pods"]
    (claim,) = cluster.claims
    (holder,) = cluster.tenants
    assert holder["spec"]["resourceClaims"][0]["resourceClaimName"] == claim["metadata"]["name"]
    later = next_job_node(node, cluster)
    later.ensure(state())
    assert made(cluster) == []
    dra, spec = later.access("dra"), spec_of("mps")
    assert dra.cell_objects(spec) == []
    needs = dra.pod_needs(spec, later.grants(STUDY.strategies["mps"], 3)[0])
    assert [f"{needs.claims_prefix}-{name}" for name in needs.claims] == [claim["metadata"]["name"]]
    dra.clean_up()
    assert cluster.claims == [claim], "the rest of cells is removed, held claims are not"


def test_evidence_does_not_count_the_holder_pod(cluster: Claims, node: ClusterNode) -> None:
    node.ensure(state())
    dra, mps = node.access("dra"), STUDY.strategies["mps"]
    dra.cell_objects(spec_of("mps"))
    (claim,) = cluster.claims
    config = [each | {"source": "FromClaim"} for each in claim["spec"]["devices"]["config"]]
    result = {"request": "part-0", "driver": nvidia.DRIVER, "pool": "gpu-node", "device": "gpu-0"}
    consumers = [cluster.tenants[0]["metadata"]["name"], *(f"sharebench-abc-{n}" for n in range(3))]
    claim["status"] = {
        "allocation": {"devices": {"results": [result], "config": config}},
        "reservedFor": [{"name": name} for name in consumers],
    }
    cluster.deployments = [
        {
            "metadata": {"name": f"{nvidia.DAEMON_PREFIX}1"},
            "spec": {"template": {"spec": {"nodeName": "gpu-node"}}},
            "status": {"readyReplicas": 1},
        }
    ]
    view = {"nodes": ["nvidia0"], "variables": {"NVIDIA_VISIBLE_DEVICES": "void"}, "mps_pipe": "/tmp/nvidia-mps"}
    seen: list[Any] = [{"view": view}] * 3
    refuse_contradiction(mps, dra.evidence(mps, dra.grants(mps, 3), seen))
    claim["status"]["reservedFor"].pop()
    with pytest.raises(NodeError, match="reservedFor: expected 3, observed 2"):
        refuse_contradiction(mps, dra.evidence(mps, dra.grants(mps, 3), seen))


@pytest.mark.parametrize("lost", ["claim", "holder", "another claim"])
def test_a_lost_claim_or_holder_pod_is_recreated(cluster: Claims, node: ClusterNode, lost: str) -> None:
    node.ensure(state())
    if lost == "claim":
        cluster.claims.clear()
    elif lost == "holder":
        cluster.tenants.clear()
    else:
        cluster.claims[0]["metadata"]["labels"][HELD_LABEL] = "asks-for-something-else"
    later = next_job_node(node, cluster)
    later.ensure(state())
    assert made(cluster) == ["resourceclaims", "pods"]
    assert (len(cluster.claims), len(cluster.tenants)) == (1, 1)


def test_claims_are_replaced_after_tenants_ended_badly(
    cluster: Claims, node: ClusterNode, capsys: pytest.CaptureFixture[str]
) -> None:
    node.ensure(state())
    (before,) = cluster.tenants
    node.mark_dirty()
    next_job_node(node, cluster).ensure(state())
    assert made(cluster) == ["resourceclaims", "pods"]
    assert cluster.tenants[0]["metadata"]["name"] != before["metadata"]["name"]
    assert "their claims are replaced" in capsys.readouterr().err
    next_job_node(node, cluster).ensure(state())
    assert made(cluster) == []


def test_the_next_state_removes_held_claims(cluster: Claims, node: ClusterNode) -> None:
    node.ensure(state())
    later = next_job_node(node, cluster)
    later.ensure(state("time-slicing"))
    assert (cluster.claims, cluster.tenants, made(cluster)) == ([], [], [])
    assert later.access("dra").cell_objects(spec_of("time-slicing")) != []


@pytest.mark.parametrize("way", ["restore", "sweep"])
def test_no_claims_are_left_after_a_run_or_its_death(cluster: Claims, node: ClusterNode, way: str) -> None:
    node.ensure(state())
    other = next_job_node(node, cluster)
    getattr(other, way)()
    assert (cluster.claims, cluster.tenants) == ([], [])
    assert saved_state.load(other.cluster.read_node()) is None


def test_claims_that_the_driver_does_not_prepare_fail_the_state(cluster: Claims, node: ClusterNode) -> None:
    cluster.phase = "Pending"

    def prepare() -> None:
        if cluster.tenants and not cluster.events:
            said = "the MPSSupport feature gate is not enabled"
            cluster.events = [{"involvedObject": cluster.tenants[0]["metadata"], "message": said}]

    cluster.meanwhile = prepare
    with pytest.raises(NodeError, match="does not prepare the claim: the MPSSupport feature gate is not enabled"):
        node.ensure(state())
    cluster.meanwhile = lambda: None
    with pytest.raises(NodeError, match=r"holds the claims did not run within \d+ s: phase Pending"):
        next_job_node(node, cluster).ensure(state())
    assert [path for verb, path, _ in cluster.log if verb == "delete"][-1].startswith(f"{CLAIMS}/")
