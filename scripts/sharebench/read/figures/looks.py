"""Each strategy's colour, marker and dashes, the same in figures and report; without the libraries that draw."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# Any two colours differ by more than 19 units of CIELAB, also with protanopia, deuteranopia and tritanopia. They follow
# the order of `strategies.all_strategies`: the strategies of the default study also differ in lightness, so that they
# can be distinguished in grey, and the MPS strategies are shades of one warm tone.
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
# With these lengths a look repeats after 90 strategies.
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "p", "h")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.2, 1.2, 1.2)), (0, (2.5, 1)))
BLUE, ORANGE = "#1b4f9c", "#d1560a"
"""Colours of values that belong to no strategy: measured here, and published."""


@dataclass(frozen=True)
class StrategyLook:
    color: str
    marker: str
    dashes: Any

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes}


def strategy_looks(catalogue: Sequence[str], names: Iterable[str]) -> dict[str, StrategyLook]:
    """Look of every strategy by its place in `catalogue`; those of `names` that are not in it come last."""
    order = [*catalogue, *sorted(set(names).difference(catalogue))]
    return {
        name: StrategyLook(COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
        for i, name in enumerate(order)
    }
