"""The tasks of a conformance cell, each with one planted breach that it must find."""

import json
import math
from typing import Any

import numpy as np
import pytest

from tenant import workloads
from tenant.failures import RefusedError
from tenant.tasks import IDLE_SECONDS, STEP_BYTES, Answers
from tenant.workloads import conformance
from tenant.workloads.conformance import CpuTasks

from .test_main import QUICK, Launch

MIB = 1 << 20


class Lying(CpuTasks):
    """A stand-in for a device whose limits, products and memory are what a test sets."""

    most_pattern_bytes = 1 * MIB
    grants_bytes = 0
    broken_batch: int | None = None
    breaks_to = math.nan

    def _is_allocatable(self, size_bytes: int) -> bool:
        return size_bytes <= self.grants_bytes

    def _product(self, vectors: np.ndarray, weights: np.ndarray) -> np.ndarray:
        product = super()._product(vectors, weights)
        if len(vectors) == self.broken_batch:
            product[0, 0] = self.breaks_to
        return product


@pytest.fixture
def tasks() -> Lying:
    return Lying()


def test_the_modes_differ_and_unknown_tasks_are_refused(tasks: Lying) -> None:
    durations = {}
    for mode in ("busy", "light", "pattern", "idle"):
        assert tasks.perform("mode", {"mode": mode}) == {}
        tasks.step()
        durations[mode] = tasks._modes[mode]
    assert len(set(map(id, durations.values()))) > 1
    digest = tasks.output_digest()
    tasks.perform("mode", {"mode": "light"})
    assert tasks.output_digest() == digest
    for name, params in (("mode", {"mode": "rest"}), ("dance", {})):
        with pytest.raises(RefusedError, match="there is no"):
            tasks.perform(name, params)


@pytest.mark.parametrize("granted", [0, STEP_BYTES, 100 * STEP_BYTES + 5])
def test_the_largest_allocation_is_found_by_bisection(tasks: Lying, granted: int) -> None:
    tasks.grants_bytes = granted
    assert tasks.perform("largest_allocation", {})["largest_bytes"] == granted // STEP_BYTES * STEP_BYTES


@pytest.mark.parametrize(("value", "error"), [(math.nan, None), (math.inf, None), (514.0, 514)])
def test_one_wrong_product_is_found(tasks: Lying, value: float, error: float | None) -> None:
    right = tasks.perform("answers", {})
    assert (right["checked"], right["wrong"]) == (18, [])
    assert 0 < right["largest_error"]["fp32"] < 1e-4
    tasks.broken_batch, tasks.breaks_to = 4, value
    wrong = tasks.perform("answers", {})["wrong"]
    assert [row["batch"] for row in wrong] == [4] * len(conformance.CPU_SHAPES)
    assert all(row["error"] == (None if error is None else pytest.approx(error, rel=0.1)) for row in wrong)
    json.dumps(wrong, allow_nan=False)


def test_precisions_have_tolerances_of_their_own() -> None:
    answers = Answers()
    for precision, error in (("fp32", 0.0009), ("fp32", 0.0011), ("fp16", 0.09), ("fp16", 0.1)):
        answers.add("linear", precision, (2, 2), 1, error)
    assert [row["error"] for row in answers.wrong] == [0.0011, 0.1]


def test_bytes_of_a_neighbour_are_found(tasks: Lying, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tasks.perform("agree", {"pattern": 0x5AFEC0DE}) == {}
    assert tasks.perform("write", {}) == {"written_bytes": MIB}
    assert set(tasks._filled(8)) == {0x5AFEC0DE}
    assert tasks.perform("look", {})["looked_bytes"] == MIB

    def leaking(count: int, dtype: type) -> np.ndarray:
        memory = np.zeros(count, dtype)
        memory[:100] = 0x5AFEC0DE
        return memory

    monkeypatch.setattr(conformance.np, "empty", leaking)
    assert tasks.perform("look", {}) == {"looked_bytes": MIB, "found_bytes": 400}
    assert tasks.perform("look_shared", {"rounds": 1}) == {}


def test_memory_is_held_until_it_is_not(tasks: Lying) -> None:
    assert tasks.perform("hold", {"size_bytes": MIB}) == {"held_bytes": MIB}
    assert tasks._held[0].nbytes == MIB
    tasks.perform("hold", {"size_bytes": 0})
    assert tasks._held == []


def test_the_driver_asks_for_tasks_between_iterations(launch: Launch) -> None:
    tenant = launch("--workload", "conformance", *QUICK)
    tenant.wait_ready()

    def ask(name: str, **params: Any) -> tuple[int, Any]:
        status, text = tenant.call("POST", "/task", {"name": name, "params": params, "deadline_seconds": 60})
        return status, json.loads(text)

    assert ask("mode", mode="idle") == (200, {})
    assert ask("hold", size_bytes=8) == (200, {"held_bytes": 8})
    status, answer = ask("dance")
    assert (status, answer["error"]) == (409, "there is no task dance")
    # What is not granted is a result, not the tenant's end.
    status, answer = ask("hold", size_bytes=1 << 60)
    assert status == 200 and "MemoryError" in answer["error"]
    assert tenant.measure(0.2, least=0)["count"] < 0.2 / IDLE_SECONDS + 2
    tenant.stop()


def test_other_workloads_have_no_tasks() -> None:
    workload = workloads.create(workloads.load_module("matmul", "cpu"), {"size": 8}, "cpu")
    with pytest.raises(RefusedError, match="this workload has no task mode"):
        workload.perform("mode", {})
