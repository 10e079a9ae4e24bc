"""Start-up in parts that add up, and switches of the node by the strategies that were set and left."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from unit import factories

from sharebench.read.tables.startup import Switches, cell_startups, startup_table

ORDER = [("exclusive", "matmul", 1), ("mps", "matmul", 2), ("mig", "matmul", 2)]


def record(strategy: str = "mps", tenants: int = 2, **more: Any) -> dict[str, Any]:
    return factories.record(strategy, [np.full(400, 0.005)] * tenants, **more)


def row(records: list[dict[str, Any]], switches: Switches | None = None) -> dict[str, Any]:
    table = startup_table([start for each in records for start in cell_startups(each)], switches or Switches(), ORDER)
    (only,) = table.to_dict("records")
    return {str(column): value for column, value in only.items()}


def test_parts_are_means_over_tenants_and_cells_and_add_up() -> None:
    slow = record(repeat=2)
    slow["tenants"][0]["startup"]["import_seconds"] = 1.0
    found = row([record(), slow])
    assert (found["strategy"], found["workload"], found["replicas"], found["n"]) == ("mps", "matmul", 2, 2)
    assert found["import_seconds"] == pytest.approx((0.2 + (1.0 + 0.2) / 2) / 2)
    assert found["first_result_seconds"] == pytest.approx(0.05 + found["import_seconds"] + 0.0 + 0.1 + 0.01)
    assert found["steady_seconds"] == pytest.approx(0.05 + found["import_seconds"] + 0.0 + 0.1 + 0.5)
    assert found["all_ready_seconds"] == pytest.approx(0.2)


def test_a_cells_overhead_is_what_it_takes_beyond_switch_warm_up_and_window() -> None:
    cell = record(window_seconds=5.0)
    cell["timing"] |= {"configure_seconds": 0.3, "start_seconds": 0.2, "ready_seconds": 4.0}
    cell["timing"] |= {"settle_seconds": 1.0, "window_seconds": 6.5, "stop_seconds": 0.7}
    cell["tenants"][1]["startup"]["warmup_seconds"] = 2.5
    found = row([cell | {"switch": None}])
    assert found["all_ready_seconds"] == pytest.approx(4.2)
    assert found["window_wait_seconds"] == pytest.approx(1.5)
    assert found["removal_seconds"] == pytest.approx(0.7)
    assert found["overhead_seconds"] == pytest.approx(0.3 + (4.2 - 2.5) + 1.5 + 0.7)
    switched = {"from": None, "out_seconds": None, "in_seconds": 0.3}
    assert row([cell | {"switch": switched}])["overhead_seconds"] == pytest.approx(1.7 + 1.5 + 0.7)


def test_phases_of_a_switch_are_means_that_add_up() -> None:
    switches = Switches()
    for follow, publish in ((5.0, {"publish": 4.0}), (7.0, {})):
        phases = {**publish, "follow": follow, "stable": 15.0}
        switches.add("mps", {"from": None, "out_seconds": None, "in_seconds": 30.0, "phases": phases})
    switches.add("mps", {"from": None, "out_seconds": None, "in_seconds": 30.0})
    found = row([record()], switches)
    assert [found[f"switch_{phase}_seconds"] for phase in ("publish", "follow", "stable")] == [2.0, 6.0, 15.0]
    assert pd.isna(found["switch_cut_seconds"])
    assert pd.isna(row([record()])["switch_follow_seconds"])


def test_older_records_have_no_first_iteration() -> None:
    old = record()
    for tenant in old["tenants"]:
        del tenant["startup"]["first_iteration_seconds"]
    found = row([old])
    assert pd.isna(found["first_result_seconds"])
    assert found["steady_seconds"] == pytest.approx(0.85)


@pytest.mark.parametrize("how", [{"status": "crashed"}, {"fault": {"kind": "killed"}}])
def test_failed_cells_and_cells_with_a_fault_are_left_out(how: dict[str, Any]) -> None:
    assert cell_startups(record() | how) == []


def test_a_switch_counts_for_the_strategies_that_were_set_and_left() -> None:
    switches = Switches()
    switches.add("mps", {"from": None, "out_seconds": 0.5, "in_seconds": 6.0})
    switches.add("mps", None)
    switches.add("mig", {"from": "mps block 2", "out_seconds": 2.0, "in_seconds": 4.0})
    switches.add("mps", {"from": "mig n2 block 2", "out_seconds": None, "in_seconds": 8.0})
    found = row([record()], switches)
    assert (found["switch_in_seconds"], found["switch_in_n"]) == (7.0, 2)
    assert (found["switch_out_seconds"], found["switch_out_n"]) == (2.0, 1)


def test_an_older_node_file_has_one_time_for_leaving_and_setting() -> None:
    switches = Switches()
    switches.add_node_file({"strategy": "mps", "configure_seconds": 3.0})
    switches.add_node_file({"strategy": "mps", "configure_seconds": 0.0, "switch": None})
    found = row([record()], switches)
    assert (found["switch_in_seconds"], found["switch_in_n"], found["switch_out_n"]) == (3.0, 1, 0)
