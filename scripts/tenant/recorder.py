"""Folds rows of start and end times into exact counts: histograms, windows with their timelines, totals, steadiness."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tenant import contract
from tenant.workload import TimeSample

# Reasons of failures that a window counts separately; a server may put a number into each.
MAX_REASONS = 16
OTHER_REASONS = "other reasons"

IntArray = npt.NDArray[np.int64]

# Latencies are whole nanoseconds, so comparing them with rounded-down bounds is exact.
_UPPER_NS: IntArray = np.array(
    [math.floor(1000 * 2 ** (index / contract.BUCKETS_PER_DOUBLING)) for index in range(contract.OVERFLOW_INDEX)]
)


def bucket_index(latencies_ns: IntArray) -> npt.NDArray[np.intp]:
    """Bucket index of each latency in whole nanoseconds; has the shape of its input."""
    return np.searchsorted(_UPPER_NS, latencies_ns)


def quantile_seconds(counts: IntArray, q: float) -> float:
    """The q-quantile in seconds: the geometric middle of the bucket that holds rank ceil(q n).

    `counts` has shape (contract.BUCKET_COUNT,) and a sum above 0. The first bucket yields its upper bound, the overflow
    bucket infinity; elsewhere the error is below QUANTILE_ERROR_RATIO.
    """
    cumulative = np.cumsum(counts)
    index = int(np.searchsorted(cumulative, max(1, math.ceil(q * int(cumulative[-1])))))
    upper = contract.upper_seconds(index)
    return upper if index == 0 else upper * 2 ** (-0.5 / contract.BUCKETS_PER_DOUBLING)


def to_sparse(counts: IntArray) -> dict[str, int]:
    """The record's form of a histogram: counts by bucket index as text, without empty buckets."""
    return {str(index): int(counts[index]) for index in np.flatnonzero(counts)}


class TokenStream(NamedTuple):
    """The tokens of one answer: for each event with tokens its time in monotonic ns and its number of tokens.

    `ended_ns` is None until the answer has ended. `reported` is the server's own count of tokens, None without one.
    """

    intended_ns: int
    ended_ns: int | None
    times_ns: array[int]
    tokens: array[int]
    reported: int | None


class Rows(NamedTuple):
    """Finished iterations by ascending intended start; times in monotonic ns, arrays of shape (n,).

    `begun` is None for back-to-back iterations, which begin when intended. `failed` has reasons by row number,
    `dropped` the intended starts of requests that found the queue full, `active` the begin and end of the loop's run.
    For overlapping requests, `free` is when each could have been sent, `streams` yields, once, the tokens of successful
    ones, and `new_connections` lists the rows that needed a new connection.
    """

    intended: IntArray
    begun: IntArray | None
    ended: IntArray
    failed: Mapping[int, str]
    dropped: Sequence[int]
    active: tuple[int, int]
    free: IntArray | None = None
    streams: Iterable[TokenStream] = ()
    new_connections: Sequence[int] = ()

    def successful(self) -> Rows:
        if not self.failed:
            return self
        keep = np.delete(np.arange(self.intended.size), list(self.failed))
        begun = None if self.begun is None else self.begun[keep]
        free = None if self.free is None else self.free[keep]
        return self._replace(intended=self.intended[keep], begun=begun, ended=self.ended[keep], failed={}, free=free)


class Tally:
    """A histogram of latencies with their exact count, sum and extremes in ns, and their sum of squares in ns²."""

    def __init__(self) -> None:
        self.counts: IntArray = np.zeros(contract.BUCKET_COUNT, dtype=np.int64)
        self.count = 0
        self.sum_ns = 0
        self.sum_squares_ns2 = 0.0
        self.min_ns: int | None = None
        self.max_ns = 0

    def add(self, latencies_ns: IntArray) -> None:
        if latencies_ns.size:
            self.counts += np.bincount(bucket_index(latencies_ns), minlength=contract.BUCKET_COUNT)
            # Doubles, because the squares do not fit into 64-bit integers; 16 digits of their sum are right.
            # No dot product, because BLAS may wake up a thread per core for it.
            self.sum_squares_ns2 += float(np.square(latencies_ns, dtype=np.float64).sum())
            self._update(latencies_ns.size, int(latencies_ns.sum()), int(latencies_ns.max()), int(latencies_ns.min()))

    def merge(self, other: Tally) -> None:
        if other.min_ns is not None:
            self.counts += other.counts
            self.sum_squares_ns2 += other.sum_squares_ns2
            self._update(other.count, other.sum_ns, other.max_ns, other.min_ns)

    def _update(self, count: int, sum_ns: int, max_ns: int, min_ns: int) -> None:
        self.count += count
        self.sum_ns += sum_ns
        self.max_ns = max(self.max_ns, max_ns)
        self.min_ns = min_ns if self.min_ns is None else min(self.min_ns, min_ns)


class Window:
    """Counts of [start_ns, end_ns): iterations belong to it by their intended start, activity by the clock."""

    def __init__(self, start_ns: int, end_ns: int) -> None:
        self.start_ns = start_ns
        self.end_ns = end_ns
        slots = contract.TIMELINE_SLOTS
        self._edges = [start_ns + slot * (end_ns - start_ns) // slots for slot in range(slots + 1)]
        self.latencies = Tally()
        self.delays = Tally()
        # How late requests were sent after they could have been, and the tokens of their answers.
        self.lateness = Tally()
        self.streams: list[TokenStream] = []
        # Times that the workload measured itself, by kind.
        self.samples: dict[str, Tally] = {}
        self.reasons: Counter[str] = Counter()
        self.drops = 0
        # Iterations that ended well within the window, and requests that needed a new connection.
        self.served = self.connections = 0
        # Time that the loop was active, and the time integral of waiting and running requests.
        self.active_ns = 0
        self.in_flight_ns = 0
        self.slot_count, self.slot_sum_ns, self.slot_max_ns, self.slot_errors = np.zeros((4, slots), dtype=np.int64)

    @property
    def errors(self) -> int:
        return self.reasons.total()

    def contains(self, time_ns: int) -> bool:
        return self.start_ns <= time_ns < self.end_ns

    def overlap_ns(self, begin_ns: int, end_ns: int) -> int:
        return max(0, min(end_ns, self.end_ns) - max(begin_ns, self.start_ns))

    def add_presence(self, rows: Rows) -> None:
        """Count the loop's activity, requests in flight, and dropped requests; failed ones are included.

        Requests in flight are integrated over time from arrivals and departures, not from counted latencies. Of
        back-to-back iterations, exactly one is in flight from the first start to the last end.
        """
        self.active_ns += self.overlap_ns(*rows.active)
        self.drops += sum(map(self.contains, rows.dropped))
        self.connections += sum(self.contains(int(rows.intended[row])) for row in rows.new_connections)
        if not rows.intended.size:
            return
        if rows.begun is None:
            self.in_flight_ns += self.overlap_ns(int(rows.intended[0]), int(rows.ended[-1]))
            return
        arrivals = np.clip(rows.intended, self.start_ns, self.end_ns) - self.start_ns
        departures = np.clip(rows.ended, self.start_ns, self.end_ns) - self.start_ns
        self.in_flight_ns += int(departures.sum() - arrivals.sum())

    def add_failures(self, failures: Iterable[tuple[int, str]]) -> None:
        """Count failures by their reason, from their intended starts on."""
        for intended_ns, reason in failures:
            if self.contains(intended_ns):
                is_known = reason in self.reasons or len(self.reasons) < MAX_REASONS
                self.reasons[reason if is_known else OTHER_REASONS] += 1
                self.slot_errors[bisect_right(self._edges, intended_ns) - 1] += 1

    def add_samples(self, samples: Iterable[TimeSample]) -> None:
        durations_ns: defaultdict[str, list[int]] = defaultdict(list)
        for sample in samples:
            if self.contains(sample.begun_ns):
                durations_ns[sample.kind].append(sample.duration_ns)
        for kind, values in durations_ns.items():
            self.samples.setdefault(kind, Tally()).add(np.array(values, dtype=np.int64))

    def add(self, starts_ns: IntArray, latencies_ns: IntArray) -> None:
        """Count iterations by their ascending intended starts, all within the window; arrays of shape (n,)."""
        self.latencies.add(latencies_ns)
        slots, firsts = np.unique(np.searchsorted(self._edges, starts_ns, side="right") - 1, return_index=True)
        if slots.size:
            self.slot_count[slots] += np.diff(firsts, append=starts_ns.size)
            self.slot_sum_ns[slots] += np.add.reduceat(latencies_ns, firsts)
            self.slot_max_ns[slots] = np.maximum(self.slot_max_ns[slots], np.maximum.reduceat(latencies_ns, firsts))


class Recorder:
    """Counts since the start: a tally of iterations outside windows, and the open window, if any."""

    def __init__(self, window: Window | None = None) -> None:
        self.window = window
        self.errors = 0
        self._outside = Tally()

    def fold(self, rows: Rows, samples: Iterable[TimeSample] = ()) -> None:
        """Count each iteration of `rows` once, inside or outside the window, and the samples inside the window."""
        window = self.window
        self.errors += len(rows.failed)
        if window is not None:
            window.add_samples(samples)
            window.add_presence(rows)
            window.streams += (stream for stream in rows.streams if stream.intended_ns < window.end_ns)
            window.add_failures((int(rows.intended[row]), reason) for row, reason in rows.failed.items())
        rows = rows.successful()
        if not rows.intended.size:
            return
        latencies_ns = rows.ended - rows.intended
        if window is None:
            self._outside.add(latencies_ns)
            return
        window.served += int(((rows.ended >= window.start_ns) & (rows.ended < window.end_ns)).sum())
        low, high = np.searchsorted(rows.intended, (window.start_ns, window.end_ns))
        inside = slice(low, high)
        window.add(rows.intended[inside], latencies_ns[inside])
        if rows.begun is not None:
            window.delays.add(rows.begun[inside] - rows.intended[inside])
            if rows.free is not None:
                window.lateness.add(rows.begun[inside] - rows.free[inside])
        self._outside.add(latencies_ns[:low])
        self._outside.add(latencies_ns[high:])

    def close_window(self) -> None:
        """Close the window: later iterations count as outside, and its counts stay in the totals."""
        if self.window is not None:
            self._outside.merge(self.window.latencies)
            self.window = None

    def totals(self) -> Tally:
        totals = Tally()
        totals.merge(self._outside)
        if self.window is not None:
            totals.merge(self.window.latencies)
        return totals


class Job:
    """Fixed work: iterations from the window's start on. Their rows are kept, because the window ends with the last."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self._run_count = 0
        self._pieces: list[tuple[Rows, list[TimeSample]]] = []

    @property
    def remaining(self) -> int:
        """Number of iterations still to run; failed ones have run."""
        return self.iterations - self._run_count

    def take(self, rows: Rows, samples: list[TimeSample]) -> None:
        self._pieces.append((rows, samples))
        self._run_count += rows.ended.size

    def end_ns(self, window: Window) -> int:
        """End of the last iteration; if the job is not done, the end of its window, which is its deadline."""
        return window.end_ns if self.remaining else int(self._pieces[-1][0].ended[-1])

    def fold(self, recorder: Recorder) -> None:
        for rows, samples in self._pieces:
            recorder.fold(rows, samples)

    def record(self, window: Window) -> contract.CompletedJob:
        """The record's `job`; `window` has counted it and ends with it. Seconds count from the window's start."""
        first = next((int(rows.intended[0]) for rows, _ in self._pieces if rows.intended.size), None)
        return {
            "iterations": self.iterations,
            "completed": window.latencies.count + window.errors,
            "start_delay_seconds": None if first is None else (first - window.start_ns) / 1e9,
            "completion_seconds": None if self.remaining else (window.end_ns - window.start_ns) / 1e9,
        }


class SteadinessJudge(contract.BatchComparison):
    """Decides when a tenant is warm, by the iterations that begin at or after `since_ns`.

    Iterations are put into batches in the order of their ends. A batch is complete once it has half of `min_iterations`
    (rounded up) and spans BATCH_SECONDS since its first iteration began. The tenant is steady as soon as the medians of
    two consecutive batches differ by less than `tolerance_percent` of the earlier one. If `max_seconds` pass before
    that, the verdict is not steady. Only the time of an iteration counts, not that of a request's waiting before it.
    """

    def __init__(self, rule: contract.SteadinessRule, since_ns: int) -> None:
        super().__init__(rule, since_ns)
        self._pieces: list[IntArray] = []
        self._batch_size = 0
        self._batch_begin_ns = 0

    def add(self, begun_ns: IntArray, ended_ns: IntArray) -> None:
        """Add the next iterations; arrays of shape (n,)."""
        if self.final_verdict is not None:
            return
        # Of overlapping requests, a later one may end first.
        order = np.argsort(ended_ns, kind="stable")
        order = order[begun_ns[order] >= self.since_ns]
        begun_ns, ended_ns = begun_ns[order], ended_ns[order]
        while self.final_verdict is None and begun_ns.size:
            if not self._batch_size:
                self._batch_begin_ns = int(begun_ns[0])
            by_time = int(np.searchsorted(ended_ns, self._batch_begin_ns + int(contract.BATCH_SECONDS * 1e9)))
            last = max(by_time, self.batch_iterations - self._batch_size - 1)
            self._pieces.append(ended_ns[: last + 1] - begun_ns[: last + 1])
            self._batch_size += self._pieces[-1].size
            if last < begun_ns.size:
                self.close_batch(float(np.median(np.concatenate(self._pieces))))
                self._pieces, self._batch_size = [], 0
            begun_ns, ended_ns = begun_ns[last + 1 :], ended_ns[last + 1 :]
