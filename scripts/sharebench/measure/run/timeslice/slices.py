"""Runs, gaps and switches of the tenants on a device, from the gaps in each tenant's readings of the device's clock.

A `run` lasts from the end of one gap to the start of the next. A `switch` lasts from the end of one tenant's run to the
start of another's, with no tenant on the device between. All times are in ns of the device's clock.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

KINDS = ("run", "gap", "switch")
# 1.1 % wide, as the buckets of latencies.
BUCKETS_PER_DOUBLING = 64
ZOOM_SECONDS = 0.02

Intervals = npt.NDArray[np.int64]
Values = npt.NDArray[np.float64]


class UnusableTimelines(Exception):
    """The timelines do not show who ran when; one line."""


def runs(timeline: Mapping[str, Any], begin_ns: int, end_ns: int) -> Intervals:
    """A tenant's times on the device between `begin_ns` and `end_ns`: shape (n, 2), start and end in ns.

    Raises UnusableTimelines when the device's timer ran backwards.
    """
    gaps = np.array(timeline["gaps"], dtype=np.int64).reshape(-1, 2)
    edges = np.concatenate(([timeline["first_ns"]], gaps.ravel(), [max(timeline["last_ns"], end_ns)]))
    if (np.diff(edges) < 0).any():
        raise UnusableTimelines("the device's timer ran backwards, so that gaps cannot be measured")
    clipped = np.clip(edges, begin_ns, end_ns).reshape(-1, 2)
    return clipped[clipped[:, 1] > clipped[:, 0]]


def common_interval(timelines: Sequence[Mapping[str, Any]], end_ns: int) -> tuple[int, int]:
    """Start and end in ns of the time that all timelines cover: all have begun, and none has run out of room."""
    begin_ns = max(timeline["first_ns"] for timeline in timelines)
    for timeline in timelines:
        if timeline["gap_count"] > len(timeline["gaps"]):
            end_ns = min(end_ns, timeline["gaps"][-1][1])
    if end_ns <= begin_ns:
        raise UnusableTimelines("the kernels never ran at the same time: the last began after the common end")
    return begin_ns, end_ns


def uncut(intervals: Intervals, begin_ns: int, end_ns: int) -> Intervals:
    """The intervals that lie wholly between the two times."""
    return intervals[(intervals[:, 0] > begin_ns) & (intervals[:, 1] < end_ns)]


def switches(lanes: Sequence[Intervals]) -> list[tuple[int, int]]:
    """Changes of tenant with an idle device between: the index of the new tenant, and the idle time in ns."""
    all_runs = sorted((int(begin), int(end), lane) for lane, own_runs in enumerate(lanes) for begin, end in own_runs)
    changes = []
    owner, until = None, 0
    for begin, end, lane in all_runs:
        if owner is not None and lane != owner and begin >= until:
            changes.append((lane, begin - until))
        if end > until:
            owner, until = lane, end
    return changes


def occupancy(lanes: Sequence[Intervals], begin_ns: int, end_ns: int) -> dict[str, float]:
    """The mean number of tenants on the device, and the shares of time with none and with several."""
    edges = np.concatenate([lane.ravel() for lane in lanes])
    steps = np.tile([1, -1], len(edges) // 2)
    order = np.argsort(edges, kind="stable")
    times = np.concatenate(([begin_ns], edges[order], [end_ns]))
    count = np.concatenate(([0], np.cumsum(steps[order])))
    shares = np.diff(times) / (end_ns - begin_ns)
    return {
        "tenants_on_device_mean": float((count * shares).sum()),
        "idle_ratio": float(shares[count == 0].sum()),
        "overlap_ratio": float(shares[count > 1].sum()),
    }


def summary(values_us: Values) -> dict[str, Any] | None:
    """Count, mean, extremes and percentiles in µs; None without values."""
    if not len(values_us):
        return None
    p5, p50, p95 = np.percentile(values_us, (5, 50, 95))
    return {
        "count": len(values_us),
        "mean_us": float(values_us.mean()),
        "min_us": float(values_us.min()),
        "p5_us": float(p5),
        "p50_us": float(p50),
        "p95_us": float(p95),
        "max_us": float(values_us.max()),
    }


def histogram(values_us: Values) -> list[tuple[float, float, int]]:
    """Non-empty buckets: lower bound (excluded) and upper bound (included) in µs, and count. The first begins at 0."""
    index = np.ceil(np.log2(np.maximum(values_us, 1.0)) * BUCKETS_PER_DOUBLING).astype(int)
    filled, counts = np.unique(index, return_counts=True)
    bounds = [2.0 ** (each / BUCKETS_PER_DOUBLING) for each in filled]
    width = 2.0 ** (1 / BUCKETS_PER_DOUBLING)
    return [(upper / width if i else 0.0, upper, int(n)) for i, upper, n in zip(filled, bounds, counts, strict=True)]


def analyse(timelines: Sequence[Mapping[str, Any]], end_ns: int) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """The part of one strategy in timeslice.json, and the rows of timeslice.csv without the strategy.

    Each timeline has `first_ns`, `last_ns`, `resolution_ns`, `gap_count` (with those that found no room) and `gaps`
    [[last time before, first time after], ...]. Raises UnusableTimelines when they do not belong together.
    """
    begin_ns, end_ns = common_interval(timelines, end_ns)
    lanes = [runs(timeline, begin_ns, end_ns) for timeline in timelines]
    changes = switches(lanes)
    values: list[dict[str, Values]] = []
    for lane, own_runs in enumerate(lanes):
        gaps = np.column_stack((own_runs[:-1, 1], own_runs[1:, 0]))
        values.append(
            {
                "run": np.diff(uncut(own_runs, begin_ns, end_ns)).ravel() / 1e3,
                "gap": np.diff(gaps).ravel() / 1e3,
                "switch": np.array([ns for tenant, ns in changes if tenant == lane]) / 1e3,
            }
        )
    zoom_ns = int(ZOOM_SECONDS * 1e9)
    zoom_begin = max(begin_ns, (begin_ns + end_ns - zoom_ns) // 2)
    zoom_end = min(zoom_begin + zoom_ns, end_ns)
    part: dict[str, Any] = {
        "seconds": (end_ns - begin_ns) / 1e9,
        "resolution_ns": min(timeline["resolution_ns"] for timeline in timelines),
        **occupancy(lanes, begin_ns, end_ns),
        **{kind: summary(np.concatenate([each[kind] for each in values])) for kind in KINDS},
        "tenants": [
            {"on_device_ratio": float(np.diff(own_runs).sum() / (end_ns - begin_ns))}
            | {kind: summary(each[kind]) for kind in KINDS}
            for own_runs, each in zip(lanes, values, strict=True)
        ],
        "timeline": {
            "seconds": (zoom_end - zoom_begin) / 1e9,
            "runs_us": [((runs(each, zoom_begin, zoom_end) - zoom_begin) / 1e3).tolist() for each in timelines],
        },
    }
    rows = [
        (lane, kind, lower, upper, count)
        for lane, each in enumerate(values)
        for kind in KINDS
        for lower, upper, count in histogram(each[kind])
    ]
    return part, rows
