"""A GPU of this host as a node: feasibility, grants, and the life of its daemons."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest
from unit.studies import config_with

from sharebench.measure.nodes.contract import NodeError, State
from sharebench.measure.nodes.host import mps, nvidia
from sharebench.measure.nodes.host.nvidia import NvidiaNode
from sharebench.model.config.load import load
from sharebench.model.strategies import all_strategies
from sharebench.model.strategy import Strategy
from sharebench.model.workload import Workload
from tenant.contract import MPS_PIPE_VARIABLE

pytestmark = pytest.mark.usefixtures("mock_nvml", "mps_control")

STRATEGIES = all_strategies(load(config_with({"node": "simulated"})))


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvidiaNode:
    """The mock GPU, with a host folder of its own."""
    return make(tmp_path, monkeypatch)


def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, may_change: tuple[str, ...] = ()) -> NvidiaNode:
    """A node whose owner allows these changes."""
    monkeypatch.setattr(nvidia, "HOST_FOLDER", tmp_path / "host")
    (tmp_path / "host").mkdir(exist_ok=True)
    folder = tmp_path / "node"
    folder.mkdir(exist_ok=True)
    return NvidiaNode({"gpu": "0", "python": "auto", "hami_core": None, "may_change": list(may_change)}, folder)


def state(name: str, replicas: int | None = None, block: int = 1) -> State:
    """A state of one of the built-in strategies."""
    return State(STRATEGIES[name], replicas, block)


def mechanism(*mechanisms: str, profile: str | None = None, instances: int | None = None) -> Strategy:
    """A strategy without limits."""
    return Strategy.model_construct(name=f"own-{profile}", mechanism=mechanisms, profile=profile, instances=instances)


def unequal(*profiles: str) -> Strategy:
    """A MIG strategy with these instances."""
    return mechanism("mig").changed(profiles=profiles)


def test_facts_name_the_product_and_hide_the_uuid(node: NvidiaNode) -> None:
    facts = node.facts()
    assert (facts["product"], facts["units"], facts["is_gpu"], facts["label"]) == ("NVIDIA H200", 132, True, "")
    assert node.gpu.uuid not in json.dumps(facts)


@pytest.fixture
def unreported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU of the host's memory, as GB10: NVML answers "Not Supported"."""

    def refuse(*_: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetTotalEnergyConsumption"):
        monkeypatch.setattr(pynvml, name, refuse)


@pytest.mark.usefixtures("unreported")
def test_what_nvml_does_not_report_is_unknown(node: NvidiaNode) -> None:
    assert (node.facts()["memory_bytes"], node.facts()["units"]) == (None, None)
    for name, replicas in (("exclusive", 1), ("time-slicing", 3), ("mps", 3)):
        assert node.infeasible(STRATEGIES[name], replicas) is None
        assert len(node.grants(STRATEGIES[name], replicas)) == replicas
    shares = mechanism("mps").changed(thread_percent="100/N")
    assert node.infeasible(shares, 2) is None
    node.ensure(State(shares, 2, 1))
    node.restore()
    limits: tuple[dict[str, Any], ...] = ({"memory_percent": "100/N"}, {"memory_limit": "4Gi"})
    for limit in limits:
        limited = mechanism("mps").changed(**limit)
        reason = "NVML does not report how much memory the GPU has, so that no memory limit on it can be checked"
        assert node.infeasible(limited, 2) == reason


@pytest.mark.parametrize(
    "layout, strategy, replicas, reason",
    [
        ("", "mig", 1, "MIG mode is off"),
        ("gpu 0: 1g.18gb 1g.18gb", "mig", 3, "3 MIG instances of profile 1g are needed, 2 exist"),
        ("gpu 0: 1g.18gb 1g.18gb", "mig", 2, None),
        ("gpu 0: 1g.18gb", "time-slicing", 2, "MIG mode is on"),
        ("gpu 0: 3g.71gb 3g.71gb", "mig-mps", 7, None),
        ("gpu 0: 3g.71gb", "mig-mps", 7, "2 MIG instances of profile 3g are needed, 1 exist"),
        ("gpu 0: 1g.18gb 3g.71gb 1g.18gb 2g.35gb", "mig-unequal", 4, None),
        (
            "gpu 0: 1g.18gb 3g.71gb 1g.18gb",
            "mig-unequal",
            3,
            "4 MIG instances of profile 3g and 2g and 1g are needed, 3",
        ),
        ("gpu 0: 1g.18gb 3g.71gb 1g.18gb 2g.35gb", "mig-unequal", 5, "5 tenants need 5 MIG instances"),
        ("", "time-slicing", 7, None),
        ("", "mps", 48, None),
        ("", "mps", 49, "49 clients of one MPS server are more than 48"),
        ("", "green-contexts", 16, None),
        ("", "green-contexts", 17, "a green context of 7 SMs is less than this GPU has, 8"),
    ],
)
def test_infeasible_strategies_have_a_reason(
    node: NvidiaNode, mock_nvml: Path, layout: str, strategy: str, replicas: int, reason: str | None
) -> None:
    mock_nvml.write_text(f"{layout}\n")
    why = node.infeasible(STRATEGIES[strategy], replicas)
    assert why is None if reason is None else why is not None and why.startswith(reason)


@pytest.mark.parametrize(
    "mode, strategy, replicas, feasible",
    [
        ("3", "time-slicing", 2, False),
        ("3", "time-slicing", 1, True),
        ("3", "mps", 4, True),
        ("2", "exclusive", 1, False),
        ("2", "streams", 3, False),
    ],
)
def test_an_exclusive_compute_mode_makes_sharing_infeasible(
    node: NvidiaNode, monkeypatch: pytest.MonkeyPatch, mode: str, strategy: str, replicas: int, feasible: bool
) -> None:
    monkeypatch.setenv("MOCK_COMPUTE_MODE", mode)
    why = node.infeasible(STRATEGIES[strategy], replicas)
    assert why is None if feasible else why is not None and ("PROHIBITED" if mode == "2" else "EXCLUSIVE") in why


def test_a_queue_is_one_exclusive_tenant_at_a_time_without_a_daemon(
    node: NvidiaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOCK_COMPUTE_MODE", "EXCLUSIVE_PROCESS")
    queue = STRATEGIES["sequential"]
    assert queue.is_queue and not STRATEGIES["exclusive"].is_queue
    assert node.infeasible(queue, 7) is None
    node.ensure(state("mps"))
    node.ensure(state("sequential"))
    assert node._daemons() == []
    (grant,) = node.grants(queue, 1)
    assert grant == node.grants(STRATEGIES["exclusive"], 1)[0]
    assert node.plan(queue) == "changes nothing on this GPU; tenants end with their cell"


def workload_spec(module: str, graph: bool | None = None) -> Workload:
    """A workload, by its module and its parameter `graph`."""
    return Workload(name=f"{module} {graph}", module=module, params={} if graph is None else {"graph": graph})


@pytest.mark.parametrize(
    "workloads, reason",
    [
        ([workload_spec("matmul", True)] * 3, None),
        ([workload_spec("matmul", False)] * 3, "one launch"),
        ([workload_spec("empty")] * 3, None),
        ([workload_spec("yolov8", True)] * 2, "one launch"),
        ([workload_spec("matmul", True), workload_spec("matmul", False)], "one launch"),
        ([workload_spec("matmul", True), workload_spec("resnet50", True)], None),
        ([Workload().changed(kind="command")], "one launch"),
        ([], None),
    ],
)
def test_workloads_not_attempted_in_streams_are_not_infeasible(
    node: NvidiaNode, workloads: list[Workload], reason: str | None
) -> None:
    streams = STRATEGIES["streams"]
    assert node.infeasible(streams, 3, [each.changed(kind="loop") for each in workloads]) is None
    why = node.not_attempted(streams, workloads)
    assert why is None if reason is None else why is not None and reason in why
    assert node.not_attempted(STRATEGIES["time-slicing"], workloads) is None


def test_mps_is_infeasible_without_its_program(node: NvidiaNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "not on PATH" in (node.infeasible(STRATEGIES["mps"], 2) or "")
    assert node.infeasible(STRATEGIES["time-slicing"], 2) is None


def test_tenants_see_one_gpu_and_only_our_daemon(node: NvidiaNode) -> None:
    grants = node.grants(STRATEGIES["time-slicing"], 3)
    for grant in grants:
        assert grant.environment["CUDA_VISIBLE_DEVICES"] == node.gpu.uuid
        assert not Path(grant.environment[MPS_PIPE_VARIABLE]).exists()
        assert "SHAREBENCH_PROBE_BYTES" not in grant.environment
    assert [grant.process for grant in grants] == [None] * 3


@pytest.mark.parametrize(
    "strategy, replicas, sms",
    [("green-contexts", 3, [44, 44, 44]), ("green-contexts-30-70", 2, [39, 92]), ("streams", 2, [None, None])],
)
def test_tenants_of_one_process_are_granted_their_part_of_the_sms(
    node: NvidiaNode, strategy: str, replicas: int, sms: list[int | None]
) -> None:
    grants = node.grants(STRATEGIES[strategy], replicas)
    assert [grant.sm_count for grant in grants] == sms
    assert {grant.process for grant in grants} == {0}
    assert all("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in grant.environment for grant in grants)


def test_a_memory_limit_is_probed_beyond_its_share(node: NvidiaNode) -> None:
    grant = node.grants(STRATEGIES["mps-limited"], 4)[0]
    assert int(grant.environment["SHAREBENCH_PROBE_BYTES"]) > node.gpu.memory_bytes / 4


def test_limits_of_each_tenant_are_in_its_own_environment(node: NvidiaNode) -> None:
    strategy = mechanism("mps").changed(
        thread_percent=(60.0, 20.0, 20.0), memory_limit=("20Gi", "512Mi", "5Gi"), priority=(0, 1, 1)
    )
    assert node.infeasible(strategy, 3) is None
    own = [grant.environment for grant in node.grants(strategy, 3)]
    assert [each["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for each in own] == ["60", "20", "20"]
    assert [each["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] for each in own] == ["0=20480M", "0=512M", "0=5120M"]
    assert [each["CUDA_MPS_CLIENT_PRIORITY"] for each in own] == ["0", "1", "1"]
    assert [int(each["SHAREBENCH_PROBE_BYTES"]) for each in own] == [21 << 30, 3 << 29, 6 << 30]
    # The server's own default would be a ceiling for all.
    node.ensure(State(strategy, None, 1))
    server = node._daemons()[0].server()
    assert server is not None
    assert (node._daemons()[0].thread_percent(server), node._daemons()[0].memory_limit(server)) == (100.0, "")


def test_a_common_amount_of_memory_is_set_at_the_server(node: NvidiaNode) -> None:
    strategy = mechanism("mps").changed(memory_limit="5Gi", thread_percent=(60.0, 40.0))
    node.ensure(State(strategy, None, 1))
    process = node._daemons()[0].server()
    assert process is not None
    assert node._daemons()[0].memory_limit(process) == "5120M"
    environment = node.grants(strategy, 2)[1].environment
    assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in environment
    assert int(environment["SHAREBENCH_PROBE_BYTES"]) == 6 << 30
    assert node.infeasible(strategy.changed(memory_limit="200Gi"), 2) == (
        "a memory_limit of 204800Mi is more than the GPU has, 143771Mi"
    )
    server = Workload(name="llm", kind="http", command=("serve", "--memory={fraction}"))
    assert node.infeasible(strategy, 2, [server]) == (
        "llm is given its {fraction} of the memory; use memory_percent, not memory_limit"
    )


def test_each_tenant_gets_a_mig_instance_of_its_own(node: NvidiaNode, mock_nvml: Path) -> None:
    mock_nvml.write_text("gpu 0: 1g.18gb@6 3g.71gb@0 1g.18gb@5\n")
    grants = node.grants(STRATEGIES["mig"], 2)
    visible = [grant.environment["CUDA_VISIBLE_DEVICES"] for grant in grants]
    assert len(set(visible)) == 2
    assert set(visible) <= {found.uuid for found in node.gpu.instances() if found.profile == "1g.18gb"}


def test_a_daemon_runs_as_long_as_its_state(node: NvidiaNode) -> None:
    node.ensure(state("mps-limited", 4))
    daemon = node._daemons()[0]
    pid, server = daemon.pid, daemon.server()
    assert pid is not None and server is not None
    assert (daemon.thread_percent(server), daemon.memory_limit(server)) == (25.0, "35942M")
    node.ensure(state("mps-limited", 4))
    assert node._daemons()[0].pid == pid
    node.ensure(state("time-slicing"))
    assert not mps.is_running(pid) and node._daemons() == []


@pytest.mark.parametrize(
    "happens",
    [
        lambda node: mps.kill_leftovers(node._daemons()[0].folder),
        lambda node: node.mark_dirty(),
        lambda node: node._daemons()[0].stop(),
    ],
    ids=["it died", "its client died", "its folder is gone"],
)
def test_a_daemon_is_started_again_before_the_next_cell(
    node: NvidiaNode, happens: Callable[[NvidiaNode], None]
) -> None:
    node.ensure(state("mps"))
    first = node._daemons()[0].pid
    happens(node)
    node.ensure(state("mps"))
    assert node._daemons()[0].pid not in (None, first)


def test_restoring_leaves_nothing(node: NvidiaNode) -> None:
    node.ensure(state("mps"))
    pid = node._daemons()[0].pid
    assert pid is not None
    assert node.restore() and not mps.is_running(pid)
    assert not node.host_folder.exists()
    assert node.restore() is False


def test_a_clean_host_is_left_alone(node: NvidiaNode) -> None:
    node.sweep()
    assert node.current() is None and not (node.folder / "journal.jsonl").exists()


def test_a_foreign_daemon_is_refused(node: NvidiaNode, tmp_path: Path) -> None:
    foreign = mps.MpsDaemon(tmp_path / "theirs")
    foreign.start(node.gpu.uuid, None, None)
    with pytest.raises(NodeError, match="MPS daemon that is not ours"):
        node.ensure(state("time-slicing"))
    assert foreign.pid is not None


def test_mig_instances_are_made_only_where_the_owner_allowed_it(
    node: NvidiaNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_nvml: Path
) -> None:
    mock_nvml.write_text("gpu 0: 2g.35gb@0 1g.18gb@6-\n")
    before = mock_nvml.read_text()
    assert "0 exist" in (node.infeasible(mechanism("mig", profile="3g"), 2) or "")
    allowed = make(tmp_path, monkeypatch, ("mig",))
    large = mechanism("mig", profile="3g")
    assert allowed.infeasible(large, 2) is None
    assert "3 MIG instances of profile 3g are needed, 2 fit" in (allowed.infeasible(large, 3) or "")
    allowed.ensure(State(large, None, 1))
    assert [found.profile for found in allowed.gpu.instances()] == ["3g.71gb", "3g.71gb"]
    # A second layout must not become the one to restore.
    allowed.ensure(State(mechanism("mig", profile="1g"), None, 1))
    assert len(allowed.gpu.instances()) == 7
    allowed.restore()
    assert sorted(mock_nvml.read_text().split()) == sorted(before.split())


def test_unequal_instances_are_assigned_in_the_order_of_the_strategy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mock_nvml: Path
) -> None:
    mock_nvml.write_text("gpu 0: 7g.141gb@0\n")
    allowed = make(tmp_path, monkeypatch, ("mig",))
    assert "do not fit" in (allowed.infeasible(unequal("3g", "3g", "2g"), 1) or "")
    assert "no MIG profile 5g" in (allowed.infeasible(unequal("5g", "1g"), 1) or "")
    assert allowed.infeasible(STRATEGIES["mig-unequal"], 4) is None
    allowed.ensure(state("mig-unequal"))
    profiles = {found.uuid: found.profile for found in allowed.gpu.instances()}
    given = [grant.environment["CUDA_VISIBLE_DEVICES"] for grant in allowed.grants(STRATEGIES["mig-unequal"], 4)]
    assert [profiles[uuid] for uuid in given] == ["3g.71gb", "2g.35gb", "1g.18gb", "1g.18gb"]
    assert len(set(given)) == 4
    allowed.restore()
    assert mock_nvml.read_text().split() == ["gpu", "0:", "7g.141gb@0"]


@pytest.mark.parametrize(
    "options, shows_gpu, line",
    [
        ({}, False, "'nvidia' is not possible on this host"),
        ({"python": "auto"}, True, "make gpu-env"),
        ({"python": "/no/such/python"}, True, "is not a file"),
    ],
)
def test_a_host_that_lacks_something_is_reported_in_one_line(
    options: dict[str, Any], shows_gpu: bool, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sharebench.model import gpu_python
    from sharebench.model.config import nodes
    from sharebench.model.config.load import ConfigError

    monkeypatch.setattr(nodes, "has_nvidia_gpu", lambda: shows_gpu)
    monkeypatch.setattr(gpu_python, "GPU_ENVIRONMENT", Path("/no/such/environment"))
    with pytest.raises(ConfigError, match=line) as raised:
        load(config_with({"node": "nvidia", "nvidia": options}))
    assert "\n" not in str(raised.value)


def test_leaving_the_old_state_and_entering_the_new_are_timed(
    node: NvidiaNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    past: list[float] = []
    monkeypatch.setattr("sharebench.measure.nodes.node.time.monotonic", lambda: sum(past))
    daemons: list[mps.MpsDaemon] = []
    monkeypatch.setattr(mps.MpsDaemon, "start", lambda daemon, *_: (daemons.append(daemon), past.append(5.0)))
    monkeypatch.setattr(mps.MpsDaemon, "stop", lambda _: past.append(2.0))
    monkeypatch.setattr(node, "_daemons", lambda: daemons)
    monkeypatch.setattr(mps, "foreign_daemon", lambda *_: None)
    node.ensure(state("mps"))
    assert node.switched == {"from": None, "out_seconds": 0.0, "in_seconds": 5.0}
    node._change_state(state("exclusive"))
    assert node.switched == {"from": "mps block 1", "out_seconds": 2.0, "in_seconds": 0.0}
