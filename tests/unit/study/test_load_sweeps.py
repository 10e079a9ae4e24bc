"""Sweeps of a load: one catalogue entry makes a workload for each value."""

from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from unit.studies import W, refusal_line, study_with

from sharebench.measure.cell.loads import planned_loads
from sharebench.model.config.load import load
from sharebench.model.traffic import Load
from sharebench.model.workload import SweepEntry
from sharebench.read.report import words
from sharebench.study.cells import Cell
from sharebench.study.study import Study

SERVER = {"kind": "http", "command": ["serve", "{port}"]}
CHAT = SERVER | {"load": {"concurrency": [1, 4, 16]}}
NAMES = ["chat-concurrency-1", "chat-concurrency-4", "chat-concurrency-16"]


def sweep_study(entry: dict[str, Any] = CHAT, **keys: Any) -> Study:
    return study_with({f"{W}.chat": entry, "workloads": ["chat"], "null_cells": False} | keys)


def test_each_value_makes_a_workload_that_differs_in_it_alone() -> None:
    config = sweep_study().config
    assert config["workloads"] == NAMES
    assert "chat" not in config[W]
    plain = study_with({f"{W}.chat": SERVER, "workloads": ["chat"]}).config[W]["chat"]
    for name, value in zip(NAMES, (1, 4, 16), strict=True):
        sweep = SweepEntry(of="chat", by="concurrency", value=value)
        assert config[W][name] == plain.changed(name=name, load=plain.load.changed(concurrency=value), sweep=sweep)
    assert config[W]["matmul"].sweep is None


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ({"arrival": "poisson", "rate_hz": [20, 2.5]}, ["chat-rate_hz-2.5", "chat-rate_hz-20"]),
        ({"arrival": "constant", "rate_of_capacity": [0.5]}, ["chat-rate_of_capacity-0.5"]),
        ({"arrival": "poisson", "rate_hz": 5, "concurrency": ["8", 16]}, ["chat-concurrency-8", "chat-concurrency-16"]),
    ],
)
def test_each_key_of_a_load_may_be_swept(given: dict[str, Any], names: list[str]) -> None:
    assert sweep_study(SERVER | {"load": given}).config["workloads"] == names
    if "concurrency" not in given:
        assert sweep_study({"module": "matmul", "load": given}).config["workloads"] == names


def test_a_normalised_config_keeps_its_sweeps() -> None:
    config = sweep_study().config
    again = load(config)
    assert again == config
    # They are in the order of the values, although Snakemake sorts the keys.
    assert load({**config, W: dict(sorted(config[W].items())), "workloads": ["chat"]})["workloads"] == NAMES
    assert load({**config, "workloads": ["matmul", NAMES[1], "chat"]})["workloads"] == [
        "matmul",
        NAMES[1],
        NAMES[0],
        NAMES[2],
    ]


def test_a_cell_depends_only_on_its_own_value_of_a_sweep() -> None:
    planned, fewer = sweep_study(), sweep_study(SERVER | {"load": {"concurrency": [4]}})
    cell = Cell("mps", NAMES[1], 2, 1)
    spec = planned.spec(cell)
    assert spec.workloads[0].load.concurrency == 4
    assert spec.workloads[0].sweep is None
    assert planned.spec(cell) == fewer.spec(cell)
    assert [planned["concurrency"] for planned in planned_loads(spec, {})] == [4, 4]


def test_the_capacity_of_a_sweep_is_measured_at_the_same_concurrency() -> None:
    entry = SERVER | {"load": {"arrival": "poisson", "rate_of_capacity": 0.5, "concurrency": [1, 8]}}
    calibrated = [sweep_study(entry).calibration_spec(f"chat-concurrency-{n}").spec()["workload"] for n in (1, 8)]
    assert [each["load"] for each in calibrated] == [{"concurrency": n} for n in (1, 8)]
    # A tenant alone has all of a total.
    total = sweep_study(SERVER | {"load": {"concurrency_total": [12]}}).calibration_spec("chat-concurrency_total-12")
    assert total.spec()["workload"]["load"] == {"concurrency": 12}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({f"{W}.both.tenants": ["matmul", "chat"], "workloads": ["both"]}, f"{W}.both.tenants:"),
        ({"interference": ["matmul", "chat"]}, "interference:"),
        ({"faults": ["oom"], "fault_victims": ["chat"]}, "fault_victims:"),
    ],
)
def test_a_sweep_is_refused_where_one_workload_is_needed(changes: dict[str, Any], key: str) -> None:
    line = refusal_line({f"{W}.chat": CHAT, "workloads": ["matmul"]} | changes)
    assert key in line
    assert "'chat' is a sweep; name one of its workloads: [chat-concurrency-1," in line


def test_a_mistake_in_a_sweep_names_the_entry_that_was_written() -> None:
    entry = {"module": "matmul", "load": {"concurrency": [1, 2]}}
    assert refusal_line({f"{W}.chat": entry}).startswith(
        f"config: {W}.chat.load.concurrency: [1, 2] has no effect on kind: loop"
    )


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "closed: the next iteration begins when the last has ended"),
        ({"concurrency": 16}, "closed: always 16 requests in flight"),
        ({"arrival": "poisson", "rate_hz": 3}, "open: poisson arrivals, 3 per second"),
        (
            {"arrival": "constant", "rate_hz": 3, "concurrency": 8},
            "open: constant arrivals, 3 per second, at most 8 in flight",
        ),
        (
            {"concurrency_total": 16},
            "closed: always 16 requests in flight at all tenants together, one more at the first where they do not "
            "divide",
        ),
        (
            {"arrival": "trace", "trace": "day.csv", "rate_for": "all"},
            "open: trace arrivals, those of day.csv for all tenants together",
        ),
    ],
)
def test_the_report_describes_the_load(given: Any, text: str) -> None:
    assert words.load_text(Load.model_validate(given)) == text


def test_the_loads_of_a_sweep_run_together_in_a_random_order_of_their_own() -> None:
    planned = sweep_study(strategies=["mps"], replicas=[1, 2, 3, 4], repeats=3, workloads=["matmul", "chat"])
    starts = [list(cells) for _, cells in groupby(planned.cells, key=planned.start_of)]
    swept = [cells for cells in starts if len(cells) > 1]
    assert all(sorted(cell.workload for cell in cells) == sorted(NAMES) for cells in swept)
    assert sum(map(len, swept)) == sum(cell.workload in NAMES for cell in planned.cells)
    assert len({tuple(cell.workload for cell in cells) for cells in swept}) > 2
    assert sweep_study(strategies=["mps"]).cells == sweep_study(strategies=["mps"]).cells
    assert all(planned.in_order(sorted(cells)) == cells for cells in swept)


def test_a_job_measures_the_loads_of_the_study_and_those_that_have_a_record(tmp_path: Path) -> None:
    planned = sweep_study(strategies=["mps"], replicas=[2], repeats=2, baseline="none", exclude=["mps/*-16/n2/r2"])
    first, second = (Cell("mps", "chat", 2, repeat) for repeat in (1, 2))
    assert planned.sweep_jobs(tmp_path) == {tuple(sorted(NAMES)): [first], tuple(sorted(NAMES[:2])): [second]}
    part = sweep_study(strategies=["mps"], replicas=[2], repeats=1, baseline="none", workloads=NAMES[:1])
    assert list(part.sweep_jobs(tmp_path)) == [(NAMES[0],)]
    (tmp_path / Cell("mps", NAMES[2], 2, 1).folder).mkdir(parents=True)
    (tmp_path / Cell("mps", NAMES[2], 2, 1).raw).touch()
    assert list(part.sweep_jobs(tmp_path)) == [(NAMES[0], NAMES[2])]


def test_loads_of_a_sweep_differ_in_their_start_only_by_what_is_not_the_load() -> None:
    one, more = (sweep_study(window_seconds=seconds) for seconds in (5, 6))
    cells = [Cell("mps", name, 2, 1) for name in NAMES]
    assert len({one.start_spec(cell).text for cell in cells}) == 1
    assert one.start_spec(cells[0]) != more.start_spec(cells[0])
    plain = Cell("mps", "matmul", 2, 1)
    assert one.start_spec(plain) == one.spec(plain)
