"""Setting a node's states and restoring it, on a fake cluster."""

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from unit.kubernetes.fake_cluster import CONFIGS, NODE, PODS, FakeCluster, leased, manager
from unit.kubernetes.objects import CONFIG, daemon_pod
from unit.kubernetes.test_nvidia_stack import pod
from unit.studies import config_with

from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.contract import NodeError, State
from sharebench.measure.nodes.kubernetes.access.device_plugin import plugin as device_plugin
from sharebench.measure.nodes.kubernetes.access.device_plugin import readers
from sharebench.measure.nodes.kubernetes.access.device_plugin.keys import COPY_ANNOTATION, KEY_PREFIX
from sharebench.measure.nodes.kubernetes.cluster import lease, reservation, saved_state
from sharebench.measure.nodes.kubernetes.cluster.api import ApiRefused
from sharebench.measure.nodes.kubernetes.cluster.nvidia_stack import MEMORY_LABEL
from sharebench.measure.nodes.kubernetes.node import ClusterNode
from sharebench.model.config.load import load
from sharebench.study.study import Study

STUDY = Study(
    load(config_with({"node": "kubernetes", "strategies": ["exclusive", "time-slicing", "mps"], "replicas": [1, 3, 7]}))
)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/nvidia/leases"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster()
    made.store[NODE]["metadata"]["labels"][MEMORY_LABEL] = "40960"
    for module in (device_plugin, readers, lease):
        monkeypatch.setattr(module, "time", made)
    monkeypatch.setenv(RUN_ID_VARIABLE, "a-run")
    return made


def opened(cluster: FakeCluster, folder: Path, **options: Any) -> ClusterNode:
    """The node with its Lease, as in a job of the run."""
    return leased(cluster, STUDY.node_options() | options, folder)


def state(name: str, replicas: int | None = None) -> State:
    return State(STUDY.strategies[name], replicas, 0)


def label(cluster: FakeCluster) -> str | None:
    """The config label, without the digest if it is ours."""
    found: str | None = cluster.store[NODE]["metadata"]["labels"].get(CONFIG)
    return found.rpartition("-")[0] if found and found.startswith(KEY_PREFIX) else found


def taints(cluster: FakeCluster) -> list[str]:
    return [taint["key"] for taint in cluster.store[NODE]["spec"].get("taints", [])]


def test_time_slicing_is_set_once_for_all_numbers_of_tenants(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    assert label(cluster) == "sharebench-ts-7"
    assert cluster.store[NODE]["status"]["allocatable"]["nvidia.com/gpu"] == "7"
    assert taints(cluster) == [reservation.TAINT]
    changes = len(cluster.log)
    node.ensure(state("time-slicing"))
    # except for the Lease
    assert [path for _, path, _ in cluster.log[changes:] if not path.startswith(LEASES)] == []


def test_a_switch_records_the_duration_of_each_phase(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path, stable_seconds=15, publish_seconds=4)
    node.ensure(state("time-slicing"))
    assert node.switched is not None
    # The fake plugin follows after three seconds, and is polled once a second.
    assert node.switched["phases"] == {"publish": 4.0, "follow": 3.0, "stable": 15.0}
    node.ensure(state("exclusive"))
    assert set(node.switched["phases"]) == {"follow", "stable"}


def test_without_the_right_to_annotate_pods_the_kubelet_is_waited_for(cluster: FakeCluster, tmp_path: Path) -> None:
    patch = cluster.patch

    def refuse(path: str, body: Any) -> Any:
        if path.startswith(PODS):
            raise ApiRefused(403, "not allowed: patch pods")
        return patch(path, body)

    cluster.patch = refuse  # type: ignore[method-assign]
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    assert node.switched is not None
    assert node.switched["phases"]["publish"] == readers.KUBELET_SYNC_SECONDS
    assert label(cluster) == "sharebench-ts-7"


def test_mps_is_set_for_each_number_of_tenants(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("mps", 3))
    assert label(cluster) == "sharebench-mps-3"
    # Without a restart, the plugin would look for the daemon again only after 30 s.
    assert [path for verb, path, _ in cluster.log if verb == "delete"] == [f"{PODS}plugin-x"]
    before = len(cluster.log)
    node.ensure(state("mps", 7))
    assert label(cluster) == "sharebench-mps-7"
    # The daemon would keep the shares for three. The plugin finds a running one by itself.
    assert [path for verb, path, _ in cluster.log[before:] if verb == "delete"] == [f"{PODS}mps-x"]
    node.ensure(state("exclusive"))
    assert "mps" not in cluster.daemons


def test_an_idle_mps_daemon_that_reports_ready_is_restarted(cluster: FakeCluster, tmp_path: Path) -> None:
    """Seen with the chart's daemon, which had started with the default config before its sidecar saw the label."""
    cluster.idle_daemons = 1
    began = cluster.now
    opened(cluster, tmp_path).ensure(state("mps", 3))
    deleted = [path.removeprefix(PODS) for verb, path, _ in cluster.log if verb == "delete"]
    assert deleted == ["plugin-x", "mps-x", "plugin-x"]
    # Not before the plugin, which polls it every 30 s, could have polled twice.
    assert cluster.now - began > 30
    assert cluster.store[NODE]["status"]["allocatable"]["nvidia.com/gpu"] == "3"


def test_every_key_of_the_study_is_published_at_once(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("exclusive"))
    keys = {key.rpartition("-")[0] for key in cluster.store[CONFIGS]["data"]}
    assert keys == {"", "sharebench-exclusive", "sharebench-ts-7", "sharebench-mps-3", "sharebench-mps-7"}
    node.ensure(state("time-slicing"))
    assert [path for verb, path, _ in cluster.log if path == CONFIGS] == [CONFIGS]


def test_restore_undoes_every_change(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.store[NODE]["spec"]["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    before = copy.deepcopy(cluster.store)
    node = opened(cluster, tmp_path)
    node.ensure(state("mps", 3))
    assert taints(cluster) == ["team", reservation.TAINT]
    assert node.restore()
    after = {path: each for path, each in cluster.store.items() if not path.startswith(LEASES)}
    after[NODE]["metadata"].pop("annotations")
    before[NODE]["metadata"].pop("annotations", None)
    assert after[CONFIGS] == before[CONFIGS]
    assert after[NODE] == before[NODE]
    assert not node.restore()


def test_a_node_that_cannot_be_restored_is_given_back_all_the_same(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    cluster.is_stuck = True
    with pytest.raises(NodeError, match="did not get back"):
        node.restore()
    assert not cluster.store[NODE]["spec"]


def test_a_restore_after_one_that_failed_waits_again(cluster: FakeCluster, tmp_path: Path) -> None:
    """The first one has set the owner's label already."""
    labels = cluster.store[NODE]["metadata"]["labels"]
    labels[CONFIG] = "default"
    node, before = opened(cluster, tmp_path), copy.deepcopy(labels)
    node.ensure(state("time-slicing"))
    cluster.is_stuck = True
    for _ in range(2):
        with pytest.raises(NodeError, match="did not get back"):
            node.restore()
        assert (label(cluster), saved_state.load(cluster.store[NODE]) is None) == ("default", False)
    cluster.is_stuck = False
    assert node.restore()
    assert cluster.store[NODE]["metadata"]["labels"] == before


def test_a_node_whose_owner_has_changed_it_for_good_is_usable_again(cluster: FakeCluster, tmp_path: Path) -> None:
    labels, configs = cluster.store[NODE]["metadata"]["labels"], copy.deepcopy(cluster.store[CONFIGS]["data"])
    labels[CONFIG] = "default"
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    cluster.is_stuck = True
    typed = f"where the node is to stay as it is now: kubectl annotate node gpu-node {saved_state.ANNOTATION}-$"
    with pytest.raises(NodeError, match=typed):
        node.restore()
    del cluster.store[NODE]["metadata"]["annotations"][saved_state.ANNOTATION]
    cluster.is_stuck = False
    cluster._switch()
    later = opened(cluster, tmp_path / "later")
    later.sweep()
    later.ensure(state("time-slicing"))
    assert later.restore()
    assert (label(cluster), cluster.store[CONFIGS]["data"]) == ("default", configs)


@pytest.mark.parametrize("newer_keys", [[], ["active"]], ids=["killed", "killed in version 0.1"])
def test_a_later_run_restores_what_a_dead_run_changed(
    cluster: FakeCluster, tmp_path: Path, newer_keys: list[str]
) -> None:
    opened(cluster, tmp_path / "one").ensure(state("time-slicing"))
    saved = saved_state.load(cluster.store[NODE]) or {}
    kept = {name: {key: each[key] for key in each if key not in newer_keys} for name, each in saved.items()}
    cluster.store[NODE]["metadata"]["annotations"][saved_state.ANNOTATION] = saved_state.dump(kept)
    opened(cluster, tmp_path / "other").sweep()
    assert label(cluster) is None
    assert taints(cluster) == []
    assert saved_state.load(cluster.store[NODE]) is None


def only_config(cluster: FakeCluster) -> dict[str, Any]:
    """The plugin as NVIDIA's README installs it, with one config and no default; returns the store."""
    resources = [{"name": "nvidia.com/gpu", "replicas": 4}]
    config = {"flags": {"failOnInitError": True}, "sharing": {"timeSlicing": {"resources": resources}}}
    cluster.daemon_sets[0] = manager("nvidia-device-plugin-ctr", default="")
    cluster.store[CONFIGS]["data"] = {"config": yaml.safe_dump(config)}
    cluster._switch()
    return copy.deepcopy(cluster.store)


@pytest.mark.parametrize("ending", ["restored", "killed", "killed by a version without the copy"])
def test_a_plugin_with_one_config_and_no_default_gets_it_back(
    cluster: FakeCluster, tmp_path: Path, ending: str
) -> None:
    before = only_config(cluster)
    node = opened(cluster, tmp_path)
    assert node.infeasible(STUDY.strategies["mps"], 3) is None
    node.ensure(state("exclusive"))
    configs = cluster.store[CONFIGS]["data"]
    assert configs["default"] == configs["config"], "what other nodes fall back to"
    assert all("failOnInitError: true" in text for text in configs.values())
    if ending == "restored":
        assert node.restore()
    else:
        if "without" in ending:
            del configs["default"], cluster.store[CONFIGS]["metadata"]["annotations"][COPY_ANNOTATION]
        opened(cluster, tmp_path / "other").sweep()
    assert cluster.store[CONFIGS] == before[CONFIGS]
    assert cluster.store[NODE]["metadata"]["labels"] == before[NODE]["metadata"]["labels"]
    assert cluster.store[NODE]["status"] == before[NODE]["status"]
    restarted = [path for verb, path, _ in cluster.log if verb == "delete" and path.startswith(PODS)]
    assert restarted == [f"{PODS}plugin-x", f"{PODS}discovery-x"], (
        "or their config would be a link to a key that is gone"
    )


def test_pods_elsewhere_that_found_the_copy_look_again(cluster: FakeCluster, tmp_path: Path) -> None:
    only_config(cluster)
    cluster.now = 10_000.0
    others = {"other": {}, "labelled": {CONFIG: "config"}}
    cluster.others = [{"metadata": {"name": name, "labels": labels}} for name, labels in others.items()]
    for name, where, began in (("old", "other", 1), ("new", "other", 9990), ("own", "labelled", 9990)):
        made = daemon_pod("plugin", "nvidia-device-plugin-ctr")
        made["metadata"] |= {"name": name, "creationTimestamp": datetime.fromtimestamp(began, UTC).isoformat()}
        cluster.pods_of_others.append(made | {"spec": {"nodeName": where}})
    node = opened(cluster, tmp_path)
    node.ensure(state("exclusive"))
    node.restore()
    deleted = [path.removeprefix(PODS) for verb, path, _ in cluster.log if verb == "delete"]
    assert [name for name in deleted if not name.endswith("-x")] == ["new"]


def test_a_fallback_that_our_keys_would_break_is_infeasible(cluster: FakeCluster, tmp_path: Path) -> None:
    only_config(cluster)
    cluster.daemon_sets[0] = manager("nvidia-device-plugin-ctr", default="", fallbacks="single")
    reason = opened(cluster, tmp_path).infeasible(STUDY.strategies["mps"], 3)
    assert reason and reason.endswith("install the plugin with config.default: config")


def test_a_node_that_does_not_follow_fails_with_the_differences(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.is_stuck = True
    cluster.store[NODE]["spec"]["unschedulable"] = True
    why = r"did not become time-slicing within 300 s: the node is cordoned: .*; .*allocatable is nvidia.com/gpu 1"
    with pytest.raises(NodeError, match=why):
        opened(cluster, tmp_path).ensure(state("time-slicing"))


def test_a_key_that_someone_removes_is_named(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.is_stuck = True
    only = copy.deepcopy(cluster.store[CONFIGS])
    cluster.meanwhile = lambda: cluster.store.update({CONFIGS: copy.deepcopy(only)})
    why = r"within 300 s: key sharebench-ts-7-[0-9a-f]+ is gone from ConfigMap nvidia/sharing: who removes it\?; label "
    with pytest.raises(NodeError, match=why):
        opened(cluster, tmp_path).ensure(state("time-slicing"))


def test_allocatable_that_bounces_must_become_stable(cluster: FakeCluster, tmp_path: Path) -> None:
    begun = cluster.now

    def bounce() -> None:
        if cluster.now - begun >= 4:
            count = "7" if cluster.now - begun >= 20 else "0"
            cluster.store[NODE]["status"]["allocatable"]["nvidia.com/gpu"] = count

    cluster.meanwhile = bounce
    opened(cluster, tmp_path).ensure(state("time-slicing"))
    assert cluster.now - begun >= 20


def test_a_label_changed_by_someone_else_fails_the_state_and_stays(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    cluster.patch(NODE, {"metadata": {"labels": {CONFIG: "default"}}})
    cluster.sleep(10)
    with pytest.raises(NodeError, match=r"someone set the node's label .* to default, it was sharebench-ts-7"):
        node.ensure(state("time-slicing"))
    node.restore()
    assert label(cluster) == "default"


@pytest.mark.parametrize(("compute", "most"), [("7.0", 16), ("7.5", 48), ("12.0", 48)])
def test_max_mps_clients_by_compute_capability(cluster: FakeCluster, tmp_path: Path, compute: str, most: int) -> None:
    names = ("nvidia.com/gpu.compute.major", "nvidia.com/gpu.compute.minor")
    cluster.store[NODE]["metadata"]["labels"] |= dict(zip(names, compute.split("."), strict=True))
    node, mps = opened(cluster, tmp_path), STUDY.strategies["mps"]
    assert node.infeasible(mps, most) is None
    assert node.infeasible(mps, most + 1) == f"the GPU takes {most} MPS clients at most"


def test_no_limit_on_memory_of_unknown_size_is_feasible(cluster: FakeCluster, tmp_path: Path) -> None:
    """GB10 has unified memory, of which GPU Feature Discovery sets no label."""
    labels = cluster.store[NODE]["metadata"]["labels"]
    del labels[MEMORY_LABEL]
    labels["nvidia.com/gpu.product"] = "NVIDIA-GB10"
    node, on_mock = opened(cluster, tmp_path), opened(cluster, tmp_path, device="cpu")
    assert [node.infeasible(STUDY.strategies[name], 3) for name in ("exclusive", "time-slicing")] == [None, None]
    # NVIDIA's plugin limits the memory of all its tenants under MPS.
    assert (node.infeasible(STUDY.strategies["mps"], 3) or "").startswith(f"the node has no label {MEMORY_LABEL}, ")
    assert on_mock.infeasible(STUDY.strategies["mps"], 3) is None


def test_a_plugin_without_a_pod_fails_the_state(cluster: FakeCluster, tmp_path: Path) -> None:
    node = opened(cluster, tmp_path)
    node.ensure(state("time-slicing"))
    plugin = cluster.daemons.pop("plugin")
    with pytest.raises(NodeError, match="plugin has no pod on the node"):
        node.ensure(state("time-slicing"))
    cluster.daemons["plugin"] = plugin
    node.ensure(state("time-slicing"))


def test_foreign_gpu_pods_are_refused_by_name(cluster: FakeCluster, tmp_path: Path) -> None:
    cluster.foreign = [pod("training")]
    node = opened(cluster, tmp_path)
    with pytest.raises(NodeError, match="team/training"):
        node.sweep()
    with pytest.raises(NodeError, match="team/training"):
        node.ensure(state("time-slicing"))
    assert label(cluster) is None


def test_missing_components_are_named(cluster: FakeCluster, tmp_path: Path) -> None:
    strategy = STUDY.strategies["mps"]
    plugin, discovery, mps = cluster.daemon_sets
    for there, word in (
        ([discovery, mps], "no NVIDIA device plugin"),
        ([plugin, mps], "GPU Feature Discovery is not installed"),
        ([plugin, discovery], "MPS control daemon is not installed"),
    ):
        cluster.daemon_sets = [plugin]
        node = opened(cluster, tmp_path)
        node.cluster.__dict__.pop("installed")
        cluster.daemon_sets = there
        assert word in (node.infeasible(strategy, 3) or "")


def test_the_strategys_mps_limits_are_the_plugins() -> None:
    # the daemon uses integer division (mps-control-daemon of the plugin)
    assert [STUDY.strategies["mps"].limits(n)["thread_percent"] for n in (2, 3, 7, 8)] == [50.0, 33.0, 14.0, 12.0]
    assert STUDY.strategies["mps"].depends_on_replicas
    assert STUDY.strategies["time-slicing"].limits(7) == {"thread_percent": None, "memory_percent": None}


def test_the_spec_has_no_node_context_or_namespace() -> None:
    elsewhere = config_with({"node": "kubernetes", "strategies": ["exclusive"]})
    elsewhere["kubernetes"] = {"node": "a-node", "context": "a-context", "namespace": "a-namespace"}
    text = Study(load(elsewhere)).spec(STUDY.cells[0]).text
    assert not any(name in text for name in ("a-node", "a-context", "a-namespace"))
