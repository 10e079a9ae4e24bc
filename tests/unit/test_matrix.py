"""Config to cells: the matrix, its order, and what makes which cell stale."""

from __future__ import annotations

import copy
import json
import sys
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from unit.config_cases import study

from sharebench import capabilities, locks
from sharebench.config import load
from sharebench.locks import tenant_environment
from sharebench.matrix import Cell, Plot, Study, canonical, cell_of

SIMULATED = {"node": "simulated"}


def of(dotted: dict[str, Any] | None = None, **keys: Any) -> Study:
    """The default study on the simulated node with these keys changed."""
    return Study(load(study(SIMULATED | {"null_cells": False} | (dotted or {}) | keys)))


def plots_in_order(of_study: Study) -> list[Plot]:
    """The node's states in the order in which they are set, one for each run of cells that share it."""
    return [plot for plot, _ in groupby(of_study.cells, key=of_study.plot)]


def test_the_matrix_is_the_product_of_its_axes() -> None:
    cells = of(strategies=["mps", "mig"], replicas=[1, 3], workloads=["matmul", "matmul-light"], repeats=2).requested
    assert len(cells) == len(set(cells)) == 16
    expected = {
        Cell(s, w, n, r) for s in ("mps", "mig") for w in ("matmul", "matmul-light") for n in (1, 3) for r in (1, 2)
    }
    assert set(cells) == expected


def test_a_strategy_with_replicas_of_its_own_ignores_the_studys() -> None:
    planned = of({"strategy_catalogue.mig.replicas": [7]}, strategies=["exclusive", "mps", "mig"], replicas=[2, 4])
    sizes = {(cell.strategy, cell.replicas) for cell in planned.requested}
    assert sizes == {("exclusive", 1), ("mps", 2), ("mps", 4), ("mig", 7)}


@pytest.mark.parametrize(
    "strategies, replicas, baseline, added",
    [
        (["mps", "mig"], [2, 4], "exclusive", {("exclusive", 1)}),
        (["exclusive", "mps"], [2], "exclusive", set()),
        (["mps"], [2], "none", set()),
        (["mps"], [2, 4], "mps", {("mps", 1)}),
        (["mps"], [1, 2], "mps", set()),
        (["mps"], [2], "time-slicing", {("time-slicing", 1)}),
    ],
)
def test_the_baseline_is_added_where_it_is_missing(
    strategies: list[str], replicas: list[int], baseline: str, added: set[tuple[str, int]]
) -> None:
    planned = of(
        strategies=strategies, replicas=replicas, baseline=baseline, repeats=2, workloads=["matmul", "matmul-light"]
    )
    extra = set(planned.cells) - set(planned.requested)
    assert {(cell.strategy, cell.replicas) for cell in extra} == added
    assert len(extra) == 4 * len(added), "one for each workload and repeat"
    assert len(planned.cells) == len(set(planned.cells)) == len(planned.requested) + len(extra)


def test_ranks_number_the_cells_from_last_to_first() -> None:
    planned = of(repeats=4)
    assert [planned.rank(cell) for cell in planned.cells] == list(range(len(planned.cells), 0, -1))
    assert planned.rank(Cell("mps", "matmul", 99, 1)) == 0


def test_a_strategy_ranks_with_its_first_cell() -> None:
    planned = of()
    for name in ("exclusive", "time-slicing", "mps", "mig"):
        first = next(cell for cell in planned.cells if cell.strategy == name)
        assert planned.strategy_rank(name) == planned.rank(first)
    assert planned.strategy_rank("streams") == 0


def test_blocks_hold_every_state_once() -> None:
    planned = of(strategies=["exclusive", "mps", "mps-limited", "mig"], replicas=[1, 2], repeats=3)
    plots = plots_in_order(planned)
    # mps-limited is set up anew for each number of tenants: its share is 100/N.
    states = {("exclusive", None), ("mps", None), ("mig", None), ("mps-limited", 1), ("mps-limited", 2)}
    assert Counter(plots) == Counter(Plot(s, n, block) for s, n in states for block in (1, 2, 3))
    assert [plot.block for plot in plots] == sorted(plot.block for plot in plots)
    assert all(planned.block(cell) == cell.repeat for cell in planned.cells)


def test_order_strategy_sets_every_state_once() -> None:
    planned = of(order="strategy", repeats=3)
    plots = plots_in_order(planned)
    assert len(plots) == len(set(plots)) == 4
    assert {planned.block(cell) for cell in planned.cells} == {0}


@pytest.mark.parametrize("seed", range(8))
def test_order_strategy_sets_a_state_once_also_where_the_first_cells_are_infeasible(seed: int) -> None:
    """The gate of a strategy goes straight to its first feasible cell, whatever was to be before it."""
    planned = of(strategies=["mps", "mps-limited", "time-slicing"], replicas=[1, 2, 4], order="strategy", seed=seed)
    infeasible = {"mps-limited": {1, 4}, "mps": {2}}
    asked: list[Plot] = []
    for cell in planned.cells:
        mine = [each for each in planned.cells if each.strategy == cell.strategy]
        feasible = [each for each in mine if each.replicas not in infeasible.get(each.strategy, set())]
        if planned.rank(cell) == planned.strategy_rank(cell.strategy):
            asked.append(planned.plot(feasible[0]))
        asked += [planned.plot(cell)] if cell in feasible else []
    states = [plot for plot, _ in groupby(asked)]
    assert len(states) == len(set(states))


def test_order_strategy_still_draws_the_strategies() -> None:
    firsts = {
        tuple(dict.fromkeys(plot.strategy for plot in plots_in_order(of(order="strategy", seed=seed))))
        for seed in range(8)
    }
    assert len(firsts) > 3


def test_order_auto_is_blocks_where_a_switch_is_cheap() -> None:
    assert of(order="auto").order == "blocks"


def test_the_order_is_drawn_afresh_for_each_block_and_seed() -> None:
    many: dict[str, Any] = {"strategies": ["exclusive", "time-slicing", "mps", "mig", "streams"], "repeats": 6}

    def orders(seed: int) -> list[tuple[str, ...]]:
        plots = plots_in_order(of(seed=seed, **many))
        return [tuple(plot.strategy for plot in block) for _, block in groupby(plots, key=lambda plot: plot.block)]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)
    assert len(set(orders(1))) > 3, "blocks differ"
    assert all(blocks[0][0] == "exclusive" for blocks in map(orders, range(8))), "calibration left the node so"
    assert len({blocks[1][0] for blocks in map(orders, range(20))}) > 2, "later blocks begin anywhere"


def test_cells_are_shuffled_inside_a_plot() -> None:
    planned = of(strategies=["mps"], workloads=["matmul"], replicas=[1, 2, 3, 4], repeats=4, baseline="none")
    inside = [tuple(cell.replicas for cell in planned.cells if planned.block(cell) == block) for block in range(1, 5)]
    assert all(sorted(block) == [1, 2, 3, 4] for block in inside)
    assert len(set(inside)) > 1


def test_the_order_does_not_depend_on_how_the_config_lists_things() -> None:
    one = of(strategies=["mps", "mig"], replicas=[1, 2], workloads=["matmul", "matmul-light"])
    other = of(strategies=["mig", "mps"], replicas=[2, 1], workloads=["matmul-light", "matmul"])
    assert one.cells == other.cells


@settings(deadline=None, max_examples=40)
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
    planned = of(strategies=strategies, replicas=replicas, repeats=repeats, order=order, seed=seed)
    assert len(planned.cells) == len(set(planned.cells))
    assert set(planned.requested) <= set(planned.cells)
    assert sorted(planned.rank(cell) for cell in planned.cells) == list(range(1, len(planned.cells) + 1))
    plots = plots_in_order(planned)
    states = {(plot.strategy, plot.replicas) for plot in plots}
    assert len(plots) == len(states) * (repeats if order == "blocks" else 1)


# What is edited, and which cells of the default study it stales: their axes, or all, or none.
ALL: dict[str, Any] = {}
NONE = None
EDITS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "window": ({"window_seconds": 3}, ALL),
    "params of one workload": ({"workload_catalogue.matmul.params": {"size": 64}}, {"workload": "matmul"}),
    "params of an unused workload": ({"workload_catalogue.memcopy.params": {"mebibytes": 8}}, NONE),
    "load of one workload": (
        {"workload_catalogue.matmul-light.load": {"arrival": "poisson", "rate_of_capacity": 0.3}},
        {"workload": "matmul-light"},
    ),
    "tolerance of one workload": ({"workload_catalogue.matmul.output_tolerance": 1e-3}, {"workload": "matmul"}),
    "description of a workload": ({"workload_catalogue.matmul.description": "another"}, NONE),
    "smallest window of a workload": ({"workload_catalogue.matmul.min_window_seconds": 0.5}, NONE),
    "description of a strategy": ({"strategy_catalogue.mps.description": "another"}, NONE),
    # 100/N before; at two tenants that is the same
    "a limit of a strategy": (
        {"strategy_catalogue.mps-limited.thread_percent": 50},
        {"strategy": "mps-limited", "replicas": 1},
    ),
    "profile of a strategy": ({"strategy_catalogue.mig.profile": "2g"}, {"strategy": "mig"}),
    "mechanism of a strategy": ({"strategy_catalogue.mps.mechanism": "streams"}, {"strategy": "mps"}),
    "another strategy": ({"strategies": ["exclusive", "mps", "mps-limited", "mig", "streams"]}, NONE),
    "the list of replicas": ({"replicas": [1, 2, 3]}, NONE),
    "a strategy's own replicas": ({"strategy_catalogue.mps.replicas": [1, 2]}, NONE),
    "repeats": ({"repeats": 5}, NONE),
    "order": ({"order": "strategy"}, NONE),
    "baseline": ({"baseline": "mps"}, NONE),
    "results": ({"results": "elsewhere"}, NONE),
    "timeouts": ({"timeouts": {"start_seconds": 90, "record_seconds": 45}}, NONE),
    "options of another kind of node": ({"cpu.cores": [0]}, NONE),
    # virtual tenants are steady from the start
    "warm-up": ({"warmup.min_iterations": 7}, NONE),
    "seed": ({"seed": 2}, ALL),
    "noise": ({"simulated.noise.cell_cv": 0.1}, ALL),
    "overhead": ({"simulated.time_slicing_overhead": 0.2}, ALL),
    "product": ({"simulated.product": "another"}, ALL),
    "model of one workload": (
        {"workload_catalogue.matmul.simulated": {"serial_seconds": 0.001}},
        {"workload": "matmul"},
    ),
    "module of one workload": ({"workload_catalogue.matmul.module": "memcopy"}, NONE),
}
EDITS_ON_CPU: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "seed": ({"seed": 2}, NONE),
    "warm-up": ({"warmup.min_iterations": 7}, ALL),
    "cores": ({"cpu.cores": [0]}, ALL),
    "noise": ({"simulated.noise.cell_cv": 0.1}, NONE),
    "model of one workload": ({"workload_catalogue.matmul.simulated": {"serial_seconds": 0.001}}, NONE),
    "module of one workload": ({"workload_catalogue.matmul.module": "memcopy"}, {"workload": "matmul"}),
    "window": ({"window_seconds": 3}, ALL),
}
EVERYTHING: dict[str, Any] = {"workloads": ["matmul", "matmul-light"], "replicas": [1, 2], "repeats": 2}


def stale(before: dict[str, Any], edit: dict[str, Any]) -> tuple[set[Cell], set[Cell]]:
    """The cells that both studies have, and those of them whose spec the edit changes."""
    old, new = Study(load(study(before))), Study(load(study(before | edit)))
    shared = set(old.cells) & set(new.cells)
    return shared, {cell for cell in shared if old.spec(cell) != new.spec(cell)}


def matching(cells: set[Cell], axes: dict[str, Any] | None) -> set[Cell]:
    """The cells whose axes have these values; none when `axes` is None."""
    if axes is None:
        return set()
    return {cell for cell in cells if all(getattr(cell, axis) == value for axis, value in axes.items())}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_stales_exactly_what_depends_on_it(name: str) -> None:
    edit, expected = EDITS[name]
    strategies = {"strategies": ["exclusive", "mps", "mps-limited", "mig"]}
    shared, changed = stale(SIMULATED | EVERYTHING | strategies, edit)
    assert shared
    assert changed == matching(shared, expected)


@pytest.mark.parametrize("name", EDITS_ON_CPU)
def test_an_edit_stales_exactly_what_depends_on_it_on_the_stand_in(name: str) -> None:
    edit, expected = EDITS_ON_CPU[name]
    shared, changed = stale({"node": "cpu"} | EVERYTHING, edit)
    assert shared
    assert changed == matching(shared, expected)


def test_a_limit_of_100_over_n_is_in_the_spec_as_what_it_means() -> None:
    planned = of(strategies=["mps-limited"], replicas=[4])
    limits = json.loads(planned.spec(Cell("mps-limited", "matmul", 4, 1)))["strategy"]["limits"]
    assert limits == {"thread_percent": 25.0, "memory_percent": 25.0}


def test_repeats_are_cells_of_their_own() -> None:
    planned = of()
    assert planned.spec(Cell("mps", "matmul", 2, 1)) != planned.spec(Cell("mps", "matmul", 2, 2))


def shuffled(value: Any) -> Any:
    """The value with the keys of every mapping in reverse order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return value


def test_canonical_text_does_not_depend_on_the_order_of_keys() -> None:
    config = study(SIMULATED)
    one, other = Study(load(config)), Study(load(shuffled(copy.deepcopy(config))))
    assert [one.spec(cell) for cell in one.cells] == [other.spec(cell) for cell in other.cells]
    assert one.strategy_spec("mig-mps") == other.strategy_spec("mig-mps")
    assert canonical({"b": 1, "a": {"d": [2], "c": "×"}}) == '{"a":{"c":"×","d":[2]},"b":1}'


def test_calibration_depends_on_the_workload_alone_and_unloaded() -> None:
    before = of(strategies=["mps"], workloads=["matmul", "matmul-light"])
    light = json.loads(before.calibration_spec("matmul-light"))
    assert light["workload"]["load"] == {"arrival": "closed"}
    assert (light["strategy"]["name"], light["replicas"]) == ("exclusive", 1)

    for same in (
        of(strategies=["mig"], replicas=[7], repeats=9, workloads=["matmul-light"]),
        of({"workload_catalogue.matmul-light.load": {"arrival": "constant", "rate_hz": 5}}),
    ):
        assert same.calibration_spec("matmul-light") == before.calibration_spec("matmul-light")
    for different in (
        of(window_seconds=3),
        of({"workload_catalogue.matmul-light.params": {"size": 64}}),
    ):
        assert different.calibration_spec("matmul-light") != before.calibration_spec("matmul-light")
    assert before.calibration_cell("matmul") not in before.cells


def test_setting_up_a_strategy_does_not_depend_on_words_and_numbers_of_tenants() -> None:
    before = of().strategy_spec("mps-limited")
    assert of({"strategy_catalogue.mps-limited.description": "x"}).strategy_spec("mps-limited") == before
    assert of({"strategy_catalogue.mps-limited.replicas": [3]}).strategy_spec("mps-limited") == before
    assert of({"strategy_catalogue.mps-limited.thread_percent": "200/N"}).strategy_spec("mps-limited") != before


def test_the_code_of_a_cell_is_that_of_its_node_and_workload() -> None:
    simulated, cpu = of(), Study(load(study({"node": "cpu"})))
    assert simulated.code("matmul") == simulated.code("yolos"), "the model is the same for every workload"
    assert cpu.code("matmul") == cpu.code("matmul-light") != cpu.code("memcopy")
    assert simulated.code("matmul") != cpu.code("matmul")
    assert simulated.node_code() != cpu.node_code()


LOCK = """#
# made by a tool at some time
numpy==2.1.0 \\
    --hash=sha256:aaaa \\
    --hash=sha256:bbbb
    # via -r tenant.in
prometheus-client==0.21.0 ; python_version >= "3.11" \\
    --hash=sha256:cccc
"""


def environment(folder: Path, text: str) -> str:
    """What `tenant_environment` makes of a lock file with this text."""
    lock = folder / "lock.txt"
    lock.write_text(text)
    tenant_environment.cache_clear()
    try:
        return tenant_environment(str(lock))
    finally:
        tenant_environment.cache_clear()


def test_the_tenants_environment_is_the_pins_of_the_lock(tmp_path: Path) -> None:
    assert environment(tmp_path, LOCK) == "numpy==2.1.0 prometheus-client==0.21.0"
    noise = LOCK.replace("some time", "another").replace("aaaa", "dddd").replace("    # via -r tenant.in\n", "")
    assert environment(tmp_path, noise) == environment(tmp_path, LOCK)
    assert environment(tmp_path, LOCK.replace("2.1.0", "2.1.1")) != environment(tmp_path, LOCK)


def test_only_tenants_that_are_processes_depend_on_their_environment() -> None:
    on_cpu = Study(load(study({"node": "cpu"})))
    assert json.loads(on_cpu.spec(on_cpu.cells[0]))["environment"] == tenant_environment("tenant-cpu.txt")
    assert "environment" not in json.loads(of().spec(of().cells[0]))


def test_tenants_on_a_gpu_depend_on_a_lock_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(capabilities, "GPU_DEVICE_FILE", tmp_path)
    monkeypatch.setattr(capabilities, "GPU_ENVIRONMENT", Path(sys.executable))

    def environment_of(python: str) -> str:
        planned = Study(load(study({"node": "nvidia", "nvidia.python": python})))
        spec = planned.spec(planned.cells[0])
        assert sys.executable not in spec, "where it is on this host is nobody else's business"
        found: str = json.loads(spec)["environment"]
        return found

    assert environment_of("auto") == tenant_environment("tenant-gpu.txt") != tenant_environment("tenant-cpu.txt")
    assert "torch==" in environment_of("auto")
    assert environment_of(sys.executable) == "own interpreter"


@pytest.mark.parametrize("lock", ["tenant-cpu.txt", "tenant-gpu.txt"])
def test_every_pin_of_the_real_lock_counts(lock: str) -> None:
    lines = (locks.ENVS / lock).read_text().splitlines()
    pins = [line for line in lines if "==" in line and not line.lstrip().startswith(("#", "--"))]
    assert len(tenant_environment(lock).split()) == len(pins) >= 2


def test_a_cell_knows_its_files_and_is_known_by_them() -> None:
    cell = Cell("mig-mps", "matmul", 12, 3)
    assert cell.raw == "cells/mig-mps/matmul/n12/r3/raw.json"
    assert cell_of(f"/elsewhere/{cell.raw}") == cell_of(f"{cell.folder}/telemetry.csv") == cell
    for path in ("cells/mps/matmul/n1/raw.json", "cells/mps/matmul/nx/r1/raw.json", "tables/cells.csv"):
        with pytest.raises(ValueError, match="not a cell's file"):
            cell_of(path)


def test_tables_list_cells_by_workload_strategy_and_size() -> None:
    planned = of(strategies=["mig", "mps"], workloads=["matmul-light", "matmul"], replicas=[4, 1], repeats=2)
    seen = [(cell.workload, cell.strategy, cell.replicas, cell.repeat) for cell in planned.tabled()]
    assert sorted(seen) == sorted((c.workload, c.strategy, c.replicas, c.repeat) for c in planned.cells)
    assert [workload for workload, _ in groupby(seen, key=lambda row: row[0])] == ["matmul-light", "matmul"]
    strategies = [row[1] for row in seen if row[0] == "matmul"]
    assert [name for name, _ in groupby(strategies)] == ["exclusive", "mps", "mig"]
    assert [row[2:] for row in seen if row[:2] == ("matmul", "mps")] == [(1, 1), (1, 2), (4, 1), (4, 2)]


def test_pairs_and_workloads_are_those_of_the_cells() -> None:
    planned = of(strategies=["mps"], workloads=["matmul-light", "matmul"])
    assert planned.pairs() == [
        ("exclusive", "matmul"),
        ("exclusive", "matmul-light"),
        ("mps", "matmul"),
        ("mps", "matmul-light"),
    ]
    assert planned.workloads() == ["matmul", "matmul-light"]


MIXED: dict[str, Any] = {
    "workload_catalogue.both.tenants": ["matmul", "detector", "detector"],
    "strategies": ["mps", "mig"],
    "repeats": 2,
}


def test_tenants_of_a_mix_are_repeated_to_their_number() -> None:
    planned = of(MIXED, workloads=["both"], replicas=[2, 5])
    assert planned.tenants_of(Cell("mps", "both", 2, 1)) == ["matmul", "detector"]
    assert planned.tenants_of(Cell("mps", "both", 5, 1)) == ["matmul", "detector", "detector", "matmul", "detector"]
    assert planned.tenants_of(Cell("exclusive", "matmul", 1, 1)) == ["matmul"]


def test_a_mix_brings_the_baselines_and_calibrations_of_what_it_runs_and_has_none_itself() -> None:
    planned = of(MIXED, workloads=["both"], replicas=[1, 3])
    baselines = {Cell("exclusive", name, 1, repeat) for name in ("matmul", "detector") for repeat in (1, 2)}
    mixes = {Cell(strategy, "both", 3, repeat) for strategy in ("mps", "mig") for repeat in (1, 2)}
    assert set(planned.cells) == baselines | mixes, "one tenant is no mix"
    assert planned.calibrated() == ["detector", "matmul"]
    assert planned.workloads() == ["both", "detector", "matmul"]


def test_only_what_tenants_run_gets_a_baseline() -> None:
    planned = of(MIXED | {"workload_catalogue.both.tenants": ["matmul", "matmul", "detector"]}, workloads=["both"])
    assert "detector" in of(MIXED, workloads=["both"], replicas=[2]).calibrated()
    assert planned.components(Cell("mps", "both", 2, 1)) == ["matmul"]
    assert planned.components(Cell("mps", "both", 4, 1)) == ["matmul", "detector"]


def test_pairs_are_two_tenants_of_every_two_workloads_beside_the_workloads() -> None:
    config = {
        "strategies": ["exclusive", "mps", "mig"],
        "strategy_catalogue.mig.replicas": [3],
        "interference": ["matmul", "detector"],
        "workloads": ["yolos"],
        "replicas": [1, 4],
        "window_seconds": 10,
        "repeats": 1,
    }
    cells = set(of(config).cells)
    pairs = {cell for cell in cells if "+" in cell.workload}
    # exclusive has one tenant and this mig three.
    assert pairs == {Cell("mps", pair, 2, 1) for pair in ("detector+detector", "detector+matmul", "matmul+matmul")}
    plain = {Cell("exclusive", name, 1, 1) for name in ("yolos", "matmul", "detector")}
    plain |= {Cell("mps", "yolos", 1, 1), Cell("mps", "yolos", 4, 1), Cell("mig", "yolos", 3, 1)}
    assert cells - pairs == plain
    # In whatever order they are named.
    assert of(config | {"interference": ["detector", "matmul"]}).cells == of(config).cells
    assert set(of(config | {"interference": []}).cells) == {cell for cell in plain if cell.workload == "yolos"}


def test_the_spec_of_a_mix_holds_that_of_every_tenant() -> None:
    planned = of(MIXED, workloads=["both", "matmul", "detector"], replicas=[4])

    def workload(name: str) -> Any:
        return json.loads(planned.spec(Cell("mps", name, 4, 1)))["workload"]

    assert workload("both") == {
        "name": "both",
        "tenants": [workload(name) for name in ("matmul", "detector", "detector", "matmul")],
    }
    assert "tenants" not in workload("matmul")


@pytest.mark.parametrize(
    "edit, expected",
    [
        ({"workload_catalogue.matmul.simulated.serial_seconds": 0.5}, {"matmul", "both", "detector+matmul"}),
        ({"workload_catalogue.detector.output_tolerance": 0.5}, {"detector", "both", "detector+matmul"}),
        ({"workload_catalogue.both.tenants": ["matmul", "detector", "matmul"]}, {"both"}),
        ({"workload_catalogue.both.description": "another"}, set()),
    ],
)
def test_an_edit_stales_the_mixes_and_pairs_that_it_is_part_of(edit: dict[str, Any], expected: set[str]) -> None:
    before = SIMULATED | MIXED | {"workloads": ["both"], "replicas": [3], "interference": ["matmul", "detector"]}
    _, changed = stale(before, edit)
    alike = {"detector+detector"} if "detector" in expected else {"matmul+matmul"} if "matmul" in expected else set()
    assert {cell.workload for cell in changed} == expected | alike


def test_the_code_of_a_mix_is_that_of_all_its_workloads() -> None:
    config = {"node": "cpu", "interference": ["matmul", "detector", "memcopy"]}
    planned = Study(load(study(config)))
    assert planned.code("matmul+matmul") == planned.code("matmul")
    codes = {planned.code(name) for name in ("matmul", "detector", "detector+matmul", "matmul+memcopy")}
    assert len(codes) == 4


def test_a_cell_of_a_pair_knows_its_files() -> None:
    cell = Cell("mps", "detector+matmul", 2, 1)
    assert cell.raw == "cells/mps/detector+matmul/n2/r1/raw.json"
    assert cell_of(cell.raw) == cell


def test_tables_list_pairs_after_workloads() -> None:
    planned = of(workloads=["matmul"], interference=["matmul", "detector"], strategies=["mps"], repeats=1)
    names = [name for name, _ in groupby(cell.workload for cell in planned.tabled())]
    assert names == ["matmul", "detector", "detector+detector", "detector+matmul", "matmul+matmul"]


@pytest.mark.parametrize(
    "patterns, left",
    [
        (["mps/matmul/n2/r1"], {("mps", 2, 2), ("mps", 4, 1), ("mps", 4, 2)}),
        (["mps/matmul/n2"], {("mps", 4, 1), ("mps", 4, 2)}),
        (["*/*/n2", "mps/*/*/r2"], {("mps", 4, 1)}),
    ],
)
def test_excluded_cells_are_not_planned(patterns: list[str], left: set[tuple[str, int, int]]) -> None:
    planned = of(strategies=["mps"], replicas=[2, 4], repeats=2, workloads=["matmul"], exclude=patterns)
    shared = {(cell.strategy, cell.replicas, cell.repeat) for cell in planned.cells if cell.strategy == "mps"}
    assert shared == left
    assert {cell.repeat for cell in planned.cells if cell.strategy == "exclusive"} == {1, 2}


def test_a_block_may_lack_its_baseline_and_a_workload_all_of_its_cells() -> None:
    keys = {"strategies": ["mps"], "replicas": [2], "repeats": 2, "workloads": ["matmul", "matmul-light"]}
    planned = of(**keys, exclude=["exclusive/matmul/n1/r2", "mps/matmul-light"])
    # Nothing is compared with the baseline of a workload that has no cell.
    alone = [cell for cell in planned.cells if cell.strategy == "exclusive"]
    assert [(cell.workload, cell.repeat) for cell in alone] == [("matmul", 1)]
    assert planned.spec(alone[0]) == next(of(**keys).spec(cell) for cell in of(**keys).cells if cell == alone[0])


def test_null_cells_are_the_baseline_once_more_in_a_plot_of_its_own() -> None:
    planned = of(strategies=["mps"], replicas=[2], repeats=2, workloads=["matmul", "matmul-light"], null_cells=True)
    again = [cell for cell in planned.cells if cell.strategy == "exclusive-again"]
    assert {(c.workload, c.replicas, c.repeat) for c in again} == {
        (workload, 1, repeat) for workload in ("matmul", "matmul-light") for repeat in (1, 2)
    }
    plots = plots_in_order(planned)
    assert Counter(plot.strategy for plot in plots) == {"exclusive": 2, "exclusive-again": 2, "mps": 2}
    for cell in again:
        own, base = planned.spec_of(cell), planned.spec_of(Cell("exclusive", cell.workload, 1, cell.repeat))
        assert own["strategy"].pop("name") == "exclusive-again" and base["strategy"].pop("name") == "exclusive"
        assert own == base


def test_there_is_nothing_to_measure_again_without_a_baseline_or_an_entry_for_it() -> None:
    for changes in ({"baseline": "none"}, {"baseline": "mps"}):
        planned = of(strategies=["mps"], null_cells=True, **changes)
        assert {cell.strategy for cell in planned.cells} == {"mps"}
    planned = of(
        {"strategy_catalogue.mps-again": {"mechanism": "mps"}}, strategies=["mps"], null_cells=True, baseline="mps"
    )
    assert {cell.replicas for cell in planned.cells if cell.strategy == "mps-again"} == {1}
