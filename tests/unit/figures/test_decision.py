"""The figures of the decision show what its tables say."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.text import Text
from unit.figures import fabricated

from sharebench.figures import catalogue, data, grids, model, scatter_panels, style
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


def test_the_verdicts_keep_to_their_cells_in_one_column(study: data.DrawnStudy) -> None:
    with style.theme(catalogue.PAPER["column"]):
        page = grids.which(study)
        page.figure.draw_without_rendering()
        for ax in page.axes:
            cell = ax.patches[0].get_window_extent()
            assert all(text.get_window_extent().width <= cell.width for text in ax.texts)


def test_the_model_is_dashed_and_measurements_are_filled(study: data.DrawnStudy) -> None:
    ax = model.model(study).axes[0]
    own = rows(study, "predictions", "mps")
    own = own[own["replicas"] <= 4]
    measured = own[own["basis"] == "measured"]
    assert len(measured) == 3 and len(own) == 4, "three tenants are predicted"
    dashed, filled = lines(ax, "mps")
    assert dashed[0] == [1, 2, 3, 4] and dashed[1] == pytest.approx(1e3 * own["predicted_mean_seconds"])
    assert filled[0] == [1, 2, 4] and filled[1] == pytest.approx(1e3 * measured["measured_mean_seconds"])
    assert filled[2:] == (LOOKS["mps"].marker, LOOKS["mps"].color)
    band = next(each for each in ax.collections if len(each.get_paths()))
    assert np.isfinite(band.get_paths()[0].vertices).all()


def test_a_strategy_that_was_not_measured_is_hollow_and_says_so(study: data.DrawnStudy, tmp_path: Path) -> None:
    shutil.copytree(study.results / "tables", tmp_path / "tables")
    shutil.copy(study.results / "manifest.json", tmp_path)
    path = tmp_path / "tables" / "predictions.csv"
    table = pd.read_csv(path)
    is_mps = table["strategy"] == "mps"
    table.loc[is_mps, "basis"] = "predicted, not measured"
    table.loc[is_mps, [name for name in table if name.startswith("measured")]] = np.nan
    table.loc[(table["strategy"] == "mig") & (table["replicas"] == 2), "flagged"] = True
    table.to_csv(path, index=False)
    page = model.model(data.load(study.data, tmp_path))
    assert {"mps: predicted, not measured", "breaks the model"} <= set(said(page))
    assert "mps" not in said(page)
    assert lines(page.axes[0], "mps")[1][3] == "white"
    rings = [line for line in page.axes[0].get_lines() if line.get_markeredgecolor() == model.BREAKS]
    assert [list(line.get_xdata()) for line in rings if len(line.get_xdata())] == [[2]]


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


def test_every_verdict_and_rank_is_said(study: data.DrawnStudy) -> None:
    words = said(grids.which(study))
    table = pd.read_csv(study.results / "tables" / "which.csv")
    for verdict, count in table["verdict"].value_counts().items():
        assert words.count(str(verdict)) >= count
    one = table[table["value"].notna()].iloc[0]
    assert any(f"{one['value']:.2f} ×" in each and f"N = {one['replicas']:.0f} (m)" in each for each in words)
    assert {"performance isolation", "ease", "MPS with limits"} <= set(words)
