"""The cells of a study, and their files."""

from collections import Counter
from itertools import groupby

import pytest
from unit.studies import MIXED, simulated, whole_plots

from sharebench.study.cells import Cell, cell_from_path


def test_the_matrix_is_the_product_of_its_axes() -> None:
    cells = simulated(
        strategies=["mps", "mig"], replicas=[1, 3], workloads=["matmul", "matmul-light"], repeats=2
    ).requested
    assert len(cells) == len(set(cells)) == 16
    expected = {
        Cell(s, w, n, r) for s in ("mps", "mig") for w in ("matmul", "matmul-light") for n in (1, 3) for r in (1, 2)
    }
    assert set(cells) == expected


def test_replicas_of_a_strategy_replace_those_of_the_study() -> None:
    planned = simulated(
        {"strategy_catalogue.mig.replicas": [7]}, strategies=["exclusive", "mps", "mig"], replicas=[2, 4]
    )
    sizes = {(cell.strategy, cell.replicas) for cell in planned.requested}
    assert sizes == {("exclusive", 1), ("mps", 2), ("mps", 4), ("mig", 7)}


@pytest.mark.parametrize(
    "strategies, replicas, baseline, added",
    [
        (["mps", "mig"], [2, 4], "exclusive", {("exclusive", 1)}),
        (["exclusive", "mps"], [2], "exclusive", set()),
        (["mps"], [2], "none", set()),
    ],
)
def test_the_baseline_is_added_where_it_is_missing(
    strategies: list[str], replicas: list[int], baseline: str, added: set[tuple[str, int]]
) -> None:
    planned = simulated(
        strategies=strategies, replicas=replicas, baseline=baseline, repeats=2, workloads=["matmul", "matmul-light"]
    )
    extra = set(planned.cells) - set(planned.requested)
    assert {(cell.strategy, cell.replicas) for cell in extra} == added
    assert len(extra) == 4 * len(added), "one for each workload and repeat"
    assert len(planned.cells) == len(set(planned.cells)) == len(planned.requested) + len(extra)


def test_a_cell_is_found_by_its_path() -> None:
    cell = Cell("mig-mps", "matmul", 12, 3)
    assert cell.raw == "cells/mig-mps/matmul/n12/r3/raw.json"
    pair = Cell("mps", "detector+matmul", 2, 1)
    assert pair.raw == "cells/mps/detector+matmul/n2/r1/raw.json" and cell_from_path(pair.raw) == pair
    assert cell_from_path(f"/elsewhere/{cell.raw}") == cell_from_path(f"{cell.folder}/telemetry.csv") == cell
    for path in ("cells/mps/matmul/n1/raw.json", "cells/mps/matmul/nx/r1/raw.json", "tables/cells.csv"):
        with pytest.raises(ValueError, match="not a cell's file"):
            cell_from_path(path)


def test_tables_list_cells_by_workload_strategy_and_size() -> None:
    planned = simulated(strategies=["mig", "mps"], workloads=["matmul-light", "matmul"], replicas=[4, 1], repeats=2)
    seen = [(cell.workload, cell.strategy, cell.replicas, cell.repeat) for cell in planned.table_cells()]
    assert sorted(seen) == sorted((c.workload, c.strategy, c.replicas, c.repeat) for c in planned.cells)
    assert [workload for workload, _ in groupby(seen, key=lambda row: row[0])] == ["matmul-light", "matmul"]
    strategies = [row[1] for row in seen if row[0] == "matmul"]
    assert [name for name, _ in groupby(strategies)] == ["exclusive", "mps", "mig"]
    assert [row[2:] for row in seen if row[:2] == ("matmul", "mps")] == [(1, 1), (1, 2), (4, 1), (4, 2)]


def test_workloads_of_a_mix_repeat_for_more_tenants() -> None:
    planned = simulated(MIXED, workloads=["both"], replicas=[2, 5])
    assert planned.workloads_of(Cell("mps", "both", 2, 1)) == ["matmul", "detector"]
    assert planned.workloads_of(Cell("mps", "both", 5, 1)) == ["matmul", "detector", "detector", "matmul", "detector"]
    assert planned.workloads_of(Cell("exclusive", "matmul", 1, 1)) == ["matmul"]


def test_a_mix_has_the_baselines_and_calibrations_of_its_workloads() -> None:
    planned = simulated(MIXED, workloads=["both"], replicas=[1, 3])
    baselines = {Cell("exclusive", name, 1, repeat) for name in ("matmul", "detector") for repeat in (1, 2)}
    mixes = {Cell(strategy, "both", 3, repeat) for strategy in ("mps", "mig") for repeat in (1, 2)}
    assert set(planned.cells) == baselines | mixes, "one tenant is not a mix"
    assert planned.calibrated_workloads() == ["detector", "matmul"]
    assert planned.workloads() == ["both", "detector", "matmul"]


def test_interference_adds_cells_of_every_pair_of_workloads() -> None:
    config = {
        "strategies": ["exclusive", "mps", "mig"],
        "strategy_catalogue.mig.replicas": [3],
        "interference": ["matmul", "detector"],
        "workloads": ["yolos"],
        "replicas": [1, 4],
        "window_seconds": 10,
        "repeats": 1,
    }
    cells = set(simulated(config).cells)
    pairs = {cell for cell in cells if "+" in cell.workload}
    # exclusive has one tenant, and this mig has three.
    assert pairs == {Cell("mps", pair, 2, 1) for pair in ("detector+detector", "detector+matmul", "matmul+matmul")}
    plain = {Cell("exclusive", name, 1, 1) for name in ("yolos", "matmul", "detector")}
    plain |= {Cell("mps", "yolos", 1, 1), Cell("mps", "yolos", 4, 1), Cell("mig", "yolos", 3, 1)}
    assert cells - pairs == plain
    # The order in the config does not matter.
    assert simulated(config | {"interference": ["detector", "matmul"]}).cells == simulated(config).cells
    assert set(simulated(config | {"interference": []}).cells) == {cell for cell in plain if cell.workload == "yolos"}


@pytest.mark.parametrize(
    "patterns, left",
    [
        (["mps/matmul/n2/r1"], {("mps", 2, 2), ("mps", 4, 1), ("mps", 4, 2)}),
        (["mps/matmul/n2"], {("mps", 4, 1), ("mps", 4, 2)}),
        (["*/*/n2", "mps/*/*/r2"], {("mps", 4, 1)}),
    ],
)
def test_excluded_cells_are_not_planned(patterns: list[str], left: set[tuple[str, int, int]]) -> None:
    planned = simulated(strategies=["mps"], replicas=[2, 4], repeats=2, workloads=["matmul"], exclude=patterns)
    shared = {(cell.strategy, cell.replicas, cell.repeat) for cell in planned.cells if cell.strategy == "mps"}
    assert shared == left
    assert {cell.repeat for cell in planned.cells if cell.strategy == "exclusive"} == {1, 2}


def test_a_baseline_and_all_cells_of_a_workload_may_be_excluded() -> None:
    keys = {"strategies": ["mps"], "replicas": [2], "repeats": 2, "workloads": ["matmul", "matmul-light"]}
    planned = simulated(**keys, exclude=["exclusive/matmul/n1/r2", "mps/matmul-light"])
    # A workload without cells needs no baseline.
    alone = [cell for cell in planned.cells if cell.strategy == "exclusive"]
    assert [(cell.workload, cell.repeat) for cell in alone] == [("matmul", 1)]
    assert planned.spec(alone[0]) == next(
        simulated(**keys).spec(cell) for cell in simulated(**keys).cells if cell == alone[0]
    )


def test_the_control_is_the_baseline_in_a_whole_plot_of_its_own() -> None:
    planned = simulated(
        strategies=["mps"], replicas=[2], repeats=2, workloads=["matmul", "matmul-light"], null_cells=True
    )
    again = [cell for cell in planned.cells if cell.strategy == "exclusive-again"]
    assert {(c.workload, c.replicas, c.repeat) for c in again} == {
        (workload, 1, repeat) for workload in ("matmul", "matmul-light") for repeat in (1, 2)
    }
    plots = whole_plots(planned)
    assert Counter(plot.strategy for plot in plots) == {"exclusive": 2, "exclusive-again": 2, "mps": 2}
    for cell in again:
        own, base = planned.spec(cell), planned.spec(Cell("exclusive", cell.workload, 1, cell.repeat))
        assert own.strategy.name == "exclusive-again" and base.strategy.name == "exclusive"
        assert own.changed(strategy=own.strategy.changed(name="exclusive")) == base


def test_there_is_no_control_without_a_baseline() -> None:
    planned = simulated(strategies=["mps"], null_cells=True, baseline="none")
    assert {cell.strategy for cell in planned.cells} == {"mps"}
