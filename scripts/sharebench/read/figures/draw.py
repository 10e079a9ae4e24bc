"""Draw the figures of a study by their names, as files."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from sharebench.core.files import Refusal
from sharebench.read.figures import (
    answers,
    conformance,
    devices,
    grids,
    load_curve,
    over_replicas,
    replicas,
    scatter_panels,
    startup,
    timeslice,
)
from sharebench.read.figures.catalogue import ENTRIES
from sharebench.read.figures.data import DrawnStudy, load_study
from sharebench.read.figures.page import FILE_KINDS, Sheet, save
from sharebench.read.figures.style import theme

DRAWERS: dict[str, Callable[[DrawnStudy], Sheet]] = {
    "latency": over_replicas.latency,
    "throughput": over_replicas.throughput,
    "serving": over_replicas.serving,
    "load-curve": load_curve.load_curve,
    "replicas": replicas.replicas,
    "utilisation": over_replicas.utilisation,
    "progress": scatter_panels.progress,
    "power": scatter_panels.power,
    "interference": grids.interference,
    "jobs": over_replicas.jobs,
    "startup": startup.startup,
    "isolation": grids.isolation,
    "conformance": conformance.conformance,
    # Not in the catalogue: these depend on the data, a probe or several devices.
    "answers": answers.answers,
    "timeslice": timeslice.timeslice,
    "strips": timeslice.strips,
    "devices": devices.devices,
}
"""The function that draws each figure."""


def draw_figures(data: Path, results: Path, figures: list[str]) -> None:
    if unknown := sorted(set(figures) - set(ENTRIES)):
        raise Refusal(f"no figure {unknown[0]!r}; use one of {', '.join(ENTRIES)}")
    for name in figures:
        draw_figure(name, data, results)


def draw_figure(
    name: str,
    data: Path,
    results: Path,
    kinds: Sequence[str] = FILE_KINDS,
    workloads: Collection[str] = (),
    target: Path | None = None,
    not_shown: str | None = None,
) -> None:
    """Draw figure `name` of the data set `data`, without `workloads` of all, as `results`/figures/`name` or `target`.

    `not_shown` replaces the data set's remark on what it lacks.

    Raises KeyError for an unknown name and OSError when an input cannot be read or an output not written.
    """
    study = replace(load_study(data, results), only_workloads=frozenset(workloads))
    study = study if not_shown is None else replace(study, not_shown=not_shown)
    target = target or results / "figures" / name
    with theme():
        save(DRAWERS[name](study), target.parent, target.name, kinds)
