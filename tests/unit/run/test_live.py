"""The line of a cell while it is measured."""

import io

import pytest

from sharebench.cell.cell import PHASES
from sharebench.run import live


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """What was written over the line, one after the other."""
        return self.getvalue().split(live.CLEAR)[1:]


class Clock:
    """Seconds that pass when a test says so."""

    seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock; the line is not refreshed by itself, and has room."""
    monkeypatch.setattr(live, "REFRESH_SECONDS", 3600.0)
    monkeypatch.setenv("COLUMNS", "100")
    return Clock()


def test_a_terminal_shows_phase_and_time_left(clock: Clock) -> None:
    terminal = Terminal()
    with live.shown("cell 1 of 2: mps × 2, matmul, repeat 1", 40.0, terminal, clock):
        clock.seconds += 5
        PHASES.info("warming up")
        clock.seconds += 50
        PHASES.info("window of 10 s")
    assert terminal.lines == [
        "cell 1 of 2: mps × 2, matmul, repeat 1 · about 40 s left",
        "cell 1 of 2: mps × 2, matmul, repeat 1 · warming up · about 35 s left",
        "cell 1 of 2: mps × 2, matmul, repeat 1 · window of 10 s · about 0 s left",
        "cell 1 of 2: mps × 2, matmul, repeat 1 · 55 s\n",
    ]
    PHASES.info("of another cell")
    assert len(terminal.lines) == 4, "it listens no more"


def test_a_failure_leaves_a_whole_line(clock: Clock) -> None:
    terminal = Terminal()
    with pytest.raises(OSError), live.shown("calibrating matmul", None, terminal, clock):
        PHASES.info("loading")
        raise OSError
    assert terminal.lines == ["calibrating matmul", "calibrating matmul · loading", "calibrating matmul · 0 s\n"]


def test_a_line_that_is_too_long_for_its_terminal_is_cut(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    terminal = Terminal()
    with live.shown("x" * 30, 1.0, terminal, clock):
        pass
    assert terminal.lines[0] == "x" * 19, "or the next would not be written over it"


def test_time_goes_on_between_two_phases(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "REFRESH_SECONDS", 0.001)
    terminal = Terminal()
    with live.shown("cell 1 of 1", 40.0, terminal, clock):
        clock.seconds += 30
        while "about 10 s left" not in terminal.getvalue():
            pass


def test_elsewhere_it_is_one_line_at_the_start() -> None:
    pipe = io.StringIO()
    with live.shown("cell 1 of 2", 200.0, pipe):
        assert pipe.getvalue() == "cell 1 of 2 · about 3 min 20 s left\n"
        PHASES.info("warming up")
    assert pipe.getvalue() == "cell 1 of 2 · about 3 min 20 s left\n"


@pytest.mark.parametrize(
    "seconds, text",
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min 00 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 00 min"),
        (7500, "2 h 05 min"),
    ],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert live.duration(seconds) == text
