"""A run is never silent for long, and its estimate includes what comes after the cells."""

import time
from pathlib import Path
from typing import Any

import pytest

from sharebench.core.files import write_json
from sharebench.measure.run.progress import (
    LOOK_SECONDS,
    QUIET_SECONDS,
    READING_SECONDS,
    RULES,
    Progress,
    reading_seconds,
    reading_text,
)

JOBS = dict.fromkeys([*READING_SECONDS, "run_cell"], 1)


class Claim:
    """The part of a run's claim that its progress reads."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self.record: dict[str, Any] = {"jobs": JOBS, "done": 0, "planned": 3}

    def current_record(self) -> dict[str, Any]:
        return self.record


@pytest.fixture
def claim(tmp_path: Path) -> Any:
    return Claim(tmp_path / "results")


def wait_for(capsys: pytest.CaptureFixture[str], words: str) -> str:
    seen, deadline = "", time.monotonic() + 60
    while words not in seen:
        seen += capsys.readouterr().err
        assert time.monotonic() < deadline, f"no {words!r} in {seen!r}"
        time.sleep(0.01)
    return seen


def test_a_gap_leaves_four_seconds_of_fifteen_to_snakemake() -> None:
    assert QUIET_SECONDS + LOOK_SECONDS <= 11


def test_a_long_job_is_named_with_its_time(claim: Any, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(claim, quiet_seconds=0.02, look_seconds=0.01)
    shown.started("calibrate")
    assert f"  {RULES['calibrate']}, " in wait_for(capsys, " s so far\n")
    shown.started("run_cell")
    wait_for(capsys, "  the first cell, ")
    claim.record["done"] = 2
    wait_for(capsys, "  cell 2 of 3, ")
    shown.stop()


def test_the_jobs_that_read_are_named_and_timed_for_the_next_run(
    claim: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(claim.results / ".sharebench/reading.json", {"aggregate": 100.0, "figures": 40.0})
    assert reading_text(claim.results, {"report": 1, "figures": 1}) == "then tables, figures and report: about 45 s"
    assert reading_text(claim.results, {"run_cell": 1}) == ""
    shown = Progress(claim)
    for rule in ("aggregate", "decide", "figures", "report"):
        shown.started(rule)
    shown.stop()
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "writing the tables · about 2 min 29 s left",
        "drawing the figures · about 45 s left",
        "writing the report · about 5 s left",
    ]
    assert set(reading_seconds(claim.results).values()) != set(READING_SECONDS.values())
    assert all(seconds < 60 for seconds in reading_seconds(claim.results).values())


def test_a_damaged_file_of_durations_is_ignored(claim: Any) -> None:
    write_json(claim.results / ".sharebench/reading.json", {"aggregate": "long"})
    assert reading_seconds(claim.results) == READING_SECONDS
