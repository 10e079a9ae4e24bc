"""Programs on this host's GPUs, on a mock NVML."""

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from sharebench.measure.nodes.host import usage
from sharebench.measure.nodes.host.nvml import Occupant
from sharebench.model.records.usage import MEMORY, POWER, SM
from tenant.gpu import nvml

pytestmark = pytest.mark.usefixtures("mock_nvml")

# More than the kernel's largest process number, so that no program of this machine has them.
ONE, OTHER = 2**22 + 1, 2**22 + 2


@pytest.mark.parametrize(
    "words, name",
    [
        (["/usr/bin/trainer", "--token", "secret"], "trainer"),
        (["/opt/bin/python3", "/srv/train.py", "--key=secret"], "python3 train.py"),
        (["python", "-m", "vllm.entrypoints", "secret"], "python vllm.entrypoints"),
        (["python", "-c", "secret"], "python"),
    ],
)
def test_a_program_has_a_name_and_no_arguments(words: list[str], name: str, tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes("\0".join([*words, ""]).encode())
    assert usage.program_name(7, tmp_path) == name
    assert usage.program_name(8, tmp_path) == "process 8"


class Clock(threading.Event):
    """A clock that only waiting for the watch's end advances."""

    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        return self.is_set()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Steps without waiting, and the event that ends them."""
    monkeypatch.setenv("MOCK_READINGS", "1")
    monkeypatch.setattr(usage, "PERIOD_SECONDS", 0.25)
    clock = Clock()
    fake = SimpleNamespace(monotonic=clock.monotonic, time=time.time, process_time=time.process_time)
    for module in (usage, nvml):
        monkeypatch.setattr(module, "time", fake)
    return clock


def test_each_gpu_is_watched_and_an_idle_one_has_no_program(
    steps: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "processes").write_text(f"compute {ONE} 710\n")
    monkeypatch.setenv("MOCK_PROCESSES", str(file))
    monkeypatch.setenv("MOCK_GPUS", "2")
    seen = usage.watch_gpus(1.0 / 3600, steps)
    busy, idle = seen.usages
    assert (busy.workload, idle.workload) == (f"process {ONE}", None)
    assert busy.place.product == "NVIDIA H200" and len(busy.series) == 4
    # GPM is the mock's constant, from the second reading on; memory is the process's own.
    assert busy.series[SM].iloc[1:].tolist() == pytest.approx([62.5] * 3)
    assert busy.series[MEMORY].max() == 710 and busy.series[POWER].max() == 62.25


def test_two_programs_on_a_gpu_have_their_own_memory(
    steps: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file := tmp_path / "processes").write_text(f"compute {ONE} 710\ncompute {OTHER} 100\n")
    monkeypatch.setenv("MOCK_PROCESSES", str(file))
    first, second = usage.watch_gpus(0.5 / 3600, steps).usages
    assert first.is_shared and second.is_shared
    assert (first.series[MEMORY].max(), second.series[MEMORY].max()) == (710, 100)


def test_a_process_on_two_gpus_is_spread(steps: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOCK_GPUS", "2")
    monkeypatch.setattr(usage.Gpu, "occupants", lambda gpu: [Occupant(ONE, "compute", None)])
    assert [each.is_spread for each in usage.watch_gpus(0.5 / 3600, steps).usages] == [True, True]


def test_an_event_ends_the_watch(steps: Clock) -> None:
    steps.set()
    seen = usage.watch_gpus(10, steps)
    assert seen.hours == 0 and all(len(each.series) == 1 for each in seen.usages)
