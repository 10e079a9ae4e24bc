"""Dynamic resource allocation by NVIDIA's DRA driver, on the mock GPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cluster.driving import Run, grants, node_of, normalised, owned, state, study_of, tenants_of
from cluster.harness import RESTRICTED, Cluster, own_bed
from cluster.test_runs import KEPT, NAMESPACE, audited, beyond, grant, run_in, unnamed, unused
from cluster.testbed import gpu, images, sources
from cluster.testbed.lifecycle import import_images
from kubernetes import client
from tables import rows

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes.cluster import restricted
from sharebench.measure.nodes.kubernetes.node import ClusterNode


@pytest.fixture(scope="module")
def dra(machine: None) -> Iterator[Cluster]:
    """A separate test bed without the device plugin, since only one of the two may own a GPU."""
    with own_bed("dra") as found:
        gpu.install_dra(found)
        yield Cluster(found)


@pytest.fixture(scope="module")
def account(dra: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Kubeconfig of an account with the rights for claims, but without those for a device plugin."""
    grant(dra, "tenants", "tenants/dra")
    try:
        yield dra.kubeconfig_of("sharebench", NAMESPACE, tmp_path_factory.mktemp("account"))
    finally:
        dra.core.delete_namespace(NAMESPACE)


def left(cluster: Cluster) -> list[str]:
    """The remaining objects of a study, and its remaining changes of the node."""
    found = cluster.core.list_namespaced_config_map(NAMESPACE, label_selector="sharebench/node").items
    found += cluster.core.list_namespaced_pod(NAMESPACE).items
    found += client.CoordinationV1Api(cluster.api).list_namespaced_lease(NAMESPACE).items
    found += client.ResourceV1Api(cluster.api).list_namespaced_resource_claim(NAMESPACE).items
    node = cluster.node()
    noted = [key for key in node.metadata.annotations if key.startswith("sharebench")]
    return [each.metadata.name for each in found] + [taint.key for taint in node.spec.taints or []] + noted


def evidence(record: dict[str, Any], name: str) -> list[Any]:
    return [each["observed"] for each in record["evidence"] if each["name"] == name]


def test_a_study_by_claims_with_only_the_rights_of_the_manifests(dra: Cluster, account: Path, tmp_path: Path) -> None:
    """Without the device plugin and its labels, facts of the GPU come from the driver's slices."""
    gpu.set_dra(dra.instance, "TimeSlicingSettings=true")
    given = study_of(
        NAMESPACE,
        strategies=["exclusive", "time-slicing", "time-slicing-long", "mps"],
        replicas=[3],
        null_cells=False,
        kubernetes={"access": "dra"},
    )
    run: Run = run_in(tmp_path / "study", account, given)
    out = run.passed("preflight")
    assert "all that is needed" in out
    assert "gates that are on: TimeSlicingSettings" in " ".join(out.split())
    run.passed()
    cells = {(row["strategy"], row["replicas"]): row for row in rows(run.folder / "results/tables/summary.csv")}
    assert {key: row["status"] for key, row in cells.items()} == {
        ("exclusive", "1"): "ok",
        ("time-slicing", "3"): "ok",
        ("time-slicing-long", "3"): "ok",
        ("mps", "3"): "infeasible",
    }
    # a gate that is off gives one line with the remedy
    assert "set featureGates.MPSSupport=true in its Helm values" in cells["mps", "3"]["reason"]
    results = run.folder / "results"
    records = {path.parts[-5]: json.loads(path.read_text()) for path in results.glob("cells/*/*/*/*/raw.json")}
    for name in ("time-slicing", "time-slicing-long"):
        record = records[name]
        assert all(each["holds"] for each in record["evidence"])
        assert evidence(record, "reservedFor") == [3]
        assert evidence(record, "GPUs by device files") == [["nvidia0"]] * 3
        assert evidence(record, "tenants by the device that they have") == [[[0, 1, 2]]]
        assert min(tenant["count"] for tenant in record["tenants"]) > 10
        assert record["node"]["product"] == "NVIDIA Mock A100 SXM4 40GB"
        details = record["node"]["details"]
        assert details["driver"] == "570.00.01", "as NVIDIA writes it, not as the slice does"
        version = sources.version(sources.DRA).removeprefix("v")
        assert (details["dra_driver"], details["dra_gates"]) == (version, ["TimeSlicingSettings"])
    # the driver set the longest of its four intervals, and the default again after the cell
    intervals = [call.split()[-1] for call in gpu.smi_calls(dra.instance) if "--set-timeslice" in call]
    assert intervals[intervals.index("3") :] == ["3", "0"]
    (config,) = evidence(records["time-slicing-long"], "opaque configuration in the allocation")[0]
    assert config["parameters"]["sharing"]["timeSlicingConfig"] == {"interval": "Long"}
    assert evidence(records["time-slicing"], "opaque configuration in the allocation") == [[]]
    assert json.loads(records["time-slicing-long"]["spec"])["strategy"]["interval"] == "long"
    assert "mock GPU, CPU work in pods" in (results / "report.html").read_text()
    assert list((results / "figures").glob("*.svg"))
    assert left(dra) == []
    unnamed(results, dra, account, files=60)


def measured(folder: Path, kubeconfig: Path, given: dict[str, Any], infeasible: str = "") -> dict[str, dict[str, Any]]:
    """The record of each strategy of a study with one cell per strategy, of which one may be infeasible."""
    run = run_in(folder, kubeconfig, given)
    run.passed()
    found = (run.folder / "results").glob("cells/*/*/*/*/raw.json")
    records = {path.parts[-5]: json.loads(path.read_text()) for path in found}
    for name, record in records.items():
        assert record["status"] == ("infeasible" if name == infeasible else "ok"), record["reason"]
        assert all(each["holds"] for each in record["evidence"])
    return records


def by_claims(**changes: Any) -> dict[str, Any]:
    return study_of(NAMESPACE, **changes, null_cells=False, kubernetes={"access": "dra"})


def test_mps_by_a_claim_with_and_without_limits(dra: Cluster, account: Path, tmp_path: Path) -> None:
    gpu.set_dra(dra.instance, "TimeSlicingSettings=true,MPSSupport=true")
    given = by_claims(strategies=["mps", "mps-limited"], replicas=[3])
    records = measured(tmp_path / "study", account, given)
    for name in ("mps", "mps-limited"):
        assert evidence(records[name], "MPS control daemons that are ready") == [1]
        assert evidence(records[name], "has the pipe of an MPS daemon") == [True] * 3
    configs = {name: evidence(records[name], "opaque configuration in the allocation")[0] for name in records}
    assert configs["exclusive"] == []
    assert configs["mps"][0]["parameters"]["sharing"] == {"strategy": "MPS", "mpsConfig": {}}
    limits = configs["mps-limited"][0]["parameters"]["sharing"]["mpsConfig"]
    # a third of the mock's 40 GiB, by the digest of the GPU's UUID
    assert limits["defaultActiveThreadPercentage"] == 33
    assert list(limits["defaultPerDevicePinnedMemoryLimit"].values()) == ["13653Mi"]
    assert left(dra) == []
    assert client.AppsV1Api(dra.api).list_namespaced_deployment(gpu.DRA_NAMESPACE).items == []


def test_http_servers_by_a_claim(dra: Cluster, account: Path, tmp_path: Path) -> None:
    """Only the user's container has the claim, not our client next to it."""
    import_images(dra.instance, images.further_archive(images.HTTPBIN))
    gpu.set_dra(dra.instance, "TimeSlicingSettings=true,MPSSupport=true")
    web = {"kind": "http", "image": images.HTTPBIN, "request": {"path": "/bytes/64"}}
    given = by_claims(strategies=["mps"], replicas=[2], workloads=["web"], workload_catalogue={"web": web})
    records = measured(tmp_path / "study", account, given)
    assert evidence(records["mps"], "has the pipe of an MPS daemon") == [True] * 2
    assert all(tenant["measured_by"] == "client" for tenant in records["mps"]["tenants"])
    assert left(dra) == []


def daemons(cluster: Cluster) -> list[str]:
    """The MPS daemons that the driver has started for claims, by uid."""
    return [
        each.metadata.uid for each in client.AppsV1Api(cluster.api).list_namespaced_deployment(gpu.DRA_NAMESPACE).items
    ]


def test_cells_of_a_state_share_a_daemon_until_it_is_suspect(dra: Cluster, tmp_path: Path) -> None:
    gpu.set_dra(dra.instance, "TimeSlicingSettings=true,MPSSupport=true")
    with dra.namespace(RESTRICTED) as namespace:
        given = study_of(namespace, strategies=["mps"], replicas=[2], baseline="none", kubernetes={"access": "dra"})
        study = normalised(given)
        with owned(dra, study, tmp_path) as node:
            found = []
            for is_suspect in (False, False, True):
                if is_suspect:
                    node.mark_dirty()
                node.ensure(state(study, "mps"))
                tenants = tenants_of(node, study, 2)
                tenants.sweep()
                began = time.monotonic()
                tenants.start(grants(2))
                tenants.wait_ready()
                print(f"{time.monotonic() - began:.1f} s to start two tenants")
                records: Any = [{"view": {}}, {"view": {}}]
                evidence = node.access("dra").evidence(study.strategies["mps"], grants(2), records)
                assert [each["observed"] for each in evidence if each["name"] == "reservedFor"] == [2]
                tenants.stop()
                node.mps_suspect_file("dra").unlink(missing_ok=True)
                found.append(daemons(dra))
            assert [len(each) for each in found] == [1, 1, 1]
            assert found[0] == found[1] != found[2]
            # as after the death of a run
            tenants_of(node, study, 2).start(grants(2))
            heir = ClusterNode(study.node_options(), tmp_path / "node")
            heir.sweep()
            assert daemons(dra) == []
            assert dra.core.list_namespaced_pod(namespace).items == []
            assert client.ResourceV1Api(dra.api).list_namespaced_resource_claim(namespace).items == []


def test_claims_as_users_write_them(dra: Cluster, account: Path, tmp_path: Path) -> None:
    """Claims from a template, for two GPUs, and with unequal limits, on a node with two GPUs."""
    gpu.set_dra(dra.instance, "TimeSlicingSettings=true,MPSSupport=true", gpus=2)
    given = by_claims(strategies=["exclusive-own-claims", "exclusive-two-gpus", "mps-unequal-dra"], replicas=[2])
    records = measured(tmp_path / "study", account, given | {"baseline": "none"})
    assert evidence(records["exclusive-own-claims"], "tenants by the device that they have") == [[[0], [1]]]
    assert evidence(records["exclusive-own-claims"], "reservedFor") == [1, 1]
    files = evidence(records["exclusive-own-claims"], "GPUs by device files")
    assert sorted(files) == [["nvidia0"], ["nvidia1"]]
    assert evidence(records["exclusive-two-gpus"], "GPUs by device files") == [["nvidia0", "nvidia1"]]
    assert evidence(records["mps-unequal-dra"], "reservedFor") == [3]
    limits = [each["thread_percent"] for each in [records["mps-unequal-dra"]["limits"]]]
    assert limits == [[60.0, 20.0, 20.0]]
    assert left(dra) == []


@pytest.mark.slow
def test_a_users_container_by_a_claim(dra: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import_images(dra.instance, images.further_archive(images.HTTPBIN))
    gpu.set_dra(dra.instance, "TimeSlicingSettings=true,MPSSupport=true")
    theirs = {"resources": {"claims": [{"name": "mine"}]}, "securityContext": restricted.CONTAINER_SECURITY}
    containers = [{"name": "web", "image": images.HTTPBIN, "args": ["-port", "{port}"], **theirs}]
    claimed = [{"name": "mine", "resourceClaimName": "somewhere-else"}]
    manifest = {"kind": "Pod", "spec": {"resourceClaims": claimed, "containers": containers}}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(manifest))
    monkeypatch.chdir(tmp_path)
    own = {"kind": "http", "manifest": "mine.yaml", "port": 8000, "request": {"path": "/bytes/64"}}
    with dra.namespace(RESTRICTED) as namespace:
        given = study_of(namespace, strategies=["mps"], replicas=[2], baseline="none", kubernetes={"access": "dra"})
        study = normalised(given | {"workloads": ["own"], "workload_catalogue": {"own": own}})
        with owned(dra, study, tmp_path) as node:
            node.ensure(state(study, "mps"))
            tenants = tenants_of(node, study, 2)
            tenants.sweep()
            tenants.start(grants(2))
            tenants.wait_ready()
            records: Any = [{"view": {}}, {"view": {}}]
            found = node.access("dra").evidence(study.strategies["mps"], grants(2), records)
            assert [each["observed"] for each in found if each["name"] == "reservedFor"] == [2]
            tenants.stop()


@pytest.mark.slow
def test_instances_by_a_claim(dra: Cluster, account: Path, tmp_path: Path) -> None:
    gpu.set_dra(dra.instance, "TimeSlicingSettings=true,MPSSupport=true", layout="1g.5gb 1g.5gb 2g.10gb 3g.20gb")
    shared = {"mechanism": ["mig", "mps"], "profile": "1g", "instances": 2, "thread_percent": 50}
    apart = {"mechanism": "mig", "profiles": ["1g", "1g", "2g", "3g"], "claim_per": "instance"}
    given = by_claims(strategies=["mig-unequal", "apart", "shared"], replicas=[4], baseline="none")
    given["strategy_catalogue"] = {"shared": shared, "apart": apart}
    records = measured(tmp_path / "study", account, given)
    tenants = "tenants by the device that they have"
    assert evidence(records["mig-unequal"], tenants) == [[[0], [1], [2], [3]]]
    assert evidence(records["mig-unequal"], "GPUs of the allocated instances") == [1]
    assert evidence(records["apart"], tenants) == [[[0], [1], [2], [3]]]
    assert evidence(records["apart"], "reservedFor") == [1, 1, 1, 1]
    assert evidence(records["shared"], tenants) == [[[0, 2], [1, 3]]]
    assert evidence(records["shared"], "MPS control daemons that are ready") == [2]
    assert left(dra) == []


@pytest.mark.slow
def test_instances_that_the_driver_makes(dra: Cluster, account: Path, tmp_path: Path) -> None:
    """One of two GPUs is partitioned when a claim is prepared, and whole again after it."""
    gpu.set_dra(dra.instance, "DynamicMIG=true", layout="", product="NVIDIA H200", gpus=2)
    strategies = ["exclusive", "mig-unequal", "mig-own-claims", "mig-time-slicing", "mig-mps"]
    given = by_claims(strategies=strategies, replicas=[4])
    records = measured(tmp_path / "study", account, given, infeasible="mig-mps")
    tenants = "tenants by the device that they have"
    for name in ("mig-unequal", "mig-own-claims"):
        assert evidence(records[name], tenants) == [[[0], [1], [2], [3]]]
    assert evidence(records["mig-time-slicing"], tenants) == [[[0, 2], [1, 3]]]
    holders = {name: evidence(records[name], "reservedFor") for name in strategies[:4]}
    assert holders == {"exclusive": [1], "mig-unequal": [4], "mig-own-claims": [1, 1, 1, 1], "mig-time-slicing": [4]}
    for name in strategies[1:4]:
        assert evidence(records[name], "GPUs of the allocated instances") == [1]
        assert evidence(records[name], "GPUs by device files") == [["nvidia0"]] * 4
    assert records["exclusive"]["node"]["product"] == "NVIDIA H200"
    assert "no MPS with its gate DynamicMIG" in records["mig-mps"]["reason"]
    assert left(dra) == []
    assert gpu.profiles(dra.instance) is None


def test_a_claim_that_cannot_be_prepared_is_named(
    dra: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the gate were turned off between the check of the driver and the start of the pods."""
    gpu.set_dra(dra.instance, "TimeSlicingSettings=false", layout="")
    monkeypatch.setenv("KUBECONFIG", str(dra.kubeconfig))
    monkeypatch.setenv("SHAREBENCH_RUN_ID", "")
    with dra.namespace(RESTRICTED) as namespace:
        study = normalised(study_of(namespace, strategies=["time-slicing-long"], kubernetes={"access": "dra"}))
        node = node_of(study, tmp_path / "node", "20261120-000000-aaaa")
        tenants = tenants_of(node, study, 1)
        tenants.spec = tenants.spec.changed(strategy=tenants.spec.strategy.changed(interval="long"))
        try:
            with pytest.raises(NodeError, match=r"TimeSlicingSettings.* feature gate is not enabled"):
                tenants.start(grants(1))
                tenants.wait_ready()
        finally:
            tenants.stop()
            node.release()
        assert client.ResourceV1Api(dra.api).list_namespaced_resource_claim(namespace).items == []


@pytest.mark.slow
def test_all_that_is_granted_for_claims_is_used_and_no_more(dra: Cluster, account: Path, tmp_path: Path) -> None:
    """By a study with a claim for each tenant, and one that stays for a while."""
    gpu.set_dra(dra.instance, "TimeSlicingSettings=true,MPSSupport=true", gpus=2)
    since = len(audited(dra))
    run = run_in(tmp_path / "study", account, by_claims(strategies=["exclusive-own-claims", "mps"], replicas=[2]))
    run.passed("preflight")
    run.passed()
    assert not beyond(dra, since, "tenants", "tenants/dra")
    assert unused(dra, since, "tenants", "tenants/dra") == KEPT.keys()
