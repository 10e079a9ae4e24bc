"""Two data sets: the ratio of every mean latency, with its interval."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from sharebench.model.spec import workload_label
from sharebench.read.figures.data import Row, table_rows
from sharebench.read.figures.looks import BLUE, bar_label
from sharebench.read.figures.page import Sheet, explain_blank, sheet
from sharebench.read.figures.panels import draw_ratio, interval_columns, set_ratio_axes
from sharebench.read.figures.style import GREY, SMALL_POINTS

METRIC = "latency_mean_seconds"
ROW_INCHES = 0.16
MIN_FACTOR = 1.05
"""The axis reaches at least this factor on either side of 1."""
SIGNIFICANCE = 0.05
UNSURE_COLOR = "#9a9a9a"


def draw(table: pd.DataFrame, before: str, after: str, devices: Sequence[str]) -> Sheet:
    """One panel per workload, one line per strategy and number of tenants: after over before, on a log scale."""
    means = table[table["metric"] == METRIC]
    panels = {
        workload_label(str(workload), str(tenant_workload)): {
            bar_label(row["strategy"], row["replicas"]): row for row in table_rows(rows)
        }
        for (workload, tenant_workload), rows in means.groupby(["workload", "tenant_workload"], sort=False)
    }
    page = sheet(
        f"{after} against {before}",
        [*dict.fromkeys(devices), "95 % intervals"],
        len(panels),
        "Right of 1: slower. Blue: p < 0.05 among all (Holm), and more than the baseline differs from itself.",
        x_label=f"Mean latency, {after} over {before}",
        columns=2,
        panel_inches=ROW_INCHES * (max(map(len, panels.values())) + 1),
    )
    ends = means[interval_columns("ratio")].astype(float).map(math.log).abs()
    factor = max(MIN_FACTOR, math.exp(np.nan_to_num(ends.max().max()))) ** 1.1
    for ax, (title, rows) in zip(page.axes, panels.items(), strict=True):
        ax.set_title(title)
        set_ratio_axes(ax, list(rows), 1 / factor, factor)
        _draw(page, ax, rows)
    return page


def _draw(page: Sheet, ax: Axes, rows: dict[str, Row]) -> None:
    if all(math.isnan(row["ratio"]) for row in rows.values()):
        explain_blank(page, ax, "no ratio: " + "; ".join(dict.fromkeys(str(row["reason"]) for row in rows.values())))
        return
    for y, (label, row) in enumerate(rows.items()):
        if math.isnan(row["ratio"]):
            ax.text(1, y, " no value", va="center", size=SMALL_POINTS, color=GREY)
            page.alt_text.append(f"{label}: {row['reason']}")
            continue
        is_sure = row["p_holm"] < SIGNIFICANCE and row["separable"] != "no"
        ends = [end for end in (row["ratio_low"], row["ratio_high"]) if not math.isnan(end)]
        draw_ratio(ax, y, row["ratio"], ends, BLUE if is_sure else UNSURE_COLOR)
        page.alt_text.append(f"{label}: ratio {row['ratio']:.3g}")
