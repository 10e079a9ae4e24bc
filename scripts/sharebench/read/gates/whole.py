"""The check that a record is whole and that it lies where it belongs, before anything is read from it."""

import math
from collections.abc import Iterator
from pathlib import Path

from sharebench.model.records.record import RecordError, window_seconds
from sharebench.model.records.types import Record
from sharebench.model.spec import Spec, parse_spec
from sharebench.study.cells import Cell, cell_from_path

# A window's ends are set ahead to the nanosecond, so that it has the length in the spec except for rounding.
LENGTH_RATIO = 1e-3


def check_whole(path: Path, record: Record) -> None:
    """Raise RecordError, one line that names the file, if the record contradicts its spec or its path."""
    try:
        spec = parse_spec(record["spec"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}: a damaged record: its spec cannot be read ({type(error).__name__})") from None
    if problem := next(_contradictions(record, spec), None):
        raise RecordError(f"{path}: a damaged record: {problem}")
    key = record["cell"]
    own = Cell(key["strategy"], key["workload"], key["replicas"], key["repeat"])
    try:
        there = cell_from_path(path.as_posix())
    except ValueError:
        return
    if there != own:
        raise RecordError(f"{path}: a record in the wrong place: it is of {own}, its path of {there}")


def _contradictions(record: Record, spec: Spec) -> Iterator[str]:
    planned: dict[str, object] = {
        "strategy": spec.strategy.name,
        "workload": spec.workload.name,
        "replicas": spec.replicas,
        "repeat": spec.repeat,
    }
    for name, found in record["cell"].items():
        if found != planned.get(name, found):
            yield f"its {name} is {found}, its spec says {planned[name]}"
    if record["node"]["kind"] != spec.node.kind:
        yield f"its node is of kind {record['node']['kind']}, its spec says {spec.node.kind}"
    if record["status"] != "ok":
        return
    tenants = [(tenant["index"], tenant["workload"]) for tenant in record["tenants"]]
    expected = [workload.name for workload in spec.workloads]
    if tenants != list(enumerate(expected)):
        listed = ", ".join(f"{index} ({workload})" for index, workload in tenants) or "none"
        yield f"its tenants are {listed}; its spec says {', '.join(expected)}"
    for tenant in record["tenants"]:
        # The share of the requests that keep an SLO is over the count.
        if "requests" in tenant and (length := len(tenant["requests"]["start_seconds"])) > tenant["count"]:
            yield f"tenant {tenant['index']} lists {length} requests, its count says {tenant['count']}"
    seconds = window_seconds(record)
    if seconds <= 0:
        yield f"its window of {seconds:g} s is not positive"
    # Jobs end their own window.
    if not spec.runs_jobs and not math.isclose(seconds, spec.window_seconds, rel_tol=LENGTH_RATIO):
        yield f"its window is {seconds:g} s, its spec says {spec.window_seconds:g} s"
