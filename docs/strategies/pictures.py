"""What the architecture figures show, strategy by strategy; `draw.py` draws it."""

from __future__ import annotations

from dataclasses import dataclass

# Time and SMs go from 0 to 1 in every diagram; a tenant is identified by its number.
GAP = 0.008


@dataclass(frozen=True)
class Block:
    """Work of one tenant: from `start` to `end` on the SMs from `low` to `high`."""

    tenant: int
    start: float
    end: float
    low: float
    high: float


@dataclass(frozen=True)
class Picture:
    """One figure. `rows` are the boxes between tenants and GPU, from above; `parts` are those of the GPU."""

    tenants: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    parts: tuple[str, ...]
    blocks: tuple[Block, ...]
    memory: tuple[tuple[int | None, float], ...]
    """From the left: whose, and how much of it; None is free."""
    says: str
    borders: tuple[float, ...] = ()
    """A boundary between SMs."""
    walls: tuple[float, ...] = ()
    """A boundary between parts of the memory."""
    is_one_process: bool = False


def turns(order: str, high: tuple[float, ...], low: float = 0.0, switch: float = GAP) -> tuple[Block, ...]:
    """Tenants (0, 1 …) that alternate in slices of equal length, each with this share of the SMs from `low` on."""
    length = 1 / len(order)
    return tuple(
        Block(int(each), index * length, (index + 1) * length - switch, low, low + high[int(each)])
        for index, each in enumerate(order)
    )


def stacked(*columns: tuple[float, ...], low: float = 0.0) -> tuple[Block, ...]:
    """Tenants that run at the same time; each column has their parts of the SMs in one stretch of time."""
    blocks, length = [], 1 / len(columns)
    for number, column in enumerate(columns):
        bottom = low
        for tenant, part in enumerate(column):
            blocks.append(Block(tenant, number * length, (number + 1) * length - GAP, bottom, bottom + part))
            bottom += part
    return tuple(blocks)


def moved(blocks: tuple[Block, ...], by: int) -> tuple[Block, ...]:
    """The same of tenants with higher numbers."""
    return tuple(Block(each.tenant + by, each.start, each.end, each.low, each.high) for each in blocks)


def lane(tenant: int, low: float, high: float, *stretches: tuple[float, float]) -> tuple[Block, ...]:
    """One tenant that stays within its SMs."""
    return tuple(Block(tenant, start, end - GAP, low, high) for start, end in stretches)


PODS = ("tenant A", "tenant B", "tenant C")
FREE = ((0, 0.2), (1, 0.2), (2, 0.2), (None, 0.4))
WHOLE = ("GPU: all SMs, all memory",)
UNEVEN = ((0.5, 0.3, 0.2), (0.2, 0.5, 0.3), (0.4, 0.2, 0.4))
# An H200 has 132 SMs; a 1g instance has 16 of them and an eighth of the memory, a 3g instance 60 and a half.
SLICE, HALF = 16 / 132, 60 / 132

PICTURES: dict[str, Picture] = {
    "exclusive": Picture(
        tenants=("tenant A",),
        rows=(("nvidia.com/gpu: 1 of 1",),),
        parts=WHOLE,
        blocks=lane(0, 0, 0.6, (0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1)),
        memory=((0, 0.2), (None, 0.8)),
        says="What one tenant leaves idle stays idle.",
    ),
    "time-slicing": Picture(
        tenants=PODS,
        rows=(("nvidia.com/gpu: 1 of N replicas",), ("driver: one context at a time",)),
        parts=WHOLE,
        blocks=turns("012012012012", (0.6, 0.8, 0.5), switch=0.02),
        memory=FREE,
        says="Turns of about 2 ms; idle SMs and switches are lost.",
    ),
    "mps": Picture(
        tenants=PODS,
        rows=(("MPS control daemon and server: one context",),),
        parts=WHOLE,
        blocks=stacked(*UNEVEN),
        memory=FREE,
        says="Kernels run side by side: one uses what others leave.",
    ),
    "mps-limited": Picture(
        tenants=PODS,
        rows=(("MPS server: 100/N of SMs and memory each",),),
        parts=WHOLE,
        blocks=(
            *lane(0, 0.02, 0.33, (0, 0.35), (0.35, 0.7), (0.7, 1)),
            *lane(1, 0.35, 0.66, (0, 0.4), (0.75, 1)),
            *lane(2, 0.68, 0.99, (0, 0.3), (0.3, 0.6), (0.6, 0.9)),
        ),
        memory=((0, 0.2), (None, 0.133), (1, 0.2), (None, 0.133), (2, 0.2), (None, 0.134)),
        walls=(0.333, 0.667),
        says="A pause of B does not help A or C: the share is a ceiling.",
    ),
    "mig": Picture(
        tenants=PODS,
        rows=(("mig-1g: 1", "mig-1g: 1", "mig-1g: 1"),),
        parts=("1g", "1g", "1g", "4 × 1g, free"),
        blocks=(
            *lane(0, 0, SLICE, (0, 0.5), (0.5, 1)),
            *lane(1, SLICE, 2 * SLICE, (0, 0.6), (0.6, 1)),
            *lane(2, 2 * SLICE, 3 * SLICE, (0, 0.45), (0.45, 0.9)),
        ),
        memory=((0, 0.125), (1, 0.125), (2, 0.125), (None, 0.625)),
        borders=tuple(SLICE * number for number in range(1, 8)),
        walls=tuple(number / 8 for number in range(1, 8)),
        says="Own SMs, cache, memory. 20 of 132 SMs are in no 1g.",
    ),
    "layers": Picture(
        tenants=(*PODS, "tenant D"),
        rows=(("mig-3g: 1 replica", "mig-3g: 1 replica"), ("driver: turns", "driver: turns")),
        parts=("MIG instance 3g", "MIG instance 3g"),
        blocks=(
            *turns("010101010101", (0.3, 0.4), switch=0.02),
            *moved(turns("010101010101", (0.42, 0.25), low=HALF, switch=0.02), 2),
        ),
        memory=((0, 0.2), (1, 0.2), (None, 0.1), (2, 0.2), (3, 0.2), (None, 0.1)),
        borders=(HALF, 2 * HALF),
        walls=(0.5,),
        says="Groups are apart; within one, tenants share.",
    ),
    "streams": Picture(
        tenants=("stream A", "stream B", "stream C"),
        rows=(("one CUDA context",),),
        parts=WHOLE,
        blocks=stacked(*UNEVEN),
        memory=((0, 0.08), (1, 0.08), (2, 0.08), (None, 0.76)),
        says="As under MPS, without any isolation; one context.",
        is_one_process=True,
    ),
    "green-contexts": Picture(
        tenants=("stream A", "stream B", "stream C"),
        rows=(("one CUDA context",), ("green context", "green context", "green context")),
        parts=WHOLE,
        blocks=(
            *lane(0, 0, 0.3, (0, 0.55), (0.6, 1)),
            *lane(1, 0.333, 0.6, (0, 0.4), (0.45, 1)),
            *lane(2, 0.667, 0.9, (0, 0.7), (0.8, 1)),
        ),
        memory=((0, 0.08), (1, 0.08), (2, 0.08), (None, 0.76)),
        says="Each stream has SMs of its own, idle in a pause.",
        borders=(0.333, 0.667),
        is_one_process=True,
    ),
    "sequential": Picture(
        tenants=("job A", "job B", "job C"),
        rows=(("queue: one after another",),),
        parts=WHOLE,
        blocks=(*lane(0, 0, 0.6, (0, 0.33)), *lane(1, 0, 0.8, (0.33, 0.67)), *lane(2, 0, 0.5, (0.67, 1))),
        memory=((0, 0.2), (None, 0.8)),
        says="No sharing: what sharing must beat.",
    ),
    "dra": Picture(
        tenants=PODS,
        rows=(
            ("ResourceClaim: one, of all three pods",),
            ("DRA driver: time-slice, or MPS, or MIG",),
        ),
        parts=("GPU: a device of a ResourceSlice",),
        blocks=turns("012012", (0.6, 0.8, 0.5)),
        memory=FREE,
        says="Here the claim's config asks for long turns.",
    ),
    "schedulers": Picture(
        tenants=("A + library", "B + library", "C + library"),
        rows=(("scheduler: packs shares of memory and cores",), ("its own device plugin",)),
        parts=WHOLE,
        blocks=turns("012012012012", (0.6, 0.8, 0.5), switch=0.035),
        memory=((0, 0.25), (None, 0.08), (1, 0.25), (None, 0.08), (2, 0.25), (None, 0.09)),
        walls=(0.33, 0.66),
        says="The library delays launches and counts memory.",
    ),
}
