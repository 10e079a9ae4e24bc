"""The order of the cells: blocks, whole plots and ranks."""

from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.studies import simulated, whole_plots

from sharebench.study.cells import WholePlot


def test_a_strategy_has_the_rank_of_its_first_cell() -> None:
    planned = simulated()
    for name in ("exclusive", "time-slicing", "mps", "mig"):
        first = next(cell for cell in planned.cells if cell.strategy == name)
        assert planned.strategy_rank(name) == planned.rank(first)
    assert planned.strategy_rank("streams") == 0


@pytest.mark.parametrize("seed", range(8))
def test_order_strategy_sets_each_state_once_even_if_first_cells_are_infeasible(seed: int) -> None:
    """The state of a strategy is set for its first feasible cell, whatever cells precede it."""
    planned = simulated(
        strategies=["mps", "mps-limited", "time-slicing"], replicas=[1, 2, 4], order="strategy", seed=seed
    )
    infeasible = {"mps-limited": {1, 4}, "mps": {2}}
    asked: list[WholePlot] = []
    for cell in planned.cells:
        mine = [each for each in planned.cells if each.strategy == cell.strategy]
        feasible = [each for each in mine if each.replicas not in infeasible.get(each.strategy, set())]
        if planned.rank(cell) == planned.strategy_rank(cell.strategy):
            asked.append(planned.plot(feasible[0]))
        asked += [planned.plot(cell)] if cell in feasible else []
    states = [plot for plot, _ in groupby(asked)]
    assert len(states) == len(set(states))


def test_the_order_differs_between_blocks_and_seeds() -> None:
    many: dict[str, Any] = {"strategies": ["exclusive", "time-slicing", "mps", "mig", "streams"], "repeats": 6}

    def orders(seed: int, order: str = "blocks") -> list[tuple[str, ...]]:
        plots = whole_plots(simulated(seed=seed, order=order, **many))
        return [tuple(plot.strategy for plot in block) for _, block in groupby(plots, key=lambda plot: plot.block)]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)
    assert len(set(orders(1))) > 3, "blocks differ"
    assert len({blocks[0][0] for blocks in map(orders, range(20))}) > 2, "a block begins anywhere, the first too"
    assert {orders(seed, "strategy")[0][0] for seed in range(8)} == {"exclusive"}, "calibration left the node so"


def test_cells_are_shuffled_inside_a_whole_plot() -> None:
    planned = simulated(strategies=["mps"], workloads=["matmul"], replicas=[1, 2, 3, 4], repeats=4, baseline="none")
    inside = [tuple(cell.replicas for cell in planned.cells if planned.block(cell) == block) for block in range(1, 5)]
    assert all(sorted(block) == [1, 2, 3, 4] for block in inside)
    assert len(set(inside)) > 1


def test_the_order_does_not_depend_on_the_order_of_lists_in_the_config() -> None:
    one = simulated(strategies=["mps", "mig"], replicas=[1, 2], workloads=["matmul", "matmul-light"])
    other = simulated(strategies=["mig", "mps"], replicas=[2, 1], workloads=["matmul-light", "matmul"])
    assert one.cells == other.cells


@settings(max_examples=40)
@given(
    strategies=st.lists(
        st.sampled_from(["exclusive", "time-slicing", "mps", "mps-limited", "mig", "mig-mps"]), min_size=1, unique=True
    ),
    replicas=st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True),
    repeats=st.integers(1, 4),
    order=st.sampled_from(["blocks", "strategy"]),
    seed=st.integers(0, 5),
)
def test_any_study_runs_every_cell_once_in_whole_plots(
    strategies: list[str], replicas: list[int], repeats: int, order: str, seed: int
) -> None:
    planned = simulated(strategies=strategies, replicas=replicas, repeats=repeats, order=order, seed=seed)
    assert len(planned.cells) == len(set(planned.cells))
    assert set(planned.requested) <= set(planned.cells)
    assert sorted(planned.rank(cell) for cell in planned.cells) == list(range(1, len(planned.cells) + 1))
    plots = whole_plots(planned)
    states = {(plot.strategy, plot.replicas) for plot in plots}
    assert len(plots) == len(states) * (repeats if order == "blocks" else 1)
