"""The placement of cells on several devices."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from unit.studies import simulated

from sharebench.measure.run import placement
from sharebench.model.run_record import DeviceEntry
from sharebench.study.study import Study


def devices(count: int) -> list[DeviceEntry]:
    """Entries of a run record."""
    options = simulated().node_options()
    return [
        {
            "number": number,
            "options": options,
            "device": f"{number:x}" * 16,
            "cores": None,
            "failure": None,
            "down": None,
        }
        for number in range(count)
    ]


def assigned(study: Study, count: int, results: Path = Path("/nowhere")) -> dict[str, int]:
    return placement.assign_devices(study, devices(count), results)


MODEL = {"module": "matmul", "simulated": {"serial_seconds": 0.01, "parallel_sm_seconds": 0.1}}


@pytest.mark.parametrize(
    "workloads, repeats, count", [(1, 6, 3), (2, 3, 2), (4, 4, 2), (4, 3, 8), (3, 5, 4), (4, 2, 1)]
)
def test_blocks_are_dealt_evenly(workloads: int, repeats: int, count: int) -> None:
    names = ["one", "two", "three", "four"][:workloads]
    own = {f"workload_catalogue.{name}": MODEL for name in names}
    found = assigned(simulated(own, workloads=names, repeats=repeats, strategies=["mps"], replicas=[2]), count)
    assert len(found) == workloads * repeats
    load = Counter(found.values())
    assert max(load.values()) - min(load[number] for number in range(count)) <= 1
    for name in names:
        # The repeats of a workload are on as many devices as there are.
        used = Counter(number for key, number in found.items() if key.endswith(f"/{name}"))
        assert len(used) >= min(repeats, count) - 1


def test_two_workloads_swap_devices_between_blocks() -> None:
    study = simulated(workloads=["matmul", "detector"], repeats=2, strategies=["mps"], replicas=[2])
    assert assigned(study, 2) == {"1/detector": 0, "1/matmul": 1, "2/detector": 1, "2/matmul": 0}


def test_a_mix_is_placed_with_the_baselines_of_its_tenants() -> None:
    own = {"workload_catalogue.memcopy": MODEL}
    study = simulated(own, workloads=["memcopy"], interference=["matmul", "detector"], repeats=3)
    found = assigned(study, 3)
    for block in (1, 2, 3):
        device_of = {key.split("/")[1]: number for key, number in found.items() if key.startswith(f"{block}/")}
        together = {"matmul", "detector", "detector+matmul", "detector+detector", "matmul+matmul"}
        assert len({device_of[name] for name in together}) == 1 and device_of["memcopy"] != device_of["matmul"]


def test_without_blocks_a_workload_stays_on_one_device() -> None:
    study = simulated(workloads=["matmul", "detector"], order="strategy", repeats=4)
    assert assigned(study, 3) == {"0/detector": 0, "0/matmul": 1}


def test_a_state_that_stays_is_set_up_on_the_first_device() -> None:
    names = ("exclusive", "mps", "mig", "time-slicing")
    found = {
        order: {placement.setup_device_number(study, name, devices(3)) for name in names}
        for order in ("strategy", "blocks")
        for study in [simulated(strategies=["mps", "mig", "time-slicing"], order=order)]
    }
    assert found["strategy"] == {0} and len(found["blocks"]) > 1


def test_a_block_stays_on_the_device_of_its_records(tmp_path: Path) -> None:
    study = simulated(workloads=["matmul"], repeats=2, strategies=["mps"], replicas=[2])

    def measure(repeat: int, device: str) -> None:
        path = tmp_path / next(cell for cell in study.cells if cell.repeat == repeat).raw
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"node": {"device": device, "details": {}}}))

    measure(1, "1" * 16)
    assert assigned(study, 2, tmp_path) == {"1/matmul": 1, "2/matmul": 0}
    # Records of a device that is gone stay; the other blocks are distributed.
    measure(1, "f" * 16)
    assert assigned(study, 2, tmp_path) == {"1/matmul": 0, "2/matmul": 1}


@pytest.mark.parametrize("gone, left", [([], [0, 1]), ([1], [0]), ([0, 1], [0, 1])])
def test_devices_that_were_down_are_left_out_of_the_next_run(gone: list[int], left: list[int]) -> None:
    study = simulated(**{"simulated.devices": 2})
    found = placement.study_devices(study, {})
    last: list[Any] = [entry | {"down": "NodeError: no answer" if entry["number"] in gone else None} for entry in found]
    assert [entry["number"] for entry in placement.study_devices(study, {"devices": last})] == left
    # A device keeps its identity, whatever its place in the list.
    remaining = placement.study_devices(study, {"devices": last})
    assert {entry["device"] for entry in found} >= {entry["device"] for entry in remaining}
