"""tables/startup.csv: the time to set and leave a strategy, and of a tenant from its launch to its first result.

Values are means over tenants, then over cells, so that the means of parts add up to the mean of their sum.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, NotRequired, TypedDict, get_args

import pandas as pd

from sharebench.model.records.record import window_seconds
from sharebench.model.records.types import Record, Switch
from sharebench.read.columns import TableRow, table_frame
from sharebench.read.grouping import group_by

StartupPart = Literal[
    "process_seconds", "import_seconds", "context_seconds", "load_seconds", "first_iteration_seconds", "warmup_seconds"
]
PARTS: tuple[StartupPart, ...] = get_args(StartupPart)
LOADING_PARTS = PARTS[:4]
"""The parts before the first iteration."""
# Parts of a switch that nodes report (Node.note_phase), in their order.
PHASES = ("publish", "pending", "cut", "plugin", "follow", "stable")


class NodeFile(TypedDict):
    """The keys of nodes/{strategy}.json that tables need."""

    strategy: str
    configure_seconds: float
    switch: NotRequired[Switch | None]


class Startup(NamedTuple):
    """The tenants of one cell that run one workload: the means of their start-up's parts."""

    group: tuple[str, str, int]
    """Strategy, workload of the tenants and number of tenants."""
    parts: Mapping[str, float | None]


class Switches:
    """The recorded switches of the node, each with the strategy that was set."""

    def __init__(self) -> None:
        self._found: list[tuple[str, Switch]] = []

    def add(self, strategy: str, switch: Switch | None) -> None:
        """Add the `switch` of a record or calibration; None where nothing was switched."""
        if switch is not None:
            self._found.append((strategy, switch))

    def add_node_file(self, gate: NodeFile) -> None:
        """Add the switch of a nodes/{strategy}.json; older files have one time for leaving and setting."""
        older: Switch = {"from": None, "out_seconds": None, "in_seconds": gate["configure_seconds"]}
        self.add(gate["strategy"], gate.get("switch", older))

    def columns(self, strategy: str) -> TableRow:
        """The columns of a strategy; a switch without a phase counts as 0 if another one had it."""
        into = [switch for name, switch in self._found if name == strategy]
        seen = [switch["phases"] for switch in into if "phases" in switch]
        left = [switch for _, switch in self._found if (switch["from"] or "").partition(" ")[0] == strategy]
        out_of = [switch["out_seconds"] for switch in left if switch["out_seconds"] is not None]
        return {
            "switch_in_seconds": _mean([switch["in_seconds"] for switch in into]),
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
    """The start-ups in a record, one per workload of its tenants; none after a fault or a failure."""
    if record["status"] != "ok" or record.get("fault") is not None:
        return []
    cell = record["cell"]
    startups = []
    for workload, tenants in group_by(record["tenants"], lambda tenant: tenant["workload"]).items():
        if own := [startup for tenant in tenants if (startup := tenant["startup"])]:
            parts: dict[str, float | None] = {part: _mean([startup.get(part) for startup in own]) for part in PARTS}
            group = cell["strategy"], workload, cell["replicas"]
            startups.append(Startup(group, parts | _cell_seconds(record)))
    return startups


def _cell_seconds(record: Record) -> dict[str, float]:
    """The parts of a cell's time outside its window; overhead excludes warm-up, which every method needs."""
    timing = record["timing"]
    all_ready = timing["start_seconds"] + timing["ready_seconds"]
    # A simulated window takes no time.
    wait = max(0.0, timing["window_seconds"] - window_seconds(record))
    warm_up = max(tenant["startup"]["warmup_seconds"] for tenant in record["tenants"] if tenant["startup"])
    # Every cell checks the node's state; a switch has columns of its own.
    checked = timing["configure_seconds"] if record.get("switch") is None else 0.0
    return {
        "all_ready_seconds": all_ready,
        "window_wait_seconds": wait,
        "removal_seconds": timing["stop_seconds"],
        "overhead_seconds": checked + max(0.0, all_ready - warm_up) + wait + timing["stop_seconds"],
    }


def startup_table(found: Iterable[Startup], switches: Switches, order: Sequence[tuple[str, str, int]]) -> pd.DataFrame:
    """One row per strategy, workload of the tenants and number of tenants, in the order of `order`."""
    groups = group_by(found, lambda start: start.group)
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
    """The mean; None without values or where any is missing."""
    total = _sum(values)
    return None if total is None or not values else total / len(values)


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
