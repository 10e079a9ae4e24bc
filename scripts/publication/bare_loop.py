"""What this project measures beside what a loop measures that shares no code with it: pairs of a publication."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from publication.findings import Contradicted
from publication.numbers import Number, number_of
from publication.tables import markdown
from sharebench.analysis.statistics.intervals import ratio_test
from sharebench.datasets import archive
from sharebench.report.words import digits

FOLDER = "bare-loop"
PAIRS = "pairs.csv"
"""What `tests/gpu/compare_bare_loop.py --csv` writes; checksums.sha256 lies beside it."""
COLUMNS = ("strategy", "workload", "replicas", "pair", "bare_mean_ms", "ours_mean_ms")
LIMIT_RATIO = 0.02
"""So far the median ratio of a cell may be from 1; tests/gpu/compare_bare_loop.py has the same limit."""


@dataclass(frozen=True)
class Compared:
    """Pairs of one strategy, workload and number of tenants."""

    strategy: str
    workload: str
    replicas: int
    bare_ms: list[float]
    ratios: list[float]
    """Mean of an iteration as the pipeline measures it over that of the loop, of each pair."""

    @property
    def median(self) -> float:
        """Of the ratios."""
        return statistics.median(self.ratios)

    @property
    def mean(self) -> Number:
        """Geometric mean of the ratios, with its interval over the pairs."""
        return number_of(ratio_test(self.ratios).ratio)

    @property
    def agrees(self) -> bool:
        """Whether the median ratio is within the limit."""
        return abs(self.median - 1) <= LIMIT_RATIO


@dataclass(frozen=True)
class BareLoop:
    """All that was compared of a publication; nothing where there is no such folder."""

    cells: list[Compared]

    @property
    def agreeing(self) -> int:
        """In how many cells the two agree."""
        return sum(cell.agrees for cell in self.cells)

    @property
    def furthest_percent(self) -> float:
        """The largest distance of a median ratio from 1. Raises ValueError where nothing was compared."""
        return max(abs(100 * (cell.median - 1)) for cell in self.cells)

    def rows(self) -> list[dict[str, str]]:
        """A table for people."""
        return [
            {
                "strategy": cell.strategy,
                "workload": f"`{cell.workload}`",
                "tenants": str(cell.replicas),
                "pairs": str(len(cell.ratios)),
                "bare loop, median": f"{digits(statistics.median(cell.bare_ms))} ms",
                "bare loop, largest over smallest": f"{max(cell.bare_ms) / min(cell.bare_ms):.4f}",
                "ours over bare, median": f"{cell.median:.4f}",
                "ours over bare, mean": _mean_in_words(cell.mean),
                f"within {LIMIT_RATIO:.0%}": "yes" if cell.agrees else "no",
            }
            for cell in self.cells
        ]

    def table(self) -> str:
        """The same as Markdown."""
        return markdown(self.rows())


def read(publication: Path) -> BareLoop:
    """The pairs of a publication, after holding them against their checksums. Raises Contradicted."""
    folder = publication / FOLDER
    if not folder.is_dir():
        return BareLoop([])
    if not (folder / archive.CHECKSUMS).is_file():
        raise Contradicted(f"{folder}: make {archive.CHECKSUMS} there: sha256sum {PAIRS} > {archive.CHECKSUMS}")
    try:
        table = pd.read_csv(archive.opened(folder) / PAIRS)
    except (archive.ArchiveError, OSError, ValueError) as error:
        raise Contradicted(f"{folder}: {error}") from None
    if missing := [name for name in COLUMNS if name not in table]:
        raise Contradicted(f"{folder / PAIRS} has no column {missing[0]}; compare_bare_loop.py --csv writes it")
    found = []
    for _, own in table.groupby(["strategy", "workload", "replicas"], sort=False):
        first = own.iloc[0]
        ratios = list(own["ours_mean_ms"] / own["bare_mean_ms"])
        where = (str(first["strategy"]), str(first["workload"]), int(first["replicas"]))
        found.append(Compared(*where, list(own["bare_mean_ms"]), ratios))
    return BareLoop(found)


def _mean_in_words(mean: Number) -> str:
    if mean.low is None or mean.high is None:
        return f"{mean.value:.4f}"
    return f"{mean.value:.4f} ({mean.low:.4f} to {mean.high:.4f})"
