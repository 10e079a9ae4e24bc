"""Draw the figures of a study by their names, as files."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from sharebench.figures import (
    devices,
    distribution,
    grids,
    model,
    over_replicas,
    scatter_panels,
    startup,
    timeline,
    timeslice,
)
from sharebench.figures.catalogue import PAPER
from sharebench.figures.data import DrawnStudy, load
from sharebench.figures.page import Sheet, save
from sharebench.figures.style import theme

DRAWERS: dict[str, Callable[[DrawnStudy], Sheet]] = {
    "latency": over_replicas.latency,
    "throughput": over_replicas.throughput,
    "distribution": distribution.distribution,
    "percentiles": distribution.percentiles,
    "slowdown": grids.slowdown,
    "progress": scatter_panels.progress,
    "power": scatter_panels.power,
    "timeline": timeline.draw,
    "model": model.draw,
    "cost": scatter_panels.cost,
    "which": grids.which,
    "interference": grids.interference,
    "jobs": over_replicas.jobs,
    "startup": startup.draw,
    "isolation": grids.isolation,
    "buckets": distribution.buckets,
    # In no catalogue, since only the data can ask for them: the probe of time slices, and blocks on several devices.
    "timeslice": lambda study: timeslice.draw(study.data, study.catalogue),
    "devices": devices.draw,
}


def figure(name: str, data: Path, results: Path) -> None:
    """Draw figure `name` of the data set `data` and write `results`/figures/`name`.svg, .pdf and .png.

    Raises KeyError for an unknown name and OSError when an input cannot be read or an output not written.
    """
    with theme():
        save(_page(name, data, results), results / "figures", name)


def for_paper(name: str, data: Path, results: Path, folder: Path, kinds: Sequence[str]) -> None:
    """Draw it in each of the widths of PAPER, as `folder`/`name`-column and `name`-page of these kinds of file.

    Raises as `figure`.
    """
    for width, inches in PAPER.items():
        with theme(inches):
            save(_page(name, data, results), folder, f"{name}-{width}", kinds)


def as_svg(name: str, data: Path, results: Path, workloads: Collection[str], target: Path) -> None:
    """Draw figure `name` of the data set `data` as the svg `target`, of some of its workloads only, or of all.

    Raises as `figure`.
    """
    with theme():
        save(_page(name, data, results, workloads), target.parent, target.stem, ("svg",))


def _page(name: str, data: Path, results: Path, workloads: Collection[str] = ()) -> Sheet:
    return DRAWERS[name](replace(load(data, results), only=frozenset(workloads)))
