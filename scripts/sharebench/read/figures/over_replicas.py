"""Metrics by number of tenants: one panel per workload and metric, one line per strategy."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import EngFormatter

from sharebench.read.figures.data import POINT_COLUMNS, DrawnStudy, absence_reason, table_rows
from sharebench.read.figures.looks import strategy_label
from sharebench.read.figures.page import PANEL_INCHES, Sheet, study_sheet
from sharebench.read.figures.panels import (
    MAX_BAR_RATIO,
    REFERENCE_LINE,
    STREAM_PARTS,
    Quantity,
    draw_line,
    interval_columns,
    label_point,
    percentile_keys,
    percentiles,
    set_time_axis,
    slo_keys,
    strategy_keys,
)
from sharebench.read.figures.style import GREY, set_log_axis

TOTAL = "throughput_total_hz"
MAKESPAN = "makespan_seconds"
ACTIVITY = {
    "sm_active_percent": "SMs active",
    "sm_occupancy_percent": "occupancy",
    "dram_active_percent": "DRAM traffic",
}
MAX_LINEAR_RATIO = 20
"""Makespans further apart than this factor are drawn on a log scale, so that small ones differ visibly."""
WIDE_RATIO = 16
"""The axis is logarithmic beyond this ratio of the largest to the smallest number of tenants."""
MISSING_LINE_POINTS = 8
"""Height of the text line below the axis for a strategy with missing values."""

SloOf = Callable[[str], Mapping[str, float]]
"""The limits in ms of a workload by part."""
Place = Callable[[float], float]
"""The position of a number of tenants on the axis."""


@dataclass(frozen=True)
class PanelMetric:
    """A metric of a workload in a panel, perhaps with a thin line of its p99; missing values of it are named."""

    quantity: Quantity
    set_axis: Callable[[Axes, pd.DataFrame, Place], None]
    """Sets the axis up, and draws what belongs to no strategy."""
    title: str = ""
    """Follows the workload in the title, where a workload has several panels."""
    tail: Quantity | None = None


def latency(study: DrawnStudy) -> Sheet:
    """p50 with its interval, p99 as a thin line where it exists; log scale."""
    shown = [_percentile_metric("latency", most_of_bars=math.inf)]
    return _draw_panels(study, "latency", "Latency (ms)", shown, percentile_keys(study.plain_summary(), ["latency"]))


def serving(study: DrawnStudy) -> Sheet:
    """TTFT and TPOT of streams, each like `latency`, with its SLO."""
    shown = [_percentile_metric(part, title, study.slo_ms) for part, title in STREAM_PARTS.items()]
    table = study.plain_summary()
    table = table[table["workload"].map(study.is_stream).astype(bool)]
    legend = [*percentile_keys(table, STREAM_PARTS), *slo_keys(study, study.workloads(table), STREAM_PARTS)]
    return _draw_panels(study, "serving", "Time (ms)", shown, legend, table=table, columns=2)


def utilisation(study: DrawnStudy) -> Sheet:
    def set_axis(ax: Axes, rows: pd.DataFrame, place: Place) -> None:
        ax.set_ylim(0, 105)

    known = study.plain_summary().columns
    shown = [PanelMetric(Quantity(name, "{} %"), set_axis, title) for name, title in ACTIVITY.items() if name in known]
    return _draw_panels(study, "utilisation", "Share (%)", shown, nothing="the device does not count its activity")


def _percentile_metric(
    stem: str, title: str = "", slo_ms: SloOf = lambda _: {}, most_of_bars: float = MAX_BAR_RATIO
) -> PanelMetric:
    def set_axis(ax: Axes, rows: pd.DataFrame, place: Place) -> None:
        set_time_axis(ax, rows, stem, slo_ms(rows["workload"].iloc[0]).get(stem), most_of_bars)

    p50, p99 = percentiles(stem)
    return PanelMetric(p50, set_axis, title, p99)


def throughput(study: DrawnStudy) -> Sheet:
    """Iterations per second of all tenants with their interval; the ideal line."""

    def set_axis(ax: Axes, rows: pd.DataFrame, place: Place) -> None:
        # The ideal line may leave the panel; the scale fits the data.
        top = 1.15 * float(rows[[TOTAL, f"{TOTAL}_high"]].max().max())
        _draw_ideal(ax, rows, place, TOTAL)
        ax.set_ylim(0, top)
        if top >= 1e5:
            ax.yaxis.set_major_formatter(EngFormatter())

    ideal = Line2D([], [], label="ideal: N devices", **REFERENCE_LINE)
    shown = [PanelMetric(Quantity(TOTAL, "{} iterations/s"), set_axis)]
    return _draw_panels(study, "throughput", "Total throughput (iterations/s)", shown, [ideal])


def jobs(study: DrawnStudy) -> Sheet:
    """Seconds until the last job is done, with their interval; a queue is one of the lines."""
    catalogue = study.config["strategy_catalogue"]
    queues = {name for name, entry in catalogue.items() if entry.is_queue}

    def set_axis(ax: Axes, rows: pd.DataFrame, place: Place) -> None:
        if queues.isdisjoint(rows.loc[rows[MAKESPAN].notna(), "strategy"]):
            _draw_ideal(ax, rows, place, MAKESPAN)
        shown = rows[interval_columns(MAKESPAN)]
        low, high = float(shown.min().min()), float(shown.max().max())
        if high > MAX_LINEAR_RATIO * low:
            set_log_axis(ax, "y", low / 1.25, high * 1.25)
        else:
            ax.set_ylim(0, 1.08 * high)

    shown, table = [PanelMetric(Quantity(MAKESPAN, "{} s"), set_axis)], study.table("jobs")
    return _draw_panels(study, "jobs", "Makespan (s)", shown, table=table, facts=study.job_facts, note=study.not_shown)


def _draw_ideal(ax: Axes, rows: pd.DataFrame, place: Place, metric: str) -> None:
    """Draw N times the metric of one exclusive tenant, where that was measured."""
    alone = rows.loc[(rows["strategy"] == "exclusive") & (rows["replicas"] == 1), metric].dropna()
    if len(alone) and rows["replicas"].max() > 1:
        n = np.geomspace(1, float(rows["replicas"].max()), 200)
        ax.plot(list(map(place, n)), n * float(alone.iloc[0]), **REFERENCE_LINE)


def _draw_panels(
    study: DrawnStudy,
    name: str,
    y_label: str,
    shown: Sequence[PanelMetric],
    legend: Sequence[Line2D] = (),
    *,
    table: pd.DataFrame | None = None,
    facts: Sequence[str] | None = None,
    note: str | None = None,
    nothing: str = "the summary has no rows",
    columns: int = 3,
) -> Sheet:
    """A panel per workload of `table` (the summary) and metric; missing values are named below it with a reason."""
    table = study.plain_summary() if table is None else table
    looks = study.looks(table)
    panels = {
        "\n".join(filter(None, [workload, each.title])): (rows, each, _missing_values(study, rows, each))
        for workload, rows in study.drawn_by_workload(table).items()
        for each in shown
    }
    lines = max((len(missing) for *_, missing in panels.values()), default=0)
    page = study_sheet(
        study,
        name,
        len(panels),
        nothing,
        facts=facts,
        note=study.panel_omissions if note is None else note,
        x_label="Number of tenants",
        y_label=y_label,
        legend=[*strategy_keys(looks), *legend],
        columns=columns,
        panel_inches=PANEL_INCHES + MISSING_LINE_POINTS / 72 * lines,
    )
    for ax, (title, (rows, each, missing)) in zip(page.axes, panels.items(), strict=False):
        ax.set_title(title)
        place = _set_tenant_axis(ax, rows)
        drawn = study.strategies(rows[rows[each.quantity.column].notna()])
        for i, strategy in enumerate(drawn):
            own = rows[rows["strategy"] == strategy].sort_values("replicas")
            shift = (i - (len(drawn) - 1) / 2) * min(0.06, 0.25 / len(drawn))
            x = [place(n) + shift for n in own["replicas"]]
            draw_line(ax, own, looks[strategy], x, each.quantity, tail=each.tail)
        if drawn:
            each.set_axis(ax, rows, place)
        else:
            ax.set_yticks([])
            ax.text(0.5, 0.5, "no valid measurement", ha="center", color=GREY, transform=ax.transAxes)
        ax.tick_params(axis="x", pad=2 + MISSING_LINE_POINTS * lines)
        for line, (name, reasons) in enumerate(missing.items()):
            text = "; ".join(f"{reason} at {', '.join(map(str, numbers))}" for reason, numbers in reasons.items())
            below = (0, -4 - MISSING_LINE_POINTS * line)
            label_point(ax, f"{strategy_label(name)}: {text}", (0, 0), below, xycoords="axes fraction", va="top")
            in_line = title.replace("\n", ", ")
            page.alt_text.extend(
                f"{in_line}: {name} at {n} tenants is {reason}" for reason, numbers in reasons.items() for n in numbers
            )
    return page


def _missing_values(study: DrawnStudy, rows: pd.DataFrame, of: PanelMetric) -> dict[str, dict[str, list[int]]]:
    """Strategy → reason why the metric has no value → the numbers of tenants."""
    missing: dict[str, dict[str, list[int]]] = {}
    blank = rows.loc[rows[of.quantity.column].isna(), [*POINT_COLUMNS]].sort_values("replicas")
    for strategy, own in study.by_strategy(blank).items():
        for row in table_rows(own):
            missing.setdefault(strategy, {}).setdefault(absence_reason(row), []).append(int(row["replicas"]))
    return missing


def _set_tenant_axis(ax: Axes, rows: pd.DataFrame) -> Place:
    """Set up the axis of tenants and return the position of a number; neighbours are at least 1 apart."""
    replicas = sorted(set(rows["replicas"]))
    scale: Place = math.log2 if replicas[-1] / replicas[0] > WIDE_RATIO else float
    gap = min((scale(b) - scale(a) for a, b in pairwise(replicas)), default=1.0)

    def place(n: float) -> float:
        return scale(n) / gap

    ticks = [place(n) for n in replicas]
    room = max(0.4, 0.06 * (ticks[-1] - ticks[0]))
    ax.set_xlim(ticks[0] - room, ticks[-1] + room)
    labels, last = [], -math.inf
    for n, tick in zip(replicas, ticks, strict=True):
        is_clear = tick - last >= 0.05 * (ticks[-1] - ticks[0])
        labels.append(str(n) if is_clear else "")
        last = tick if is_clear else last
    ax.set_xticks(ticks, labels)
    ax.grid(visible=False, axis="x")
    return place
