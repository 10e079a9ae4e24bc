"""The blocks of a conformance study: promises by strategies, and the map of wrong answers."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest

from publication import promises
from publication.numbers import DataSet, MissingNumber

ROWS = [
    ("fair", "mps-limited", 1.0, "kept"),
    ("fair", "mps", 1.25, "not promised"),
    ("answers", "mps-limited", 369.0, "broken"),
    ("answers", "mps", None, "not measured"),
    ("fault killed", "mps", 1.0, "not promised"),
]


def study(table: pd.DataFrame, shares: dict[int, Any]) -> Any:
    own = SimpleNamespace(table=lambda _: table, answers_by_percent=lambda: shares)
    return {"gpu/core": SimpleNamespace(), "gpu/conformance": own}


def test_a_promise_has_its_number_and_the_verdict_where_it_is_made() -> None:
    table = pd.DataFrame(ROWS, columns=["promise", "strategy", "measured", "verdict"])
    lines = promises.promises_table(study(table, {})).splitlines()
    assert lines[0] == "| promise | `mps-limited` | `mps` |"
    assert lines[2:] == [
        "| fair shares (ratio) | 1, kept | 1.25 |",
        "| right answers (wrong results) | **369, broken** |  |",
        "| faults are contained, killed (harmed neighbours) |  | 1 |",
    ]


@pytest.mark.parametrize("block", [promises.promises_table, promises.answers_table])
def test_without_a_conformance_study_a_block_says_so(block: Any) -> None:
    assert block({"gpu/core": SimpleNamespace()}) == "Nothing is published here yet."


def test_the_map_has_a_line_for_each_share() -> None:
    shares = {33: {"sm_count": 42, "wrong": [{}] * 3}, 50: {"sm_count": 66, "wrong": []}}
    lines = promises.answers_table(study(pd.DataFrame(), shares)).splitlines()
    assert lines[2:] == ["| 33 | 42 | 3 |", "| 50 | 66 | 0 |"]


def test_the_plugins_shares_are_told_apart_by_what_was_wrong_under_them(tmp_path: Path) -> None:
    data = object.__new__(DataSet)
    data.name, data.__dict__["unpacked"] = "gpu/conformance", tmp_path
    with pytest.raises(MissingNumber, match=r"has no nodes/answers\.json"):
        data.plugin_tenants(True)
    (tmp_path / "nodes").mkdir()
    shares = {str(100 // tenants): {"wrong": [{}] * (tenants == 3)} for tenants in range(1, 11)}
    (tmp_path / "nodes" / "answers.json").write_text(json.dumps({"percent": shares}))
    assert list(cast(Any, data).answers_by_percent()) == [10, 11, 12, 14, 16, 20, 25, 33, 50, 100]
    assert data.plugin_tenants(True) == [3] and data.plugin_tenants(False) == [2, 4, 5, 6, 7, 8, 9, 10]
