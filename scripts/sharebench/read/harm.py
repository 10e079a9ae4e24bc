"""What happened to tenants in the repeats that are in no mean, from tables/cells.csv: what a plan may do to tenants.

Other repeats are only lost: our client was late, or the machine was busy.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sharebench.read.alike import merge_alike
from sharebench.read.gates.gates import INVALID
from sharebench.read.grouping import group_by

WRONG = "answers not right"
"""Others than alone, or none."""
KINDS: Mapping[str, str] = {
    **dict.fromkeys(("output_digest", "answers"), WRONG),
    **{status: status for status in ("crashed", "oom", "killed", "hung")},
    **dict.fromkeys(("nothing_finished", "failed_share", "queue_growth", "censored"), "not served"),
}
"""By status of a cell, or by gate that excludes it, what happened; the worst first."""
GATE = re.compile(rf"(?:^|; )({'|'.join(INVALID)}): ")
COLUMNS = ("strategy", "workload", "replicas", "device", "repeat", "status", "valid", "reason")
"""The columns of cells.csv that are read."""
Row = Mapping[str, Any]
CellKey = tuple[str, str, int]
"""Strategy, workload and number of tenants."""


class Harm(NamedTuple):
    """What happened in `cells` of the `repeats`."""

    kind: str
    cells: int
    repeats: int
    reason: str

    def __str__(self) -> str:
        return f"in {self.cells} of {self.repeats} repeats, {self.reason}"


def brief(harms: Iterable[Harm]) -> str:
    """`crashed in 1 of 3`; empty without any."""
    return ", ".join(f"{each.kind} in {each.cells} of {each.repeats}" for each in harms)


def caution(brief: str) -> str:
    """The end of a sentence that names a plan."""
    return f" (caution: {brief} repeats)" if brief else ""


def is_wrong(harms: Iterable[Harm]) -> bool:
    return any(each.kind == WRONG for each in harms)


def harms(tenants: Iterable[Row]) -> dict[CellKey, Sequence[Harm]]:
    """The harms of each plan that has any, the worst first, from rows of cells.csv."""
    points = group_by(tenants, lambda row: (str(row["strategy"]), str(row["workload"]), int(row["replicas"])))
    found: dict[CellKey, Sequence[Harm]] = {}
    for point, rows in points.items():
        # All rows of a cell repeat its own columns.
        cells = {(str(row.get("device")), row["repeat"]): row for row in rows}
        known = [each for row in cells.values() if (each := _harm(row))]
        of_kinds = group_by(known, lambda each: each[0])
        if known:
            found[point] = [
                Harm(kind, len(own), len(cells), merge_alike("; ".join(reason for _, reason in own)))
                for kind in dict.fromkeys(KINDS.values())
                if (own := of_kinds.get(kind))
            ]
    return found


def _harm(cell: Row) -> tuple[str, str] | None:
    """What happened in a cell, and its reason; of several gates that exclude it, the worst."""
    reason = str(cell["reason"])
    if cell["status"] in KINDS:
        return KINDS[cell["status"]], reason
    if cell["status"] != "ok" or str(cell["valid"]) == "True":
        return None
    # Of a cell that ended well, the reason is `gate: message; gate: message`, and a message may have a `; ` of its own.
    _, *parts = GATE.split(reason)
    messages = dict(zip(parts[::2], parts[1::2], strict=True))
    return next(((kind, messages[gate]) for gate, kind in KINDS.items() if gate in messages), None)
