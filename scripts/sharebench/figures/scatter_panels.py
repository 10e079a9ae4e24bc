"""Two metrics against each other: one panel per workload, a line per strategy through its numbers of tenants."""

import math
from collections.abc import Callable

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from sharebench.figures.data import OF_ROW, DrawnStudy, absences
from sharebench.figures.page import Sheet, say, study_sheet
from sharebench.figures.panels import DASHED, ends_of, intervals, label_point, legend_of
from sharebench.figures.style import GREY, Look, log_axis, looks

TOTAL, POWER = "throughput_total_hz", "power_mean_watts"
STP, ANTT = "stp", "antt"
DOLLARS = "dollars_per_million_iterations"
PERCENTILES = ("p99", "p95", "p50", "mean")


def power(study: DrawnStudy) -> Sheet:
    """Total throughput across, mean power up."""

    def axes(ax: Axes, rows: pd.DataFrame) -> None:
        ax.set_xlim(0, 1.12 * rows[TOTAL].max())
        ax.set_ylim(0, 1.12 * rows[POWER].max())
        if ax.get_xlim()[1] >= 1e4:
            ax.xaxis.set_major_formatter(EngFormatter())

    labels = ("Total throughput (iterations/s)", "Power of the device (W)")
    return _planes(study, "power", (TOTAL, POWER), labels, axes)


def progress(study: DrawnStudy) -> Sheet:
    """System throughput across, mean slowdown up (Eyerman & Eeckhout, IEEE Micro 2008)."""

    def axes(ax: Axes, rows: pd.DataFrame) -> None:
        low, high = rows[ANTT].min(), rows[ANTT].max()
        log_axis(ax, "y", low / 1.2, high * 1.25)
        ax.set_xlim(0, 1.15 * rows[STP].max())
        ax.axvline(1, **DASHED)

    labels = ("System throughput (STP)", "Mean slowdown (ANTT)")
    return _planes(study, "progress", (STP, ANTT), labels, axes)


def _planes(
    study: DrawnStudy,
    name: str,
    metrics: tuple[str, str],
    labels: tuple[str, str],
    finish: Callable[[Axes, pd.DataFrame], None],
) -> Sheet:
    """`metrics` (across, up) with their intervals, the number of tenants at the end of a line; `finish` ends a panel.

    A line stops where a number of tenants has no value, which `words` of the page says.
    """
    table = study.plain_summary().sort_values("replicas", kind="stable")
    table = table.reindex(columns=[*OF_ROW, *(column for metric in metrics for column in ends_of(metric))])
    names, panels = study.strategies(table), study.by_workload(table)
    style = looks(study.catalogue, names)
    page = study_sheet(
        study,
        name,
        len(panels),
        "the summary has no rows",
        more=["at the end of each line: number of tenants"],
        x_label=labels[0],
        y_label=labels[1],
        legend=legend_of(style, names),
    )
    for ax, (workload, rows) in zip(page.axes, panels.items(), strict=False):
        has_both = rows[list(metrics)].notna().all(axis="columns")
        page.words.extend(absences(rows, metrics))
        if not has_both.any():
            say(page, ax, f"{workload}: no valid measurement")
            continue
        ax.set_title(workload)
        for strategy in names:
            own = rows[rows["strategy"] == strategy]
            across, up = (own[metric].where(has_both) for metric in metrics)
            xerr, yerr = (intervals(own, metric) for metric in metrics)
            look = {"capsize": 1.2, "capthick": 0.6, "elinewidth": 0.6, **style[strategy].line}
            ax.errorbar(across, up, xerr=xerr, yerr=yerr, **look)
            ends = own[has_both.loc[own.index]].tail(1)
            for n, x, y in ends[["replicas", *metrics]].itertuples(index=False):
                label_point(ax, f"{n}", (x, y), (4, 2))
        finish(ax, rows[has_both])
    return page


def cost(study: DrawnStudy) -> Sheet:
    """What an iteration costs against the latency that comes with it: the choice that an SLO leaves."""
    on = ["strategy", "workload", "replicas"]
    table = study.table("cost").merge(study.table("summary"), on=on, suffixes=("", "_of_summary"))
    names, panels = study.strategies(table), study.by_workload(table)
    style = looks(study.catalogue, names)
    is_priced = bool(table[DOLLARS].notna().any())
    slo_ms = next(map(float, table["slo_ms"].dropna()), None)
    legend = legend_of(style, names)
    if slo_ms is not None:
        legend.append(Line2D([], [], color=GREY, lw=0.8, label=f"SLO, {slo_ms:g} ms"))
    page = study_sheet(
        study,
        "cost",
        len(panels),
        "no valid measurement",
        more=[f"${table['price_per_hour'].iloc[0]:g} per device and hour"] if is_priced else [],
        x_label="Latency (ms)",
        y_label="$ per million iterations" if is_priced else "Device time of an iteration, 1: exclusive",
        legend=legend,
        columns=2,
        panel_inches=2.4,
        left_inches=0.42,
    )
    for ax, (workload, rows) in zip(page.axes, panels.items(), strict=False):
        percentile = next((p for p in PERCENTILES if rows[f"latency_{p}_seconds"].notna().all()), PERCENTILES[-1])
        ax.set_title(f"{workload}, {percentile}")
        _costs(ax, _cost_points(rows, percentile, is_priced), slo_ms, style)
    return page


def _cost_points(rows: pd.DataFrame, percentile: str, is_priced: bool) -> pd.DataFrame:
    """Strategy, replicas, latency in ms and cost; without a price that of an iteration relative to exclusive."""
    total_hz = rows["throughput_total_hz"]
    alone_hz = total_hz[(rows["strategy"] == "exclusive") & (rows["replicas"] == 1)]
    cost = rows[DOLLARS] if is_priced else float([*alone_hz, total_hz.iloc[0]][0]) / total_hz
    latency_ms = 1e3 * rows[f"latency_{percentile}_seconds"]
    return rows[["strategy", "replicas"]].assign(latency_ms=latency_ms, cost=cost).dropna()


def _costs(ax: Axes, points: pd.DataFrame, slo_ms: float | None, style: dict[str, Look]) -> None:
    for name, own in points.groupby("strategy", sort=False):
        own = own.sort_values("replicas")
        look, end = style[str(name)], own.iloc[-1]
        ax.plot(own["latency_ms"], own["cost"], **look.line)
        label_point(ax, f"{end['replicas']:.0f}", (end["latency_ms"], end["cost"]), (4, 3), color=look.color)
    low, high = points["latency_ms"].min(), points["latency_ms"].max()
    if slo_ms is not None and not math.isnan(low):
        low, high = min(low, slo_ms), max(high, slo_ms)
        ax.axvline(slo_ms, color=GREY, lw=0.8)
    log_axis(ax, "x", low / 1.2, high * 1.25)
    log_axis(ax, "y", points["cost"].min() / 1.15, points["cost"].max() * 1.15)
