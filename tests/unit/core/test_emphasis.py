"""Tests for colours on a terminal."""

import io
import re
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from sharebench.core import emphasis
from sharebench.core.console import ESCAPES
from sharebench.model.promises import BROKEN, KEPT, NOT_MEASURED, closing_line
from sharebench.model.records.types import Status
from sharebench.read.closing import ending_lines
from sharebench.read.decide.advice import Demand, Level, Option, Plan
from sharebench.read.decide.answers import answer_question
from sharebench.read.decide.documented import ALONE, Isolation
from sharebench.read.decide.reasons import hazard_reasons
from sharebench.read.promises import COLUMNS, read_promises
from sharebench.read.statistics.intervals import Estimate

ANSWER = """\
yolos-graph: take mps on 1 GPU instead of 7: mean latency 36.5 ms
bert: sharing brings nothing; take a GPU each, or a queue: exclusive
Caution: a tenant that faults may end the others
answers    mps-limited  3  0.4  max  0.1  broken
share      mps          3  1.0  max  1.1  kept
3 of 8 cells crashed: bert, mps × 3: the tenant ended
2 of 8 cells with a warning: drift 2; see results/report.html
5 of 8 cells are measured; their tables are in results/partial
[bold]text of a user[/bold] :smile: "quoted" 12
the node could not be restored: no right; restore it: sharebench restore --config node=cpu
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)


def _shown(text: str) -> str:
    stream = Terminal()
    emphasis.show(text, stream)
    return stream.getvalue()


def _coloured(text: str) -> list[str]:
    """What stands between an escape sequence with a style and the next one."""
    return re.findall(r"\x1b\[[1-9][0-9;]*m(.*?)\x1b", _shown(text))


def test_the_words_that_answer_are_coloured_and_the_text_stays() -> None:
    assert ESCAPES.sub("", _shown(ANSWER)) == ANSWER + "\n"
    assert [each.strip(" :") for each in _coloured(ANSWER)] == [
        "take mps",
        "sharing brings nothing",
        "Caution",
        "broken",
        "kept",
        "3 of 8 cells crashed",
        "2 of 8 cells with a warning",
        "could not be restored",
        "sharebench restore --config node=cpu",
    ]


@pytest.mark.parametrize(("verdicts", "is_red"), [([BROKEN], True), (["kept"], False)])
def test_the_closing_line_of_a_conformance_study_is_red_where_a_promise_is_broken(
    verdicts: list[str], is_red: bool
) -> None:
    assert bool(_coloured(closing_line(verdicts))) == is_red


def _headline(gains: dict[int, float], limits: dict[str, float], *, of_replicas: bool) -> str:
    """The line of an answer for four tenants about MPS, under which this many have these gains over one alone."""
    levels = {
        n: Level(n, "p99", Estimate(n / 10), Estimate(10 * gain, 10 * gain, 10 * gain), ALONE, gain=Estimate(gain))
        for n, gain in ({1: 1.0} | gains).items()
    }
    options = [
        Option("exclusive", {1: levels.pop(1)}, ALONE, 0, is_sharing=False, has_one_load=of_replicas),
        Option("mps", levels, ALONE, 1, has_one_load=of_replicas),
    ]
    return f"w: {answer_question('w', options, Demand(4, limits)).headline}"


@pytest.mark.parametrize(
    ("of_replicas", "gains", "limits", "coloured"),
    [
        (False, {4: 1.8}, {}, "take mps"),
        (False, {4: 1.01}, {}, "sharing brings nothing"),
        (False, {2: 1.01, 4: 1.8}, {"latency": 0.25}, "no sharing"),
        (True, {4: 1.8}, {}, "take 4 replicas: mps"),
        (True, {4: 1.01}, {}, "more replicas bring nothing"),
        (True, {2: 1.01, 4: 1.8}, {"latency": 0.25}, "no number of replicas"),
    ],
)
def test_each_kind_of_answer_is_coloured(
    of_replicas: bool, gains: dict[int, float], limits: dict[str, float], coloured: str
) -> None:
    shown = _coloured(_headline(gains, limits, of_replicas=of_replicas))
    assert [each.strip(" :") for each in shown] == [coloured]


def test_a_caution_is_coloured() -> None:
    level = Level(2, "p99", Estimate(0.1), None, ALONE)
    plan = Plan(Option("mps", {2: level}, Isolation(False, "documented", "all die"), 1), 1, 2, level, "")
    (hazard,) = hazard_reasons(plan)
    assert _coloured(hazard.text) == ["Caution"]


@pytest.mark.parametrize("status", [*get_args(Status), "excluded", "warned"])
def test_cells_that_failed_are_red_and_those_with_a_warning_are_not(status: str, tmp_path: Path) -> None:
    cell = {"strategy": "mps", "workload": "w", "replicas": 2, "repeat": 1}
    row = {
        "status": "ok" if status in ("excluded", "warned") else status,
        "valid": status in ("ok", "warned"),
        "reason": "why",
        "warnings": "drift" if status == "warned" else "",
    }
    pd.DataFrame([cell | row]).to_csv(tmp_path / "cells.csv", index=False)
    gate = {"gate": "drift", "severity": "warning", "outcome": "failed"}
    pd.DataFrame([cell | gate]).to_csv(tmp_path / "gates.csv", index=False)
    line = "\n".join(ending_lines(tmp_path, tmp_path / "report.html")[:1])
    usual = {"ok": [], "infeasible": [], "not-measured": [], "warned": ["1 of 1 cells with a warning"]}
    assert _coloured(line) == usual.get(status, [f"1 of 1 cells {status}"])
    assert ("\x1b[1;31m" in _shown(line)) == (status not in usual)


def test_verdicts_on_promises_are_coloured(tmp_path: Path) -> None:
    usual = dict.fromkeys((*COLUMNS, "reason"), "x") | {"measured": 1}
    rows = [usual | {"verdict": verdict} for verdict in (KEPT, BROKEN, NOT_MEASURED)]
    pd.DataFrame(rows).to_csv(tmp_path / "conformance.csv", index=False)
    tested = read_promises(tmp_path)
    assert [each.strip() for each in _coloured(tested.table)] == [KEPT, BROKEN]
    assert _coloured("\n".join(tested.problems)) == ["broken:"]


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_no_color_and_a_dumb_terminal_get_plain_text(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "dumb")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", _shown(ANSWER))


def test_a_pipe_gets_the_text_alone(capsys: pytest.CaptureFixture[str]) -> None:
    emphasis.show(ANSWER)
    assert capsys.readouterr().out == ANSWER + "\n"
