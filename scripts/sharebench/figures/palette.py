"""The colour, marker and dashes of each strategy: the same in every figure and in the report."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Every two differ by more than 19 units of CIELAB, also with protanopia, deuteranopia and tritanopia. In the order
# of config/strategies.yaml: the strategies of the default study are also far apart in lightness, so that they can
# be told in grey, and the kinds of MPS are shades of one warm tone.
COLORS = (
    "#222222",
    "#1b4f9c",
    "#d1560a",
    "#b8975a",
    "#663a10",
    "#22b08d",
    "#e35bd8",
    "#8a2be2",
    "#8c0e62",
    "#a66153",
)
# Their lengths make 90 strategies before a look returns.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.2, 1.2, 1.2)), (0, (2.5, 1)))


@dataclass(frozen=True)
class Look:
    """Colour, marker and dashes of one strategy."""

    color: str
    marker: str
    dashes: Any

    @property
    def line(self) -> dict[str, Any]:
        """Arguments of a line with markers."""
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes}


def looks(catalogue: Sequence[str], names: Iterable[str]) -> dict[str, Look]:
    """Look of every strategy, by its place in `catalogue`; those of `names` that it lacks come after it."""
    order = [*catalogue, *sorted(set(names).difference(catalogue))]
    return {
        name: Look(COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
        for i, name in enumerate(order)
    }
