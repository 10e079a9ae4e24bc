"""Gates of cells that Prometheus watched: whether what it says of them is worth reading. The record is not in doubt."""

from __future__ import annotations

from sharebench.gates.verdict import Verdict
from sharebench.records.types import CellRecord

# Between two scrapes counts are interpolated, and a tenant that is on a CPU answers late: 1 % is usual at 1 Hz.
COUNT_RATIO = 0.02
# One iteration at each end may be counted or not.
EDGE_ITERATIONS = 2
# One scrape may be late; of two that are missing in a row the time between is a guess.
GAP_SCRAPES = 2.5


def prometheus_counts(record: CellRecord) -> Verdict | None:
    """By how much the iterations that Prometheus saw differ from those that the tenants counted."""
    said = record.get("prometheus")
    if not said:
        return None
    if said["error"]:
        return Verdict(None, COUNT_RATIO, False, said["error"])
    worst, message = 0.0, ""
    for seen, tenant in zip(said["tenants"], record["tenants"], strict=True):
        if seen["count"] is None:
            line = f"Prometheus has no scrapes of tenant {tenant['index']} on both sides of the window"
            return Verdict(None, COUNT_RATIO, False, line)
        if not tenant["count"]:
            continue
        value = max(0.0, abs(seen["count"] - tenant["count"]) - EDGE_ITERATIONS) / tenant["count"]
        if value >= worst:
            worst = value
            message = (
                f"Prometheus saw {seen['count']:.1f} iterations of tenant {tenant['index']}, "
                f"which counted {tenant['count']}"
            )
    return Verdict(worst, COUNT_RATIO, worst <= COUNT_RATIO, message)


def prometheus_scrapes(record: CellRecord) -> Verdict | None:
    """The longest time without a scrape in the window, in scrape intervals; a restart of either side fails it."""
    said = record.get("prometheus")
    if not said:
        return None
    if said["error"]:
        return Verdict(None, GAP_SCRAPES, False, said["error"])
    worst, message = 0.0, ""
    for seen in said["tenants"]:
        if seen["longest_gap_seconds"] is None:
            return Verdict(None, GAP_SCRAPES, False, f"Prometheus has not scraped tenant {seen['index']} at all")
        value = seen["longest_gap_seconds"] / said["scrape_seconds"]
        if value >= worst:
            worst = value
            message = (
                f"tenant {seen['index']} was not scraped for {seen['longest_gap_seconds']:.3g} s, "
                f"with {said['scrape_seconds']:g} s between scrapes"
            )
    restarted = [seen["index"] for seen in said["tenants"] if seen["resets"]]
    if restarted:
        return Verdict(worst, GAP_SCRAPES, False, f"the counters of tenant {restarted[0]} began anew")
    if said["restarted"]:
        return Verdict(worst, GAP_SCRAPES, False, f"Prometheus was started anew meanwhile; {message}")
    return Verdict(worst, GAP_SCRAPES, worst <= GAP_SCRAPES, message)
