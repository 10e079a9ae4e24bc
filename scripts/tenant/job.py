"""Fixed work: a job is a number of iterations from the window's start on, and its window ends with the last one."""

from __future__ import annotations

from tenant.contract import CompletedJob
from tenant.recorder import Recorder, Rows, Window
from tenant.workload import Sample


class Job:
    """The finished iterations of a job. Their rows are kept: the slots of the timeline depend on the job's end."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations
        self.done = 0
        self._pieces: list[tuple[Rows, list[Sample]]] = []

    @property
    def left(self) -> int:
        """Iterations still to run; one that failed has run."""
        return self.iterations - self.done

    def take(self, rows: Rows, samples: list[Sample]) -> None:
        """Add the next finished iterations."""
        self._pieces.append((rows, samples))
        self.done += rows.ended.size

    def end_ns(self, window: Window) -> int:
        """When the last iteration ended; of a job that is not done, the end of its window, which is its deadline."""
        return window.end_ns if self.left else int(self._pieces[-1][0].ended[-1])

    def fold(self, recorder: Recorder) -> None:
        """Count everything that is done, in the recorder's window."""
        for rows, samples in self._pieces:
            recorder.fold(rows, samples)

    def record(self, window: Window) -> CompletedJob:
        """The record's `job`; `window` has counted it and ends where it did. Seconds count from the window's start."""
        first = next((int(rows.intended[0]) for rows, _ in self._pieces if rows.intended.size), None)
        return {
            "iterations": self.iterations,
            "completed": window.latencies.count + window.errors,
            "start_delay_seconds": None if first is None else (first - window.start_ns) / 1e9,
            "completion_seconds": None if self.left else (window.end_ns - window.start_ns) / 1e9,
        }
