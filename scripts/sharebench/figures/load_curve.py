"""What a sweep of the load does: total rate across, times up, a panel for each number of tenants."""

import math
from typing import Any, NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from sharebench.core.study_config import sweeps_by_entry
from sharebench.figures.data import OF_ROW, DrawnStudy, absences
from sharebench.figures.page import Sheet, say, study_sheet
from sharebench.figures.panels import (
    STREAMED,
    THIN,
    ends_of,
    intervals,
    label_point,
    legend_of,
    percentile_columns,
    percentile_keys,
    slo_keys,
    times_axis,
)
from sharebench.figures.style import Look, looks

WHOLE = {"latency": "latency"}
LOADS = {
    "concurrency": "requests in flight per tenant",
    "rate_hz": "requests/s per tenant",
    "rate_of_capacity": "load over the capacity of one tenant",
}
MOST_COLUMNS = 4


class Panel(NamedTuple):
    """A part of a request at one number of tenants: the rows that it shows, and all of the sweep, for its axes."""

    title: str
    part: str
    rows: pd.DataFrame
    of_sweep: pd.DataFrame


def load_curve(study: DrawnStudy) -> Sheet:
    """A row of panels for each sweep and part of a request, a line for each strategy, the values at its points."""
    found = sweeps_by_entry(study.config)
    in_sweeps = {name: value for sweep in found.values() for name, value in sweep.values.items()}
    streams = all(map(study.is_stream, in_sweeps))
    total, parts = ("output_tokens_total_hz", STREAMED) if streams else ("throughput_total_hz", WHOLE)
    table = study.plain_summary()
    table = table[table["workload"].isin(in_sweeps)]
    times = (column for part in parts for column in percentile_columns(part))
    table = table.reindex(columns=[*OF_ROW, *ends_of(total), *times]).assign(value=table["workload"].map(in_sweeps))
    table = table.sort_values("value", kind="stable")
    panels = [
        panel
        for name, sweep in found.items()
        for part, title in parts.items()
        for panel in _panels(study, f"{name}\n{title}", part, table[table["workload"].isin(sweep.values)])
    ]
    names, slo = study.strategies(table), study.slo_ms
    style = looks(study.catalogue, names)
    page = study_sheet(
        study,
        "load-curve",
        len(panels),
        "the summary has no rows",
        more=[f"at each point: {' or '.join(dict.fromkeys(LOADS[sweep.by] for sweep in found.values()))}"],
        x_label="Output tokens/s of all tenants" if streams else "Requests/s of all tenants",
        y_label="Time (ms)",
        legend=[*legend_of(style, names), *percentile_keys(), *slo_keys(slo, parts)],
        columns=min(MOST_COLUMNS, table["replicas"].nunique()) or 1,
    )
    for ax, panel in zip(page.axes, panels, strict=False):
        metrics = [total, f"{panel.part}_p50_seconds"]
        page.words.extend(absences(panel.rows, metrics))
        if panel.of_sweep[metrics].isna().any(axis="columns").all():
            say(page, ax, f"{panel.title}: no valid measurement".replace("\n", ", "))
            continue
        ax.set_title(panel.title)
        times_axis(ax, panel.of_sweep, panel.part, slo.get(panel.part))
        ax.set_xlim(0, 1.12 * panel.of_sweep[total].max())
        if ax.get_xlim()[1] >= 1e4:
            ax.xaxis.set_major_formatter(EngFormatter())
        _draw(ax, panel, total, style)
    page.words[:] = dict.fromkeys(page.words)
    return page


def _panels(study: DrawnStudy, title: str, part: str, rows: pd.DataFrame) -> list[Panel]:
    is_alone = (rows["strategy"] == study.config["baseline"]) & (rows["replicas"] == 1)
    return [
        Panel(f"{title}, N = {n}", part, rows[is_alone | (rows["replicas"] == n)], rows)
        for n in sorted(set(rows["replicas"]))
    ]


def _draw(ax: Axes, panel: Panel, total: str, style: dict[str, Look]) -> None:
    p50, p99 = f"{panel.part}_p50_seconds", f"{panel.part}_p99_seconds"
    labels: set[tuple[float, int, int]] = set()
    for name, rows in panel.rows.groupby("strategy", sort=False):
        look, ms = style[str(name)], 1e3 * rows[p50]
        across = rows[total].where(rows[p50].notna())
        ax.plot(across, 1e3 * rows[p99], **look.line | THIN)
        bars: dict[str, Any] = {"capsize": 1.2, "capthick": 0.6, "elinewidth": 0.6}
        yerr = [1e3 * side for side in intervals(rows, p50)]
        ax.errorbar(across, ms, xerr=intervals(rows, total), yerr=yerr, **bars, **look.line)
        for value, x, y in zip(rows["value"], across, ms, strict=True):
            if math.isnan(x) or math.isnan(y):
                continue
            # One label for points that lie together.
            place = (value, round(12 * x / ax.get_xlim()[1]), round(15 * math.log10(y)))
            if place not in labels:
                label_point(ax, f"{value:g}", (x, y), (3, -8))
                labels.add(place)
