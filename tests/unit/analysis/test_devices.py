"""Blocks on several devices: every ratio is of one device, however different the devices are."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from unit.analysis.test_jobs import job_record
from unit.factories import record

from sharebench.model.traffic import Load
from sharebench.model.workload import Workload
from sharebench.read.cells.multiprogram import group_metrics
from sharebench.read.cells.rows import MeasuredCell, reduce_record
from sharebench.read.cells.slowdown import Baseline, group_ratio, group_slowdown
from sharebench.read.statistics.spread import measure_spread
from sharebench.read.tables.cells import cells_table
from sharebench.read.tables.devices import (
    UNPAIRED,
    closed_loop_workloads,
    device_remark,
    devices_table,
    pair_by_device,
    pair_jobs_by_device,
)
from sharebench.read.tables.jobs import job_cell, speedup
from sharebench.read.tables.summary import summary_table
from sharebench.study.cells import Cell

# Block → device, and mean latency in seconds alone and shared: the devices differ threefold, the slowdowns little.
BLOCKS = {1: ("first", 0.004, 0.0080), 2: ("second", 0.012, 0.0252), 3: ("first", 0.004, 0.0088)}


def cells(baseline_of: tuple[int, ...] = (1, 2, 3), strategies: tuple[str, ...] = ("mps",)) -> list[MeasuredCell]:
    """One tenant alone and two shared in each block, both measured in separate runs."""
    made: list[dict[str, Any]] = []
    for block, (device, alone, shared) in BLOCKS.items():
        if block in baseline_of:
            made.append(record("exclusive", [np.full(100, alone)], repeat=block, run_id=f"a{block}", device=device))
        for strategy in strategies:
            tenants = [np.full(100, shared)] * 2
            made.append(record(strategy, tenants, repeat=block, run_id=f"b{block}", device=device))
    return [reduce_record(each) for each in made]


def valid_cells(found: list[MeasuredCell], strategy: str) -> list[MeasuredCell]:
    return [cell for cell in found if cell.strategy == strategy and cell.valid]


def test_slowdowns_pair_within_a_block_across_runs() -> None:
    found = pair_by_device(cells(), "exclusive")
    baseline = Baseline(found, "exclusive")
    slowdown, note = group_slowdown(valid_cells(found, "mps"), baseline)
    # The repeats of the first device count as their mean.
    logs = [(math.log(2.0) + math.log(2.2)) / 2, math.log(2.1)]
    low, high = stats.t.interval(0.95, 1, loc=np.mean(logs), scale=stats.sem(logs))
    assert slowdown is not None and note is None and slowdown.n == 3
    assert (slowdown.value, slowdown.low, slowdown.high) == pytest.approx(tuple(np.exp([np.mean(logs), low, high])))
    antt = group_metrics(valid_cells(found, "mps"), baseline)["antt"]
    assert antt is not None and (antt.value, antt.low) == pytest.approx((slowdown.value, slowdown.low))


def test_intervals_are_over_devices_where_repeats_share_them() -> None:
    found = pair_by_device(cells(strategies=("mps", "time-slicing")), "exclusive")
    baseline, mps = Baseline(found, "exclusive"), valid_cells(found, "mps")
    wanted = [(Cell(cell.strategy, cell.workload, cell.replicas, cell.repeat), "matmul") for cell in found]
    row = summary_table(found, wanted, baseline).set_index("strategy").loc["mps"]
    logs = np.log([math.sqrt(0.0080 * 0.0088), 0.0252])
    low, high = np.exp(stats.t.interval(0.95, 1, loc=np.mean(logs), scale=stats.sem(logs)))
    for metric in ("latency_mean_seconds", "latency_p50_seconds"):
        ends = (row[f"{metric}_low"], row[f"{metric}_high"])
        # A percentile has the width of its buckets in addition.
        assert ends == pytest.approx((low, high), rel=0.03), metric
    assert row["latency_mean_seconds_n"] == 3
    ratio = group_ratio(mps, valid_cells(found, "time-slicing"))
    assert ratio is not None and ratio.degrees_of_freedom == 1


def test_a_cell_with_a_fault_needs_no_baseline() -> None:
    faulty = record("mps", [np.full(100, 0.008)] * 2, repeat=2, run_id="b2", device="second")
    faulty["tenants"][1]["workload"] = "fault-spin"
    found = pair_by_device([*cells(baseline_of=(1,)), reduce_record(faulty)], "exclusive")
    assert found[-1].valid and [cell.block for cell in found if not cell.valid] == [2, 3]


def test_a_cell_without_a_baseline_on_its_device_is_excluded() -> None:
    found = pair_by_device(cells(baseline_of=(1, 3)), "exclusive")
    excluded = [cell for cell in found if not cell.valid]
    assert [(cell.block, cell.reason) for cell in excluded] == [(2, UNPAIRED)]
    assert {(cell.valid, cell.reason) for cell in excluded} == {(False, UNPAIRED)}
    slowdown, _ = group_slowdown(valid_cells(found, "mps"), Baseline(found, "exclusive"))
    assert slowdown is not None and slowdown.n == 2
    assert slowdown.value == pytest.approx(math.sqrt(2.0 * 2.2))


def test_baselines_of_one_block_on_two_devices_count_for_their_device() -> None:
    """Under `order: strategy` no cell has one partner, and a mean over both devices would mix them."""
    made = []
    for device, alone, factor in (("first", 0.004, 2.0), ("second", 0.012, 2.2)):
        for repeat in (1, 2):
            own = {"repeat": repeat, "block": 0, "device": device}
            made.append(reduce_record(record("exclusive", [np.full(100, alone)], **own)))
            made.append(reduce_record(record("mps", [np.full(100, factor * alone)] * 2, **own)))
    found = pair_by_device(made, "exclusive")
    baseline, mps = Baseline(found, "exclusive"), valid_cells(found, "mps")
    slowdown, note = group_slowdown(mps, baseline)
    logs = np.log([2.0, 2.2])
    low, high = np.exp(stats.t.interval(0.95, 1, loc=logs.mean(), scale=stats.sem(logs)))
    assert slowdown is not None and note is None
    assert (slowdown.value, slowdown.low, slowdown.high) == pytest.approx((math.exp(logs.mean()), low, high))
    antt = group_metrics(mps, baseline)["antt"]
    assert antt is not None and (antt.value, antt.low) == pytest.approx((slowdown.value, slowdown.low))
    rows = {row["device"]: row for row in devices_table(mps, baseline, {"matmul"}).to_dict("records")}
    assert (rows["first"]["slowdown"], rows["second"]["slowdown"]) == pytest.approx((2.0, 2.2))
    cells = cells_table(mps, baseline)
    assert cells["slowdown"].tolist() == pytest.approx([2.0] * 4 + [2.2] * 4)


def test_contrasts_use_common_blocks() -> None:
    found = pair_by_device(cells(strategies=("mps", "time-slicing")), "exclusive")
    mps = [cell for cell in valid_cells(found, "mps") if cell.block != 2]
    ratio = group_ratio(mps, valid_cells(found, "time-slicing"))
    assert ratio is not None and (ratio.n, ratio.value) == (2, pytest.approx(1))
    assert group_ratio(mps[:1], [cell for cell in valid_cells(found, "time-slicing") if cell.block == 2]) is None


def test_one_device_changes_nothing() -> None:
    found = [cell for cell in cells() if cell.block != 2]
    assert pair_by_device(found, "exclusive") == found
    assert (device_remark(1), device_remark(2)[:30]) == ("", "Blocks were measured on 2 devi")


def test_jobs_are_compared_with_the_queue_on_their_device() -> None:
    seconds = {1: ("first", 2.0, 3.0), 2: ("second", 6.0, 10.0), 3: ("third", 4.0, 4.0)}
    made = []
    for block, (device, each, together) in seconds.items():
        if block != 3:
            made.append(job_record("sequential", [each, each], block, run_id=f"a{block}", device=device))
        made.append(job_record("mps", [together, together], block, run_id=f"b{block}", device=device))
    jobs = [job for each in made if (job := job_cell(each))]
    found = pair_jobs_by_device(jobs, [reduce_record(each) for each in made], ["sequential"])
    sharing, queue = ([job for job in found if job.strategy == name and job.valid] for name in ("mps", "sequential"))
    estimate = speedup(sharing, queue)
    assert estimate is not None and estimate.n == 2
    assert estimate.value == pytest.approx(math.sqrt(4.0 / 3.0 * 12.0 / 10.0))
    assert estimate.degrees_of_freedom == 1, "of the two ratios, though other runs measured the queue"


def test_the_spread_is_that_of_an_analysis_of_variance() -> None:
    logs = {"first": [0.0, 0.02, 0.01], "second": [0.05, 0.07], "third": [-0.02]}
    found = measure_spread({name: [math.exp(log) for log in own] for name, own in logs.items()}.values())
    means = [np.mean(own) for own in logs.values()]
    assert found.between_percent == pytest.approx(100 * np.std(means, ddof=1))
    inside = sum(np.var(own) * len(own) for own in logs.values()) / (6 - 3)
    assert found.within_percent == pytest.approx(100 * math.sqrt(inside))
    assert found.probability == pytest.approx(stats.f_oneway(*logs.values()).pvalue)


def test_the_spread_within_devices_needs_a_second_cell() -> None:
    found = measure_spread([[1.0], [1.1]])
    assert (found.within_percent, found.probability) == (None, None)
    with pytest.raises(ValueError, match="one group"):
        measure_spread([[1.0, 1.1]])


def test_the_devices_table_pairs_slowdowns_and_counts_the_control() -> None:
    again = [
        reduce_record(
            record("exclusive-again", [np.full(100, 1.1 * alone)], repeat=block, run_id=f"b{block}", device=device)
        )
        for block, (device, alone, _) in BLOCKS.items()
    ]
    found = pair_by_device([*cells(), *again], "exclusive")
    table = devices_table(found, Baseline(found, "exclusive"), {"matmul"})
    rows = {(row["strategy"], row["device"]): row for row in table.to_dict("records")}
    assert rows.keys() == {(strategy, device) for strategy in ("exclusive", "mps") for device in ("first", "second")}
    alone, shared = rows["exclusive", "second"], rows["mps", "second"]
    assert (alone["n"], rows["exclusive", "first"]["n"]) == (2, 4)
    assert alone["latency_mean_seconds"] == pytest.approx(0.012 * math.sqrt(1.1), rel=1e-6)
    assert alone["over_all_devices"] == pytest.approx(math.sqrt(3)), "they differ threefold"
    assert alone["slowdown"] == 1 and shared["slowdown"] == pytest.approx(2.1 / math.sqrt(1.1))
    assert rows["mps", "first"]["slowdown"] == pytest.approx(math.sqrt(2.0 * 2.2 / 1.1))
    one = [cell for cell in found if cell.block != 2]
    assert devices_table(one, Baseline(one, "exclusive"), {"matmul"}).empty


def test_open_loads_are_not_in_the_devices_table() -> None:
    catalogue = {"matmul": Workload(), "matmul-light": Workload(load=Load(arrival="poisson", rate_hz=1))}
    assert closed_loop_workloads({"workload_catalogue": catalogue}) == {"matmul"}
    found = pair_by_device(cells(), "exclusive")
    assert devices_table(found, Baseline(found, "exclusive"), {"another"}).empty
