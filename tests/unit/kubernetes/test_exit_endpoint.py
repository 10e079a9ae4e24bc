"""The record of a program that exits: its time by the client, its exit code by the launcher."""

from typing import Any, cast

import pytest
from unit import factories

from sharebench.measure.nodes.contract import TenantsFailed
from sharebench.measure.nodes.tenants.programs.endpoints import ExitEndpoint, ObservedProgram
from sharebench.measure.nodes.tenants.tenant_set import Ending
from sharebench.read.gates import gates

SEEN = {
    "started_ns": 12_000_000_000,
    "ended_ns": 15_000_000_000,
    "left_running": 0,
    "cpu": None,
    "memory_bytes": 7,
    "outside": None,
    "view": None,
    "environment": {"python": "3", "platform": "Linux", "packages": {}},
}


def endpoint(monkeypatch: pytest.MonkeyPatch, ending: Ending | None, **seen: Any) -> ExitEndpoint:
    spec = factories.spec({"name": "batch"})
    made = ExitEndpoint(ObservedProgram(spec, 1, lambda _: False, lambda: ending), 18765, "token")

    def call(self: Any, method: str, path: str, *_: Any, **__: Any) -> tuple[int, dict[str, Any]]:
        return 200, SEEN | seen

    monkeypatch.setattr(ExitEndpoint, "_call", call)
    made.set_window(10_000_000_000, 70_000_000_000, 1)
    return made


def test_a_programs_time_counts_from_its_own_start(monkeypatch: pytest.MonkeyPatch) -> None:
    record = endpoint(monkeypatch, None).record(1.0)
    assert record.get("job") == {"iterations": 1, "completed": 1, "start_delay_seconds": 2.0, "completion_seconds": 3.0}
    assert (record["count"], record["sum_seconds"], record["memory_bytes"]) == (1, 3.0, 7)
    assert record.get("measured_by") == "exit"


@pytest.mark.parametrize("left", [0, 2])
def test_a_container_that_ended_with_processes_at_work_is_marked(monkeypatch: pytest.MonkeyPatch, left: int) -> None:
    measured = endpoint(monkeypatch, None, left_running=left).record(1.0)
    verdict = gates.WARNING["left_running"](cast(Any, {"tenants": [measured]}))
    assert verdict is not None and (verdict.passed, verdict.value) == (left == 0, left)
    assert left == 0 or verdict.message == "the container of tenant 1 ended with 2 processes still at work"


@pytest.mark.parametrize(
    ("left", "why"),
    [
        (0, "it had not exited 60 s after its start"),
        (2, "it has exited, but 2 of the processes that it left had not 60 s after its start"),
    ],
)
def test_a_program_that_is_not_done_at_the_deadline_has_no_time(
    monkeypatch: pytest.MonkeyPatch, left: int, why: str
) -> None:
    made = endpoint(monkeypatch, ("crashed", "its exit code is not asked for", 1), ended_ns=None, left_running=left)
    job = made.record(1.0).get("job")
    assert job and (job["completed"], job["completion_seconds"]) == (0, None)
    assert made.overdue == why


def test_out_of_memory_is_a_result_and_other_failures_are_the_tenants(monkeypatch: pytest.MonkeyPatch) -> None:
    record = endpoint(monkeypatch, ("oom", "ran out of memory", 1)).record(1.0)
    assert record["count"] == 0
    with pytest.raises(TenantsFailed, match="did not end well"):
        endpoint(monkeypatch, ("crashed", "exit code 3", 3)).record(1.0)
