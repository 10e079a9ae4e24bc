"""tables/startup.csv: how long a strategy takes to be set and left, and a tenant from its launch to its first result.

Values are means over tenants, then over cells; a mean of parts is a part of the mean, so that they add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NotRequired, TypedDict

import pandas as pd

from sharebench.gates.verdict import window_seconds
from sharebench.records.types import Record, Switch

PARTS = ("process_seconds", "import_seconds", "context_seconds", "load_seconds", "first_iteration_seconds")
# Parts of a switch that nodes tell apart (Node.note_phase), in their order.
PHASES = ("publish", "pending", "cut", "plugin", "follow", "stable")
COLUMNS = (
    "strategy",
    "workload",
    "replicas",
    "n",
    "switch_in_seconds",
    "switch_in_n",
    *(f"switch_{phase}_seconds" for phase in PHASES),
    "switch_out_seconds",
    "switch_out_n",
    *PARTS,
    "first_result_seconds",
    "steady_seconds",
    "all_ready_seconds",
    "window_wait_seconds",
    "removal_seconds",
    "overhead_seconds",
)
# Of a cell as a whole, not of its tenants.
OF_CELL = ("all_ready_seconds", "window_wait_seconds", "removal_seconds", "overhead_seconds")


class Configured(TypedDict):
    """nodes/{strategy}.json, as far as tables need it."""

    strategy: str
    configure_seconds: float
    switch: NotRequired[Switch | None]


@dataclass(frozen=True)
class Start:
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

    def phase(self, strategy: str, phase: str) -> float | None:
        """Mean of a part of setting the strategy, 0 for a switch that did not need it; None where none ever did."""
        seen = self._phases[strategy]
        is_known = any(phase in phases for phases in seen)
        return _mean([phases.get(phase, 0.0) for phases in seen]) if is_known else None

    def add_gate(self, gate: Configured) -> None:
        """Take a nodes/{strategy}.json; an older one has the time of leaving and setting together."""
        older: Switch = {"from": None, "out_seconds": None, "in_seconds": gate["configure_seconds"]}
        self.add(gate["strategy"], gate.get("switch", older))


def starts(record: Record) -> list[Start]:
    """The start-ups in a record, one per workload of its tenants; none where there was a fault, or no good end."""
    if record["status"] != "ok" or record.get("fault") is not None:
        return []
    cell = record["cell"]
    found = []
    for workload in dict.fromkeys(tenant["workload"] for tenant in record["tenants"]):
        own = [each["startup"] for each in record["tenants"] if each["workload"] == workload and each["startup"]]
        parts = {
            "process_seconds": _mean([startup["process_seconds"] for startup in own]),
            "import_seconds": _mean([startup["import_seconds"] for startup in own]),
            "context_seconds": _mean([startup["context_seconds"] for startup in own]),
            "load_seconds": _mean([startup["load_seconds"] for startup in own]),
            "first_iteration_seconds": _mean([startup.get("first_iteration_seconds") for startup in own]),
            "warmup_seconds": _mean([startup["warmup_seconds"] for startup in own]),
        }
        if own:
            parts |= _of_cell(record)
            found.append(Start(cell["strategy"], workload, cell["replicas"], parts))
    return found


def _of_cell(record: Record) -> dict[str, float]:
    """What the cell took besides its window, in parts; warm-up, which no way of measuring can do without, apart."""
    timing = record["timing"]
    all_ready = timing["start_seconds"] + timing["ready_seconds"]
    # A simulated window takes no time.
    wait = max(0.0, timing["window_seconds"] - window_seconds(record))
    warm_up = max(tenant["startup"]["warmup_seconds"] for tenant in record["tenants"] if tenant["startup"])
    # The state is looked at by every cell; what a switch takes is told apart.
    checked = timing["configure_seconds"] if record.get("switch") is None else 0.0
    return {
        "all_ready_seconds": all_ready,
        "window_wait_seconds": wait,
        "removal_seconds": timing["stop_seconds"],
        "overhead_seconds": checked + max(0.0, all_ready - warm_up) + wait + timing["stop_seconds"],
    }


def startup_table(found: Iterable[Start], switches: Switches, order: Sequence[tuple[str, str, int]]) -> pd.DataFrame:
    """One row per strategy, workload of the tenants and number of tenants, in the order of `order`."""
    groups: dict[tuple[str, str, int], list[Start]] = defaultdict(list)
    for start in found:
        groups[start.strategy, start.workload, start.replicas].append(start)
    rows = []
    for key in dict.fromkeys(order):
        if not groups[key]:
            continue
        strategy, workload, replicas = key
        mean = {part: _mean([start.parts[part] for start in groups[key]]) for part in groups[key][0].parts}
        loaded = _sum([mean[part] for part in PARTS[:-1]])
        rows.append(
            {
                "strategy": strategy,
                "workload": workload,
                "replicas": replicas,
                "n": len(groups[key]),
                "switch_in_seconds": _mean(switches.into[strategy]),
                "switch_in_n": len(switches.into[strategy]),
                **{f"switch_{phase}_seconds": switches.phase(strategy, phase) for phase in PHASES},
                "switch_out_seconds": _mean(switches.out_of[strategy]),
                "switch_out_n": len(switches.out_of[strategy]),
                **{part: mean[part] for part in PARTS},
                "first_result_seconds": _sum([loaded, mean["first_iteration_seconds"]]),
                "steady_seconds": _sum([loaded, mean["warmup_seconds"]]),
                **{part: mean[part] for part in OF_CELL},
            }
        )
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean, None where any value is missing, or all are."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None
