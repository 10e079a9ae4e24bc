"""The pipeline on a real GPU: every strategy is active with evidence, and no run leaves anything behind.

About three minutes; needs an interpreter with both the frameworks and the pipeline's packages (see README.md).
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpu.gpu_host import assert_clean_host, assert_valid, gpu_settings, our_processes, output_of, record_of, run, start

from sharebench.model.capabilities import has_nvidia_gpu
from sharebench.model.gpu_python import gpu_python

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_nvidia_gpu(), reason="no NVIDIA GPU on this host"),
]

WORKLOAD = "matmul-256-graph"
STRATEGIES = ["time-slicing", "mps", "mps-limited", "mps-unequal", "streams"]
TENANTS = 2
UNEQUAL = {"mechanism": "mps", "thread_percent": [75, 25], "memory_limit": ["20Gi", "10Gi"], "priority": [0, 1]}
STUDY = {
    "node": "nvidia",
    "nvidia": {"python": str(gpu_python("auto") or sys.executable)},
    "strategies": STRATEGIES,
    "replicas": [TENANTS],
    "workloads": [WORKLOAD],
    "repeats": 1,
    "window_seconds": 4,
    "warmup": {"max_seconds": 3},
}
MPS_CELL = f"results/cells/mps/{WORKLOAD}/n{TENANTS}/r1/raw.json"


@dataclass
class Finished:
    """A finished study, and the GPU's settings before it."""

    folder: Path
    before: list[Any]

    def record(self, strategy: str) -> dict[str, Any]:
        """The record of the strategy's cell."""
        return record_of(self.folder / "results", strategy, WORKLOAD, TENANTS)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The study, run once."""
    assert_clean_host()
    folder = tmp_path_factory.mktemp("gpu") / "study"
    folder.mkdir()
    entries = {
        "workload_catalogue": {WORKLOAD: {"min_window_seconds": 1}},
        "strategy_catalogue": {"mps-unequal": UNEQUAL},
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY | entries))
    before = gpu_settings()
    assert run(folder) == 0, output_of(folder)
    return Finished(folder, before)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_is_measured_with_evidence_that_it_was_active(finished: Finished, strategy: str) -> None:
    record = finished.record(strategy)
    assert_valid(record)
    assert len(record["tenants"]) == TENANTS
    assert all(tenant["count"] > 1000 for tenant in record["tenants"])


def test_tenants_run_in_the_number_of_processes_of_the_strategy(finished: Finished) -> None:
    for strategy in STRATEGIES:
        tenants = finished.record(strategy)["tenants"]
        assert len({tenant["view"]["pid"] for tenant in tenants}) == (1 if strategy == "streams" else TENANTS)
        assert {tenant["view"]["device"] for tenant in tenants} == {finished.record(strategy)["node"]["device"]}


def test_a_tenant_sees_its_limit(finished: Finished) -> None:
    units = finished.record("mps")["node"]["units"]
    assert [tenant["view"]["sm_count"] for tenant in finished.record("mps")["tenants"]] == [units] * TENANTS
    for tenant in finished.record("mps-limited")["tenants"]:
        assert tenant["view"]["sm_count"] == pytest.approx(units / TENANTS, abs=2)
        assert tenant["view"]["over_limit_refused"] is True


def test_each_tenant_sees_its_unequal_limits(finished: Finished) -> None:
    units = finished.record("mps")["node"]["units"]
    views = [tenant["view"] for tenant in finished.record("mps-unequal")["tenants"]]
    assert [view["sm_count"] for view in views] == pytest.approx([0.75 * units, 0.25 * units], abs=2)
    assert all(view["over_limit_refused"] for view in views)
    assert [view["memory_free_bytes"] < limit << 30 for view, limit in zip(views, (20, 10), strict=True)] == [True] * 2


def test_mps_is_faster_than_time_slicing_for_a_kernel_that_cannot_fill_the_gpu(finished: Finished) -> None:
    mean = {}
    for strategy in ("time-slicing", "mps"):
        tenants = finished.record(strategy)["tenants"]
        mean[strategy] = sum(t["sum_seconds"] for t in tenants) / sum(t["count"] for t in tenants)
    assert mean["mps"] < 0.5 * mean["time-slicing"]


def test_a_finished_run_leaves_nothing_and_changes_no_setting(finished: Finished) -> None:
    assert_clean_host()
    assert gpu_settings() == finished.before


def has_mps_daemon(outside: int) -> bool:
    """Whether an MPS daemon has been started and runs outside that process group."""
    groups = []
    for pid, what in our_processes().items():
        with contextlib.suppress(ProcessLookupError):
            groups += [os.getpgid(pid)] if what == "mps" else []
    return any(group != outside for group in groups)


def has_tenants() -> bool:
    """Whether all tenants have been started."""
    return sum("-m tenant" in line for line in our_processes().values()) >= TENANTS


def is_sampled() -> bool:
    """Whether the sampler runs: then the window is about to begin, or has begun."""
    return any("nvml_sampler" in line for line in our_processes().values())


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, f"the run ended first:\n{output_of(folder)}"
        assert time.monotonic() < deadline, output_of(folder)
        time.sleep(0.005)


def mps_starting(process: subprocess.Popen[bytes], folder: Path) -> None:
    # The program starts in the run's process group and leaves it when it becomes a daemon.
    wait_until(lambda: has_mps_daemon(outside=process.pid), process, folder)


def tenants_warming(process: subprocess.Popen[bytes], folder: Path) -> None:
    wait_until(has_tenants, process, folder)
    # Loading torch takes about two seconds, the context and the warm-up one more.
    time.sleep(2.5)


def mid_window(process: subprocess.Popen[bytes], folder: Path) -> None:
    wait_until(is_sampled, process, folder)
    time.sleep(STUDY["window_seconds"] / 2)


def stopping(process: subprocess.Popen[bytes], folder: Path) -> None:
    wait_until(is_sampled, process, folder)
    wait_until(lambda: not is_sampled(), process, folder)


@pytest.fixture
def interrupted(finished: Finished, tmp_path: Path) -> Iterator[Path]:
    """The finished study without the MPS cell; leftovers of a failed test are ended."""
    folder = tmp_path / "study"
    shutil.copytree(finished.folder, folder, symlinks=True)
    (folder / MPS_CELL).unlink()
    yield folder
    for pid in our_processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("reached", [mps_starting, tenants_warming, mid_window, stopping], ids=lambda f: f.__name__)
def test_a_killed_run_is_cleaned_up_by_the_next_start(
    interrupted: Path, finished: Finished, reached: Callable[[subprocess.Popen[bytes], Path], None]
) -> None:
    process = start(interrupted, MPS_CELL)
    reached(process, interrupted)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (interrupted / MPS_CELL).exists()
    left = our_processes()
    assert left, "the kill came when nothing ran any more"

    assert run(interrupted, MPS_CELL) == 0, output_of(interrupted)
    assert json.loads((interrupted / MPS_CELL).read_text())["status"] == "ok"
    assert left.keys() & our_processes().keys() == set()
    assert_clean_host()
    assert gpu_settings() == finished.before


def test_the_length_of_a_time_slice(finished: Finished) -> None:
    assert run(finished.folder, "probe_timeslice") == 0, output_of(finished.folder)
    found = json.loads((finished.folder / "results/nodes/timeslice.json").read_text())["strategies"]
    assert list(found) == ["mps", "streams", "time-slicing"]
    assert found["time-slicing"]["overlap_ratio"] < 0.001
    assert found["time-slicing"]["run"]["count"] > 100
    assert found["time-slicing"]["switch"]["p50_us"] < found["time-slicing"]["run"]["p50_us"]
    for strategy in ("mps", "streams"):
        assert found[strategy]["tenants_on_device_mean"] > 1.99
    assert_clean_host()
