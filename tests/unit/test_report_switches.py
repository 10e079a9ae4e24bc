"""Times of switches in the report: where somebody waits for one, and nowhere else."""

from pathlib import Path

import pandas as pd
import pytest
from unit.figures import fabricated

from sharebench.report import page

PHASES = {"pending": 0.5, "cut": 5.25, "plugin": 3.0, "follow": 1.0, "stable": 2.0}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return fabricated.write(tmp_path / "results")


def section(root: Path) -> str | None:
    page.write(root, root)
    text = (root / "report.html").read_text(encoding="utf-8")
    assert ('href="#switches"' in text) == ('id="switches"' in text)
    return text.split('<section id="switches">')[1].split("</section>")[0] if 'id="switches"' in text else None


def set_times(root: Path, strategy: str, **seconds: float) -> None:
    path = root / "tables" / "startup.csv"
    table = pd.read_csv(path)
    for name, value in seconds.items():
        table.loc[table["strategy"] == strategy, f"switch_{name}_seconds"] = value
        table.loc[table["strategy"] == strategy, "switch_in_n"] = 2
    table.to_csv(path, index=False)


def test_where_nothing_takes_long_nothing_is_said(root: Path) -> None:
    assert section(root) is None
    set_times(root, "mps", **{"in": 0.05})
    assert section(root) is None


def test_each_strategy_has_its_steps_and_what_is_left_of_the_whole(root: Path) -> None:
    set_times(root, "mps", **PHASES, **{"in": 12.5, "out": 4.0})
    found = section(root)
    assert found is not None
    (row,) = [line for line in found.split("<tr>") if "</i>mps</th>" in line]
    cells = [cell.split("</td>")[0].removeprefix(">") for cell in row.split('class="number"')[1:]]
    dash = '<span class="blank">–</span>'
    assert cells == ["2", "12.5", dash, "0.5", "5.2", "3.0", "1.0", "2.0", "0.8", "4.0"]
    (other,) = [line for line in found.split("<tr>") if "</i>exclusive</th>" in line]
    assert other.count(dash) == 9
