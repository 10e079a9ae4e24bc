"""The life of claims, and the evidence that they were as requested."""

from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import FakeCluster, copied, node_of
from unit.kubernetes.objects import UUID, daemon_set, gpu, in_slice, instance
from unit.studies import config_with, study_with

from sharebench.measure.cell.cell import refuse_contradiction
from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.access.dra import claims_access as module
from sharebench.measure.nodes.kubernetes.access.dra import nvidia
from sharebench.measure.nodes.kubernetes.access.dra.claims_access import DraAccess
from sharebench.measure.nodes.kubernetes.access.dra.nvidia import feature_gates
from sharebench.measure.nodes.kubernetes.cluster import claims_api
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.measure.nodes.kubernetes.preflight import preflight
from sharebench.model.config.load import load
from sharebench.model.spec import Spec
from sharebench.study.cells import Cell
from sharebench.study.study import Study
from tenant.contract import device_digest

GIVEN = {"node": "kubernetes", "kubernetes.access": "dra", "strategies": ["time-slicing", "mps"], "replicas": [3]}
STUDY = study_with(GIVEN)
TIME_SLICING = STUDY.strategies["time-slicing"]
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/sharebench/resourceclaims"
MESSAGE = "error preparing devices for claim sharebench/x: "


def driver_set(gates: str) -> dict[str, Any]:
    made = daemon_set("dra", "gpus")
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["args"] = ["gpu-kubelet-plugin -v $(LOG_VERBOSITY)"]
    container["env"] = [{"name": "FEATURE_GATES", "value": gates}]
    return made


class Claims(FakeCluster):
    """A cluster with NVIDIA's DRA driver. Deleted claims disappear after some reads."""

    def __init__(self) -> None:
        super().__init__()
        self.daemon_sets.append(driver_set("TimeSlicingSettings=true,"))
        self.slices = [in_slice(gpu())]
        self.claims: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self.deployments: list[dict[str, Any]] = []
        self.is_served = True
        self.looks_left = 2
        self.phase = "Running"
        """Phase of created pods."""

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        made = super().create(path, body)
        if path == CLAIMS:
            self.claims.append(made)
        if path.endswith("/pods"):
            made = self.store[f"{path}/{body['metadata']['name']}"] = made | {"status": {"phase": self.phase}}
            self.tenants.append(made)
        return made

    def find(self, path: str) -> dict[str, Any] | None:
        if path == "/apis/resource.k8s.io/v1":
            return {} if self.is_served else None
        if path == CLAIMS:
            ending = [claim for claim in self.claims if "deletionTimestamp" in claim["metadata"]]
            self.looks_left -= bool(ending)
            if ending and self.looks_left <= 0:
                self.claims = [claim for claim in self.claims if claim not in ending]
        lists = {
            "/apis/resource.k8s.io/v1/resourceslices": self.slices,
            CLAIMS: self.claims,
            "/api/v1/namespaces/sharebench/events": self.events,
            "/apis/apps/v1/namespaces/nvidia/deployments": self.deployments,
        }
        return {"items": copied(lists[path])} if path in lists else super().find(path)

    def delete(self, path: str, grace_seconds: int | None = None, **query: Any) -> None:
        super().delete(path)
        for claim in self.claims:
            if path.endswith(claim["metadata"]["name"]):
                claim["metadata"]["deletionTimestamp"] = "now"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Claims:
    made = Claims()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture
def node(cluster: Claims, tmp_path: Path) -> ClusterNode:
    return node_of(cluster, STUDY.node_options(), tmp_path)


@pytest.fixture
def dra(node: ClusterNode) -> DraAccess:
    found = node.access("dra")
    assert isinstance(found, DraAccess)
    return found


def spec(replicas: int = 3) -> Spec:
    return STUDY.spec(Cell("time-slicing", "matmul", replicas, 1))


def allocated(dra: DraAccess, consumers: int = 3) -> dict[str, Any]:
    """The cell's claim as the scheduler and the kubelet leave it."""
    (claim,) = dra.cell_objects(spec())
    result = {"request": "part-0", "driver": nvidia.DRIVER, "pool": "gpu-node", "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"name": str(n)} for n in range(consumers)],
    }
    return copied(claim) | {"status": status}


def records(**more: Any) -> list[dict[str, Any]]:
    view = {"device": None, "nodes": ["nvidia0"], "variables": {"NVIDIA_VISIBLE_DEVICES": "void"}, "mps_pipe": None}
    return [{"view": view | more} for _ in range(3)]


def test_evidence_of_three_tenants_that_share_a_claim(cluster: Claims, dra: DraAccess) -> None:
    cluster.claims = [allocated(dra)]
    evidence = dra.evidence(TIME_SLICING, dra.grants(TIME_SLICING, 3), records(device=device_digest(UUID)))
    refuse_contradiction(TIME_SLICING, evidence)
    assert all(each["holds"] for each in evidence)
    assert {"reservedFor", "device", "GPUs by device files"} <= {each["name"] for each in evidence}
    # nothing that identifies the device
    assert UUID not in str(evidence)


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        ({"device": device_digest("GPU-another")}, "device: expected"),
        ({"nodes": ["nvidia0", "nvidia1"]}, "GPUs by device files"),
        ({"variables": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "variables of the CDI device"),
        ({"mps_pipe": "/tmp/nvidia-mps"}, "has the pipe of an MPS daemon"),
    ],
)
def test_a_tenant_with_another_view_is_refused(
    cluster: Claims, dra: DraAccess, broken: dict[str, Any], words: str
) -> None:
    cluster.claims = [allocated(dra)]
    seen = records(device=device_digest(UUID))
    seen[1]["view"] |= broken
    with pytest.raises(NodeError, match=f"time-slicing was not active: {words}"):
        refuse_contradiction(TIME_SLICING, dra.evidence(TIME_SLICING, dra.grants(TIME_SLICING, 3), seen))


def test_a_claim_that_differs_from_the_created_one_is_refused(cluster: Claims, dra: DraAccess) -> None:
    for claim, words in (
        (allocated(dra, consumers=2), "reservedFor: expected 3, observed 2"),
        (
            allocated(dra) | {"status": {"allocation": {}, "reservedFor": [{"name": str(n)} for n in range(3)]}},
            "requests with a device",
        ),
    ):
        cluster.claims = [claim]
        with pytest.raises(NodeError, match=words):
            refuse_contradiction(TIME_SLICING, dra.evidence(TIME_SLICING, dra.grants(TIME_SLICING, 3), records()))
    other = allocated(dra)
    config = {"source": "FromClaim", "requests": ["part-0"], "opaque": {"parameters": {"kind": "GpuConfig"}}}
    other["status"]["allocation"]["devices"]["config"] = [config, {"source": "FromClass"}]
    cluster.claims = [other]
    with pytest.raises(NodeError, match="opaque configuration"):
        refuse_contradiction(TIME_SLICING, dra.evidence(TIME_SLICING, dra.grants(TIME_SLICING, 3), records()))


def test_evidence_of_a_claim_for_each_instance(cluster: Claims, dra: DraAccess) -> None:
    given = config_with(GIVEN | {"strategies": ["mig-own-claims"]})
    of_study = Study(load(given))
    wanted = of_study.strategies["mig-own-claims"]
    cell = next(cell for cell in of_study.cells if (cell.strategy, cell.replicas) == (wanted.name, 3))
    cluster.slices = [in_slice(*(instance("1g.5gb", number) for number in range(7, 14)))]
    spec = of_study.spec(cell)
    made = [
        claim | {"metadata": {"name": f"sharebench-x-{claim['metadata']['name']}"}} for claim in dra.cell_objects(spec)
    ]
    for number, claim in enumerate(made):
        result = {"request": f"part-{number}", "driver": nvidia.DRIVER, "pool": "gpu-node"}
        results = [result | {"device": f"gpu-0-mig-1g5gb-{9 + number}"}]
        claim["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"name": "x"}]}
    # in whatever order the API server has them
    cluster.claims = made[::-1]
    grants = dra.grants(wanted, 3)
    assert [dict(dra.pod_needs(spec, grant).claims) for grant in grants] == [
        {f"gpu-{n}": f"part-{n}"} for n in range(3)
    ]
    seen = [
        {"view": each["view"] | {"device": device_digest(f"MIG-0-1g.5gb-{9 + number}")}}
        for number, each in enumerate(records())
    ]
    evidence = dra.evidence(wanted, grants, seen)
    refuse_contradiction(wanted, evidence)
    assert [each["observed"] for each in evidence if each["name"] == "reservedFor"] == [1, 1, 1]
    assert [each["observed"] for each in evidence if each["name"] == "GPUs of the allocated instances"] == [1]
    # two tenants of one instance
    seen[1] = seen[0]
    with pytest.raises(NodeError, match="device: expected"):
        refuse_contradiction(wanted, dra.evidence(wanted, grants, seen))


def test_evidence_of_claims_made_from_a_template(cluster: Claims, dra: DraAccess) -> None:
    of_study = study_with(GIVEN | {"strategies": ["exclusive-own-claims"]})
    wanted = of_study.strategies["exclusive-own-claims"]
    spec = of_study.spec(next(cell for cell in of_study.cells if (cell.strategy, cell.replicas) == (wanted.name, 3)))
    cluster.slices = [in_slice(*(gpu(minor, f"GPU-{minor}") for minor in range(4)))]
    (template,) = dra.cell_objects(spec)
    assert template["kind"] == "ResourceClaimTemplate"
    # the scheduler may give any GPU to any tenant
    given = {0: 2, 1: 0, 2: 3}
    for index, minor in given.items():
        result = {"request": "part-0", "driver": nvidia.DRIVER, "pool": "gpu-node", "device": f"gpu-{minor}"}
        status = {"allocation": {"devices": {"results": [result]}}, "reservedFor": [{"name": f"sharebench-x-{index}"}]}
        metadata = {"name": f"sharebench-x-{index}-gpu-0-abcde", **template["spec"]["metadata"]}
        cluster.claims.insert(0, {"metadata": metadata, "spec": template["spec"]["spec"], "status": status})
    grants, seen = dra.grants(wanted, 3), records()
    assert {dra.pod_needs(spec, grant).is_template for grant in grants} == {True}
    for index, minor in given.items():
        seen[index] = {"view": seen[index]["view"] | {"nodes": [f"nvidia{minor}"]}}
    refuse_contradiction(wanted, dra.evidence(wanted, grants, seen))
    seen[1] = seen[0]
    with pytest.raises(NodeError, match="GPUs by device files"):
        refuse_contradiction(wanted, dra.evidence(wanted, grants, seen))
    assert "3 whole GPUs are needed" not in (dra.infeasible(wanted, 4) or "")
    assert "5 whole GPUs are needed, the DRA driver offers 4" in (dra.infeasible(wanted, 5) or "")


def test_evidence_of_tenants_that_share_a_gpu_by_a_claim_each(cluster: Claims, dra: DraAccess) -> None:
    of_study = study_with(GIVEN | {"strategies": ["time-slicing-own-claims"]})
    wanted = of_study.strategies["time-slicing-own-claims"]
    spec = of_study.spec(next(cell for cell in of_study.cells if (cell.strategy, cell.replicas) == (wanted.name, 3)))
    several = {"allowMultipleAllocations": True}
    cluster.slices = [in_slice(*(gpu(minor, uuid) | several for minor, uuid in enumerate((UUID, "GPU-1"))))]
    assert dra.infeasible(wanted, 3) is None
    (template,) = dra.cell_objects(spec)
    assert (template["kind"], template["metadata"]["name"]) == ("ResourceClaimTemplate", "gpu-0")
    grants, seen = dra.grants(wanted, 3), records(device=device_digest(UUID))
    assert [(dict(needs.claims), needs.is_template) for needs in (dra.pod_needs(spec, each) for each in grants)] == [
        ({"gpu-0": "part-0"}, True)
    ] * 3
    for index in range(3):
        result = {"request": "part-0", "driver": nvidia.DRIVER, "pool": "gpu-node", "device": "gpu-0"}
        results = [result | {"shareID": f"share-{index}"}]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"name": f"sharebench-x-{index}"}]}
        metadata = {"name": f"sharebench-x-{index}-gpu-0-abcde", **template["spec"]["metadata"]}
        cluster.claims.append({"metadata": metadata, "spec": template["spec"]["spec"], "status": status})
    evidence = dra.evidence(wanted, grants, seen)
    refuse_contradiction(wanted, evidence)
    assert [each["observed"] for each in evidence if each["name"] == "reservedFor"] == [1, 1, 1]
    assert [each["observed"] for each in evidence if each["name"].startswith("tenants by")] == [[[0, 1, 2]]]
    cluster.claims[1]["status"]["allocation"]["devices"]["results"][0]["device"] = "gpu-1"
    with pytest.raises(NodeError, match="GPUs by device files"):
        refuse_contradiction(wanted, dra.evidence(wanted, grants, seen))


def test_limits_that_tenants_do_not_share_are_in_their_environment(cluster: Claims, dra: DraAccess) -> None:
    of_study = study_with(GIVEN | {"strategies": ["mps-unequal-dra"]})
    wanted = of_study.strategies["mps-unequal-dra"]
    spec = of_study.spec(next(cell for cell in of_study.cells if cell.strategy == wanted.name))
    given = [dra.pod_needs(spec, grant).environment for grant in dra.grants(wanted, 3)]
    assert [each["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for each in given] == ["60", "20", "20"]
    assert [each["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] for each in given] == ["0=24576M", "0=8192M", "0=8192M"]


def test_clean_up_waits_for_claims_and_names_one_that_stays(cluster: Claims, dra: DraAccess) -> None:
    metadata = {"name": "sharebench-abc-gpu", "finalizers": ["resource.kubernetes.io/delete-protection"]}
    cluster.claims = [{"metadata": metadata}]
    began = cluster.now
    dra.clean_up()
    assert cluster.claims == [] and cluster.now > began
    assert [path for verb, path, _ in cluster.log if verb == "delete"] == [f"{CLAIMS}/sharebench-abc-gpu"]
    cluster.claims, cluster.looks_left = [{"metadata": metadata}], 1000
    with pytest.raises(NodeError, match=r"sharebench-abc-gpu \(resource.kubernetes.io/delete-protection\)"):
        dra.clean_up()


def test_clean_up_waits_for_this_nodes_mps_daemon(cluster: Claims, dra: DraAccess) -> None:
    def daemon(name: str, node: str) -> dict[str, Any]:
        return {"metadata": {"name": name}, "spec": {"template": {"spec": {"nodeName": node}}}}

    cluster.deployments = [daemon("mps-control-daemon-1-abcde", "elsewhere"), daemon("webhook", "gpu-node")]
    dra.clean_up()
    cluster.deployments.append(daemon("mps-control-daemon-2-abcde", "gpu-node"))
    with pytest.raises(
        NodeError, match=r"daemons, which other users' claims may have, did not go .*mps-control-daemon-2-abcde"
    ):
        dra.clean_up()


@pytest.mark.parametrize(
    ("said", "seconds", "is_named"),
    [
        ("MPS control daemon is not yet ready: waiting for MPS control daemon to come online", 100.0, False),
        ("requested device gpu-0 is already allocated to different claim 1", 100.0, False),
        ("error acquiring prep/unprep lock: timeout acquiring lock (pu.lock)", 100.0, False),
        ("rpc error: something else", 10.0, False),
        ("rpc error: something else", 100.0, True),
    ],
)
def test_only_permanent_prepare_failures_are_reported(
    cluster: Claims, dra: DraAccess, said: str, seconds: float, is_named: bool
) -> None:
    cluster.events = [{"involvedObject": {"name": "sharebench-abc-0"}, "message": MESSAGE + said}]
    assert dra.start_failure(["sharebench-abc-1"], seconds) is None
    # not read in every turn
    assert dra.start_failure(["sharebench-abc-0"], seconds) is None
    cluster.sleep(module.EVENT_POLL_SECONDS)
    why = dra.start_failure(["sharebench-abc-0"], seconds)
    assert (why is not None and said in why) == is_named


def test_missing_requirements_of_dra_are_named(cluster: Claims, dra: DraAccess) -> None:
    assert dra.missing() is None
    assert dra.infeasible(TIME_SLICING, 3) is None
    assert "featureGates.MPSSupport=true" in (dra.infeasible(STUDY.strategies["mps"], 3) or "")
    for is_served, words in ((False, "serves no resource.k8s.io/v1"), (True, "gpuResourcesEnabledOverride")):
        cluster.is_served, cluster.slices = is_served, []
        for name in ("is_served", "devices"):
            dra.__dict__.pop(name, None)
        assert words in (dra.missing() or "")
        # nothing to wait for
        dra.clean_up()


def test_facts_of_a_node_without_labels_come_from_its_slices(
    cluster: Claims, node: ClusterNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = cluster.store["/api/v1/nodes/gpu-node"]
    stored["metadata"]["labels"] = {}
    stored["status"]["capacity"] = {"cpu": "2"}
    stored["status"]["nodeInfo"] = dict.fromkeys(
        ("machineID", "kubeletVersion", "containerRuntimeVersion", "kernelVersion"), "x"
    )
    facts = node.facts()
    assert (facts["product"], facts["memory_bytes"]) == ("NVIDIA Mock A100 SXM4 40GB", 40 << 30)
    assert facts["details"]["gpus"] == 1
    details = facts["details"]
    assert details["driver"] == "570.00.01", "as in labels and on hosts, not as semver"
    assert (details["dra_driver"], details["dra_gates"]) == ("v0.19.3", ["TimeSlicingSettings"])
    assert facts["device"] == device_digest(UUID), "as for the same GPU on a host"
    monkeypatch.setitem(node.cluster.options, "device", "cpu")  # type: ignore[misc]
    assert node.facts()["device"] == details["machine"], "for a GPU that tenants do not use"


def test_gpus_are_counted_whole_or_partitioned(cluster: Claims, node: ClusterNode) -> None:
    parts = [instance("1g.5gb", number, minor) for minor in (1, 2) for number in (0, 1)]
    cluster.slices = [in_slice(gpu(0, "GPU-0"), gpu(1, "GPU-1"), *parts)]
    # One of them is offered both whole and as placements of instances.
    assert node.access("dra").describe()["gpus"] == 3


def test_gates_are_read_from_the_drivers_container() -> None:
    told = {"env": [{"name": "FEATURE_GATES", "value": "TimeSlicingSettings=true, MPSSupport=false,"}]}
    assert feature_gates(told) == {"TimeSlicingSettings": True, "MPSSupport": False}
    assert feature_gates({}) == {}


def test_slices_that_may_not_be_read_do_not_mean_a_missing_driver(
    cluster: Claims, dra: DraAccess, node: ClusterNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(api: Any) -> list[Any]:
        raise ApiRefused(403, "not allowed: resourceslices")

    monkeypatch.setattr(claims_api, "resource_slices", refuse)
    with pytest.raises(ApiRefused, match="not allowed"):
        dra.missing()
    # preflight goes on, and shows what is not allowed
    assert claims_api.nodes_with_devices(cluster) == set()  # type: ignore[arg-type]
    assert dra.describe() == {}
    rows, is_any = preflight.strategy_rows(STUDY, node)
    assert not is_any
    assert "not allowed: resourceslices" in "\n".join(map(str, rows))


def test_a_calibration_under_another_strategy_makes_that_ones_claims() -> None:
    """A partitioned GPU has no exclusive device to calibrate on."""
    strategy = STUDY.strategies["mps"].for_tenants(1)
    assert strategy.spec() == {"name": "mps", "mechanism": ["mps"], "access": "dra"}
