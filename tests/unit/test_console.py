"""The options of scripts, from the parameters of their `main`."""

import json
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import pytest

from sharebench.core import console


def test_each_parameter_is_an_option_of_its_type(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[object] = []

    def main(
        out: Path,
        names: list[str],
        config: Annotated[dict[str, Any], json.loads],
        made: Path | None = None,
        workers: int = 1,
    ) -> None:
        taken.extend([out, names, config, made, workers])

    given = ["--out", "a", "--names", "b", "c", "--config", '{"d": 1}']
    monkeypatch.setattr(sys, "argv", ["script", *given])
    console.script(main)
    monkeypatch.setattr(sys, "argv", ["script", *given, "--made", "e", "--workers", "2"])
    console.script(main)
    same = [Path("a"), ["b", "c"], {"d": 1}]
    assert taken == [*same, None, 1, *same, Path("e"), 2]


class Refused(Exception):
    pass


def test_results_are_opened_for_main_and_a_refusal_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(run: str, out: Path) -> None:
        raise Refused(f"{run} has no {out}")

    monkeypatch.setattr(sys, "argv", ["script", "--results", "here", "--out", "there"])
    with pytest.raises(SystemExit, match=r"^1$"):
        console.script(main, Refused, opening=lambda results: nullcontext(f"a run in {results}"))
    assert capsys.readouterr().out == "  a run in here has no there\n"


@pytest.mark.parametrize("given, code", [([], 2), (["--code", "three"], 2), (["--code", "3"], 3)])
def test_a_script_ends_with_what_main_returns_and_wrong_options_with_2(
    monkeypatch: pytest.MonkeyPatch, given: list[str], code: int
) -> None:
    def main(code: int) -> int:
        return code

    monkeypatch.setattr(sys, "argv", ["script", *given])
    with pytest.raises(SystemExit, match=rf"^{code}$"):
        console.script(main)
