"""What a workload is calibrated on, and which calibration is no reference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.factories import closed_load, scraped, tenant
from unit.studies import study

from sharebench.config import load
from sharebench.jobs import alone, capacity_hz, is_spoilt
from sharebench.matrix import Study
from sharebench.nodes.nvidia import NvidiaNode


@pytest.mark.usefixtures("mps_control")
@pytest.mark.parametrize(
    "layout, chosen",
    [
        ("", "exclusive"),
        ("gpu 0: 1g.18gb 3g.71gb", "mig-mps"),
        ("gpu 0: 1g.18gb", "mig"),
        # Nothing of the study fits: what exclusive lacks is then the reason that people see.
        ("gpu 0:", "exclusive"),
    ],
)
def test_in_mig_mode_it_is_the_largest_instance_of_the_study(
    mock_nvml: Path, tmp_path: Path, layout: str, chosen: str
) -> None:
    mock_nvml.write_text(f"{layout}\n")
    asked = load(study({"node": "simulated", "strategies": ["mig", "mig-mps"], "workloads": ["matmul"]}))
    asked["strategy_catalogue"]["mig-mps"]["instances"] = 1
    node = NvidiaNode({"gpu": "0", "python": "auto", "may_change": []}, tmp_path)
    assert alone(Study(asked), node, {"params": {}}).name == chosen


@pytest.mark.parametrize(
    "changes, spoilt",
    [
        ({}, True),
        ({"passed": True}, False),
        ({"severity": "warning"}, False),
        ({"name": "output_digest"}, False),
        ({"name": "window_length"}, False),
    ],
)
def test_a_failed_check_that_excludes_a_cell_spoils_a_calibration(changes: dict[str, Any], spoilt: bool) -> None:
    gate = {"name": "foreign_process", "severity": "invalid", "passed": False}
    assert is_spoilt(gate | changes) is spoilt


@pytest.mark.parametrize("seed", range(20))
def test_the_capacity_does_not_depend_on_where_the_window_opens(seed: int) -> None:
    load = closed_load(np.random.default_rng(seed), 0.27, 0.001, 2.0)
    assert load.latencies.size in (7, 8), "by their number it is 3.5 or 4 per second"
    assert capacity_hz(tenant(0, load)) == pytest.approx(1 / 0.27, rel=0.002)


def test_of_a_program_that_measures_itself_it_is_the_rate() -> None:
    measured = scraped(tenant(0, closed_load(np.random.default_rng(1), 0.1, 0.1, 2.0)), [0.25, None], [80, 0])
    measured["load"]["achieved_rate_hz"] = 40.0
    assert capacity_hz(measured) == 40
