"""Tests for colours on a terminal."""

import io
import re

import pytest

from sharebench.core import emphasis
from sharebench.core.console import ESCAPES
from sharebench.model.promises import BROKEN, closing_line

ANSWER = """\
yolos-graph: take mps on 1 GPU instead of 7: mean latency 36.5 ms
bert: sharing brings nothing; take a GPU each, or a queue: exclusive
Caution: a tenant that faults may end the others
answers    mps-limited  3  0.4  max  0.1  broken
share      mps          3  1.0  max  1.1  kept
3 of 8 cells crashed: bert, mps × 3: the tenant ended
2 of 8 cells carry a warning: drift 2; see results/report.html
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
        "2 of 8 cells carry a warning",
        "could not be restored",
        "sharebench restore --config node=cpu",
    ]


@pytest.mark.parametrize(("verdicts", "is_red"), [([BROKEN], True), (["kept"], False)])
def test_the_closing_line_of_a_conformance_study_is_red_where_a_promise_is_broken(
    verdicts: list[str], is_red: bool
) -> None:
    assert bool(_coloured(closing_line(verdicts))) == is_red


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_no_color_and_a_dumb_terminal_get_plain_text(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "dumb")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]", _shown(ANSWER))


def test_a_pipe_gets_the_text_alone(capsys: pytest.CaptureFixture[str]) -> None:
    emphasis.show(ANSWER)
    assert capsys.readouterr().out == ANSWER + "\n"
