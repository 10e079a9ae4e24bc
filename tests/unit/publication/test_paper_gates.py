"""Changes that today's gates make to published records."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from unit import factories
from unit.factories import back_to_back, poisson_load
from unit.papers import data_set, publish

from publication import gates


def keep(root: Path, record: dict[str, Any], passed: bool) -> None:
    """Publish a record that had this verdict of every gate when it was measured."""
    cell = record["cell"]
    for gate in record["gates"]:
        gate["passed"] = passed
    path = root / "published/gpu/study/cells" / f"{cell['strategy']}/{cell['workload']}/n1/r{cell['repeat']}/raw.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record))


def test_changed_verdicts_are_listed_by_study(tmp_path: Path) -> None:
    publish(tmp_path)
    overload = poisson_load(np.random.default_rng(1), 0.002, 0.02, 2.0, 1.5)
    keep(tmp_path, factories.record("mps", [overload], repeat=1), passed=True)
    keep(tmp_path, factories.record("exclusive", [back_to_back(np.repeat([0.004, 0.006], 200))], repeat=1), passed=True)
    keep(tmp_path, factories.record("exclusive", [back_to_back(np.full(400, 0.005))], repeat=2), passed=True)
    (line,) = gates.table({"gpu/study": data_set(tmp_path)}).splitlines()[2:]
    assert line == "| study | mps, `matmul` × 1: 1 (`queue_growth`) |  | `matmul` 1 of 3 |"


def test_a_cell_that_counts_only_today_is_named(tmp_path: Path) -> None:
    publish(tmp_path)
    record = factories.record("mps", repeat=1)
    keep(tmp_path, record | {"gates": [g for g in record["gates"] if g["name"] == "drained_queue"]}, passed=False)
    table = gates.table({"gpu/study": data_set(tmp_path)})
    assert "| mps, `matmul` × 1: 1 (`drained_queue`) |" in table
