"""The time-slice probe: the analysis of planted timelines, and the probing processes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.figures import fabricated

from sharebench.core.files import read_json, write_json
from sharebench.measure.nodes.contract import Grant, NodeError, State
from sharebench.measure.nodes.host.nvidia import NvidiaNode
from sharebench.measure.run import placement
from sharebench.measure.run.jobs import Run
from sharebench.measure.run.timeslice import probe
from sharebench.measure.run.timeslice.slices import UnusableTimelines, analyse, histogram, runs, switches
from sharebench.model.config import load
from sharebench.model.strategy import Strategy
from sharebench.model.study_config import to_json
from sharebench.study.study import Study
from tenant import spin

US = 1_000
MS = 1_000_000


def kernel_report(first_ns: int, end_ns: int, gaps: list[list[int]], resolution_ns: int = 32) -> dict[str, Any]:
    """The timeline that a tenant's kernel reports."""
    return {
        "first_ns": first_ns,
        "last_ns": max([end_ns + 20, *(after for _, after in gaps)]),
        "resolution_ns": resolution_ns,
        "gap_count": len(gaps),
        "gaps": gaps,
    }


def alternating_timelines(tenants: int, slice_ns: int, switch_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Tenants that alternate on the device, for `slice_ns` each, with `switch_ns` of idleness between."""
    turn_ns = slice_ns + switch_ns
    timelines = []
    for lane in range(tenants):
        begins = range(lane * turn_ns, end_ns, tenants * turn_ns)
        gaps = [[begin + slice_ns, begin + tenants * turn_ns] for begin in begins]
        timelines.append(kernel_report(lane * turn_ns, end_ns, [gap for gap in gaps if gap[0] < end_ns]))
    return timelines


@pytest.mark.parametrize("tenants, slice_us, switch_us", [(2, 2000, 150), (2, 150, 12), (4, 1000, 80)])
def test_planted_slices_and_switches_are_found(tenants: int, slice_us: int, switch_us: int) -> None:
    end_ns = 500 * MS
    found, rows = analyse(alternating_timelines(tenants, slice_us * US, switch_us * US, end_ns), end_ns)
    for kind, expected in (
        ("run", slice_us),
        ("switch", switch_us),
        ("gap", (tenants - 1) * slice_us + tenants * switch_us),
    ):
        assert found[kind]["min_us"] == found[kind]["p50_us"] == found[kind]["max_us"] == pytest.approx(expected), kind
        (bounds,) = {row[2:4] for row in rows if row[1] == kind}
        assert bounds[0] < expected <= bounds[1], kind
    turn_us = slice_us + switch_us
    # The edges of a timeline may hold a part of a turn.
    assert found["idle_ratio"] == pytest.approx(switch_us / turn_us, abs=2 * turn_us * US / end_ns)
    assert found["tenants_on_device_mean"] == pytest.approx(1 - found["idle_ratio"])
    assert found["overlap_ratio"] == 0.0
    assert sum(row[-1] for row in rows if row[1] == "run") == found["run"]["count"]
    assert len(found["tenants"]) == tenants
    assert [each["on_device_ratio"] for each in found["tenants"]] == pytest.approx(
        [slice_us / turn_us / tenants] * tenants, abs=2 * turn_us * US / end_ns
    )


def test_tenants_that_run_at_the_same_time_have_no_switch_and_no_slice() -> None:
    end_ns = 100 * MS
    found, rows = analyse([kernel_report(0, end_ns, []), kernel_report(3 * MS, end_ns, [])], end_ns)
    assert rows == []
    assert (found["run"], found["gap"], found["switch"]) == (None, None, None)
    assert found["tenants_on_device_mean"] == pytest.approx(2.0)
    assert found["overlap_ratio"] == pytest.approx(1.0)
    assert found["idle_ratio"] == 0.0
    assert found["seconds"] == pytest.approx(0.097)


def test_a_run_that_overlaps_another_is_not_a_switch() -> None:
    lanes = [np.array([[0, 100], [200, 300]]), np.array([[50, 80], [110, 190]])]
    # 0 → 1 after 10 idle; 1 → 0 after 10; the first run of lane 1 lies inside the first of lane 0.
    assert switches(lanes) == [(1, 10), (0, 10)]


def test_runs_that_the_edges_cut_are_drawn_and_not_counted() -> None:
    timeline = kernel_report(0, 100 * MS, [[30 * MS, 31 * MS], [60 * MS, 61 * MS]])
    assert runs(timeline, 0, 100 * MS).tolist() == [[0, 30 * MS], [31 * MS, 60 * MS], [61 * MS, 100 * MS]]
    found, _ = analyse([timeline], 100 * MS)
    assert found["run"]["count"] == 1
    assert found["run"]["p50_us"] == 29_000


def test_a_timeline_ends_where_its_room_for_gaps_ran_out() -> None:
    end_ns = 100 * MS
    cut = kernel_report(0, end_ns, [[10 * MS, 11 * MS], [20 * MS, 21 * MS]]) | {"gap_count": 9}
    found, _ = analyse([cut, kernel_report(0, end_ns, [])], end_ns)
    assert found["seconds"] == pytest.approx(0.021)


def test_a_clock_that_runs_backwards_is_refused() -> None:
    with pytest.raises(UnusableTimelines, match="backwards"):
        analyse([kernel_report(0, 100, [[50, 40]])], 100)


def test_kernels_that_never_ran_together_are_refused() -> None:
    with pytest.raises(UnusableTimelines, match="never ran at the same time"):
        analyse([kernel_report(0, 100, []), kernel_report(200, 300, [])], 100)


def test_buckets_hold_every_value_once() -> None:
    values = np.random.default_rng(3).lognormal(4, 2, 5000)
    buckets = histogram(values)
    assert sum(count for _, _, count in buckets) == 5000
    for lower, upper, count in buckets:
        assert count == ((values > lower) & (values <= upper)).sum()
        assert lower == 0 or upper / lower == pytest.approx(2 ** (1 / 64))
    assert histogram(np.array([0.3])) == [(0.0, 1.0, 1)]


def test_the_buffer_of_the_kernel_is_parsed() -> None:
    words = [100, 900, 2, 32, 200, 300, 400, 500, 0, 0]
    content = b"".join(word.to_bytes(8, sys.byteorder) for word in words)
    assert spin.parse_timeline(content) == {
        "first_ns": 100,
        "last_ns": 900,
        "resolution_ns": 32,
        "gap_count": 2,
        "gaps": [[200, 300], [400, 500]],
    }
    full = b"".join(word.to_bytes(8, sys.byteorder) for word in [100, 900, 7, 32, 200, 300])
    assert spin.parse_timeline(full)["gaps"] == [[200, 300]]


# Answers like a probing process; its clock is the host's monotonic one, shifted.
STANDIN = """#!{python}
import json, os, sys, time
assert sys.argv[1:3] == ["-m", "tenant.spin"], sys.argv
assert not [key for key in os.environ if key.startswith("CUDA_") and key != "CUDA_VISIBLE_DEVICES"]
streams = int(sys.argv[sys.argv.index("--streams") + 1])
how = os.environ["HOW"]
if how == "fails":
    sys.exit("no room")
shift = 5_000_000_000 + (3_000_000 if how == "other clock" else 0)
device = "other" if how == "other device" else "one"
# Read once: a busy machine may stop this process between two readings.
now = time.monotonic_ns()
print(json.dumps({{"device": device, "sm_count": 1, "timer_ns": now + shift, "monotonic_ns": now}}), flush=True)
order = sys.stdin.readline()
if order:
    end = json.loads(order)["end_ns"]
    if how == "dies":
        sys.exit(3)
    # A busy machine may be late with the order.
    first = min(time.monotonic_ns() + shift, end - 1_000_000)
    time.sleep(max(0, end - first) / 1e9)
    lines = [{{"first_ns": first, "last_ns": end + 5, "resolution_ns": 1, "gap_count": 0, "gaps": []}}] * streams
    print(json.dumps({{"timelines": lines}}), flush=True)
"""


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of a Python with CUDA."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/of/someone/else")
    path = tmp_path / "python"
    path.write_text(STANDIN.format(python=sys.executable))
    path.chmod(0o755)
    return path


def grants(*behaviours: str, process: int | None = None) -> list[Grant]:
    return [
        Grant(i, 0, environment={"HOW": behaviour, "CUDA_VISIBLE_DEVICES": "GPU-0"}, process=process)
        for i, behaviour in enumerate(behaviours)
    ]


def test_processes_probe_at_the_same_time(standin: Path) -> None:
    timelines, end_ns = probe.watch_tenants(standin, grants("works", "works", "works"), 0.1)
    assert len(timelines) == 3
    assert all(each["first_ns"] < end_ns < each["last_ns"] for each in timelines)
    found, _ = analyse(timelines, end_ns)
    assert found["tenants_on_device_mean"] == pytest.approx(3.0)
    assert found["seconds"] <= 0.1 + probe.LEAD_SECONDS


@pytest.mark.parametrize(
    "behaviour, message",
    [
        ("fails", "ended with exit code 1"),
        ("dies", "ended with exit code 3"),
        ("other clock", "not on one device"),
        ("other device", "not on one device"),
    ],
)
def test_a_failed_probing_process_is_reported_and_none_is_left(standin: Path, behaviour: str, message: str) -> None:
    with pytest.raises(NodeError, match=message):
        probe.watch_tenants(standin, grants("works", behaviour), 2.0)
    left = subprocess.run(["pgrep", "-f", str(standin)], capture_output=True, check=False)
    assert left.stdout == b""


def study(strategies: list[str], node: str = "simulated") -> Study:
    catalogue: dict[str, Any] = {
        "exclusive": {"mechanism": "exclusive", "replicas": [1]},
        "time-slicing": {"mechanism": "time-slicing"},
        "mps": {"mechanism": "mps"},
        "mps-limited": {"mechanism": "mps", "thread_percent": "100/N"},
        "mig-mps": {"mechanism": ["mig", "mps"], "profile": "3g", "instances": 2},
        "streams": {"mechanism": "streams"},
    }
    return Study(
        load.load(
            {
                "node": node,
                "strategies": strategies,
                "strategy_catalogue": catalogue,
                "workloads": ["w"],
                "workload_catalogue": {"w": {"simulated": {"serial_seconds": 1}}},
            }
        )
    )


def test_strategies_that_share_a_whole_device_are_probed() -> None:
    everything = ["exclusive", "streams", "mps", "mps-limited", "mig-mps", "time-slicing"]
    assert [each.name for each in probe.probed_strategies(study(everything))] == ["time-slicing", "mps", "streams"]
    assert [each.name for each in probe.probed_strategies(study(["mps-limited", "mps"]))] == ["mps"]


class Gpu(NvidiaNode):
    """A GPU whose tenants are the stand-in; `calls` lists the states that were set."""

    def __init__(self, python: Path, behaviour: dict[str, str]) -> None:
        self.python, self.how, self.calls = python, behaviour, list[str]()

    @property
    def tenant_python(self) -> Path:
        return self.python

    def infeasible(self, strategy: Strategy, replicas: int, workloads: object = ()) -> str | None:
        return "no graph" if strategy.name == "streams" else None

    def ensure(self, state: State) -> None:
        self.calls.append(state.setting)

    def grants(self, strategy: Strategy, replicas: int) -> list[Grant]:
        return grants(*[self.how.get(strategy.name, "works")] * replicas)

    def restore(self) -> bool:
        self.calls.append("restored")
        return True


def probe_job(folder: Path, gpu: Gpu, monkeypatch: pytest.MonkeyPatch, tenants: int = 2) -> Callable[[], None]:
    probed_study = study(["time-slicing", "mps", "streams"])
    monkeypatch.setattr(placement, "open_nodes", lambda *_: [gpu])
    write_json(folder / "device.json", {"node": fabricated.node(""), "roofs": None, "idle_power_watts": None})
    run = Run(folder, {"config": to_json(probed_study.config), "run_id": "r", "git_commit": None, "git_dirty": None})
    return lambda: probe.measure(run, folder / "device.json", tenants, 0.05, folder / "out.json", folder / "table.csv")


def test_the_job_probes_each_strategy_and_restores_the_node(
    standin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(standin, {})
    probe_job(tmp_path, gpu, monkeypatch)()
    assert gpu.calls == ["time-slicing", "mps", "restored"]
    found = read_json(tmp_path / "out.json")
    assert found["node"] == fabricated.node("")
    assert found["strategies"]["streams"] == {"infeasible": "no graph"}
    assert found["strategies"]["mps"]["tenants_on_device_mean"] == pytest.approx(2.0)
    assert (tmp_path / "table.csv").read_text() == ",".join(probe.COLUMNS) + "\n"


def test_a_failed_probe_restores_the_node_and_writes_nothing(
    standin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Gpu(standin, {"mps": "fails"})
    with pytest.raises(NodeError):
        probe_job(tmp_path, gpu, monkeypatch)()
    assert gpu.calls == ["time-slicing", "mps", "restored"]
    assert not (tmp_path / "out.json").exists() and not (tmp_path / "table.csv").exists()
