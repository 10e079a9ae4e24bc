"""A small made-up study on disk and in tables, with everything that figures and report must cope with.

Four strategies with 1, 2 and 4 tenants, three repeats and two workloads; `mig` cannot be split in four, one cell of
`mps` is excluded by a gate, one of `time-slicing` is warned, and `hashing` alone is too short for a p99.
"""

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np
from unit import factories, measured
from unit.studies import NO_SLO, QUESTION, base_config, study_with

from sharebench.core.files import read_json, write_json
from sharebench.model.question import Question
from sharebench.model.study_config import to_json
from sharebench.read import aggregate
from sharebench.read.decide import decide
from sharebench.study.study import Study

WINDOW_SECONDS = 2.0
LABEL = "CPU stand-in, not a GPU"
HOSTILE = 'device has 2 cores <script>alert("x")</script>'
ALONE_SECONDS = {"matmul": 0.0043, "hashing": 0.019}
MECHANISMS = ("exclusive", "time-slicing", "mps", "mig")
ACTIVITY = ("sm_active_percent", "sm_occupancy_percent", "dram_active_percent")
EXCLUDED, WARNED = ("mps", "matmul", 2, 2), ("time-slicing", "matmul", 4, 3)
"""Strategy, workload, replicas and repeat of a cell with wrong evidence, and of one with errors."""
RUN = {
    "run_id": "20250114-101112-4f2a",
    "created_epoch_seconds": 1736850000.0,
    "git_commit": "8c1d2e3f4a5b6c7d8e9f8c1d2e3f4a5b6c7d8e9f",
    "git_dirty": True,
    "argv": ["snakemake", "--cores", "1", "--config", "replicas=[1, 2, 4]"],
}


def study(strategies: Sequence[str] = MECHANISMS) -> Study:
    known = base_config()
    workloads = {
        name: known["workload_catalogue"]["matmul"] | {"description": f"{name} in a loop"} for name in ALONE_SECONDS
    }
    matrix = {"strategies": list(strategies), "replicas": [1, 2, 4], "workloads": list(ALONE_SECONDS), "repeats": 3}
    return study_with(
        {
            **matrix,
            "window_seconds": WINDOW_SECONDS,
            "null_cells": False,
            "strategy_catalogue": {name: known["strategy_catalogue"][name] for name in MECHANISMS},
            "workload_catalogue": workloads,
        }
    )


def config() -> dict[str, Any]:
    """The merged config of the study."""
    return to_json(study().config)


def node(label: str = LABEL) -> dict[str, Any]:
    """The node object of records and of nodes/device.json."""
    return {
        "kind": "cpu",
        "device": "cpu-1f2e3d4c",
        "product": "AMD EPYC 7B13",
        "units": 2,
        "units_name": "cores",
        "memory_bytes": 24 * 2**30,
        "is_gpu": not label,
        "label": label,
        "details": {"governor": "performance", "cores": [0, 1]},
    }


def _as_told(record: dict[str, Any], label: str) -> dict[str, Any]:
    """The record of a cell as the study has it."""
    strategy, workload, replicas, repeat = point = tuple(
        record["cell"][key] for key in ("strategy", "workload", "replicas", "repeat")
    )
    record["node"] = node(label)
    record["provenance"]["run_id"] = RUN["run_id"]
    if strategy == "mig" and replicas > 2:
        nothing = {"calibration": None, "window": None, "telemetry": None}
        return record | {"status": "infeasible", "reason": HOSTILE, "tenants": [], "evidence": []} | nothing
    random = np.random.default_rng([len(strategy), len(workload), replicas, repeat])
    factor = {"exclusive": 1.0, "time-slicing": replicas * 1.08, "mps": max(1.0, replicas / 2) * 1.04, "mig": 1.02}
    mean_seconds = ALONE_SECONDS[workload] * factor[strategy] * random.normal(1, 0.01)
    loads = [
        factories.closed_load(random, mean_seconds * (1 + 0.04 * index), 0.1, WINDOW_SECONDS)
        for index in range(replicas)
    ]
    record["tenants"] = [factories.tenant(i, load, WINDOW_SECONDS, workload) for i, load in enumerate(loads)]
    if point == EXCLUDED:
        record["evidence"][0] |= {"holds": False, "expected": "cores 0", "observed": "cores 0, 1"}
    if point == WARNED:
        record["tenants"][0]["errors"] = 2
    return record


def write(root: Path, label: str = LABEL, strategies: Sequence[str] = MECHANISMS) -> Path:
    """Write the data set of the study, or of some of its strategies, and return its root."""
    shutil.copytree(_made(label, tuple(strategies)).name, root, dirs_exist_ok=True)
    return root


@cache
def _made(label: str, strategies: tuple[str, ...]) -> TemporaryDirectory[str]:
    """The data set, made once; it goes with this process."""
    folder = TemporaryDirectory()
    root, of = Path(folder.name), study(strategies)
    measured.write_data_set(root, of, lambda record: _as_told(record, label))
    table_again(root, strategies)
    decide_again(root)
    return folder


def table_again(root: Path, strategies: Sequence[str] = MECHANISMS) -> None:
    """Write the tables of the cells from their records."""
    of = study(strategies)
    # They come from a data set, whose measuring code may be older; then the study becomes one of this host.
    of.config["from"] = [str(root)]
    aggregate.write_tables(of, root, root, {"not_shown": "", **RUN})  # type: ignore[typeddict-item]
    manifest = read_json(root / "manifest.json")
    write_json(root / "manifest.json", manifest | {"config": manifest["config"] | {"from": []}})


def decide_again(root: Path, data: Path | None = None, latency_ms: float = 20.0) -> None:
    """Write the tables of the decision from those of the cells, for five tenants."""
    asked: dict[str, Any] = {"slo": NO_SLO | {"latency_ms": latency_ms}, "tenants": 5, "price_per_hour": 4.0}
    question = cast(Question, QUESTION | asked)
    decide.decide(data or root, root, question, root / ".sharebench" / "decided" / "question", [])
