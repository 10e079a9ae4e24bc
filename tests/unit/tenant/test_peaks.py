"""Peak rates with a fake timer; the tasks in torch are tested on a GPU."""

import sys
from collections.abc import Callable

import pytest

from tenant.gpu import peaks
from tenant.gpu.peaks import Task, best_rate


class Device:
    """Runs each task at its own rate in fake time; the first call of a task is a hundred times slower."""

    def __init__(self) -> None:
        self.amounts: list[float] = []
        self._amount, self._rate = 0.0, 1.0

    def task(self, amount: float, rate: float) -> Task:
        def run() -> None:
            self._amount, self._rate = amount, rate

        return amount, run

    def timer(self, run: Callable[[], object], times: int) -> float:
        run()
        slow = 1 if self._amount in self.amounts else 100
        self.amounts.append(self._amount)
        return slow * times * self._amount / self._rate


def test_a_peak_is_the_best_rate_of_all_sizes_without_first_calls() -> None:
    device = Device()
    tasks = [device.task(1e6, 1e12), device.task(8e6, 3e12), device.task(64e6, 2e12)]
    assert best_rate(tasks, device.timer) == pytest.approx(3e12)


def test_sizes_that_would_take_too_long_are_skipped() -> None:
    device = Device()
    tasks = [device.task(8.0**power, 1e3) for power in range(1, 9)]
    assert best_rate(tasks, device.timer) == pytest.approx(1e3)
    longest = max(device.amounts)
    assert longest * (peaks.ROUNDS + 2) / 1e3 <= peaks.SIZE_SECONDS < 8 * longest * (peaks.ROUNDS + 2) / 1e3


def test_a_missing_torch_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert peaks.main() == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f"the peaks need torch, which {sys.executable} lacks; run `make gpu-env`\n"
