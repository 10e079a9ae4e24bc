"""Each benchmark runs once, small and without its limits, which are for an idle machine."""

import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import client, overhead, peers, power, recompute, recorder, scale, truth
from unit.figures import fabricated

pytestmark = pytest.mark.thorough

ONE_STAND_IN = {
    "node": "cpu",
    "strategies": ["time-slicing"],
    "replicas": [1],
    "workloads": ["matmul"],
    "baseline": "none",
    "repeats": 2,
    "window_seconds": 1,
}
SMALL: dict[Any, dict[str, Any]] = {
    client: {"WINDOW_SECONDS": 0.5, "LIMIT_CPU_MICROSECONDS": 1e9, "LIMIT_SECONDS": 1e3},
    overhead: {},
    peers: {"CONCURRENCIES": (1,), "SECONDS": 1.0, "CLIENTS": {"ours": peers.CLIENTS["ours"]}},
    power: {},
    recompute: {},
    recorder: {"ROUNDS": 3, "PAIRS": 3, "LIMIT_NS": 1e9, "LIMIT_RATE_NS": 1e9},
    # One figure only, since each takes a process.
    scale: {
        "names_for": lambda *_: ["latency"],
        "DRY_RUN_CELLS": (40,),
        "RUN_CELLS": 40,
        "DATA_CELLS": 40,
        "STAND_IN": ONE_STAND_IN,
    },
    truth: {},
}


@pytest.mark.parametrize("benchmark", SMALL, ids=lambda module: module.__name__)
def test_a_benchmark_runs(benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in SMALL[benchmark].items():
        monkeypatch.setattr(benchmark, name, value)
    # Another run on this host may have its processors.
    monkeypatch.setenv("SHAREBENCH_LOCK_FOLDER", str(tmp_path))
    arguments = {overhead: [str(fabricated.write(tmp_path / "results"))], truth: ["--studies", "2"]}
    monkeypatch.setattr(sys, "argv", [benchmark.__file__, *arguments.get(benchmark, [])])
    try:
        benchmark.main()
    except SystemExit as ended:
        assert not ended.code


def test_every_benchmark_is_run() -> None:
    assert {Path(module.__file__) for module in SMALL} == {*Path(scale.__file__).parent.glob("*.py")}
