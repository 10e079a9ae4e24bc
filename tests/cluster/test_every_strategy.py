"""Every strategy of the catalogue on nodes with two and with eight GPUs, half of which were partitioned before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster.driving import PATIENT_SECONDS, normalised, study_of
from cluster.harness import GPU, PLUGIN_NAMESPACE, RESTRICTED, Cluster, eventually, own_bed
from cluster.mig import ONE_G, await_allocatable, configure
from cluster.test_mig_node import shown
from cluster.test_runs import run_in
from cluster.testbed import gpu

from sharebench.model.capabilities import unsupported_reason
from sharebench.model.strategies import all_strategies, is_control

pytestmark = pytest.mark.slow
WHOLE_DEVICE = ["exclusive", "mps", "mps-limited", "time-slicing"]
UNEQUAL, EQUAL = "1g.5gb 1g.5gb 2g.10gb 3g.20gb", "3g.20gb 3g.20gb"


def strategies(access: str) -> list[str]:
    """The strategies that a cluster supports with an access."""
    known = all_strategies(normalised(study_of("any")).config)
    return [
        name
        for name, each in known.items()
        if each.access in (None, access)
        and unsupported_reason("kubernetes", each, access) is None
        and not is_control(name)
    ]


def records_of(folder: Path, cluster: Cluster, access: str, **kubernetes: Any) -> dict[str, Any]:
    """The record of each strategy, whose evidence holds; preflight's output is in the file `preflight`."""
    with cluster.namespace(RESTRICTED) as namespace:
        given = study_of(
            namespace,
            strategies=strategies(access),
            replicas=[2],
            null_cells=False,
            timeouts={"start_seconds": 600, "record_seconds": 120},
            kubernetes={"access": access, "switch_seconds": 600, **kubernetes},
        )
        run = run_in(folder, cluster.kubeconfig, given)
        run.seconds = PATIENT_SECONDS
        out = run.passed("preflight")
        (folder / "preflight").write_text(" ".join(out.split()))
        run.passed()
        assert cluster.core.list_namespaced_pod(namespace).items == []
    files = (folder / "results").glob("cells/*/*/*/*/raw.json")
    records: dict[str, Any] = {path.parts[-5]: json.loads(path.read_text()) for path in files}
    assert records.keys() == set(strategies(access))
    assert all(item["holds"] for record in records.values() for item in record["evidence"])
    return records


def reasons(records: dict[str, Any]) -> dict[str, str]:
    """The reasons of infeasible strategies, after a check that all others were measured."""
    assert {record["status"] for record in records.values()} <= {"ok", "infeasible"}
    return {name: record["reason"] for name, record in records.items() if record["status"] == "infeasible"}


def evidence(record: dict[str, Any], name: str) -> list[Any]:
    return [item["observed"] for item in record["evidence"] if item["name"] == name]


@pytest.fixture(params=[2, 8])
def plugin(machine: None, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with own_bed(f"plugin{request.param}") as found:
        gpu.install(found, gpus=request.param)
        gpu.install_mig(found)
        yield Cluster(found)


def test_every_strategy_by_the_device_plugin(plugin: Cluster, tmp_path: Path) -> None:
    """Six minutes on two cores, twice as long on busy ones."""
    gpus = plugin.allocatable()
    assert configure(plugin, f"half-of-{gpus}") == "success"
    await_allocatable(plugin, {GPU: gpus // 2, ONE_G: 7 * gpus // 2})
    eventually("its labels", lambda: plugin.labels().get("mig-1g.5gb.count") == str(7 * gpus // 2))
    before = shown(plugin)
    records = records_of(tmp_path / "study", plugin, "device-plugin", may_change=["mig"])
    preflight = (tmp_path / "study" / "preflight").read_text()
    assert f"{gpus} x NVIDIA Mock A100" in preflight
    (why,) = reasons(records).values()
    assert "refuses MPS on MIG instances" in why and "mig-mps" in reasons(records)
    used = {
        device
        for name in WHOLE_DEVICE
        for seen in evidence(records[name], "GPU that all cells have")
        for device in seen
    }
    assert len(used) == 1
    for name, instances in (("mig", {ONE_G: 7}), ("mig-time-slicing", {"nvidia.com/mig-3g.20gb": 4})):
        assert evidence(records[name], "allocatable") == [instances | {GPU: gpus - 1}]
        assert evidence(records[name], "devices that the tenants were given") == [2]
    assert {record["node"]["details"]["gpus"] for record in records.values()} == {gpus}
    assert len({record["node"]["device"] for record in records.values()}) == 1, "for all tables, however it is cut"
    assert plugin.core.list_namespaced_pod(PLUGIN_NAMESPACE).items
    eventually("all as before", lambda: shown(plugin) == before)


@pytest.fixture(params=[2, 8])
def claims(machine: None, request: pytest.FixtureRequest) -> Iterator[tuple[int, Cluster]]:
    with own_bed(f"claims{request.param}") as found:
        gpu.install_dra(found)
        layouts = [UNEQUAL] if request.param == 2 else [UNEQUAL, UNEQUAL, EQUAL, EQUAL]
        gates = "TimeSlicingSettings=true,MPSSupport=true"
        gpu.set_dra(found, gates, layout="\n".join(layouts), gpus=request.param)
        yield request.param, Cluster(found)


def test_every_strategy_by_claims(claims: tuple[int, Cluster], tmp_path: Path) -> None:
    """Six minutes on two cores, nine on busy ones."""
    gpus, cluster = claims
    records = records_of(tmp_path / "study", cluster, "dra")
    lacking = reasons(records)
    assert "the GPU takes one claim at a time" in lacking["time-slicing-own-claims"]
    if gpus == 2:
        names = {"exclusive-own-claims", "exclusive-two-gpus", "mig-time-slicing", "mig-mps"}
        assert lacking.keys() == names | {"time-slicing-own-claims"}
        for name in ("exclusive-own-claims", "exclusive-two-gpus"):
            assert "2 whole GPUs are needed, the DRA driver offers 1" in lacking[name]
        for name in ("mig-time-slicing", "mig-mps"):
            assert "2 MIG instances of 3g are needed on one GPU, the driver offers 1" in lacking[name]
    else:
        assert lacking.keys() == {"time-slicing-own-claims"}
        assert len(evidence(records["exclusive-two-gpus"], "GPUs by device files")[0]) == 2
    # the first of several whole GPUs
    first_whole = f"nvidia{gpus // 2}"
    for name in (*WHOLE_DEVICE, "time-slicing-long", "mps-dra", "mps-unequal-dra"):
        assert {tuple(each) for each in evidence(records[name], "GPUs by device files")} == {(first_whole,)}
    for name in set(records) - set(lacking):
        if name.startswith("mig"):
            assert evidence(records[name], "GPUs of the allocated instances") == [1]
    assert {record["node"]["details"]["gpus"] for record in records.values()} == {gpus}
