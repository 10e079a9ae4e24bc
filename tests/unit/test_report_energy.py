"""The report's section on power, energy and memory: there with a GPU's numbers, and only then."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
from unit.figures import fabricated

from sharebench.report import page as report


def page(root: Path, **columns: float | None) -> str:
    """The report's text after these columns of its one row of `mps` at two tenants with `matmul` were set."""
    path = root / "tables" / "summary.csv"
    summary = pd.read_csv(path)
    chosen = (summary["strategy"] == "mps") & (summary["workload"] == "matmul") & (summary["replicas"] == 2)
    assert chosen.sum() == 1
    for column, value in columns.items():
        summary.loc[chosen, column] = value
    summary.to_csv(path, index=False)
    report.write(root, root)
    return (root / "report.html").read_text(encoding="utf-8")


def test_without_a_gpu_there_is_no_such_section(tmp_path: Path) -> None:
    html = page(fabricated.write(tmp_path / "results"))
    assert "Power, energy and memory" not in html and "#energy" not in html


def test_with_one_it_has_the_rows_that_know_something(tmp_path: Path) -> None:
    html = page(
        fabricated.write(tmp_path / "results", label=""),
        power_mean_watts=312.4,
        energy_per_iteration_joules=1.5,
        energy_per_iteration_joules_low=1.4,
        energy_per_iteration_joules_high=1.6,
        tenants_that_fit=116,
    )
    assert '<a href="#energy">' in html
    section = html.split('<section id="energy">')[1].split("</section>")[0]
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", section))
    assert "Power, energy and memory of matmul" in text and "hashing" not in text
    # No interval of the power, none above idle known.
    assert "mps 2 312 1.50 1.40 – 1.60 – 64.0 116" in text
    assert section.count("<tr>") == 2


def test_how_many_fit_may_be_unknown(tmp_path: Path) -> None:
    html = page(fabricated.write(tmp_path / "results", label=""), power_mean_watts=312.4)
    assert re.search(r"64\.0</td>\s*<td class=\"number\"><span class=\"blank\">–</span></td></tr>", html)
