"""The options of scripts, from the parameters of their `main`."""

import json
import sys
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


@pytest.mark.parametrize("given, code", [([], 2), (["--code", "three"], 2), (["--code", "3"], 3)])
def test_a_script_ends_with_what_main_returns_and_wrong_options_with_2(
    monkeypatch: pytest.MonkeyPatch, given: list[str], code: int
) -> None:
    def main(code: int) -> int:
        return code

    monkeypatch.setattr(sys, "argv", ["script", *given])
    with pytest.raises(SystemExit, match=rf"^{code}$"):
        console.script(main)
