"""A config that cannot be used: one line, exit 1, and nothing is written."""

from __future__ import annotations

import pytest
from pipeline.harness import Checkout

CASES = {
    "an unknown key": ["strategis=[mps]"],
    "an impossible strategy": ["strategies=[mps-limited]", "node=cpu", "workloads=matmul", "window_seconds=1"],
    "a word for a number": ["repeats=two"],
    "a folder that is none": ["from=no/such/folder"],
}


@pytest.mark.parametrize("config", CASES.values(), ids=CASES)
def test_one_line_and_nothing_written(untouched: Checkout, config: list[str]) -> None:
    before = untouched.files()
    result = untouched.run(config=config)
    assert result.code == 1
    [profile, line] = result.out.splitlines()
    assert profile.startswith("Using workflow specific profile ")
    assert line.startswith("config: ")
    assert untouched.files() == before
