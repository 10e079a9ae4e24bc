"""The figures of a study: one module each, drawn by `draw(study) -> Sheet`; this registry names them.

Importing this package is cheap (no plotting library), so that anybody may ask which figures there are.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharebench.mixes import has_jobs


@dataclass(frozen=True)
class Entry:
    """What the rest of the pipeline needs to know about a figure without drawing it."""

    module: str
    title: str
    caption: str
    is_of_pairs: bool = False
    """Whether there is nothing to draw in a study without `interference`."""
    is_of_jobs: bool = False
    """Whether there is nothing to draw in a study without jobs."""


NAMES: dict[str, Entry] = {
    "latency": Entry(
        "sharebench.figures.latency",
        "Latency by number of tenants",
        "How long one iteration takes when more tenants share the device. Thick lines with filled "
        "markers are the median (p50) with its 95 % interval over the repeats; thin lines with hollow "
        "markers are the 99th percentile, where the sample can carry one. Lower is better, and a flat "
        "line means that tenants do not slow each other down. Markers of one number of tenants stand "
        "side by side so that none hides another. A cross below the axis is a combination without a "
        "value, with the reason beside it.",
    ),
    "throughput": Entry(
        "sharebench.figures.throughput",
        "Total throughput by number of tenants",
        "Iterations per second of all tenants together, with the 95 % interval over the repeats. The "
        "dashed grey line is N times one exclusive tenant: what N devices would do. Higher is better; a "
        "flat line means that the tenants only divide what one of them could have had. A cross below "
        "the axis is a combination without a value, with the reason beside it.",
    ),
    "distribution": Entry(
        "sharebench.figures.distribution",
        "Latency distribution at the largest N",
        "The share of iterations that took at most the time on the axis, over all valid repeats and all "
        "tenants. Further left is faster, steeper is more even, and a long shoulder to the right is a "
        "tail. Steps stand at the upper bounds of the histogram's buckets, which are 1.1 % wide. Where "
        "the legend gives a strategy an N, that is its own largest with a valid measurement.",
    ),
    "timeline": Entry(
        "sharebench.figures.timeline",
        "Latency over the window",
        "One cell per strategy, its first valid repeat at its largest number of tenants: the mean "
        "latency of the iterations that began in each slot of the window, one line per tenant. Level "
        "lines that lie together are what one hopes for; a slope is drift, a spike or a gap (a slot in "
        "which no iteration began) is a stall, and lines apart are unfairness.",
    ),
    "interference": Entry(
        "sharebench.figures.interference",
        "Slowdown beside each other",
        "Two tenants share the device: how many times as long an iteration of the row's workload takes "
        "beside the column's as alone, with the 95 % interval over the repeats where there is room. All "
        "strategies have one colour scale, logarithmic, on which 1 is white: as fast as alone. On the "
        "diagonal a workload is beside its like. A row of dark cells is a workload that suffers, a column "
        "of them one that others suffer from.",
        is_of_pairs=True,
    ),
    "jobs": Entry(
        "sharebench.figures.jobs",
        "Makespan of jobs by their number",
        "How long N jobs take, from the moment at which all begin to the end of the last, with the 95 % "
        "interval over the repeats. Start-up is not in it. The line of the queue is the jobs one after "
        "another, each alone on the device: a strategy below it saves time, one above it costs time. Where "
        "no queue was measured, the dashed grey line is N times one exclusive job. A cross below the axis "
        "is a combination without a value, with the reason beside it.",
        is_of_jobs=True,
    ),
}


def names_for(config: Mapping[str, Any]) -> list[str]:
    """The figures that a study with this config has."""
    return [
        name
        for name, entry in NAMES.items()
        if (config["interference"] or not entry.is_of_pairs) and (has_jobs(config) or not entry.is_of_jobs)
    ]


def draw(name: str, data: Path, results: Path) -> None:
    """Draw figure `name` of the data set `data` and write `results`/figures/`name`.svg, .pdf and .png.

    Raises KeyError for an unknown name and OSError when an input cannot be read or an output not written.
    """
    # The plotting libraries take a second to load, and only one figure of one process needs them.
    module = importlib.import_module(NAMES[name].module)
    from sharebench.figures.data import load
    from sharebench.figures.sheet import save
    from sharebench.figures.style import theme

    with theme():
        save(module.draw(load(data, results)), results / "figures", name)
