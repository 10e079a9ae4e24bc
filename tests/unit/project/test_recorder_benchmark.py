"""The recorder's benchmark must be able to fail: it sees a folding that is too slow, and ends with exit code 1."""

import importlib.util
import time
from pathlib import Path
from types import ModuleType

import pytest

from tenant.loop import CAPACITY
from tenant.recorder import Recorder, Rows

FILE = Path(__file__).resolve().parents[3] / "benchmarks" / "recorder.py"


@pytest.fixture
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recorder_benchmark", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_a_slow_folding_within_the_window_is_seen(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = Recorder.fold

    def slow(self: Recorder, rows: Rows, *more: object) -> None:
        fold(self, rows, *more)
        if rows.ended.size == CAPACITY:
            until = time.process_time() + 0.02
            while time.process_time() < until:
                pass

    monkeypatch.setattr(Recorder, "fold", slow)
    monkeypatch.setattr(benchmark, "PAIRS", 2)
    # Even on a machine that gives this process but a small part of a core, an array is full within the window.
    monkeypatch.setattr(benchmark, "ITERATION_SECONDS", 2e-6)
    monkeypatch.setattr(benchmark, "FOLDINGS", 20)
    found = benchmark.rates()
    # 20 ms for each full array are 1200 ns for each of its iterations.
    assert found.cost_ns() > 2 * benchmark.LIMIT_RATE_NS
