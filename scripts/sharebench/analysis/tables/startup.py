"""tables/startup.csv: how long a strategy takes to be set and left, and a tenant from its launch to its first result.

Values are means over tenants, then over cells; a mean of parts is a part of the mean, so that they add up.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict, get_args

import pandas as pd

from sharebench.analysis.cells.rows import group_by
from sharebench.gates.verdict import window_seconds
from sharebench.records.tables import TableRow, table_frame
from sharebench.records.types import Record, Switch

StartupPart = Literal[
    "process_seconds", "import_seconds", "context_seconds", "load_seconds", "first_iteration_seconds", "warmup_seconds"
]
PARTS: tuple[StartupPart, ...] = get_args(StartupPart)
LOADING_PARTS = PARTS[:4]
"""Before the first iteration."""
# Parts of a switch that nodes report (Node.note_phase), in their order.
PHASES = ("publish", "pending", "cut", "plugin", "follow", "stable")


class NodeFile(TypedDict):
    """nodes/{strategy}.json, as far as tables need it."""

    strategy: str
    configure_seconds: float
    switch: NotRequired[Switch | None]


@dataclass(frozen=True)
class Startup:
    """The tenants of one cell that run one workload: their start-up, each part by its name."""

    strategy: str
    workload: str
    replicas: int
    parts: Mapping[str, float | None]


class Switches:
    """The changes of the node's state that were seen, by the strategy that was set and by the one that was left."""

    def __init__(self) -> None:
        self.into: dict[str, list[float]] = defaultdict(list)
        self.out_of: dict[str, list[float]] = defaultdict(list)
        self._phases: dict[str, list[Mapping[str, float]]] = defaultdict(list)

    def add(self, strategy: str, switch: Switch | None) -> None:
        """Take a record's `switch`, or a calibration's; None where nothing was switched."""
        if switch is None:
            return
        self.into[strategy].append(switch["in_seconds"])
        if "phases" in switch:
            self._phases[strategy].append(switch["phases"])
        before = switch["from"]
        if before is not None and switch["out_seconds"] is not None:
            self.out_of[before.partition(" ")[0]].append(switch["out_seconds"])

    def add_node_file(self, gate: NodeFile) -> None:
        """Take a nodes/{strategy}.json; an older one has the time of leaving and setting together."""
        older: Switch = {"from": None, "out_seconds": None, "in_seconds": gate["configure_seconds"]}
        self.add(gate["strategy"], gate.get("switch", older))

    def columns(self, strategy: str) -> TableRow:
        """The columns of a strategy; a switch that did not need a part counts as 0, None where none ever did."""
        into, out_of, seen = self.into[strategy], self.out_of[strategy], self._phases[strategy]
        return {
            "switch_in_seconds": _mean(into),
            "switch_in_n": len(into),
            **{
                f"switch_{phase}_seconds": _mean([phases.get(phase, 0.0) for phases in seen])
                for phase in PHASES
                if any(phase in phases for phases in seen)
            },
            "switch_out_seconds": _mean(out_of),
            "switch_out_n": len(out_of),
        }


def cell_startups(record: Record) -> list[Startup]:
    """The start-ups in a record, one per workload of its tenants; none where there was a fault, or no good end."""
    if record["status"] != "ok" or record.get("fault") is not None:
        return []
    cell = record["cell"]
    found = []
    for workload, tenants in group_by(record["tenants"], lambda tenant: tenant["workload"]).items():
        if own := [startup for tenant in tenants if (startup := tenant["startup"])]:
            parts: dict[str, float | None] = {part: _mean([startup.get(part) for startup in own]) for part in PARTS}
            found.append(Startup(cell["strategy"], workload, cell["replicas"], parts | _cell_seconds(record)))
    return found


def _cell_seconds(record: Record) -> dict[str, float]:
    """What the cell took besides its window, in parts; warm-up, which no method can do without, is not in overhead."""
    timing = record["timing"]
    all_ready = timing["start_seconds"] + timing["ready_seconds"]
    # A simulated window takes no time.
    wait = max(0.0, timing["window_seconds"] - window_seconds(record))
    warm_up = max(tenant["startup"]["warmup_seconds"] for tenant in record["tenants"] if tenant["startup"])
    # Every cell looks at the state; a switch has columns of its own.
    checked = timing["configure_seconds"] if record.get("switch") is None else 0.0
    return {
        "all_ready_seconds": all_ready,
        "window_wait_seconds": wait,
        "removal_seconds": timing["stop_seconds"],
        "overhead_seconds": checked + max(0.0, all_ready - warm_up) + wait + timing["stop_seconds"],
    }


def startup_table(found: Iterable[Startup], switches: Switches, order: Sequence[tuple[str, str, int]]) -> pd.DataFrame:
    """One row per strategy, workload of the tenants and number of tenants, in the order of `order`."""
    groups = group_by(found, lambda start: (start.strategy, start.workload, start.replicas))
    return table_frame("startup", (_row(key, groups[key], switches) for key in dict.fromkeys(order) if groups[key]))


def _row(key: tuple[str, str, int], starts: Sequence[Startup], switches: Switches) -> TableRow:
    mean = {part: _mean([start.parts[part] for start in starts]) for part in starts[0].parts}
    first_result, steady = (
        _sum([mean[part] for part in (*LOADING_PARTS, last)]) for last in ("first_iteration_seconds", "warmup_seconds")
    )
    return {
        **dict(zip(("strategy", "workload", "replicas"), key, strict=True)),
        "n": len(starts),
        **switches.columns(key[0]),
        **mean,
        "first_result_seconds": first_result,
        "steady_seconds": steady,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean, None where any value is missing, or all are."""
    total = _sum(values)
    return None if total is None or not values else total / len(values)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
