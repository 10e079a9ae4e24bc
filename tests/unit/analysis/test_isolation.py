"""Victims of faults: unharmed, slowed or failed by their timelines, and counted in the table."""

from typing import Any

import numpy as np
import pytest
from unit import factories

from sharebench.read.gates import gates
from sharebench.read.tables.isolation import FaultEffect, fault_effect, isolation_table, victim_cases

SLOTS, SLOT_SECONDS = 40, 0.05
AT_SECONDS = 0.8  # slot 16
FAULTS = {"fault-killed+matmul": ("matmul", "fault-killed"), "fault-spin+matmul": ("matmul", "fault-spin")}


def timeline(means: list[float], count: int = 10) -> dict[str, Any]:
    """Slots with these mean latencies; 0 is a slot in which nothing began."""
    counts = [count if mean else 0 for mean in means]
    sums = [mean * number for mean, number in zip(means, counts, strict=True)]
    return {"slot_seconds": SLOT_SECONDS, "count": counts, "sum_seconds": sums, "max_seconds": means}


def shape(**changes: float) -> list[float]:
    """A level timeline of 5 ms with other means from slot A to B (inclusive): `from_A_to_B=mean`."""
    means = [0.005] * SLOTS
    for name, mean in changes.items():
        _, first, _, last = name.split("_")
        means[int(first) : int(last) + 1] = [mean] * (int(last) - int(first) + 1)
    return means


def shape_effect(means: list[float], ended_seconds: float | None = None) -> FaultEffect:
    found = fault_effect(timeline(means), AT_SECONDS, ended_seconds)
    assert found is not None
    return found


def test_a_constant_timeline_is_unharmed() -> None:
    found = shape_effect(shape(), ended_seconds=0.8)
    assert (found.slowed_seconds, found.recovery_seconds, found.slowed_ratio) == (0.0, 0.0, None)
    assert found.slowdown_during == pytest.approx(1.0)
    assert found.slowdown_after == pytest.approx(1.0)


def test_an_effect_has_slowdown_and_duration() -> None:
    found = shape_effect(shape(from_17_to_21=0.015), ended_seconds=0.9)
    assert found.slowed_seconds == pytest.approx(5 * SLOT_SECONDS)
    assert found.slowed_ratio == pytest.approx(3.0)
    assert found.recovery_seconds == pytest.approx(22 * SLOT_SECONDS - AT_SECONDS)
    # The slots of the aggressor's time: 15, the one before the fault, to 18, the one in which it ended.
    assert found.slowdown_during == pytest.approx((5 + 5 + 15 + 15) / 4 / 5)
    assert found.slowdown_after == pytest.approx((15 * 3 + 5 * 18) / 21 / 5)


def test_a_victim_that_stays_slow_has_no_recovery_time() -> None:
    found = shape_effect(shape(from_16_to_39=0.010))
    assert found.recovery_seconds is None
    assert found.slowdown_after is None
    assert found.slowdown_during == pytest.approx((5 + 24 * 10) / 25 / 5)


def test_slots_without_an_iteration_during_a_stall_count_as_slow() -> None:
    # One iteration of a quarter of a second begins in slot 15, in which the fault finds it.
    found = shape_effect(shape(from_15_to_15=0.25, from_16_to_19=0.0), ended_seconds=0.8)
    assert found.slowed_seconds == pytest.approx(5 * SLOT_SECONDS)
    assert found.recovery_seconds == pytest.approx(20 * SLOT_SECONDS - AT_SECONDS)


def test_empty_slots_do_not_count_if_earlier_slots_were_empty() -> None:
    sparse = [0.1 if slot % 2 else 0.0 for slot in range(SLOTS)]
    assert shape_effect(sparse).slowed_seconds == 0.0


def test_one_slot_with_iterations_before_the_fault_is_enough() -> None:
    """A slow or busy machine may have no more, and has no second slowest."""
    found = shape_effect(shape(from_0_to_13=0.0, from_20_to_23=0.015))
    assert found.slowed_seconds == pytest.approx(4 * SLOT_SECONDS)


def test_two_slow_slots_are_not_an_effect() -> None:
    assert shape_effect(shape(from_16_to_17=0.1)).slowed_seconds == 0.0
    assert shape_effect(shape(from_16_to_18=0.1)).slowed_seconds == pytest.approx(3 * SLOT_SECONDS)


def test_slowness_that_preceded_the_fault_is_not_an_effect() -> None:
    noisy = shape(from_3_to_4=0.02, from_20_to_25=0.015)
    assert shape_effect(noisy).slowed_seconds == 0.0
    # One earlier outlier does not raise the limit.
    assert shape_effect(shape(from_3_to_3=0.02, from_20_to_25=0.015)).slowed_seconds == pytest.approx(6 * SLOT_SECONDS)


def test_without_an_iteration_before_the_fault_there_is_no_effect() -> None:
    assert fault_effect(timeline([0.0] * 20 + [0.005] * 20), AT_SECONDS, None) is None


def record(kind: str = "killed", victim: str = "ok", happened: bool = True, **fault: Any) -> dict[str, Any]:
    """The record of a cell with a fault, with gates; the victim has that status."""
    name = f"fault-{kind}"
    made = factories.record(
        "mps", [np.full(400, 0.005)] * 2, workload=f"{name}+matmul", tenants_run=["matmul", name], replicas=2
    )
    made["fault"] = {
        **{"kind": kind, "aggressor": 1, "at_seconds": 0.8, "happened": happened, "ended_seconds": [None, 0.81]},
        **{"new_tenant_seconds": 1.5, "recovery_seconds": 2.5, "set_up_again": False, "refused_tenants": 0},
        **fault,
    }
    made["tenants"][1] = factories.absent_tenant(1, "killed", name)
    if victim != "ok":
        made["tenants"][0] = factories.absent_tenant(0, victim)
        made |= {"status": victim, "reason": f"1 of 1 tenants {victim}"}
    return made | {"gates": gates.evaluate(made)}


def failing(gate: str) -> dict[str, Any]:
    made = record()
    return made | {"gates": [each | {"passed": each["name"] != gate} for each in made["gates"]]}


def slower() -> dict[str, Any]:
    made = record(new_tenant_seconds=4.0, set_up_again=True)
    made["tenants"][0]["timeline"] = timeline(shape(from_16_to_30=0.02))
    return made


@pytest.mark.parametrize(
    ("made", "outcome", "note"),
    [
        (record(), "unharmed", ""),
        (slower(), "slowed", ""),
        (record(victim="crashed"), "failed", "ended"),
        # After a failed gate about latencies, survival still counts; after one about evidence, nothing does.
        (failing("cpu_stolen"), "unjudged", "latencies excluded by cpu_stolen"),
        (failing("evidence"), None, "excluded by evidence"),
        (record(happened=False), None, "the fault did not happen"),
    ],
)
def test_the_outcome_of_a_victim(made: dict[str, Any], outcome: str | None, note: str) -> None:
    (case,) = victim_cases(made)
    assert (case.outcome, case.note) == (outcome, note)
    assert case.aggressor == ("killed" if made["fault"]["happened"] else "")


def test_the_table_counts_victims_and_has_the_worst_values() -> None:
    made = [record(), slower(), record(victim="crashed"), record(happened=False)]
    expected = [("mps", name) for name in FAULTS for _ in range(4)]
    table = isolation_table([case for each in made for case in victim_cases(each)], expected, FAULTS, 4)
    killed, spin = table.to_dict("records")
    assert (killed["strategy"], killed["fault"], killed["victim"]) == ("mps", "killed", "matmul")
    assert [killed[name] for name in ("n_expected", "n", "n_excluded")] == [4, 3, 1]
    assert [killed[name] for name in ("unharmed", "slowed", "failed", "unjudged")] == [1, 1, 1, 0]
    assert killed["slowed_ratio"] == pytest.approx(4.0)
    assert (killed["new_tenant_seconds"], killed["set_up_again"]) == (4.0, 1)
    assert set(killed["notes"].split("; ")) == {"ended", "the fault did not happen"}
    assert (spin["n"], spin["n_excluded"], spin["n_expected"]) == (0, 0, 4)


def test_gates_judge_the_victims() -> None:
    names = {gate["name"]: gate["passed"] for gate in record()["gates"]}
    assert names["window_coverage"], "the aggressor covered nothing of its window"
    assert names["output_digest"]
    assert "drift" not in names
    assert "foreign_cpu" not in names
