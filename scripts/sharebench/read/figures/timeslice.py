"""Which tenant was on the device when, and for how long, measured by tenants that only read its clock."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from sharebench.core.files import read_json
from sharebench.read.columns import ONLY_BLANKS
from sharebench.read.figures.data import DrawnStudy
from sharebench.read.figures.looks import StrategyLook, strategy_label, strategy_looks
from sharebench.read.figures.page import PAGE_INCHES, Sheet, explain_blank, save, sheet
from sharebench.read.figures.style import set_log_axis, shades, theme

TITLE = "Who is on the device when"
STRIPS = ("time-slicing", "mps")
STRIP_INCHES = 0.42
"""Height of a panel of `strips`: the whole figure has that of 250 pixels."""
LANE_INCHES = 0.16
"""Least height of a tenant's lane in a strip, for its number on the axis."""
LANE_SHARE = 0.78
"""Height of a bar as a share of the distance between two lanes."""


def timeslice(study: DrawnStudy) -> Sheet:
    """`draw` for a study whose data have a probe."""
    return draw(study.data, study.catalogue)


def strips(study: DrawnStudy) -> Sheet:
    """Only the strips of time-slicing and MPS, with a sentence on them as title."""
    probe = read_json(study.data / "nodes" / "timeslice.json", "strategies")
    style, watched = strategy_looks(study.catalogue, STRIPS), {name: probe["strategies"][name] for name in STRIPS}
    turn = f"{watched[STRIPS[0]]['run']['p50_us'] / 1e3:.3g} ms each"
    at_once = f"MPS runs {'both' if probe['tenants'] == 2 else 'all'} at once"
    page = sheet(
        f"Time-slicing runs one tenant at a time, {turn}; {at_once}",
        _facts(probe, []),
        len(STRIPS),
        x_label="Time (ms)",
        y_label="Tenant",
        columns=1,
        width_inches=PAGE_INCHES,
        panel_inches=STRIP_INCHES,
    )
    for ax, (name, part) in zip(page.axes, watched.items(), strict=True):
        ax.set_title(f"{strategy_label(name)}: {part['tenants_on_device_mean']:.2f} tenants on the GPU at a time")
        _draw_strip(ax, part["timeline"], style[name])
        page.alt_text.append(f"{strategy_label(name)}: {_describe_slices(part)}")
    return page


def write_figure(results: Path, catalogue: list[str]) -> None:
    """Write `results`/figures/timeslice.svg, .pdf and .png."""
    with theme():
        save(draw(results, catalogue), results / "figures", "timeslice")


def draw(results: Path, catalogue: Sequence[str]) -> Sheet:
    """One strip per strategy with a lane per tenant, and the distribution of the lengths of runs.

    `catalogue` names all strategies in the order of their colours.
    """
    probe = read_json(results / "nodes" / "timeslice.json", "strategies")
    table = pd.read_csv(results / "tables" / "timeslice.csv", **ONLY_BLANKS)
    names = sorted(probe["strategies"], key=lambda name: [*catalogue, name].index(name))
    style = strategy_looks(catalogue, names)
    watched = {name: probe["strategies"][name] for name in names if not probe["strategies"][name]["infeasible"]}
    runs = table[table["kind"] == "run"]
    timed = [name for name in watched if name in set(runs["strategy"])]
    page = sheet(
        TITLE,
        _facts(probe, list(watched.values())),
        len(names) + 1,
        _note(watched, timed),
        x_label="Length of a run on the device (ms)",
        y_label="Tenant",
        legend=[
            Line2D([], [], color=style[name].color, ls=style[name].dashes, label=strategy_label(name)) for name in timed
        ],
        columns=1,
        width_inches=PAGE_INCHES,
        panel_inches=max(0.8, LANE_INCHES * probe["tenants"]) + 0.16,
    )
    for ax, name in zip(page.axes, names, strict=False):
        if name not in watched:
            explain_blank(page, ax, f"{strategy_label(name)}: {probe['strategies'][name]['infeasible']}")
            continue
        ax.set_title(f"{strategy_label(name)}: {_describe_slices(watched[name])}")
        _draw_strip(ax, watched[name]["timeline"], style[name])
        ax.set_xlabel("Time (ms)")
        page.alt_text.append(f"{name}: {_describe_slices(watched[name])}")
    _draw_lengths(page, page.axes[-1], {name: runs[runs["strategy"] == name] for name in timed}, style)
    return page


def _facts(probe: Mapping[str, Any], watched: Sequence[Mapping[str, Any]]) -> list[str]:
    node = probe["node"]
    clock = f"clock in steps of {min(each['resolution_ns'] for each in watched):g} ns" if watched else ""
    tenants = f"{probe['tenants']} tenants, each one thread that reads the device's clock for {probe['seconds']:g} s"
    return [fact for fact in (node["product"], node["label"], tenants, clock) if fact]


def _note(watched: Mapping[str, Any], timed: Sequence[str]) -> str:
    endless = [name for name in watched if name not in timed]
    without = f" Under {' and '.join(map(strategy_label, endless))} no run ended while we watched." if endless else ""
    return (
        "Strips: a bar is time on the device, measured, from the middle of the watch; numbers are medians; gaps below "
        "the threshold in nodes/timeslice.json are not seen. Below: the share of runs that were at most so long; runs "
        f"that the begin or the end of the watch cut are left out.{without}"
    )


def _describe_slices(part: Mapping[str, Any]) -> str:
    run, switch = part["run"], part["switch"]
    length = f", in runs of {run['p50_us'] / 1e3:.3g} ms" if run else ""
    cost = f" with {switch['p50_us']:.3g} µs from one tenant to the next" if switch else ""
    return f"{part['tenants_on_device_mean']:.2f} tenants on the device at a time{length}{cost}"


def _draw_strip(ax: Axes, timeline: Mapping[str, Any], look: StrategyLook) -> None:
    """Bars of the time on the device, a lane per tenant, the first on top."""
    lanes = timeline["runs_us"]
    for lane, (runs, shade) in enumerate(zip(lanes, shades(look, len(lanes)), strict=True)):
        bars = [(begin / 1e3, (end - begin) / 1e3) for begin, end in runs]
        ax.broken_barh(bars, (lane - LANE_SHARE / 2, LANE_SHARE), facecolors=shade, linewidth=0)
    ax.set(xlim=(0, 1e3 * timeline["seconds"]), ylim=(len(lanes) - 0.5, -0.5), yticks=range(len(lanes)))
    ax.grid(visible=False, axis="y")


def _draw_lengths(page: Sheet, ax: Axes, tables: Mapping[str, pd.DataFrame], style: Mapping[str, StrategyLook]) -> None:
    """Cumulative share of runs by their length, a line per strategy."""
    if not tables:
        explain_blank(page, ax, "No run began and ended while we watched.")
        return
    ax.set_title("Lengths of runs")
    ax.set_ylabel("Share of runs")
    low = min(rows["lower_us"].clip(lower=0.5).min() for rows in tables.values()) / 1e3
    high = max(rows["upper_us"].max() for rows in tables.values()) / 1e3
    set_log_axis(ax, "x", low / 1.5, high * 1.5)
    ax.set_ylim(0, 1.03)
    for name, rows in tables.items():
        counts = rows.groupby("upper_us")["count"].sum().sort_index()
        lengths_ms = np.array([low / 1.5, *(counts.index / 1e3), high * 1.5])
        share = np.array([0.0, *(counts.cumsum() / counts.sum()), 1.0])
        ax.plot(lengths_ms, share, drawstyle="steps-post", color=style[name].color, ls=style[name].dashes)
