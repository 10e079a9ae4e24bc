"""The strategy of a calibration, its capacity, and the calibrations that are refused."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unit.factories import QUIET, back_to_back, closed_load, record, scraped, served, tenant, with_changes
from unit.studies import config_with

from sharebench.measure.cell.calibration import (
    CalibrationError,
    capacity_hz,
    measure_reference,
    pick_strategy,
    reference_answers,
    run_conditions,
)
from sharebench.measure.nodes.host.nvidia import NvidiaNode
from sharebench.model.config.load import load
from sharebench.model.strategy import Strategy
from sharebench.model.workload import Workload
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
    node = NvidiaNode({"gpu": "0", "python": "auto", "hami_core": None, "may_change": []}, tmp_path)
    strategies = Study(asked).strategies
    strategies["mig-mps"] = strategies["mig-mps"].changed(instances=1)
    assert pick_strategy(strategies, ["mig", "mig-mps"], node, Workload()).name == chosen


def test_another_access_with_the_whole_device_replaces_a_missing_one() -> None:
    class Node:
        def infeasible(self, strategy: Strategy, *_: object) -> str | None:
            return "no device plugin" if strategy.access == "device-plugin" else None

    def strategy(name: str, mechanism: str, access: str = "dra") -> Strategy:
        return Strategy.model_construct(name=name, mechanism=(mechanism,), access=access)

    names = {"exclusive": "device-plugin", "mps-dra": "dra", "exclusive-dra": "dra", "time-slicing-dra": "dra"}
    strategies = {name: strategy(name, name.removesuffix("-dra"), access) for name, access in names.items()}
    assert pick_strategy(strategies, list(strategies)[1:], Node(), {"params": {}}).name == "exclusive-dra"  # type: ignore[arg-type]


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


FINE = record(is_gpu=True)


def changed(**changes: Any) -> dict[str, Any]:
    """A record of a tenant alone with other values at these paths, whose dots are written as two underscores."""
    return with_changes(copy.deepcopy(FINE), {key.replace("__", "."): value for key, value in changes.items()})


def from_attempts(*records: dict[str, Any]) -> tuple[dict[str, Any], list[bool]]:
    """The calibration from these records, and for each attempt whether its window was long."""
    asked: list[bool] = []

    def measure(is_long: bool) -> dict[str, Any]:
        asked.append(is_long)
        return records[len(asked) - 1]

    return measure_reference("mine", measure)[1], asked


def test_a_quiet_run_is_the_calibration() -> None:
    taken, asked = from_attempts(FINE)
    assert len(asked) == 1
    assert taken == {"capacity_hz": pytest.approx(200), "output_digest": [1.5, -2.0], "conditions": QUIET}


DISTURBED = {
    "halves_change_ratio": record("exclusive", [np.repeat([0.004, 0.006], [250, 167])], is_gpu=True),
    "foreign_processes": changed(telemetry__foreign_processes={"compute": 1, "graphics": 0, "mps": 0}),
    "gpu_slowdown_percent": changed(telemetry__throttle_reasons={"hw_thermal_slowdown": 8.9}),
    "cpu_throttled_percent": changed(telemetry__host_throttled_percent=8.9),
}


@pytest.mark.parametrize("condition", DISTURBED)
def test_a_disturbed_run_is_repeated_and_kept_with_its_conditions(
    condition: str, capsys: pytest.CaptureFixture[str]
) -> None:
    disturbed = DISTURBED[condition]
    taken, asked = from_attempts(disturbed, FINE)
    assert (len(asked), taken["conditions"]) == (2, QUIET)
    assert f"calibrating again: {condition} is" in capsys.readouterr().out
    taken, asked = from_attempts(*[disturbed] * 3)
    assert len(asked) == 3 and taken["capacity_hz"] > 0 and taken["output_digest"] == [1.5, -2.0]
    assert [name for name, value in taken["conditions"].items() if value] == [condition]
    assert f"calibrated although {condition} is" in capsys.readouterr().out


def test_noise_is_no_change_between_the_halves() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        noisy = record("exclusive", [rng.lognormal(np.log(0.05), 0.5, 40)])
        assert (run_conditions(noisy)["halves_change_ratio"] or 0) <= 0.1


def test_steal_is_noted_and_repeats_nothing() -> None:
    taken, asked = from_attempts(changed(telemetry__host_steal_percent=30.0))
    assert len(asked) == 1
    assert taken["conditions"]["cpu_steal_percent"] == 30


def idle(errors: int, last_error: str | None = None) -> dict[str, Any]:
    """A record of a server alone that answered no request."""
    silent = served(tenant(0, back_to_back([]))) | {"errors": errors, "last_error": last_error}
    return record(tenants=[silent])


def test_a_server_that_fails_every_request_does_not_run_alone() -> None:
    line = "^mine does not run alone: all of 70 iterations failed, the last with status 500$"
    with pytest.raises(CalibrationError, match=line):
        from_attempts(idle(70, "status 500"))


def test_a_request_longer_than_the_window_gets_the_window_of_the_study() -> None:
    taken, asked = from_attempts(idle(0), FINE)
    assert asked == [False, True]
    assert taken["capacity_hz"] == pytest.approx(200)
    line = "^mine does not run alone: nothing that began in the window of 2 s ended; set a longer one"
    with pytest.raises(CalibrationError, match=line):
        from_attempts(*[idle(0)] * 3)


@pytest.mark.parametrize(
    "digest, line",
    [
        (None, r"it did not digest its output in time; .*timeouts.record_seconds"),
        ([1.5, None], "it computes NaN or infinity"),
    ],
)
def test_a_run_without_a_finite_digest_is_repeated_and_then_refused(digest: list[float | None], line: str) -> None:
    silent = copy.deepcopy(FINE)
    silent["tenants"][0]["output_digest"] = digest
    assert len(from_attempts(silent, FINE)[1]) == 2
    with pytest.raises(CalibrationError, match=f"^mine does not run alone: {line}"):
        from_attempts(*[silent] * 3)


GOOD = {"status": 200, "tokens": ["a"], "logprobs": [-1.0]}


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ([[GOOD] * 4] * 3, None),
        ([[GOOD] * 4, [GOOD | {"logprobs": [None]}] * 4], "no log-probabilities"),
        ([[GOOD | {"tokens": [], "logprobs": []}] * 4] * 3, "no log-probabilities"),
        ([[GOOD | {"status": 400, "tokens": [], "logprobs": []}] * 4] * 3, "answers with 400"),
        ([[]] * 3, "not completions"),
        (None, "not completions, or it did not answer in time"),
    ],
)
def test_answers_are_compared_where_the_server_gives_log_probabilities(
    capsys: pytest.CaptureFixture[str], asked: Any, why: str | None
) -> None:
    alone = served(tenant(0, back_to_back([0.01] * 9))) | ({} if asked is None else {"answers": asked})
    assert reference_answers(Workload(name="chat"), alone) == (asked if why is None else None)
    assert (why or "") in capsys.readouterr().out
    assert reference_answers(Workload(name="chat").changed(answers=False), alone) is None
    if why is not None:
        with pytest.raises(CalibrationError, match=f"chat: its answers cannot be compared: .*{why}.*answers: false"):
            reference_answers(Workload(name="chat").changed(answers=True), alone)
