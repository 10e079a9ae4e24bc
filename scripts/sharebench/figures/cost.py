"""What an iteration costs against the latency that comes with it: the choice that an SLO leaves."""

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.figures import data
from sharebench.figures.catalogue import ENTRIES
from sharebench.figures.page import Sheet, say, sheet
from sharebench.figures.style import GREY, SMALL_POINTS, Look, log_axis, looks

DOLLARS = "dollars_per_million_iterations"
PERCENTILES = ("p99", "p95", "p50", "mean")


def draw(study: data.DrawnStudy) -> Sheet:
    """One panel per workload: a line per strategy through its numbers of tenants, latency to cost."""
    costs = data.table(study, "cost", ("strategy", "workload"))
    table = costs.merge(data.summary(study), on=["strategy", "workload", "replicas"], suffixes=("", "_of_summary"))
    names, workloads = study.strategies(table), study.workloads(table)
    style = looks(study.catalogue, names)
    is_priced = bool(table[DOLLARS].notna().any())
    slo_ms = table["slo_ms"].dropna()
    legend = [Line2D([], [], label=name, **style[name].line) for name in names]
    if len(slo_ms):
        legend.append(Line2D([], [], color=GREY, lw=0.8, label=f"SLO, {slo_ms.iloc[0]:g} ms"))
    page = sheet(
        ENTRIES["cost"].title,
        [*study.facts, *([f"${table['price_per_hour'].iloc[0]:g} per device and hour"] if is_priced else [])],
        max(len(workloads), 1),
        x_label="Latency (ms)",
        y_label="$ per million iterations" if is_priced else "Device time of an iteration, 1: exclusive",
        legend=legend,
        note=study.left_out,
        columns=2,
        panel_inches=2.4,
        left_inches=0.42,
    )
    if not workloads:
        say(page, page.axes[0], "Nothing to draw: no valid measurement.")
    for ax, workload in zip(page.axes, workloads, strict=False):
        rows = table[table["workload"] == workload]
        percentile = next((p for p in PERCENTILES if rows[f"latency_{p}_seconds"].notna().all()), PERCENTILES[-1])
        ax.set_title(f"{workload}, {percentile}")
        slo = float(slo_ms.iloc[0]) if len(slo_ms) else None
        _panel(ax, _points(rows, percentile, is_priced), slo, style)
    return page


def _points(rows: pd.DataFrame, percentile: str, is_priced: bool) -> pd.DataFrame:
    """Strategy, replicas, latency in ms and cost; without a price that of an iteration relative to exclusive."""
    alone = rows.loc[(rows["strategy"] == "exclusive") & (rows["replicas"] == 1), "throughput_total_hz"]
    hz = float(alone.iloc[0]) if len(alone) else float(rows["throughput_total_hz"].iloc[0])
    cost = rows[DOLLARS] if is_priced else hz / rows["throughput_total_hz"]
    latency_ms = 1e3 * rows[f"latency_{percentile}_seconds"]
    return rows[["strategy", "replicas"]].assign(latency_ms=latency_ms, cost=cost).dropna()


def _panel(ax: Axes, points: pd.DataFrame, slo_ms: float | None, style: dict[str, Look]) -> None:
    for name, own in points.groupby("strategy", sort=False):
        own = own.sort_values("replicas")
        ax.plot(own["latency_ms"], own["cost"], **style[str(name)].line)
        end = own.iloc[-1]
        ax.annotate(
            f"{end['replicas']:.0f}",
            (end["latency_ms"], end["cost"]),
            xytext=(4, 3),
            textcoords="offset points",
            size=SMALL_POINTS,
            color=style[str(name)].color,
        )
    low, high = points["latency_ms"].min(), points["latency_ms"].max()
    if slo_ms is not None and not math.isnan(low):
        low, high = min(low, slo_ms), max(high, slo_ms)
        ax.axvline(slo_ms, color=GREY, lw=0.8)
    log_axis(ax, "x", low / 1.2, high * 1.25)
    log_axis(ax, "y", points["cost"].min() / 1.15, points["cost"].max() * 1.15)
