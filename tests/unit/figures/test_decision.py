"""The figures of the decision show what its tables say."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text
from unit.figures import fabricated

from sharebench.figures import data, scatter_panels, style
from sharebench.figures.page import Sheet

LOOKS = style.looks(list(fabricated.MECHANISMS), [])


def said(page: Sheet) -> list[str]:
    return [text.get_text() for text in page.figure.findobj(Text)]


def lines(ax: Axes, strategy: str) -> list[tuple[list[float], list[float], str, str]]:
    """x, y, marker and face of every line of a strategy that has points."""
    return [
        (list(line.get_xdata()), list(line.get_ydata()), str(line.get_marker()), str(line.get_markerfacecolor()))
        for line in ax.get_lines()
        if line.get_color() == LOOKS[strategy].color and len(line.get_xdata())
    ]


def rows(study: data.DrawnStudy, name: str, strategy: str) -> pd.DataFrame:
    table = pd.read_csv(study.results / "tables" / f"{name}.csv")
    return table[(table["strategy"] == strategy) & (table["workload"] == "matmul")].sort_values("replicas")


def test_cost_is_drawn_over_latency_with_the_slo(study: data.DrawnStudy) -> None:
    page = scatter_panels.cost(study)
    ax = page.axes[0]
    costs, summary = rows(study, "cost", "mps"), rows(study, "summary", "mps")
    [(x, y, _, _)] = lines(ax, "mps")
    percentile = ax.get_title().split(", ")[1]
    assert x == pytest.approx(1e3 * summary[f"latency_{percentile}_seconds"])
    assert y == pytest.approx(costs["dollars_per_million_iterations"])
    assert ax.get_ylabel() == "$ per million iterations"
    assert "SLO, 20 ms" in said(page) and "$4 per device and hour" in " ".join(said(page))
    assert any(list(line.get_xdata()) == [20, 20] for line in ax.get_lines())


def test_without_a_price_cost_is_relative(study: data.DrawnStudy, tmp_path: Path) -> None:
    shutil.copytree(study.results / "tables", tmp_path / "tables")
    shutil.copy(study.results / "manifest.json", tmp_path)
    table = pd.read_csv(tmp_path / "tables" / "cost.csv")
    table[[name for name in table if "dollars" in name or name in ("price_per_hour", "slo_ms")]] = np.nan
    table.to_csv(tmp_path / "tables" / "cost.csv", index=False)
    ax = scatter_panels.cost(data.load(study.data, tmp_path)).axes[0]
    [(_, y, _, _)] = lines(ax, "exclusive")
    assert y == pytest.approx([1])
    assert ax.get_ylabel() == "Device time of an iteration, 1: exclusive"
