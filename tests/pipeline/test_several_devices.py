"""A study on several devices at once: which device measures what, what runs at the same time, and a failed device."""

import json
import os
import signal
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from pipeline.harness import Checkout, Hold, Jobs, measuring_jobs
from tables import rows

TWO = "two_simulated.yaml"
STRATEGIES = ("mps", "mig")
CELLS = {
    f"{strategy}/{workload}/{replicas}/{repeat}"
    for (strategy, replicas), workload, repeat in product(
        (("exclusive", 1), ("mps", 2), ("mig", 2)), ("alpha", "beta"), (1, 2)
    )
}
needs_two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")


def device_of(checkout: Checkout, cell: str) -> str:
    """Identity of the device that measured the cell."""
    device: str = checkout.record(cell)["node"]["device"]
    return device


def devices_of_blocks(checkout: Checkout) -> dict[tuple[str, str], set[str]]:
    """The devices of each workload and repeat."""
    devices: dict[tuple[str, str], set[str]] = {}
    for cell in checkout.measured_cells():
        _, workload, _, repeat = cell.split("/")
        devices.setdefault((workload, repeat), set()).add(device_of(checkout, cell))
    return devices


def job_times(checkout: Checkout) -> Iterator[tuple[str, float, float]]:
    """Rule, start and end of each job, as Snakemake remembers them."""
    for path in (checkout.root / ".snakemake/metadata").iterdir():
        found: dict[str, Any] = json.loads(path.read_text())
        yield found["rule"], found["starttime"], found["endtime"]


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return max(one[0], other[0]) < min(one[1], other[1])


def test_each_block_stays_on_one_device(finished_on_two_devices: Checkout) -> None:
    jobs, _ = finished_on_two_devices.first_run()
    node: Jobs = {"characterise_node": {""}, "calibrate": {"alpha", "beta"}}
    assert jobs == {**node, "configure_node": {"exclusive", *STRATEGIES}, **measuring_jobs(CELLS)}
    places = devices_of_blocks(finished_on_two_devices)
    assert all(len(devices) == 1 for devices in places.values())
    # No workload and no repeat is on a single device.
    assert places["alpha", "1"] == places["beta", "2"] != places["alpha", "2"] == places["beta", "1"]
    table = (finished_on_two_devices.results / "tables/summary.md").read_text()
    assert "measured on 2 devices of this product; every ratio is of one device" in table


@pytest.mark.thorough
def test_order_by_strategy_keeps_a_workload_on_one_device(untouched: Checkout) -> None:
    untouched.run(study=TWO, config=["order=strategy"]).ok()
    places = devices_of_blocks(untouched)
    assert places["alpha", "1"] == places["alpha", "2"] != places["beta", "1"] == places["beta", "2"]
    # Each workload has two baselines, both on its device.
    table = rows(untouched.results / "tables/summary.csv")
    assert {(row["strategy"], row["workload"]) for row in table if row["slowdown"]} == {
        (strategy, workload) for strategy in ("exclusive", *STRATEGIES) for workload in ("alpha", "beta")
    }


def test_deleted_cells_are_remeasured_on_their_device(finished_on_two_devices: Checkout) -> None:
    assert finished_on_two_devices.run().ok().jobs == {}
    cells = ["mps/alpha/2/2", "mig/beta/2/1"]
    before = [device_of(finished_on_two_devices, cell) for cell in cells]
    finished_on_two_devices.delete_records(*cells)
    assert finished_on_two_devices.run().ok().jobs == measuring_jobs(cells)
    assert [device_of(finished_on_two_devices, cell) for cell in cells] == before


def test_an_added_device_moves_no_measured_cell(finished_on_two_devices: Checkout) -> None:
    before = {cell: device_of(finished_on_two_devices, cell) for cell in CELLS}
    result = finished_on_two_devices.run(config=["simulated={devices: 3}", "repeats=3"]).ok()
    assert result.cells == {f"{cell[:-1]}3" for cell in CELLS}
    assert {cell: device_of(finished_on_two_devices, cell) for cell in CELLS} == before
    new = {device_of(finished_on_two_devices, cell) for cell in result.cells}
    assert len(new - set(before.values())) == 1


@pytest.mark.parametrize(
    ("failing", "order"),
    [(0, "blocks"), *(pytest.param(*each, marks=pytest.mark.thorough) for each in ((1, "blocks"), (0, "strategy")))],
)
def test_the_blocks_of_a_failed_device_move_to_the_other(untouched: Checkout, failing: int, order: str) -> None:
    config = [f"order={order}"]
    calibrations = [f"results/calibration/{workload}.json" for workload in ("alpha", "beta")]
    untouched.run(*calibrations, study=TWO, config=config).ok()
    device = json.loads((untouched.results / "nodes/device.json").read_text())
    devices = [device["node"]["device"], *device["others"]]
    outage = untouched.results / f".sharebench/node/{devices[failing]}/outage.json"
    outage.parent.mkdir(parents=True, exist_ok=True)
    outage.write_text('{"cells_left": 0}')
    broken = untouched.run(study=TWO, config=config)
    assert broken.code == 1
    why = "NodeError: the simulated device does not answer"
    assert f"device {failing} is down, the next run leaves it out: {why}" in broken.out
    done = untouched.measured_cells()
    assert {device_of(untouched, cell) for cell in done} == {devices[1 - failing]} and len(done) == len(CELLS) / 2
    again = untouched.run(study=TWO, config=config).ok()
    assert again.jobs == measuring_jobs(CELLS - done)
    assert {device_of(untouched, cell) for cell in CELLS} == {devices[1 - failing]}


def on_held_tenants(checkout: Checkout) -> None:
    """Have two_devices.yaml measure a workload that a test can hold."""
    checkout.edit("two_devices.yaml", "[product]", "[held]")
    checkout.edit("two_devices.yaml", "product: {module: matmul, params: {size: 32},", "held: {module: held,")


@needs_two_cores
def test_devices_measure_at_the_same_time_and_no_other_job_runs(untouched: Checkout) -> None:
    on_held_tenants(untouched)
    untouched.run("results/calibration/held.json", study="two_devices.yaml").ok()
    hold = Hold(untouched)
    running = untouched.start(study="two_devices.yaml", environment=hold.environment, forks_jobs=True)
    running.wait_for(lambda: hold.devices() == {"0", "1"}, "a cell on both devices")
    hold.release()
    running.wait().ok()
    records = [untouched.record(cell) for cell in sorted(untouched.measured_cells())]
    assert len(records) == 6
    cells: dict[str, list[tuple[float, float]]] = {}
    windows: dict[str, list[tuple[float, float]]] = {}
    for record in records:
        window, begun = record["window"], record["provenance"]["started_epoch_seconds"]
        span = (begun, begun + record["timing"]["total_seconds"])
        cells.setdefault(record["node"]["device"], []).append(span)
        windows.setdefault(record["node"]["device"], []).append(
            (window["start_epoch_seconds"], window["end_epoch_seconds"])
        )
    # Whole cells, since their windows are short and begin when tenants are warm.
    assert any(overlap(a, b) for a, b in product(*cells.values()))
    assert not any(overlap(a, b) for own in windows.values() for a in own for b in own if a is not b)
    # Tenants run only on the cores of their device.
    cores = {record["node"]["device"]: set(record["node"]["details"]["cores_used"]) for record in records}
    first, second = cores.values()
    assert first and second and not first & second
    for record in records:
        masks = [set(tenant["cpu"]["affinity"]) for tenant in record["tenants"]]
        assert all(mask <= cores[record["node"]["device"]] for mask in masks)
    jobs = list(job_times(untouched))
    measuring = [(start, end) for rule, start, end in jobs if rule == "run_cell"]
    others = [(rule, (start, end)) for rule, start, end in jobs if rule not in ("run_cell", "configure_node")]
    assert not [rule for rule, span in others if any(overlap(span, own) for own in measuring)]


def test_the_plan_lists_devices_and_their_cells(untouched: Checkout) -> None:
    text = untouched.plan(study=TWO)
    assert "on node simulated, 2 devices at once: " in text
    assert "devices at the same time 0: 6 cells, 1: 6 cells" in text


def test_ctrl_c_on_two_devices_leaves_nothing_behind(untouched: Checkout) -> None:
    on_held_tenants(untouched)
    hold = Hold(untouched)
    running = untouched.start(study="two_devices.yaml", environment=hold.environment)

    running.wait_for(lambda: hold.devices() == {"0", "1"}, "tenants on both devices")
    running.signal(signal.SIGINT, group=True)
    assert running.wait().code != 0
    assert untouched.processes() == [] and untouched.scratch_folders() == []
    hold.release()
    assert len(untouched.run(study="two_devices.yaml", options=["--dry-run"]).ok().cells) == 6
