"""What several servers of one model gain over one at equal total load, by how busy the device is with the one."""

from collections.abc import Mapping
from statistics import fmean
from typing import Any, cast

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.model.strategies import is_control
from sharebench.model.study_config import is_stream
from sharebench.read.figures.data import DrawnStudy, Row, absence_reason, table_rows
from sharebench.read.figures.looks import StrategyLook
from sharebench.read.figures.page import Sheet, explain_blank, study_sheet
from sharebench.read.figures.panels import (
    REFERENCE_LINE,
    THIN_BARS,
    Quantity,
    draw_line,
    error_bars,
    interval_columns,
    label_point,
    name_points,
    strategy_keys,
)
from sharebench.read.figures.style import GREY, set_log_axis
from sharebench.read.over_one import cell_groups, cells_alone, work_ratio
from sharebench.study.loads import family, one_server, requests_in_flight

GAIN, ACTIVITY = "gain", "sm_active_percent"
VALUES = [*interval_columns(GAIN), *interval_columns(ACTIVITY)]
COLUMNS = ["strategy", "workload", "replicas", "family", "load", *VALUES, "absence"]
MAX_COLUMNS = 3
ONE_LOOK: dict[str, Any] = {"color": GREY, "marker": "o", "ls": ""}
OPEN_NOTE = "Open loads are not drawn: all servers together get what is asked of one."


def replicas(study: DrawnStudy) -> Sheet:
    """A panel for each server and number of these, with a line per strategy through the server's loads.

    Where the device does not count its activity, the loads stand side by side.
    """
    table = _gains(study)
    panels, is_known = [*table.groupby(["family", "replicas"], sort=False)], bool(table[ACTIVITY].notna().any())
    if not is_known:
        table[ACTIVITY] = table.groupby("load").ngroup()
    looks, config = study.looks(table), study.config
    streams = (config["workload_catalogue"][name] for name in config["workloads"] if is_stream(config, name))
    is_open = any(entry.load.arrival != "closed" for entry in streams)
    page = study_sheet(
        study,
        "replicas",
        len(panels),
        "no cells have the load of one server",
        more=[
            "next to the grey points: requests in flight in all"
            if is_known
            else "SM activity is not known on this device"
        ],
        note=" ".join([study.not_shown, *[OPEN_NOTE] * is_open]).strip(),
        x_label="SMs active with one server (%)" if is_known else "Requests in flight in all",
        y_label="Tokens/s over those of one",
        legend=[*strategy_keys(looks), *[Line2D([], [], label="one server, and its cells", **ONE_LOOK)] * is_known],
        columns=min(MAX_COLUMNS, table["replicas"].nunique()) or 1,
    )
    for ax, (key, of_panel) in zip(page.axes, panels, strict=False):
        (name, n), rows = cast(tuple[str, int], key), table.loc[of_panel.index]
        blank = table_rows(rows[rows[GAIN].isna()])
        page.alt_text.extend(
            f"{row['workload']}: {row['strategy']} with {n} servers is {row['absence']}" for row in blank
        )
        if len(blank) == len(rows):
            explain_blank(page, ax, f"{name}, N = {n}: no valid measurement")
            continue
        ax.set_title(f"{name}, N = {n}")
        _set_axes(ax, table, is_known)
        _draw(ax, rows, looks, is_known)
    return page


def _gains(study: DrawnStudy) -> pd.DataFrame:
    """A row for each strategy, workload and number of servers, where a cell has one server with their load."""
    config = study.config
    groups = cell_groups(study.table("cells"), config, ACTIVITY)
    rows: list[Row] = []
    for (strategy, workload, n), own in groups.items():
        one = one_server(config, workload, n) if n > 1 and not is_control(strategy) else None
        alone = cells_alone(groups, config["baseline"], one or "")
        if not alone:
            continue
        gain = work_ratio(own, alone)
        statuses = {cell["status"] for cell in (alone if any(cell["valid"] for cell in own) else own)}
        status = statuses.pop() if len(statuses) == 1 else "mixed"
        rows.append(
            {"strategy": strategy, "workload": workload, "replicas": n, "family": family(config, workload)}
            | {"load": requests_in_flight(config, workload, n), "absence": absence_reason({"n": 0, "status": status})}
            | (gain.columns(GAIN) if gain else {})
            | _activity(alone)
        )
    rows.sort(key=lambda row: (config["workloads"].index(row["workload"]), row["load"]))
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(VALUES, float))


def _activity(cells: list[Row]) -> Row:
    """The mean of the cells, the least and the largest."""
    known = [cell[ACTIVITY] for cell in cells if cell["valid"] and cell[ACTIVITY] > 0]
    ends = (fmean(known), min(known), max(known)) if known else ()
    return dict(zip(interval_columns(ACTIVITY), ends, strict=False))


def _set_axes(ax: Axes, table: pd.DataFrame, is_known: bool) -> None:
    """Set the same axes for all panels: across the whole device, or a tick for each load."""
    gains = table[interval_columns(GAIN)]
    set_log_axis(ax, "y", min(0.8, gains.min().min() / 1.15), max(1.25, 1.15 * gains.max().max()))
    ax.axhline(1, **REFERENCE_LINE)
    if is_known:
        ax.set_xlim(0, 105)
        return
    loads = dict(sorted(zip(table[ACTIVITY], table["load"], strict=True)))
    ax.set_xticks([*loads], [*map(str, loads.values())])
    ax.set_xlim(-0.5, len(loads) - 0.5)
    ax.grid(visible=False, axis="x")


def _draw(ax: Axes, rows: pd.DataFrame, looks: Mapping[str, StrategyLook], is_known: bool) -> None:
    drawn = [name for name in looks if name in set(rows["strategy"])]
    shift = 2.0 if is_known else min(0.12, 0.5 / len(drawn))
    gain = Quantity(GAIN, "{} × one server")
    said = [Quantity("load", "{} requests in flight"), gain]
    said += [Quantity(ACTIVITY, "one keeps {} % of the SMs active")] if is_known else []
    for place, strategy in enumerate(drawn):
        own = rows[rows["strategy"] == strategy]
        x = own[ACTIVITY] + shift * (place - (len(drawn) - 1) / 2)
        name_points(draw_line(ax, own, looks[strategy], x, gain), own, said)
    if is_known:
        one = rows.dropna(subset=[GAIN]).drop_duplicates("load")
        bars = error_bars(one, ACTIVITY)
        ax.errorbar(one[ACTIVITY], [1.0] * len(one), xerr=bars, **THIN_BARS, **ONE_LOOK)
        for load, x in zip(one["load"], one[f"{ACTIVITY}_high"], strict=True):
            label_point(ax, str(load), (x, 1), (3, 3))
