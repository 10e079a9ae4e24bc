"""Lines on the terminal between those of cells: what a run does now, and how long tables, figures and report take."""

import contextlib
import json
import sys
import threading
import time
from collections.abc import Collection
from itertools import dropwhile
from pathlib import Path

from sharebench.core.console import format_duration
from sharebench.core.files import write_json
from sharebench.measure.run.ownership import Claim
from sharebench.model.run_record import state_folder

QUIET_SECONDS = 8.0
"""Without a line. With Snakemake's end, which takes seconds on a busy machine, no gap is longer than 15 s."""
LOOK_SECONDS = 3.0
READING_SECONDS = {"aggregate": 8.0, "decide": 4.0, "figures": 15.0, "report": 5.0}
"""What the jobs that read take before they have run here, on two slow cores."""
SAID = {"aggregate": "writing the tables", "figures": "drawing the figures", "report": "writing the report"}
RULES = SAID | {
    "characterise_node": "reading the device's facts",
    "calibrate": "calibrating a workload",
    "configure_node": "setting up a strategy",
    "export_histograms": "exporting histograms",
    "decide": "deciding",
}


def reading_seconds(results: Path) -> dict[str, float]:
    """The duration of each job that reads, as it last was in this folder."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        kept = json.loads((state_folder(results) / "reading.json").read_bytes())
        return {rule: float(kept[rule]) if rule in kept else first for rule, first in READING_SECONDS.items()}
    return dict(READING_SECONDS)


def seconds_after(results: Path, jobs: Collection[str], rule: str = "aggregate") -> float:
    """What the jobs of a run that read take in all, from this one on."""
    durations = reading_seconds(results)
    return sum(durations[each] for each in dropwhile(lambda name: name != rule, durations) if each in jobs)


def reading_text(results: Path, jobs: Collection[str]) -> str:
    """What a run says of the time after its cells; nothing where no report is written."""
    seconds = format_duration(seconds_after(results, jobs))
    return f"then tables, figures and report: about {seconds}" if "report" in jobs else ""


class Progress:
    """Prints the lines of one run, and when nothing else was printed for a while, what is running.

    `started` is called with the rule of each job, `stop` at the end of the run.
    """

    def __init__(self, claim: Claim, quiet_seconds: float = QUIET_SECONDS, look_seconds: float = LOOK_SECONDS) -> None:
        self._claim = claim
        self._quiet_seconds, self._look_seconds = quiet_seconds, look_seconds
        self._rule, self._done = "", 0
        self._began = self._said = time.monotonic()
        self._measured: dict[str, float] = {}
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def started(self, rule: str) -> None:
        """Take note of a job, and print the line of one that reads."""
        self._close_reading()
        self._rule, self._began = rule, time.monotonic()
        if rule in SAID:
            left = format_duration(seconds_after(self._claim.results, self._claim.record["jobs"], rule))
            self._say(f"{SAID[rule]} · about {left} left")

    def stop(self) -> None:
        self._close_reading()
        self._end.set()
        self._thread.join()
        if self._measured:
            with contextlib.suppress(OSError):
                durations = reading_seconds(self._claim.results) | self._measured
                write_json(state_folder(self._claim.results) / "reading.json", durations)

    def _close_reading(self) -> None:
        if self._rule in READING_SECONDS:
            self._measured[self._rule] = round(time.monotonic() - self._began, 1)

    def _watch(self) -> None:
        while not self._end.wait(self._look_seconds):
            run, now = self._claim.current_record(), time.monotonic()
            if run["done"] != self._done:
                # The cell's job has printed its line.
                self._done, self._began, self._said = run["done"], now, now
            if now - self._said >= self._quiet_seconds and self._rule:
                cell = f"cell {run['done']} of {run['planned']}" if run["done"] else "the first cell"
                what = cell if self._rule == "run_cell" else RULES.get(self._rule, self._rule)
                self._say(f"  {what}, {format_duration(now - self._began)} so far")

    def _say(self, line: str) -> None:
        self._said = time.monotonic()
        # A closed terminal takes no text.
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr, flush=True)
