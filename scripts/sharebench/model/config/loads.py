"""Checks of the `load` of a workload, which yield each problem as one line."""

from collections.abc import Iterator

from sharebench.model.programs import TRACE_COLUMNS
from sharebench.model.workload import WorkloadEntry
from tenant.contract.trace import read_trace

RATES = ("rate_hz", "rate_of_capacity")
IN_FLIGHT = ("concurrency", "concurrency_total")
# Near its capacity the queue of a server whose requests take seconds grows, and no window of minutes shows it.
MAX_STREAMED_RATE = 0.85


def problems(key: str, entry: WorkloadEntry) -> Iterator[str]:
    load, kind = entry["load"], entry["kind"]
    arrival, rates = load["arrival"], [option for option in RATES if load.get(option) is not None]
    for option in rates:
        if arrival in ("closed", "trace"):
            remedy = "remove it or set an arrival" if arrival == "closed" else "remove it, the file has the times"
            yield f"{key}.load.{option}: {load.get(option)} has no effect on a {arrival} load; {remedy}"
    if arrival in ("constant", "poisson") and len(rates) != 1:
        how_many = "both are" if rates else "none is"
        yield f"{key}.load: {arrival} needs rate_hz or rate_of_capacity, {how_many} given; give exactly one"
    share = load["rate_of_capacity"]
    if entry["stream"] and share is not None and share > MAX_STREAMED_RATE:
        yield (
            f"{key}.load.rate_of_capacity: {share} is too near the capacity of a server that streams, "
            f"whose queue would grow unseen; use {MAX_STREAMED_RATE} or less"
        )
    if arrival == "closed" and load["rate_for"] == "all":
        yield f"{key}.load.rate_for: 'all' has no effect on a closed load; use concurrency_total for that"
    given = [option for option in IN_FLIGHT if load.get(option) is not None]
    if len(given) > 1:
        yield f"{key}.load: concurrency and concurrency_total are both given; keep one"
    for option in given:
        if kind != "http":
            yield f"{key}.load.{option}: {load.get(option)} has no effect on kind: {kind}; remove it, or set kind: http"
    yield from _trace_problems(key, entry)


def _trace_problems(key: str, entry: WorkloadEntry) -> Iterator[str]:
    load = entry["load"]
    if (load["arrival"] == "trace") != (load["trace"] is not None):
        if load["trace"] is None:
            yield f"{key}.load.trace: null is not enough for arrival: trace; name a file, such as trace.csv"
        else:
            yield f"{key}.load.trace: {load['trace']!r} has no effect on a {load['arrival']} load; set arrival: trace"
    elif load["trace"] is not None and entry["kind"] != "http":
        yield f"{key}.load.trace: has no effect on kind: {entry['kind']}; remove it, or set kind: http"


def study_problems(key: str, entry: WorkloadEntry, tenants: int) -> Iterator[str]:
    """Totals that leave nothing for one of `tenants`, and problems of a trace's file.

    The file needs the columns that the body has placeholders for.
    """
    total, path = entry["load"]["concurrency_total"], entry["load"]["trace"]
    if total is not None and total < tenants:
        yield f"{key}.load.concurrency_total: {total} is below {tenants} tenants (replicas); give each one at least"
    if path is None:
        return
    body = entry["request"]["body"] or ""
    needed = {column: None for name, column in TRACE_COLUMNS.items() if f"{{{name}}}" in body}
    try:
        rows = read_trace(path, needed)
    except FileNotFoundError:
        yield f"{key}.load.trace: {path!r} is not a file; its path begins where snakemake runs"
    except ValueError as error:
        yield f"{key}.load.trace: {path}: {error}"
    else:
        if entry["load"]["rate_for"] == "all" and len(rows) < tenants:
            yield f"{key}.load.trace: {path}: {len(rows)} requests are too few for {tenants} tenants (replicas)"
