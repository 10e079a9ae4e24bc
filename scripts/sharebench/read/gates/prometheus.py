"""Gates of cells that Prometheus watched, which judge Prometheus's numbers and not the record."""

from sharebench.model.records.types import CellRecord
from sharebench.read.gates.verdict import Verdict, at_most

# Counts are interpolated between two scrapes, and a busy tenant on a CPU answers late: 1 % is usual at 1 Hz.
COUNT_RATIO = 0.02
# At each end of the window one iteration may be counted or not.
EDGE_ITERATIONS = 2
# One scrape may be late; with two missing in a row, the time between them is a guess.
GAP_SCRAPES = 2.5


def prometheus_counts(record: CellRecord) -> Verdict | None:
    """Relative difference between the iterations that Prometheus saw and those that the tenants counted."""
    watched = record.get("prometheus")
    if not watched:
        return None
    if watched["error"]:
        return Verdict(None, COUNT_RATIO, False, watched["error"])
    judged = [(0.0, "")]
    for scraped, tenant in zip(watched["tenants"], record["tenants"], strict=True):
        index, counted, count = tenant["index"], tenant["count"], scraped["count"]
        if count is None:
            message = f"Prometheus has no scrapes of tenant {index} on both sides of the window"
            return Verdict(None, COUNT_RATIO, False, message)
        if counted:
            value = max(0.0, abs(count - counted) - EDGE_ITERATIONS) / counted
            judged.append((value, f"Prometheus saw {count:.1f} iterations of tenant {index}, which counted {counted}"))
    worst, message = max(judged)
    return at_most(worst, COUNT_RATIO, message)


def prometheus_scrapes(record: CellRecord) -> Verdict | None:
    """Longest time without a scrape in the window, in scrape intervals; a reset of a tenant's counters fails, too."""
    watched = record.get("prometheus")
    if not watched:
        return None
    if watched["error"]:
        return Verdict(None, GAP_SCRAPES, False, watched["error"])
    interval_seconds, judged = watched["scrape_seconds"], [(0.0, "")]
    for scraped in watched["tenants"]:
        index, gap_seconds = scraped["index"], scraped["longest_gap_seconds"]
        if gap_seconds is None:
            return Verdict(None, GAP_SCRAPES, False, f"Prometheus has not scraped tenant {index} at all")
        message = f"tenant {index} was not scraped for {gap_seconds:.3g} s, with {interval_seconds:g} s between scrapes"
        judged.append((gap_seconds / interval_seconds, message))
    worst, message = max(judged)
    if reset := [scraped["index"] for scraped in watched["tenants"] if scraped["resets"]]:
        return Verdict(worst, GAP_SCRAPES, False, f"the counters of tenant {reset[0]} were reset")
    return at_most(worst, GAP_SCRAPES, message)
