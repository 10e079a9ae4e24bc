"""The strategy of a calibration, its capacity, and the calibrations that are refused."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.factories import back_to_back, closed_load, record, scraped, served, tenant
from unit.studies import config_with

from sharebench.measure.cell.calibration import (
    CalibrationError,
    capacity_hz,
    fatal_gates,
    measure_reference,
    pick_strategy,
)
from sharebench.measure.nodes.host.nvidia import NvidiaNode
from sharebench.model.config.load import load
from sharebench.model.strategies import Strategy
from sharebench.study.study import Study


@pytest.mark.usefixtures("mps_control")
@pytest.mark.parametrize(
    "layout, chosen",
    [
        ("", "exclusive"),
        ("gpu 0: 1g.18gb 3g.71gb", "mig-mps"),
        ("gpu 0: 1g.18gb", "mig"),
        # No instance fits: then the reason that users see is that of exclusive.
        ("gpu 0:", "exclusive"),
    ],
)
def test_in_mig_mode_the_calibration_runs_on_the_largest_instance(
    mock_nvml: Path, tmp_path: Path, layout: str, chosen: str
) -> None:
    mock_nvml.write_text(f"{layout}\n")
    asked = load(config_with({"node": "simulated", "strategies": ["mig", "mig-mps"], "workloads": ["matmul"]}))
    asked["strategy_catalogue"]["mig-mps"]["instances"] = 1
    node = NvidiaNode({"gpu": "0", "python": "auto", "hami_core": None, "may_change": []}, tmp_path)
    strategies = Study(asked).strategies
    assert pick_strategy(strategies, ["mig", "mig-mps"], node, {"params": {}}).name == chosen


def test_another_access_with_the_whole_device_replaces_a_missing_one() -> None:
    class Node:
        def infeasible(self, strategy: Strategy, *_: object) -> str | None:
            return "no device plugin" if strategy.access == "device-plugin" else None

    def strategy(name: str, mechanism: str, access: str = "dra") -> Strategy:
        return Strategy(name, (mechanism,), None, None, None, None, None, access=access)

    names = {"exclusive": "device-plugin", "mps-dra": "dra", "exclusive-dra": "dra", "time-slicing-dra": "dra"}
    strategies = {name: strategy(name, name.removesuffix("-dra"), access) for name, access in names.items()}
    assert pick_strategy(strategies, list(strategies)[1:], Node(), {"params": {}}).name == "exclusive-dra"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes, is_fatal",
    [
        ({}, True),
        ({"passed": True}, False),
        ({"severity": "warning"}, False),
        ({"name": "output_digest"}, False),
        ({"name": "window_length"}, False),
    ],
)
def test_a_failed_gate_that_excludes_a_cell_disqualifies_a_calibration(changes: dict[str, Any], is_fatal: bool) -> None:
    gate = {"name": "foreign_process", "severity": "invalid", "passed": False}
    assert bool(fatal_gates([gate | changes])) is is_fatal


@pytest.mark.parametrize("seed", range(20))
def test_the_capacity_does_not_depend_on_where_the_window_opens(seed: int) -> None:
    load = closed_load(np.random.default_rng(seed), 0.27, 0.001, 2.0)
    assert load.latencies.size in (7, 8), "by their number it is 3.5 or 4 per second"
    assert capacity_hz(tenant(0, load)) == pytest.approx(1 / 0.27, rel=0.002)


def test_failed_requests_do_not_count_as_capacity() -> None:
    alone = tenant(0, closed_load(np.random.default_rng(1), 0.1, 0.001, 2.0))
    # Half of the concurrent requests fail at once.
    alone["load"] |= {"concurrency": 16, "achieved_rate_hz": 80.0}
    alone["errors"] = 5000
    assert capacity_hz(alone) == 80


def test_the_capacity_of_a_program_that_measures_itself_is_its_rate() -> None:
    measured = scraped(tenant(0, closed_load(np.random.default_rng(1), 0.1, 0.1, 2.0)), [0.25, None], [80, 0])
    measured["load"]["achieved_rate_hz"] = 40.0
    assert capacity_hz(measured) == 40


FINE = record()


def disturbed(gate: str) -> dict[str, Any]:
    """A record of a tenant alone that fails this gate."""
    failed = {"name": gate, "severity": "invalid", "passed": False, "value": 8.9, "limit": 5, "message": "8.9 % gone"}
    return FINE | {"gates": [failed]}


def from_attempts(*records: dict[str, Any], needs_capacity: bool = False) -> tuple[dict[str, Any], list[bool]]:
    """The calibration from these records, and for each attempt whether its window was long."""
    asked: list[bool] = []

    def measure(is_long: bool) -> dict[str, Any]:
        asked.append(is_long)
        return records[len(asked) - 1]

    return measure_reference("mine", measure, needs_capacity)[1], asked


@pytest.mark.parametrize("needs_capacity", [False, True])
def test_a_calibration_is_repeated_after_a_burst_of_steal(needs_capacity: bool) -> None:
    taken, asked = from_attempts(disturbed("cpu_stolen"), FINE, needs_capacity=needs_capacity)
    assert len(asked) == 2
    assert taken == {"capacity_hz": pytest.approx(200), "output_digest": [1.5, -2.0], "warning": None}


def test_constant_steal_keeps_the_digest_and_drops_the_capacity(capsys: pytest.CaptureFixture[str]) -> None:
    taken, _ = from_attempts(*[disturbed("cpu_stolen")] * 3)
    assert taken == {"capacity_hz": None, "output_digest": [1.5, -2.0], "warning": "cpu_stolen: 8.9 % gone"}
    assert "calibrated with a warning, without capacity: cpu_stolen: 8.9 % gone" in capsys.readouterr().out


@pytest.mark.parametrize("gate", ["scrape_error", "generator_bound", "generator_late", "cpu_throttled"])
def test_a_failed_gate_about_the_rate_only_drops_the_capacity(gate: str) -> None:
    taken, asked = from_attempts(*[disturbed(gate)] * 3)
    assert (len(asked), taken["capacity_hz"]) == (3, None)


def test_a_load_that_is_a_share_of_the_capacity_needs_a_clean_calibration() -> None:
    with pytest.raises(CalibrationError, match=r"^mine cannot be calibrated: cpu_stolen: 8\.9 % gone$"):
        from_attempts(*[disturbed("cpu_stolen")] * 3, needs_capacity=True)


def test_a_failed_gate_about_more_than_the_rate_is_refused() -> None:
    with pytest.raises(CalibrationError, match=r"^mine cannot be calibrated: foreign_process: 8\.9 % gone$"):
        from_attempts(*[disturbed("foreign_process")] * 3)


def idle(errors: int, last_error: str | None = None) -> dict[str, Any]:
    """A record of a server alone that answered no request."""
    silent = served(tenant(0, back_to_back([]))) | {"errors": errors, "last_error": last_error}
    return record(tenants=[silent])


def test_a_server_that_fails_every_request_does_not_run_alone() -> None:
    line = "^mine does not run alone: all of 70 requests failed, the last with status 500$"
    with pytest.raises(CalibrationError, match=line):
        from_attempts(idle(70, "status 500"))


def test_a_request_longer_than_the_window_gets_the_window_of_the_study() -> None:
    taken, asked = from_attempts(idle(0), FINE)
    assert asked == [False, True]
    assert taken["capacity_hz"] == pytest.approx(200)
    line = "^mine does not run alone: no request began in the window of 2 s and ended; set a longer one"
    with pytest.raises(CalibrationError, match=line):
        from_attempts(*[idle(0)] * 3)


def test_a_workload_without_an_output_digest_is_not_calibrated() -> None:
    silent = copy.deepcopy(FINE)
    silent["tenants"][0]["output_digest"] = None
    with pytest.raises(CalibrationError, match=r"mine did not digest its output in time; .*timeouts.record_seconds"):
        from_attempts(silent)
