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


@pytest.mark.parametrize(
    ("cost_ns", "error_percent", "change_percent", "above"),
    [
        (149.0, 1.0, -1.6, None),
        (151.0, 1.0, -1.6, "above the limit: cost of an iteration"),
        (149.0, 1.2, -1.6, "above the limit: error of a quantile"),
        (149.0, 1.0, -1.8, "above the limit: change of the rate"),
    ],
)
def test_what_is_above_its_limit_ends_it_badly(
    benchmark: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    cost_ns: float,
    error_percent: float,
    change_percent: float,
    above: str | None,
) -> None:
    rates = benchmark.Rates(1e9 / 12_000, [change_percent] * 4, [0.6] * 4)
    monkeypatch.setattr(benchmark, "costs_ns", lambda: {"ours": [cost_ns] * 4})
    monkeypatch.setattr(benchmark, "quantile_errors_percent", lambda: {"any": error_percent})
    monkeypatch.setattr(benchmark, "rates", lambda: rates)
    if above is None:
        benchmark.main()
        return
    with pytest.raises(SystemExit, match=above):
        benchmark.main()
