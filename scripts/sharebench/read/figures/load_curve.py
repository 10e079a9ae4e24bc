"""Sweeps of the load: total rate across, times up, a panel for each number of tenants."""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes

from sharebench.model.study_config import sweeps_by_entry
from sharebench.read.figures.data import POINT_COLUMNS, DrawnStudy, absences, load_label
from sharebench.read.figures.looks import StrategyLook
from sharebench.read.figures.page import Sheet, explain_blank, study_sheet
from sharebench.read.figures.panels import (
    STREAM_PARTS,
    THIN_BARS,
    Quantity,
    draw_line,
    interval_columns,
    label_point,
    percentile_columns,
    percentile_keys,
    percentiles,
    set_rate_axis,
    set_time_axis,
    slo_keys,
    strategy_keys,
)

REQUEST_PARTS = {"latency": "latency"}
MAX_COLUMNS = 4


class LoadPanel(NamedTuple):
    """A part of a request at one number of tenants: its rows, and all rows of the sweep for the axes."""

    title: str
    part: str
    rows: pd.DataFrame
    of_sweep: pd.DataFrame


def load_curve(study: DrawnStudy) -> Sheet:
    """A row of panels for each sweep and part of a request, with a line per strategy and the load at each point."""
    swept = sweeps_by_entry(study.config)
    values = {name: value for sweep in swept.values() for name, value in sweep.values.items()}
    streams = all(map(study.is_stream, values))
    total, parts = ("output_tokens_total_hz", STREAM_PARTS) if streams else ("throughput_total_hz", REQUEST_PARTS)
    table = study.plain_summary()
    table = table[table["workload"].isin(values)]
    times = (column for part in parts for column in percentile_columns(part))
    table = table.reindex(columns=[*POINT_COLUMNS, *interval_columns(total), *times]).assign(
        value=table["workload"].map(values)
    )
    table = table.sort_values("value", kind="stable")
    is_alone = (table["strategy"] == study.config["baseline"]) & (table["replicas"] == 1)
    panels = [
        LoadPanel(f"{name}\n{title}, N = {n}", part, own[is_alone.loc[own.index] | (own["replicas"] == n)], own)
        for name, sweep in swept.items()
        for own in [table[table["workload"].isin(sweep.values)]]
        for part, title in parts.items()
        for n in sorted(set(own["replicas"]))
    ]
    named = study.drawn_by_workload(table).keys()
    points = "some points" if study.undrawn_note else "each point"
    looks = study.looks(table)
    page = study_sheet(
        study,
        "load-curve",
        len(panels),
        "the summary has no rows",
        more=[f"at {points}: {' or '.join(dict.fromkeys(load_label(sweep) for sweep in swept.values()))}"],
        x_label="Output tokens/s of all tenants" if streams else "Requests/s of all tenants",
        y_label="Time (ms)",
        legend=[
            *strategy_keys(looks),
            *percentile_keys(table, parts),
            *slo_keys(study, study.workloads(table), parts),
        ],
        columns=min(MAX_COLUMNS, table["replicas"].nunique()) or 1,
    )
    for ax, panel in zip(page.axes, panels, strict=False):
        metrics = [total, f"{panel.part}_p50_seconds"]
        page.alt_text.extend(absences(panel.rows, metrics))
        if panel.of_sweep[metrics].isna().any(axis="columns").all():
            explain_blank(page, ax, f"{panel.title}: no valid measurement".replace("\n", ", "))
            continue
        ax.set_title(panel.title)
        slo_ms = study.slo_ms(panel.of_sweep["workload"].iloc[0])
        set_time_axis(ax, panel.of_sweep, panel.part, slo_ms.get(panel.part))
        set_rate_axis(ax, panel.of_sweep[total])
        _draw(ax, panel, total, looks, named)
    page.alt_text[:] = dict.fromkeys(page.alt_text)
    return page


def _draw(ax: Axes, panel: LoadPanel, total: str, looks: Mapping[str, StrategyLook], named: Collection[str]) -> None:
    """Draw a line for each strategy, and the load at the points of the workloads `named`."""
    p50, p99 = percentiles(panel.part)
    said = [Quantity("value", "load {}"), Quantity(total, "{}/s")]
    labels: set[tuple[float, int, int]] = set()
    for name, rows in panel.rows.groupby("strategy", sort=False):
        across = rows[total].where(rows[p50.column].notna())
        draw_line(ax, rows, looks[str(name)], across, p50, tail=p99, across=total, said=said, bars=THIN_BARS)
        for value, workload, x, y in zip(rows["value"], rows["workload"], across, 1e3 * rows[p50.column], strict=True):
            if workload not in named or math.isnan(x) or math.isnan(y):
                continue
            # Points that lie close together share a label.
            place = (value, round(12 * x / ax.get_xlim()[1]), round(15 * math.log10(y)))
            if place not in labels:
                label_point(ax, f"{value:g}", (x, y), (3, -8))
                labels.add(place)
