"""Jobs one after another: a cell of a queue is one cell with one tenant for each job, joined into one record.

Each job has the exclusive device, from the launch of its tenant to its end, and the next one is not launched before.
Every measuring job starts this module, so it imports nothing heavy.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from sharebench.cell.cell import common_environment, empty_tenant, judge, run_cell, used_calibration
from sharebench.core.spec import parse, tenant_workloads
from sharebench.core.strategies import Strategy
from sharebench.gates import gates
from sharebench.nodes.node import Node
from sharebench.records.telemetry import NOTHING_KNOWN, Row
from sharebench.records.types import CellRecord, Outcome

Record = dict[str, Any]
# What of a summary of telemetry is not a mean over the window.
SUMS = ("energy_joules", "energy_error_joules")
LARGEST = ("memory_used_max_mib", "server_memory_mib", "temperature_max_celsius", "sm_clock_cv")


def run_queue(
    node: Node,
    strategy: Strategy,
    spec_text: str,
    block: int,
    settings: Mapping[str, Any],
    calibrations: Mapping[str, Mapping[str, Any]],
) -> tuple[Record, list[Row]]:
    """Measure one cell of a queue, as `cell.run_cell` does another; a job that does not end well ends the queue."""
    spec = parse(spec_text)
    turns: list[tuple[Record, list[Row]]] = []
    for workload in tenant_workloads(spec):
        alone = json.dumps({**spec, "workload": workload, "replicas": 1})
        used = {name: each for name, each in calibrations.items() if name == workload["name"]}
        turns.append(run_cell(node, strategy, alone, block, settings, used))
        if turns[-1][0]["status"] != "ok":
            break
    return joined(spec_text, [record for record, _ in turns], calibrations), _rows(turns)


def _start_seconds(record: Record) -> float:
    start: float = record["window"]["start_monotonic_seconds"]
    return start


def _rows(turns: Sequence[tuple[Record, list[Row]]]) -> list[Row]:
    """The rows of telemetry.csv, by seconds since the start of the first job."""
    measured = [(record, rows) for record, rows in turns if record["window"] is not None]
    joined_rows: list[Row] = []
    for record, rows in measured:
        late = _start_seconds(record) - _start_seconds(measured[0][0])
        joined_rows += [row | {"t_seconds": round(float(row["t_seconds"] or 0) + late, 3)} for row in rows]
    return joined_rows


def joined(spec_text: str, turns: Sequence[Record], calibrations: Mapping[str, Mapping[str, Any]]) -> Record:
    """The record of the queue from those of its turns, in order; the last may be one that did not end well."""
    spec = parse(spec_text)
    workloads, first = tenant_workloads(spec), turns[0]
    tenants = [turn["tenants"][0] | {"index": index} for index, turn in enumerate(turns) if turn["tenants"]]
    cell = first["cell"] | {"workload": spec["workload"]["name"], "replicas": spec["replicas"]}
    timing = {part: sum(turn["timing"][part] for turn in turns) for part in first["timing"]}
    record = first | {"spec": spec_text, "cell": cell, "timing": timing}
    if not first["tenants"]:
        return record
    never = Outcome(status="ok", exit=None)
    record["tenants"] = tenants + [
        empty_tenant(index, workloads[index]["name"], never) for index in range(len(tenants), len(workloads))
    ]
    why = turns[-1]["reason"] if turns[-1]["status"] != "ok" else None
    record["status"], record["reason"] = judge(record["tenants"], why)
    record["calibration"] = used_calibration(spec, calibrations) if calibrations else None
    record["evidence"] = [
        item | {"source": item["source"] if item["source"] == "node" else f"tenant {index}"}
        for index, turn in enumerate(turns)
        for item in turn["evidence"]
    ]
    measured = [turn for turn in turns if turn["window"] is not None]
    record["window"] = _window([turn["window"] for turn in measured]) if measured else None
    record["telemetry"] = _telemetry(measured, spec["replicas"]) if measured else None
    record["environment"] = common_environment([turn["environment"] for turn in measured]) if measured else {}
    return record | {"gates": gates.evaluate(cast(CellRecord, record))}


def _window(windows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ends = ("end_monotonic_seconds", "end_epoch_seconds")
    return {
        **windows[0],
        **{end: windows[-1][end] for end in ends},
        "clock_error_seconds": max(window["clock_error_seconds"] for window in windows),
        "turns": [[window["start_monotonic_seconds"], window["end_monotonic_seconds"]] for window in windows],
    }


def _telemetry(turns: Sequence[Record], replicas: int) -> dict[str, Any]:
    """The summary over all turns: sums, largest values, and means weighted by how long each turn was."""
    parts = [turn["telemetry"] for turn in turns]
    seconds = [turn["window"]["end_monotonic_seconds"] - _start_seconds(turn) for turn in turns]

    def of(key: str, reduce: Callable[[list[float]], float]) -> float | None:
        known = [part[key] for part in parts]
        return None if None in known else float(reduce(known))

    def mean(values: list[float]) -> float:
        return float(sum(value * weight for value, weight in zip(values, seconds, strict=True)) / sum(seconds))

    summary: dict[str, Any] = dict(NOTHING_KNOWN)
    summary |= {"source": parts[0]["source"], "reason": parts[0]["reason"]}
    for key in summary.keys() - {
        "source",
        "reason",
        "samples",
        "tenant_memory_mib",
        "throttle_reasons",
        "foreign_processes",
    }:
        summary[key] = of(key, sum if key in SUMS else max if key in LARGEST else mean)
    summary["samples"] = sum(part["samples"] for part in parts)
    summary["temperature_start_celsius"] = parts[0]["temperature_start_celsius"]
    summary["temperature_end_celsius"] = parts[-1]["temperature_end_celsius"]
    memory = [part["tenant_memory_mib"] for part in parts]
    if None not in memory:
        known = [mib for each in memory for mib in each]
        summary["tenant_memory_mib"] = known + [None] * (replicas - len(known))
    for key, reduce in (("throttle_reasons", mean), ("foreign_processes", max)):
        counted = [part[key] for part in parts]
        if None not in counted:
            names = sorted(Counter(name for each in counted for name in each))
            summary[key] = {name: reduce([each.get(name, 0) for each in counted]) for name in names}
    return summary
