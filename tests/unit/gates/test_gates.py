"""Gates: each fails when it should, and clean cells pass."""

import json
import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
from unit import factories
from unit.factories import WINDOW_SECONDS, back_to_back, closed_load, gate_verdict, poisson_load, with_changes

from sharebench.read.gates import gates, gpu
from sharebench.read.gates.verdict import worst_verdict

FULL_QUEUE = {"tenants.1.drain_seconds": 0.0123}
SHORT_LATENCIES = [4e-6] * 333


def test_a_clean_cell_passes_all_gates_without_messages():
    found = gates.evaluate(factories.record("mps", [[0.005] * 400, [0.006] * 333]))
    assert all(each["passed"] and each["message"] == "" for each in found)
    assert len(found) >= 17


@pytest.mark.parametrize("tenant, is_victim", [(0, False), (1, True)])
def test_in_a_cell_with_a_fault_only_victims_are_judged_and_no_whole_windows(tenant, is_victim):
    record = factories.record("mps", [[0.005] * 400, [0.006] * 333])
    record["fault"] = {"aggressor": 0}
    with_changes(record, {f"tenants.{tenant}.coverage_ratio": 0.9, f"tenants.{tenant}.errors": 300})
    found = {each["name"]: each["passed"] for each in gates.evaluate(record)}
    assert found["window_coverage"] is not is_victim
    assert found.keys().isdisjoint(gates.FAULT_EXEMPT_GATES)


def test_a_fault_switches_off_the_gates_that_need_a_whole_window():
    loads = [factories.back_to_back([0.005] * 400)] * 4
    loads[2] = poisson_load(np.random.default_rng(3), 0.002, 0.02, WINDOW_SECONDS, 0.5)
    loops = [factories.tenant(index, load) for index, load in enumerate(loads)]
    server = factories.served(factories.tenant(4, loads[2]))
    program = factories.scraped(factories.tenant(5, loads[0]), [0.01, None], [400, 400])
    record = factories.record(tenants=[*loops, server, program])
    names = [{each["name"] for each in gates.evaluate(record | fault)} for fault in ({}, {"fault": {"aggressor": 0}})]
    assert names[0] - names[1] == {
        "window_length", "reported_mean", "drift", "level_shift", "stall", "foreign_cpu", "queue_growth", "failed_share"
    }  # fmt: skip


def test_a_request_that_waits_for_half_of_the_window_is_no_long_iteration():
    late = factories.Load(np.array([0.0, 0.5]), np.full(2, 1.5), "constant", 1.0, 1.5)
    assert gate_verdict(factories.record("mps", [late]), "window_length") is None
    assert not gate_verdict(factories.record("mps", [[1.5]]), "window_length")["passed"]


def test_programs_that_run_to_their_end_have_no_gates_of_iterations():
    job = {"iterations": 1, "completed": 1, "start_delay_seconds": 0.0, "completion_seconds": 1.5, "left_running": 0}
    ended = factories.tenant(0, factories.back_to_back([0.005] * 400)) | {"measured_by": "exit", "job": job}
    names = {each["name"] for each in gates.evaluate(factories.record(tenants=[ended]))}
    assert "nothing_finished" in names
    assert names.isdisjoint({"window_coverage", "censored", "errors", "steady", "drift"})


def test_the_worst_tenant_exceeds_its_own_limit_most():
    verdict = worst_verdict([(0.6, 1.0, 0), (0.5, 0.1, 1)], "tenant {tenant}: {value}")
    assert (verdict.passed, verdict.message) == (False, "tenant 1: 0.5")


def test_an_empty_digest_alone_proves_nothing():
    record = factories.record("mps", [[0.005] * 400, [0.006] * 333])
    record["calibration"]["output_digest"] = []
    assert gate_verdict(record, "output_digest")["passed"] is False


GPU_GATES = {name for name in (*gates.INVALID, *gates.WARNING) if hasattr(gpu, name)}


def test_gates_of_gpus_and_open_loads_apply_only_to_these():
    record = factories.record(
        "mps", [poisson_load(np.random.default_rng(3), 0.002, 0.02, WINDOW_SECONDS, 0.5)], is_gpu=True
    )
    names = {each["name"] for each in record["gates"]}
    assert GPU_GATES | {"queue_growth", "littles_law", "load_achieved"} <= names
    assert all(each["passed"] for each in record["gates"])
    stand_in = factories.record("mps", [poisson_load(np.random.default_rng(3), 0.002, 0.02, WINDOW_SECONDS, 0.5)])
    assert names - {each["name"] for each in stand_in["gates"]} == GPU_GATES
    assert "level_shift" not in names


# Changes of a clean closed cell of two tenants, and the verdict of the gate then.
FAILURES = [
    ({"evidence": []}, "evidence", "invalid", None, "nothing proves"),
    (
        {"evidence.0.observed": "exclusive", "evidence.0.holds": False},
        "evidence", "invalid", 1, r"state \(node\): expected mps, observed exclusive",
    ),
    ({"tenants.1.coverage_ratio": 0.949}, "window_coverage", "invalid", 0.949, "tenant 1 ran in only 94.9%"),
    (
        {"tenants.1.output_digest": [1.5, -2.00001]},
        "output_digest", "invalid", pytest.approx(5e-6, rel=1e-3), "tenant 1 computed",
    ),
    ({"tenants.0.output_digest": [1.5, 2.0]}, "output_digest", "invalid", 2.0, "tenant 0 computed"),
    ({"tenants.1.output_digest": None}, "output_digest", "invalid", None, "tenant 1 gave 0 of 2"),
    ({"tenants.1.output_digest": [1.5]}, "output_digest", "invalid", None, "tenant 1 gave 1 of 2"),
    ({"tenants.1.output_digest": [1.5, None]}, "output_digest", "invalid", None, "tenant 1 is not a number"),
    ({"calibration.output_digest": None}, "output_digest", "invalid", None, "no digest"),
    ({"calibration": None}, "output_digest", "invalid", None, "no digest"),
    (FULL_QUEUE, "drained_queue", "invalid", pytest.approx(2.05, rel=0.02), "tenant 1 left 2.0 iterations"),
    (
        {"tenants.1": factories.tenant(1, back_to_back([]))},
        "nothing_finished", "invalid", 1, "tenant 1: no iteration began in the window of 2 s and ended",
    ),
    ({"telemetry.host_steal_percent": 5.1}, "cpu_stolen", "invalid", 5.1, "5.1 % .* hypervisor"),
    ({"telemetry.host_throttled_percent": 1.1}, "cpu_throttled", "invalid", 1.1, "1.1 % .* quota"),
    (
        {"window.clock_error_seconds": 0.0201},
        "clock_error", "invalid", pytest.approx(0.01005), "uncertain by 1.0%",
    ),
    ({"tenants.1.errors": 3}, "errors", "warning", 3, "3 iterations failed"),
    ({"tenants.1.steady.is_steady": False}, "steady", "warning", 1, "tenants 1$"),
    ({"tenants.0.steady": None}, "steady", "warning", 1, "tenants 0$"),
    ({"tenants.0.load.censored": 2}, "censored", "invalid", 2, "2 iterations"),
    ({"telemetry.foreign_cpu_percent": 10.5}, "foreign_cpu", "warning", 10.5, "10.5 % .* others"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "name", "severity", "value", "message"), FAILURES)
def test_each_gate_fails_alone_with_a_reason(changes, name, severity, value, message):
    record = with_changes(factories.record("mps", [[0.005] * 400, [0.006] * 333]), changes)
    record["gates"] = gates.evaluate(record)
    failed = [each for each in record["gates"] if not each["passed"]]
    assert [each["name"] for each in failed] == [name]
    assert failed[0]["severity"] == severity
    assert failed[0]["value"] == value
    assert re.search(message, failed[0]["message"])
    assert gates.is_valid(record) == (severity == "warning")


def test_many_failed_iterations_make_a_cell_invalid():
    for errors, is_valid in ((17, True), (18, False)):
        record = with_changes(factories.record("mps", [[0.005] * 400, [0.006] * 333]), {"tenants.1.errors": errors})
        record["gates"] = gates.evaluate(record)
        assert gates.is_valid(record) == is_valid
    found = gate_verdict(record, "failed_share")
    assert (found["value"], found["severity"]) == (pytest.approx(18 / 351), "invalid")
    assert found["message"] == "5.1% of what tenant 1 began failed, and has no latency"


def test_a_configured_steal_limit_is_in_the_record(monkeypatch):
    record = with_changes(factories.record(), {"telemetry.host_steal_percent": 60.0})
    assert (gate_verdict(record, "cpu_stolen")["passed"], gate_verdict(record, "cpu_stolen")["limit"]) == (False, 5.0)
    monkeypatch.setenv(gates.STEAL_VARIABLE, "100")
    assert (gate_verdict(record, "cpu_stolen")["passed"], gate_verdict(record, "cpu_stolen")["limit"]) == (True, 100.0)


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        ("halves_change_ratio", 0.1),
        ("foreign_processes", 0),
        ("gpu_slowdown_percent", 1.0),
        ("cpu_throttled_percent", 1.0),
        ("cpu_steal_percent", 5.0),
    ],
)
def test_a_load_that_is_a_share_of_a_disturbed_capacity_is_excluded(condition, most):
    for value, passes in ((None, True), (most, True), (most + 1, False)):
        record = factories.record()
        record["calibration"] |= {"capacity_hz": 10.0, "conditions": factories.QUIET | {condition: value}}
        found = gate_verdict(record, "capacity")
        assert (found["passed"], found["severity"]) == (passes, "invalid")
    assert f"capacity of matmul was measured with {condition} {most + 1:g}" in found["message"]
    assert gate_verdict(factories.record(), "capacity") is None, "no load is a share of it"


def test_the_capacity_of_each_workload_of_a_mix_is_judged():
    record = factories.record(latencies=[[0.005] * 400] * 2, tenants_run=["light", "heavy"])
    disturbed = {
        "output_digest": [1.5, -2.0],
        "capacity_hz": 10.0,
        "conditions": factories.QUIET | {"foreign_processes": 2},
    }
    record["calibration"]["workloads"] = record["calibration"]["workloads"] | {"heavy": disturbed}
    assert "capacity of heavy" in gate_verdict(record, "capacity")["message"]


def test_values_that_a_node_cannot_know_pass_with_a_message():
    unknown = {"telemetry": None, "calibration.roofs": None, "tenants.0.cpu.run_queue_seconds": None}
    record = with_changes(factories.record(is_gpu=True), unknown)
    for name in ("cpu_stolen", "cpu_throttled", "foreign_cpu", *GPU_GATES):
        found = gate_verdict(record, name)
        assert found["passed"] and found["value"] is None
        assert found["message"] == "not known on this node"


@pytest.mark.parametrize(
    "strategy, latencies, drain_seconds, passes",
    [
        # Streams wait for the other threads of their process, here two.
        *[("mps", [0.006] * 333, 0.0123, False), ("streams", [0.006] * 333, 0.0123, True)],
        # Short iterations may wait as long as the slowest one of a stream, or as a call.
        ("streams", [*SHORT_LATENCIES, 0.002], 0.0019, True),
        ("streams", [*SHORT_LATENCIES, 0.002], 0.0021, False),
        ("mps", [*SHORT_LATENCIES, 0.002], 0.0019, False),
        *[("mps", SHORT_LATENCIES, 9e-5, True), ("mps", SHORT_LATENCIES, 1.1e-4, False)],
    ],
)
def test_drained_queue_allows_the_waits_of_streams_and_calls(strategy, latencies, drain_seconds, passes):
    record = factories.record(strategy, [latencies] * 2)
    waited = {f"tenants.{index}.drain_seconds": drain_seconds for index in (0, 1)}
    assert gate_verdict(with_changes(record, waited), "drained_queue")["passed"] is passes


def test_a_cell_whose_status_is_not_ok_has_no_gates_and_is_invalid():
    record = factories.record(status="crashed", reason="x", tenants=[factories.absent_tenant(0, "crashed")])
    assert record["gates"] == []
    assert not gates.is_valid(record)


@pytest.mark.parametrize(
    ("usual_seconds", "pause_seconds", "value"),
    [(0.005, 1.0, 0.5), (0.005, 0.12, 0.06), (0.005, 0.08, 0.04), (0.1, 0.5, 0.0)],
    ids=["half the window", "more than a few percent", "less", "as long as others, or nearly"],
)
def test_a_tenant_that_pauses_is_marked(usual_seconds, pause_seconds, value):
    half = round((WINDOW_SECONDS - pause_seconds) / usual_seconds / 2)
    paused = back_to_back([usual_seconds] * half + [pause_seconds] + [usual_seconds] * half)
    record = factories.record("mps", [back_to_back([0.005] * 400), paused])
    found = gate_verdict(record, "stall")
    assert found["value"] == pytest.approx(value, rel=0.01) and found["passed"] == (value <= 0.05)
    assert found["passed"] or found["message"].startswith("one iteration of tenant 1 took")
    # A pause in the middle of the window is not a drift, and the tenant covers the whole window.
    assert gate_verdict(record, "drift")["passed"] and gate_verdict(record, "window_coverage")["passed"]


@pytest.mark.thorough
def test_a_window_of_less_than_two_iterations_is_invalid():
    rng = np.random.default_rng(1)
    for iteration_seconds, is_long_enough in ((0.5, True), (0.9, True), (1.1, False), (3.0, False)):
        drawn = [closed_load(rng, iteration_seconds, 0.01, WINDOW_SECONDS) for _ in range(200)]
        valid = [record for load in drawn if gates.is_valid(record := factories.record("mps", [load]))]
        assert bool(valid) == is_long_enough
        if valid:
            assert len(valid) == len(drawn)
            rate_hz = np.mean([record["tenants"][0]["count"] / WINDOW_SECONDS for record in valid])
            assert rate_hz == pytest.approx(1 / iteration_seconds, rel=0.05)


def test_a_job_may_be_one_iteration():
    made = factories.record("mps", [back_to_back([1.9])])
    made["tenants"][0]["job"] = {"iterations": 1}
    assert gate_verdict(made, "window_length") is None and gate_verdict(
        factories.record("mps", [back_to_back([1.9])]), "window_length"
    )


MEANS, CVS = (0.0005, 0.005, 0.04), (0.02, 0.2)
CLEAN = [*product(["closed"], MEANS, CVS, [0.0]), *product(["poisson"], MEANS, CVS, (0.3, 0.6, 0.8, 0.9))]


@pytest.mark.thorough
def test_clean_cells_fail_at_most_one_in_a_hundred_gates():
    judged, failed = Counter(), Counter()
    for number in range(600):
        arrival, mean, cv, rho = CLEAN[number % len(CLEAN)]
        rng = np.random.default_rng(number)
        replicas = 1 + number % 4
        loads = [
            closed_load(rng, mean, cv, WINDOW_SECONDS)
            if arrival == "closed"
            else poisson_load(rng, mean, cv, WINDOW_SECONDS, rho)
            for _ in range(replicas)
        ]
        for each in factories.record("mps", loads)["gates"]:
            judged[each["name"]] += 1
            failed[each["name"]] += not each["passed"]
    assert judged["drift"] == 600 and judged["level_shift"] > 100
    assert min(judged["littles_law"], judged["queue_growth"]) > 400
    assert all(failed[name] <= 0.01 * judged[name] for name in judged), failed


def test_each_tenant_of_a_mix_is_compared_with_its_own_output_and_tolerance():
    made = factories.record("mps", [np.full(400, 0.005)] * 3, workload="both", tenants_run=["a", "b", "b"])
    made["calibration"]["workloads"] = {
        "a": {"output_digest": [1.5, -2.0], "capacity_hz": None},
        "b": {"output_digest": [7.0], "capacity_hz": None},
    }
    spec = json.loads(made["spec"])
    spec["workload"]["tenants"][0]["output_tolerance"] = 0.5
    made["spec"] = json.dumps(spec)
    made["tenants"][0]["output_digest"] = [1.8, -2.0]
    for index in (1, 2):
        made["tenants"][index]["output_digest"] = [7.0]
    assert gate_verdict(made, "output_digest")["passed"], "a sixth is within the first one's tolerance"
    made["tenants"][2]["output_digest"] = [7.0 + 1e-4]
    found = gate_verdict(made, "output_digest")
    assert not found["passed"] and "tenant 2" in found["message"]
    assert found["limit"] == 1e-6 and found["value"] == pytest.approx(1e-4 / 7, rel=1e-3)
    made["calibration"]["workloads"]["b"]["output_digest"] = None
    assert "no digest" in gate_verdict(made, "output_digest")["message"]
