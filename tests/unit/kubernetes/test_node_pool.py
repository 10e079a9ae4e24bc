"""Several nodes of a cluster as the devices of one study."""

import json
from pathlib import Path
from typing import Any

import pytest
from unit.kubernetes.fake_cluster import NODE, FakeCluster, leased
from unit.kubernetes.objects import node as node_object
from unit.studies import study_with

from sharebench.measure.nodes.contract import NodeError
from sharebench.measure.nodes.kubernetes import node as cluster_node
from sharebench.measure.nodes.kubernetes.access.device_plugin import plugin
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import PluginConfig
from sharebench.measure.nodes.kubernetes.cluster import cluster as one_cluster
from sharebench.measure.nodes.kubernetes.cluster import saved_state
from sharebench.measure.nodes.kubernetes.preflight import preflight
from sharebench.measure.run import placement
from sharebench.model.study_config import uses_several_devices
from sharebench.study.study import Study

POOL = "pool=h200,zone=a"
NAMES = ["gpu-node", "node-b", "node-c"]


class Pool(FakeCluster):
    """Three nodes, the last two of which have the labels of the pool."""

    def __init__(self) -> None:
        super().__init__()
        for number, name in enumerate(NAMES):
            made = self.store[NODE] if number == 0 else node_object()
            made["metadata"]["name"] = name
            known = dict.fromkeys(("kubeletVersion", "containerRuntimeVersion", "kernelVersion"), "x")
            made["status"]["nodeInfo"] = known | {"systemUUID": f"machine-{number}"}
            self.store[f"/api/v1/nodes/{name}"] = made
            self.others += [made] if number else []

    def get(self, path: str, **query: Any) -> Any:
        found = super().get(path, **query)
        if (wanted := query.get("labelSelector")) and path == "/api/v1/nodes":
            return {
                "items": [each for each in found["items"] if wanted == POOL and each["metadata"]["name"] != NAMES[0]]
            }
        return found


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Pool:
    made = Pool()
    for module in (cluster_node, one_cluster):
        monkeypatch.setattr(module, "Api", lambda context: made)
    return made


def studied(node: Any, **changes: Any) -> Study:
    return study_with({"node": "kubernetes", "strategies": ["time-slicing"], "kubernetes.node": node} | changes)


@pytest.mark.parametrize("given, is_pool", [("auto", False), ("node-b", False), (["node-b"], True), (POOL, True)])
def test_a_list_or_a_selector_is_a_node_pool(given: Any, is_pool: bool) -> None:
    assert uses_several_devices(studied(given).config, "kubernetes") is is_pool


@pytest.mark.parametrize(
    "given, names", [(["node-c", "gpu-node"], ["node-c", "gpu-node"]), (POOL, ["node-b", "node-c"])]
)
def test_each_node_is_a_device_of_its_own(pool: Pool, given: Any, names: list[str]) -> None:
    found = placement.study_devices(studied(given), {})
    assert [entry["options"]["node"] for entry in found] == names  # type: ignore[typeddict-item]
    assert len({entry["device"] for entry in found}) == 2
    made = placement.open_nodes(studied(given), Path("results"), found)[1]
    assert (made.host, made.facts()["details"]["node"]) == (names[1], "node-1")
    assert made.folder.name == found[1]["device"]


@pytest.mark.parametrize(
    "given, words",
    [(["node-b", "node-x"], "the cluster has no node 'node-x'"), ("pool=b200", "no node with the labels 'pool=b200'")],
)
def test_nodes_that_do_not_exist_are_named(pool: Pool, given: Any, words: str) -> None:
    with pytest.raises(NodeError, match=words):
        placement.study_devices(studied(given), {})
    assert placement.study_placement(studied(given), Path("results")) is None


def test_preflight_inspects_each_node(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def inspected(study: Study, of_node: Any) -> tuple[list[str], bool]:
        return [f"looked at {of_node['node']}"], of_node["node"] != "node-c"

    monkeypatch.setattr(preflight, "inspect", inspected)
    assert preflight.show(studied(POOL).config) == 1
    assert capsys.readouterr().out == "looked at node-b\nlooked at node-c\n"


def test_nodes_of_different_gpus_are_refused_before_they_are_measured(pool: Pool) -> None:
    pool.others[0]["metadata"]["labels"]["nvidia.com/gpu.product"] = "NVIDIA-H200-SHARED"
    with pytest.raises(NodeError, match="different GPUs: NVIDIA-H200, NVIDIA-Mock-A100-SXM4-40GB; name those of one"):
        placement.study_devices(studied(POOL), {})


def test_nodes_with_the_same_machine_id_are_refused(pool: Pool) -> None:
    pool.store["/api/v1/nodes/node-c"]["status"]["nodeInfo"]["systemUUID"] = "machine-1"
    with pytest.raises(NodeError, match="devices 0 and 1 of the study have one identity"):
        placement.study_devices(studied(POOL), {})


def test_a_nodes_identity_is_the_same_before_and_after_its_gpu_was_seen(pool: Pool, tmp_path: Path) -> None:
    study = studied(POOL, **{"kubernetes.device": "cuda"})
    (first, _) = placement.study_devices(study, {})
    made = placement.open_nodes(study, tmp_path, [first])[0]
    (made.folder).mkdir(parents=True)
    (made.folder / "gpu.json").write_text(json.dumps({"device": "5" * 16, "sm_count": 132}))
    seen = placement.open_nodes(study, tmp_path, [first])[0]
    assert (seen.device, seen.identity) == ("5" * 16, first["device"])
    raw = tmp_path / study.cells[0].raw
    raw.parent.mkdir(parents=True)
    raw.write_text(json.dumps({"node": seen.facts()}))
    assigned = placement.assign_devices(study, [first | {"device": "another"}, first], tmp_path)
    assert assigned[placement.placement_key(study, study.cells[0])] == 1


def test_a_key_added_by_another_node_is_waited_for(pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The study's first change adds all keys except those of MIG layouts."""
    synced: list[int] = []
    monkeypatch.setattr(plugin.readers, "force_sync", lambda cluster: synced.append(1))
    made = leased(pool, studied("gpu-node").node_options(), tmp_path)
    access = made.access("device-plugin")
    assert isinstance(access, plugin.DevicePluginAccess)
    saved = access._load_or_save()
    access._publish_configs(PluginConfig("none", 1, "mixed"), saved["active"])
    assert len(synced) == 1
    access._publish_configs(PluginConfig("none", 1, "mixed"), saved["active"])
    assert len(synced) == 1
    pool.others[0]["metadata"]["annotations"] = {saved_state.ANNOTATION: saved_state.dump({})}
    access._publish_configs(PluginConfig("none", 1, "mixed"), saved["active"])
    access._publish_configs(PluginConfig("none"), saved["active"])
    assert len(synced) == 2
