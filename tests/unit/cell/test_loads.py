"""The loads that the driver plans: rates of a capacity, and parts of what all tenants get."""

from pathlib import Path
from typing import Any

import pytest
from unit.fake_node import CALIBRATION
from unit.studies import W, refusal_line, study_with

from sharebench.measure.cell.loads import planned_loads
from sharebench.measure.nodes.contract import PlannedLoad
from sharebench.model.traffic import Load
from sharebench.model.workload import Workload
from sharebench.study.cells import Cell

SERVER = {"kind": "http", "command": ["serve", "{port}"], "stream": True}


def planned(load: dict[str, Any], replicas: int, **more: Any) -> list[PlannedLoad]:
    study = study_with({f"{W}.chat": SERVER | {"load": load}, "workloads": ["chat"]} | more)
    workload = "both" if more else "chat"
    return planned_loads(study.spec(Cell("mps", workload, replicas, 1)), {"chat": CALIBRATION})


@pytest.mark.parametrize(
    "load, rate",
    [
        ({"arrival": "closed"}, None),
        ({"arrival": "constant", "rate_hz": 7.0}, 7.0),
        ({"arrival": "poisson", "rate_of_capacity": 0.2}, 20.0),
    ],
)
def test_a_share_of_capacity_becomes_a_rate(load: dict[str, Any], rate: float | None) -> None:
    for each in planned(load, 2):
        assert each.get("rate_hz") == rate
        assert each["arrival"] == load["arrival"]
        assert each.keys() <= {"arrival", "rate_hz", "seed", "before"}


@pytest.mark.parametrize(("total", "parts"), [(16, [4, 4, 4, 4]), (18, [5, 5, 4, 4])])
def test_tenants_share_a_total_and_the_first_have_what_is_left_over(total: int, parts: list[int]) -> None:
    assert [each["concurrency"] for each in planned({"concurrency_total": total}, 4)] == parts


@pytest.mark.parametrize("rate", [{"rate_hz": 12}, {"rate_of_capacity": 0.12}])
def test_tenants_share_the_rate_of_all(rate: dict[str, Any]) -> None:
    load = {"arrival": "poisson", "rate_for": "all", "concurrency_total": 8} | rate
    assert [(each["rate_hz"], each["concurrency"]) for each in planned(load, 4)] == [(3, 2)] * 4


def test_in_a_mix_the_tenants_of_one_workload_share_its_total() -> None:
    load = {"arrival": "poisson", "rate_hz": 12, "rate_for": "all", "concurrency_total": 8}
    found = planned(load, 3, **{f"{W}.both": {"tenants": ["chat", "matmul", "chat"]}, "workloads": ["both"]})
    assert [each.get("rate_hz") for each in found] == [6, None, 6]
    assert [each.get("concurrency") for each in found] == [4, None, 4]


def test_the_rate_of_a_trace_is_its_mean(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text("seconds\n0\n0.2\n0.2\n0.9\n")
    load = {"arrival": "trace", "trace": str(tmp_path / "day.csv")}
    assert [each["rate_hz"] for each in planned(load, 2)] == [4 / 1.2] * 2
    assert [(each["rate_hz"], each["parts"]) for each in planned(load | {"rate_for": "all"}, 2)] == [(2 / 1.2, 2)] * 2


REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "a rate near the capacity": (
        {"arrival": "poisson", "rate_of_capacity": 0.9},
        [".load.rate_of_capacity:", "0.9", "streams", "use 0.85 or less"],
    ),
    "two concurrencies": ({"concurrency": 1, "concurrency_total": 2}, [".load:", "both given", "keep one"]),
    "less than one each": ({"concurrency_total": 2}, [".load.concurrency_total:", "2", "4 tenants", "each one"]),
    "a closed load for all": ({"rate_for": "all"}, [".load.rate_for:", "'all'", "concurrency_total"]),
    "no file": ({"arrival": "trace"}, [".load.trace:", "null", "name a file"]),
    "a file of another load": ({"trace": "day.csv"}, [".load.trace:", "'day.csv'", "closed", "set arrival: trace"]),
    "a file that is not there": ({"arrival": "trace", "trace": "day.csv"}, [".load.trace:", "'day.csv'", "not a file"]),
    "a rate of a trace": (
        {"arrival": "trace", "trace": "day.csv", "rate_hz": 3},
        [".load.rate_hz:", "3", "trace", "remove it"],
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_an_impossible_load_is_refused_in_one_line(case: tuple[dict[str, Any], list[str]]) -> None:
    load, parts = case
    line = refusal_line({f"{W}.chat": SERVER | {"load": load}, "workloads": ["chat"], "replicas": [1, 4]})
    assert line.startswith(f"config: {W}.chat")
    assert [part for part in parts if part not in line] == []


def test_a_rate_near_the_capacity_is_possible_where_nothing_streams() -> None:
    study_with({f"{W}.infer": SERVER | {"stream": False, "load": {"arrival": "poisson", "rate_of_capacity": 0.9}}})


HEAD = "seconds,prompt_tokens,output_tokens\n"
BAD_TRACES = {
    "nothing": ("", ["line 1", "'seconds'", "seconds, prompt_tokens, output_tokens"]),
    "no request": (HEAD, ["line 2", "no request"]),
    "a missing column": ("seconds,prompt_tokens\n0,5\n", ["line 1", "'output_tokens'"]),
    "text": (HEAD + "0,5,5\nsoon,5,5\n", ["line 3", "'soon'"]),
    "before the start": (HEAD + "-1,5,5\n", ["line 2", "'-1'"]),
    "never": (HEAD + "inf,5,5\n", ["line 2", "'inf'"]),
    "out of order": (HEAD + "3,5,5\n2,5,5\n", ["line 3", "before 3", "sort"]),
    "no token": (HEAD + "0,0,5\n", ["line 2", "prompt_tokens", "'0'"]),
    "half a token": (HEAD + "0,5,1.5\n", ["line 2", "output_tokens", "'1.5'"]),
    "a short line": (HEAD + "0,5\n", ["line 2", "output_tokens"]),
    "too few": (HEAD + "0,5,5\n", ["1 requests", "4 tenants"]),
    "times of a calendar": (HEAD + "1732786800,5,5\n" * 4, ["1.73279e+09 s", "after the window of 1.5 s"]),
    "none for the last": (HEAD + "0,5,5\n" * 3 + "2,5,5\n", ["of its tenant 3", "2 s, after the window of 1.5 s"]),
}


@pytest.mark.parametrize("case", BAD_TRACES.values(), ids=BAD_TRACES)
def test_a_bad_trace_is_refused_in_one_line_with_the_lines_number(tmp_path: Path, case: tuple[str, list[str]]) -> None:
    (file := tmp_path / "day.csv").write_text(case[0])
    load = {"arrival": "trace", "trace": str(file), "rate_for": "all"}
    request = {"method": "POST", "body": '{"prompt": {prompt_ids}, "max_tokens": {output_tokens}}'}
    entry = SERVER | {"load": load, "request": request}
    line = refusal_line({f"{W}.chat": entry, "workloads": ["chat"], "replicas": [1, 4]})
    assert f"{W}.chat.load.trace: {file}: " in line
    assert [part for part in case[1] if part not in line] == []


def test_of_a_mix_only_tenants_with_the_workload_share_its_trace_and_total(tmp_path: Path) -> None:
    (file := tmp_path / "day.csv").write_text("seconds\n0\n5\n5\n9\n")
    load = {"arrival": "trace", "trace": str(file), "rate_for": "all", "concurrency_total": 1}
    mix = {f"{W}.chat": SERVER | {"load": load}, "workloads": ["mixed"], "replicas": [3]}
    study_with(mix | {f"{W}.mixed": {"tenants": ["chat", "matmul", "matmul"]}})
    line = refusal_line(mix | {f"{W}.mixed": {"tenants": ["chat", "matmul", "chat"]}})
    assert "1" in line and "2 tenants" in line
    del load["concurrency_total"]
    line = refusal_line(mix | {f"{W}.mixed": {"tenants": ["chat", "matmul", "chat"]}})
    assert "the first request of its tenant 1 comes at 5 s" in line


def test_a_trace_is_part_of_the_spec_and_its_calibration_has_the_lengths(tmp_path: Path) -> None:
    (file := tmp_path / "day.csv").write_text("seconds\n0\n1\n")
    load = {"arrival": "trace", "trace": str(file)}
    study = study_with({f"{W}.chat": SERVER | {"load": load}, "workloads": ["chat"]})
    cell = Cell("mps", "chat", 2, 1)
    before, alone = study.spec(cell), study.calibration_spec("chat").workload
    assert str(file) in before.files
    assert isinstance(alone, Workload)
    assert alone.load == Load().changed(trace=str(file))
    file.write_text("seconds\n0\n2\n")
    assert study.spec(cell) != before


@pytest.mark.parametrize(
    ("answers", "alone", "asks"),
    [("auto", None, 3), (False, None, None), (True, None, 3), ("auto", [[]], 2), ("auto", [], None)],
)
def test_servers_are_asked_once_more_for_the_calibration(answers: Any, alone: Any, asks: int | None) -> None:
    study = study_with({f"{W}.chat": SERVER | {"answers": answers}, "workloads": ["chat"]})
    calibrations: Any = {} if alone is None else {"chat": CALIBRATION | {"answers": alone}}
    found = planned_loads(study.spec(Cell("mps", "chat", 2, 1)), calibrations)
    assert [each.get("asks") for each in found] == [asks] * 2


def test_a_wrong_value_of_answers_names_all_right_ones() -> None:
    line = refusal_line({f"{W}.chat": SERVER | {"answers": "always"}, "workloads": ["chat"]})
    assert line.endswith("Known: auto, true, false")


def test_a_program_that_is_no_server_is_asked_nothing() -> None:
    study = study_with({"workloads": ["matmul"]})
    assert "asks" not in planned_loads(study.spec(Cell("mps", "matmul", 2, 1)), {})[0]
