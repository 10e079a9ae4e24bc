"""Cross-checks of our numbers: with numbers published by others, and with a loop that shares no code with us."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.lines import Line2D

from publication.findings import SOURCE_FILE, Contradicted, Filler, PublishedRatioEntry, Source, parse_entry
from publication.numbers import Number, number_from
from publication.tables import markdown
from sharebench.datasets import archive
from sharebench.read.figures.looks import BLUE, ORANGE
from sharebench.read.figures.page import PAGE_INCHES, Sheet, sheet
from sharebench.read.figures.panels import draw_ratio, set_ratio_axes
from sharebench.read.report.words import format_number
from sharebench.read.statistics.intervals import log_interval

TITLE = "Ours and theirs"
ROW_INCHES = 0.2
BARE_LOOP_FOLDER = "bare-loop"
PAIRS_FILE = "pairs.csv"
"""`tests/gpu/compare_bare_loop.py --csv` writes it; checksums.sha256 lies next to it."""
PAIRS_COLUMNS = ("strategy", "workload", "replicas", "pair", "bare_mean_ms", "ours_mean_ms")
LIMIT_RATIO = 0.02
"""Largest distance of a cell's median ratio from 1; tests/gpu/compare_bare_loop.py has the same limit."""


@dataclass(frozen=True)
class PublishedRatio:
    """A ratio published by others, and our measurement of the same; None where there is none yet."""

    what: str
    source: str
    theirs: float
    ours: Number | None
    note: str
    reading_percent: float = 0
    """The error of the published number, which was read off a plot or comes from one run."""
    products: tuple[str, ...] = ()
    """The devices that ours was measured on."""

    @property
    def theirs_range(self) -> tuple[float, float]:
        """Theirs divided and multiplied by one plus its reading error."""
        factor = 1 + self.reading_percent / 100
        return self.theirs / factor, self.theirs * factor

    @property
    def verdict(self) -> str:
        """Whether theirs, with its reading error, meets our interval, and if not, whether both are on one side of 1.

        An interval that has both theirs and 1 in it decides nothing.
        """
        if self.ours is None:
            return "not measured yet"
        low, high = self.theirs_range
        factor = f"{format_number(self.ours.value / self.theirs)} × theirs"
        direction = "same direction" if (self.ours.value > 1) == (self.theirs > 1) else "opposite direction"
        # A ratio of 1 has no direction, nor has ours if it is shown as 1.00.
        is_one = self.theirs == 1 or self.ours.formatted().partition(" (")[0] == "1.00"
        direction = "" if is_one else f", {direction}"
        if self.ours.low is None or self.ours.high is None:
            return f"undecided without an interval{direction}: {factor}"
        meets, has_one = (below <= self.ours.high and self.ours.low <= above for below, above in ((low, high), (1, 1)))
        if meets and has_one and not low <= 1 <= high:
            return f"undecided between theirs and 1: {factor}"
        if self.ours.low <= self.theirs <= self.ours.high:
            return "agrees: within our interval"
        if meets:
            return f"agrees within its reading error: {factor}"
        if has_one:
            return f"disagrees: {factor}, and not different from 1"
        return f"disagrees in size{direction}: {factor}"


def literature_value(
    path: Path, source: str, workload: str, strategy: str, replicas: int, metric: str, device: str = ""
) -> float:
    """The value of the only row of literature.csv with these texts, in the row's unit. Raises KeyError.

    `device` is the beginning of the device's name.
    """
    table = pd.read_csv(path, dtype={"value": str})  # so that float is exact
    wanted = {"source": source, "workload": workload, "strategy": strategy, "metric": metric, "replicas": replicas}
    rows = table[(table[list(wanted)] == pd.Series(wanted)).all(axis=1) & table["device"].str.startswith(device)]
    if len(rows) != 1:
        raise KeyError(f"literature.csv has {len(rows)} rows with {', '.join(map(str, wanted.values()))}")
    return float(rows["value"].iloc[0])


def published_ratios(source: Source, filler: Filler) -> list[PublishedRatio]:
    """The ratios that docs/findings.yaml lists under `theirs`. Raises Contradicted."""
    found = []
    for given in source.theirs:
        where = f"theirs: {given.get('what')}"
        entry = parse_entry(PublishedRatioEntry, f"{SOURCE_FILE}: {where}", given)
        theirs = float(filler.evaluate(where, entry.theirs, {}))
        is_there = all(alias in filler.data_sets for alias in entry.data)
        ours = filler.evaluate(where, entry.ours, {}) if is_there else None
        note = filler.render(where, entry.note) if is_there else ""
        products = tuple(filler.data_sets[alias].device["product"] for alias in entry.data) if is_there else ()
        found.append(PublishedRatio(entry.what, entry.source, theirs, ours, note, entry.reading_percent, products))
    return found


def ratios_table(found: Sequence[PublishedRatio]) -> str:
    return markdown(
        [
            {
                "what": pair.what,
                "who": pair.source,
                "theirs": f"{format_number(pair.theirs)} × ± {pair.reading_percent:g} %",
                "ours": "" if pair.ours is None else pair.ours.formatted(" ×"),
                "verdict": pair.verdict,
                "note": pair.note,
            }
            for pair in found
        ]
    )


def ratios_frame(found: Sequence[PublishedRatio]) -> pd.DataFrame:
    """The same for a csv file; ours is blank where it is not measured, its bounds where there is no interval."""
    rows = []
    for pair in found:
        ours = pair.ours or Number(math.nan)
        theirs_low, theirs_high = pair.theirs_range
        numbers: dict[str, float | None] = {"theirs": pair.theirs, "theirs_low": theirs_low, "theirs_high": theirs_high}
        numbers |= {"ours": ours.value, "ours_low": ours.low, "ours_high": ours.high}
        rows.append({"what": pair.what, "source": pair.source, **numbers, "verdict": pair.verdict, "note": pair.note})
    return pd.DataFrame(rows)


def draw_ratios(found: Sequence[PublishedRatio]) -> Sheet:
    """A figure with one line for each published number that we have measured too."""
    measured = [(pair, pair.ours) for pair in found if pair.ours is not None]
    page = sheet(
        TITLE,
        [f"ours: {product}" for product in dict.fromkeys(name for pair, _ in measured for name in pair.products)],
        1,
        "Other devices, drivers and ways of measuring: a published number outside our interval need not be "
        "wrong. Some bars are shorter than their mark.",
        x_label="Ratio to each side's own baseline",
        legend=[
            Line2D([], [], color=BLUE, marker="o", ls="-", label="ours, with 95 % interval"),
            Line2D([], [], color=ORANGE, marker="D", mfc="white", ls="", label="theirs, with its reading error"),
        ],
        width_inches=PAGE_INCHES,
        panel_inches=ROW_INCHES * (len(measured) + 1),
    )
    (ax,) = page.axes
    values = [1.0, *(end for pair, ours in measured for end in (ours.value, *ours.ends, *pair.theirs_range))]
    set_ratio_axes(ax, [pair.what for pair, _ in measured], min(values) / 1.3, max(values) * 1.3)
    for y, (pair, ours) in enumerate(measured):
        ax.plot(pair.theirs_range, [y, y], color=ORANGE, lw=0.8, ls=":")
        ax.plot([pair.theirs], [y], marker="D", color=ORANGE, mfc="white", ls="")
        draw_ratio(ax, y, ours.value, ours.ends)
        page.alt_text.append(f"{pair.what}: theirs {pair.theirs:.3g}, ours {ours.value:.3g}")
    return page


@dataclass(frozen=True)
class BareLoopCell:
    strategy: str
    workload: str
    replicas: int
    bare_ms: pd.Series[float]
    ratios: pd.Series[float]
    """Mean iteration time by the pipeline over that by the bare loop, for each pair."""

    @property
    def median(self) -> float:
        return float(self.ratios.median())

    @property
    def mean(self) -> Number:
        return number_from(log_interval(list(self.ratios)))

    @property
    def agrees(self) -> bool:
        return abs(self.median - 1) <= LIMIT_RATIO


@dataclass(frozen=True)
class BareLoop:
    """All cells of a publication that were compared with the bare loop."""

    cells: list[BareLoopCell]

    @property
    def agreeing(self) -> int:
        return sum(cell.agrees for cell in self.cells)

    @property
    def furthest_percent(self) -> float:
        """The largest distance of a median ratio from 1. Raises ValueError where nothing was compared."""
        return max(abs(100 * (cell.median - 1)) for cell in self.cells)

    def table(self) -> str:
        return markdown(
            [
                {
                    "strategy": cell.strategy,
                    "workload": f"`{cell.workload}`",
                    "tenants": str(cell.replicas),
                    "pairs": str(len(cell.ratios)),
                    "bare loop, median": f"{format_number(cell.bare_ms.median())} ms",
                    "bare loop, largest over smallest": f"{max(cell.bare_ms) / min(cell.bare_ms):.4f}",
                    "ours over bare, median": f"{cell.median:.4f}",
                    "ours over bare, mean": _four_decimals(cell.mean),
                    f"within {LIMIT_RATIO:.0%}": "yes" if cell.agrees else "no",
                }
                for cell in self.cells
            ]
        )


def read_bare_loop(publication: Path) -> BareLoop:
    """Read the pairs of a publication, if it has any, and verify their checksums. Raises Contradicted."""
    folder = publication / BARE_LOOP_FOLDER
    if not folder.is_dir():
        return BareLoop([])
    if not (folder / archive.CHECKSUMS).is_file():
        raise Contradicted(f"{folder}: make {archive.CHECKSUMS} there: sha256sum {PAIRS_FILE} > {archive.CHECKSUMS}")
    try:
        table = pd.read_csv(archive.verified_folder(folder) / PAIRS_FILE)
    except (archive.ArchiveError, OSError, ValueError) as error:
        raise Contradicted(f"{folder}: {error}") from None
    if missing := [name for name in PAIRS_COLUMNS if name not in table]:
        raise Contradicted(f"{folder / PAIRS_FILE} has no column {missing[0]}; compare_bare_loop.py --csv writes it")
    cells = []
    for (strategy, workload, replicas), own in table.groupby(["strategy", "workload", "replicas"], sort=False):
        ratios = own["ours_mean_ms"] / own["bare_mean_ms"]
        cells.append(BareLoopCell(str(strategy), str(workload), int(str(replicas)), own["bare_mean_ms"], ratios))
    return BareLoop(cells)


def _four_decimals(mean: Number) -> str:
    interval = f" ({mean.low:.4f} to {mean.high:.4f})" if mean.ends else ""
    return f"{mean.value:.4f}{interval}"
