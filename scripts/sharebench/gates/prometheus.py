"""Gates of cells that Prometheus watched: whether what it says of them is worth reading. The record is not in doubt."""

from sharebench.gates.verdict import Verdict, at_most
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
    judged = [(0.0, "")]
    for seen, tenant in zip(said["tenants"], record["tenants"], strict=True):
        index, counted, count = tenant["index"], tenant["count"], seen["count"]
        if count is None:
            line = f"Prometheus has no scrapes of tenant {index} on both sides of the window"
            return Verdict(None, COUNT_RATIO, False, line)
        if counted:
            value = max(0.0, abs(count - counted) - EDGE_ITERATIONS) / counted
            judged.append((value, f"Prometheus saw {count:.1f} iterations of tenant {index}, which counted {counted}"))
    worst, message = max(judged)
    return at_most(worst, COUNT_RATIO, message)


def prometheus_scrapes(record: CellRecord) -> Verdict | None:
    """The longest time without a scrape in the window, in scrape intervals; a reset of a tenant's counters fails it."""
    said = record.get("prometheus")
    if not said:
        return None
    if said["error"]:
        return Verdict(None, GAP_SCRAPES, False, said["error"])
    interval_seconds, judged = said["scrape_seconds"], [(0.0, "")]
    for seen in said["tenants"]:
        index, gap_seconds = seen["index"], seen["longest_gap_seconds"]
        if gap_seconds is None:
            return Verdict(None, GAP_SCRAPES, False, f"Prometheus has not scraped tenant {index} at all")
        line = f"tenant {index} was not scraped for {gap_seconds:.3g} s, with {interval_seconds:g} s between scrapes"
        judged.append((gap_seconds / interval_seconds, line))
    worst, message = max(judged)
    if reset := [seen["index"] for seen in said["tenants"] if seen["resets"]]:
        return Verdict(worst, GAP_SCRAPES, False, f"the counters of tenant {reset[0]} were reset")
    return at_most(worst, GAP_SCRAPES, message)
