"""Each strategy's name in prose, colour, marker and dashes, the same everywhere; without the libraries that draw."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

# Any two colours differ by more than 19 units of CIELAB, also with protanopia, deuteranopia and tritanopia. The
# strategies of the default study also differ in lightness, so that they can be distinguished in grey, and the MPS
# strategies are shades of one warm tone.
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

BUILT_IN: Mapping[str, str] = {
    "exclusive": "exclusive",
    "time-slicing": "time-slicing",
    "mps": "MPS",
    "mps-limited": "MPS, 1/N each",
    "mps-limited-200": "MPS, 2/N each",
    "mig": "MIG",
    "mig-unequal": "MIG, unequal",
    "streams": "streams",
    "sequential": "sequential",
    "hami-core": "HAMi-core",
    "green-contexts": "green contexts",
    "green-contexts-30-70": "green contexts, 30/70",
    "mig-time-slicing": "MIG, time-slicing",
    "mig-mps": "MIG, MPS",
    "exclusive-own-claims": "exclusive, own claims",
    "exclusive-two-gpus": "exclusive, two GPUs",
    "hami": "HAMi",
    "kai-fraction": "KAI fraction",
    "time-slicing-dra": "time-slicing, claim",
    "time-slicing-long": "time-slicing, long",
    "time-slicing-medium": "time-slicing, medium",
    "time-slicing-short": "time-slicing, short",
    "volcano-vgpu": "Volcano vGPU",
    "mps-dra": "MPS, claim",
    "mps-unequal-dra": "MPS, 60/20/20",
    "mig-own-claims": "MIG, own claims",
    "time-slicing-own-claims": "time-slicing, own claims",
    "hami-mig": "HAMi, MIG",
    "volcano-mig": "Volcano, MIG",
}
"""Names in prose of strategies in config/strategies.yaml. The place gives the look, so new ones come last. One that is
not here has its own name, and a look after these."""


@dataclass(frozen=True)
class StrategyLook:
    color: str
    marker: str
    dashes: Any

    @property
    def line(self) -> dict[str, Any]:
        return {"color": self.color, "marker": self.marker, "linestyle": self.dashes}


def strategy_label(name: str, tenants: int | str = "N") -> str:
    """The strategy's name for readers; its share, if it has one, is of a number of `tenants`."""
    return BUILT_IN.get(name, name).replace("/N", f"/{tenants}")


def bar_label(name: str, tenants: int) -> str:
    return f"{strategy_label(name, tenants)} × {tenants}"


def strategy_looks(catalogue: Sequence[str], names: Iterable[str]) -> dict[str, StrategyLook]:
    """Look of every strategy: built-in ones by name, then those of `catalogue`, then the others of `names`."""
    order = dict.fromkeys([*BUILT_IN, *catalogue, *sorted(names)])
    return {
        name: StrategyLook(COLORS[i % len(COLORS)], MARKERS[i % len(MARKERS)], DASHES[i % len(DASHES)])
        for i, name in enumerate(order)
    }
