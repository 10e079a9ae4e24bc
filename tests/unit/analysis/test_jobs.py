"""tables/jobs.csv: makespans, start-up, the queue that sharing is compared with, and what is blank."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats
from unit import factories

from sharebench.read.tables.jobs import job_cell, jobs_table
from sharebench.study.cells import Cell

STARTUP = 0.05 + 0.2 + 0.1


def job_record(strategy: str, completions: Sequence[float | None], repeat: int = 1, **more: Any) -> dict[str, Any]:
    """A record of jobs of 400 iterations that took so long, in a queue one after another with a second between."""
    is_queue = strategy == "sequential"
    latencies = [np.full(400, 0.005)] * len(completions)
    record = factories.record(strategy, latencies, repeat=repeat, **more)
    spec = json.loads(record["spec"])
    spec |= {"replicas": len(completions)}
    spec["workload"] |= {"kind": "job", "job": {"iterations": 400, "max_seconds": 60}}
    for tenant, seconds in zip(record["tenants"], completions, strict=True):
        job = {"iterations": 400, "completed": 400, "start_delay_seconds": 0.0, "completion_seconds": seconds}
        tenant["job"] = job
    took = [seconds or 60.0 for seconds in completions]
    if is_queue:
        starts = np.cumsum([0.0, *(seconds + 1.0 for seconds in took)])[:-1]
        turns = [[100.0 + start, 100.0 + start + seconds] for start, seconds in zip(starts, took, strict=True)]
        record["window"] |= {"turns": turns, "end_monotonic_seconds": turns[-1][1]}
    else:
        record["window"]["end_monotonic_seconds"] = 100.0 + max(took)
    return record | {"spec": json.dumps(spec)}


def table(records: Sequence[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    cells = [job_cell(record) for record in records]
    expected = [
        Cell(*(record["cell"][key] for key in ("strategy", "workload", "replicas", "repeat"))) for record in records
    ]
    made = jobs_table([cell for cell in cells if cell], expected, ["sequential"])
    return {(row["strategy"], row["replicas"]): row for row in made.to_dict("records")}


def test_a_window_of_fixed_length_is_no_job() -> None:
    assert job_cell(factories.record()) is None
    mix = factories.record("mps", [np.full(400, 0.005)] * 2, tenants_run=["matmul", "batch"])
    spec = json.loads(mix["spec"]) | {"replicas": 2}
    spec["workload"]["tenants"][1]["job"] = {"iterations": 400}
    assert job_cell(mix | {"spec": json.dumps(spec)}) is None, "a job next to a loop has a window"


def test_the_makespan_of_shared_jobs_is_the_last_completion_and_of_a_queue_the_sum() -> None:
    rows = table([job_record("mps", [2.0, 3.0, 2.5]), job_record("sequential", [1.5, 2.0, 1.0])])
    shared, queue = rows["mps", 3], rows["sequential", 3]
    assert (shared["makespan_seconds"], queue["makespan_seconds"]) == pytest.approx((3.0, 4.5))
    assert shared["completion_mean_seconds"] == pytest.approx(2.5)
    assert (shared["completion_min_seconds"], shared["completion_max_seconds"]) == (2.0, 3.0)
    # The slowest start-up counts for jobs side by side, each one in a queue. Warm-up does not count.
    assert shared["makespan_with_startup_seconds"] == pytest.approx(3.0 + STARTUP)
    assert queue["makespan_with_startup_seconds"] == pytest.approx(4.5 + 3 * STARTUP)
    assert shared["speedup"] == pytest.approx(1.5) and queue["speedup"] == 1.0
    assert shared["speedup_low"] is None, "one repeat has no interval"


def test_the_speedup_is_paired_by_run_and_block() -> None:
    makespans = {1: (4.0, 2.0), 2: (8.0, 4.4), 3: (6.0, 2.9)}
    records = []
    for repeat, (queued, shared) in makespans.items():
        records += [job_record("sequential", [queued / 2] * 2, repeat), job_record("mps", [shared] * 2, repeat)]
    row = table(records)["mps", 2]
    logs = np.log([queued / shared for queued, shared in makespans.values()])
    low, high = stats.t.interval(0.95, 2, loc=logs.mean(), scale=stats.sem(logs))
    assert row["speedup"] == pytest.approx(np.exp(logs.mean()))
    assert (row["speedup_low"], row["speedup_high"]) == pytest.approx((np.exp(low), np.exp(high)))


def test_without_pairs_the_speedup_has_welchs_interval() -> None:
    queued, shared = [4.0, 8.0, 6.0], [2.0, 4.4, 2.9]
    records = [job_record("sequential", [each / 2] * 2, i, run_id="before") for i, each in enumerate(queued, 1)]
    records += [job_record("mps", [each] * 2, i, run_id="after") for i, each in enumerate(shared, 1)]
    row = table(records)["mps", 2]
    interval = stats.ttest_ind(np.log(queued), np.log(shared), equal_var=False).confidence_interval(0.95)
    assert row["speedup"] == pytest.approx(stats.gmean(queued) / stats.gmean(shared))
    assert (row["speedup_low"], row["speedup_high"]) == pytest.approx((np.exp(interval.low), np.exp(interval.high)))


def test_energy_of_a_job_is_the_devices_over_the_jobs() -> None:
    # 300 W for a window of 2 s, as the made-up telemetry has it.
    rows = table([job_record("mps", [2.0, 2.0], is_gpu=True), job_record("mps", [2.0] * 4, is_gpu=True)])
    assert rows["mps", 2]["energy_per_job_joules"] == pytest.approx(300)
    assert rows["mps", 4]["energy_per_job_joules"] == pytest.approx(150)
    assert rows["mps", 4]["power_mean_watts"] == pytest.approx(300)
    assert rows["mps", 4]["gpu_util_percent"] == 97.0
    assert rows["mps", 4]["memory_per_tenant_mib"] == 700.0


def test_failed_cells_are_in_no_mean() -> None:
    late = job_record("mps", [2.0, None], status="hung", reason="1 of 2 tenants hung")
    row = table([late, job_record("mps", [2.0, 2.4], 2)])["mps", 2]
    assert (row["status"], row["n"], row["n_expected"]) == ("mixed", 1, 2)
    assert row["reason"] == "1 of 2 tenants hung"
    assert row["makespan_seconds"] == pytest.approx(2.4)
    row = table([late])["mps", 2]
    assert (row["status"] == "hung" and row["makespan_seconds"] is None) or math.isnan(row["makespan_seconds"])
