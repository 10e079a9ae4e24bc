"""Gates of cells on a GPU: each on both sides of its limit, and none on another kind of node."""

import re

import numpy as np
import pytest
from unit import factories
from unit.factories import WINDOW_SECONDS, Load, gate_verdict, with_changes

from sharebench.read.gates import gates


def _work(**work):
    """The change by which the two tenants do this work 400 and 333 times in the window of 2 s."""
    declared = {"flop": None, "bytes": None, "items": 1, "precision": None} | work
    return {f"tenants.{index}.work": declared for index in (0, 1)}


# Least iterations per second of both tenants: one of each may have ended after the window.
RATE_HZ = (399 + 332) / WINDOW_SECONDS
FLOP = 2e12 / RATE_HZ
# Reading has the higher peak bandwidth, and the first 50 MB may come from the cache.
BYTES = 50e6 + 1.1e12 / RATE_HZ
READING = {"read_bytes_per_second": 1.1e12, "l2_bytes": 50e6}
COPYING = READING | {"copy_bytes_per_second": 2.2e12}

GPU_FAILURES = [
    ({"telemetry.throttle_reasons": {"hw_slowdown": 1.1}}, "gpu_slowdown", "invalid", 1.1, "in 1.1 % .*hw_slowdown"),
    ({"telemetry.throttle_reasons": {"sw_thermal_slowdown": 5.0}}, "gpu_slowdown", "invalid", 5.0, "sw_thermal"),
    ({"telemetry.throttle_reasons": {"hw_thermal_slowdown": 5.0}}, "gpu_slowdown", "invalid", 5.0, "hw_thermal"),
    ({"telemetry.throttle_reasons": {"hw_power_brake_slowdown": 5.0}}, "gpu_slowdown", "invalid", 5.0, "power_brake"),
    (
        {"telemetry.foreign_processes": {"compute": 1, "graphics": 2, "mps": 0}},
        "foreign_process", "invalid", 3, "1 compute, 2 graphics$",
    ),
    (
        {"telemetry.foreign_processes": {"compute": 0, "graphics": 0, "mps": 1}},
        "foreign_process", "invalid", 1, "1 mps$",
    ),
    (
        {"tenants.1.cpu.run_queue_seconds": 0.021},
        "cpu_contention", "invalid", pytest.approx(0.0105), "waited for a CPU for 1.[01]% of the window$",
    ),
    (
        {"tenants.1.cpu.run_queue_seconds": 0.021, "node.kind": "kubernetes"},
        "cpu_contention", "invalid", pytest.approx(0.0105), "a CPU limit of its pod can do that: give none, or 2$",
    ),
    (_work(flop=1.06 * FLOP, precision="fp32"), "speed_of_light", "invalid", pytest.approx(1.06), r"1.06 .*\(fp32\)"),
    (_work(bytes=50e6 + 1.06 * (BYTES - 50e6)), "speed_of_light", "invalid", pytest.approx(1.06), "memory"),
    (
        _work(bytes=50e6 + 1.06 * (BYTES - 50e6), flop=0.5 * FLOP, precision="fp32"),
        "speed_of_light", "invalid", pytest.approx(1.06), "memory",
    ),
    ({"telemetry.throttle_reasons": {"sw_power_cap": 1.1}}, "power_cap", "warning", 1.1, "power limit"),
    ({"telemetry.sm_clock_cv": 0.011}, "clock_variation", "warning", 0.011, "1.1%"),
    ({"telemetry.temperature_end_celsius": 48}, "temperature_rising", "warning", 3, "3 °C warmer"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "name", "severity", "value", "message"), GPU_FAILURES)
def test_each_gpu_gate_fails_alone_with_a_reason_and_only_on_gpus(changes, name, severity, value, message):
    record = with_changes(factories.record("mps", [[0.005] * 400, [0.006] * 333], is_gpu=True), changes)
    record["gates"] = gates.evaluate(record)
    (failed,) = (each for each in record["gates"] if not each["passed"])
    assert (failed["name"], failed["severity"], failed["value"]) == (name, severity, value)
    assert re.search(message, failed["message"])
    assert gates.is_valid(record) == (severity == "warning")
    record["node"]["is_gpu"] = False
    assert gate_verdict(record, name) is None


@pytest.mark.parametrize(
    ("just", "name", "value"),
    [
        ({"telemetry.throttle_reasons": {"hw_slowdown": 0.9, "sw_power_cap": 90.0}}, "gpu_slowdown", 0.9),
        ({"telemetry.throttle_reasons": {"gpu_idle": 50.0, "applications_clocks_setting": 100.0}}, "gpu_slowdown", 0),
        ({"telemetry.throttle_reasons": {"hw_slowdown": 90.0, "sw_power_cap": 0.9}}, "power_cap", 0.9),
        ({"tenants.1.cpu.run_queue_seconds": 0.019}, "cpu_contention", pytest.approx(0.0095)),
        (_work(flop=1.04 * FLOP, precision="fp32"), "speed_of_light", pytest.approx(1.04)),
        (_work(bytes=50e6 + 1.04 * (BYTES - 50e6)), "speed_of_light", pytest.approx(1.04)),
        (_work(bytes=50e6), "speed_of_light", 0),
        # The peak is the faster of copying and reading, or the one that is known.
        (_work(bytes=BYTES) | {"calibration.roofs": COPYING}, "speed_of_light", pytest.approx(0.5)),
        (_work(bytes=BYTES) | {"calibration.roofs": READING}, "speed_of_light", pytest.approx(1.0)),
        # A tenant whose CPU was not seen says nothing about the others.
        ({"tenants.0.cpu": None, "tenants.1.cpu.run_queue_seconds": 0.019}, "cpu_contention", pytest.approx(0.0095)),
        ({"telemetry.sm_clock_cv": 0.009}, "clock_variation", 0.009),
        ({"telemetry.temperature_end_celsius": 47}, "temperature_rising", 2),
        ({"telemetry.temperature_end_celsius": 40}, "temperature_rising", -5),
    ],
)
def test_a_gpu_gate_passes_just_within_its_limit(just, name, value):
    found = gate_verdict(with_changes(factories.record("mps", [[0.005] * 400, [0.006] * 333], is_gpu=True), just), name)
    assert found["passed"] and found["value"] == value


def test_requests_that_ended_after_the_window_pass_speed_of_light():
    starts = np.linspace(0, WINDOW_SECONDS, 100, endpoint=False)
    # Twice the rate that the GPU can do; the last request waits for another window's length.
    load = Load(starts, np.linspace(0.02, WINDOW_SECONDS, 100), "constant", 50.0, 25.0)
    record = factories.record("exclusive", [load], is_gpu=True)
    record["tenants"][0]["work"] = {"flop": 2e12 / 25, "bytes": None, "items": 1, "precision": "fp32"}
    assert gate_verdict(record, "speed_of_light")["value"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "work",
    [
        None,
        {"flop": None, "bytes": None, "items": 1, "precision": None},
        {"flop": 1e20, "bytes": None, "items": 1, "precision": None},
        {"flop": 1e20, "bytes": None, "items": 1, "precision": "fp8"},
    ],
)
def test_work_without_a_known_peak_passes_speed_of_light(work):
    record = factories.record(is_gpu=True)
    record["tenants"][0]["work"] = work
    found = gate_verdict(record, "speed_of_light")
    assert found["passed"] and found["value"] is None and "no work is declared" in found["message"]


@pytest.mark.parametrize(
    ("unknown", "names"),
    [
        ({"telemetry.throttle_reasons": None}, {"gpu_slowdown", "power_cap"}),
        ({"telemetry.foreign_processes": None}, {"foreign_process"}),
        ({"telemetry.sm_clock_cv": None}, {"clock_variation"}),
        ({"telemetry.temperature_start_celsius": None}, {"temperature_rising"}),
        ({"telemetry.temperature_end_celsius": None}, {"temperature_rising"}),
        ({"calibration.roofs": None}, {"speed_of_light"}),
        ({"calibration": None}, {"speed_of_light"}),
        (_work(bytes=BYTES) | {"calibration.roofs": {"l2_bytes": 50e6}}, {"speed_of_light"}),
        (_work(bytes=BYTES) | {"calibration.roofs": {"read_bytes_per_second": 1.1e12}}, {"speed_of_light"}),
    ],
)
def test_what_a_gpu_does_not_tell_is_unknown_and_no_failure(unknown, names):
    record = with_changes(factories.record("mps", [[0.005] * 400, [0.006] * 333], is_gpu=True), unknown)
    found = [gate_verdict(record, name) for name in names]
    assert [(each["value"], each["passed"], bool(each["message"])) for each in found] == [(None, True, True)] * len(
        names
    )


@pytest.mark.parametrize("load", [Load(np.array([]), np.array([])), Load(np.array([]), np.array([]), "poisson", 50.0)])
def test_who_did_nothing_claims_no_work(load):
    record = factories.record("mps", [[0.005] * 400, load], is_gpu=True)
    for tenant in record["tenants"]:
        tenant["work"] = {"flop": FLOP, "bytes": None, "items": 1, "precision": "fp32"}
    assert gate_verdict(record, "speed_of_light")["value"] == pytest.approx(399 / WINDOW_SECONDS / RATE_HZ)
