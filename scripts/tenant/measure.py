"""One tenant's measuring: warm-up, readiness, windows and their records.

Two threads meet here. The loop thread calls `warm_up` and `turn`, the HTTP thread everything else. One lock guards the
recorder, the judge, the window and the clearing of the loop's rows; the loop thread holds it between chunks only, never
during an iteration, so a tenant that hangs in one can still be asked.
"""

import contextlib
import copy
import gc
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Condition, Lock, get_native_id

from tenant.contract import OutputDigest, Steadiness, SteadinessRule, TenantReport
from tenant.exposition import CONTENT_TYPE, exposition
from tenant.failures import RefusedError
from tenant.load import BEFORE_WINDOW, IN_WINDOW, ArrivalQueue, Load, arrival_times_ns
from tenant.loop import ClosedLoop, Loop, Overlapping
from tenant.record import Identity, Outcome, finite, tenant_record
from tenant.recorder import Job, Recorder, SteadinessJudge, Window
from tenant.usage import CpuMeter
from tenant.workload import Sample, Workload

CHUNK_NS = 50_000_000
# A signal that comes just before the main thread begins to wait is seen when it wakes, not earlier.
REST_SECONDS = 0.2


class Measurement:
    """A workload under a load, from warm-up on. Make it in the loop thread."""

    def __init__(
        self,
        workload: Workload,
        identity: Identity,
        load: Load,
        rule: SteadinessRule,
        clock: Callable[[], int] = time.monotonic_ns,
        sleep: Callable[[float], None] = time.sleep,
        watched_cell: str = "",
    ) -> None:
        self._watched_cell = watched_cell
        self._workload = workload
        self._samples = workload.samples
        self._identity = identity
        self._load = load
        self._rule = rule
        self._clock = clock
        self._sleep = sleep
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._recorder = Recorder()
        self._meter = CpuMeter(of_thread=identity.process_tenants > 1)
        self._begun_ns = clock()
        self._loop: Loop = ClosedLoop(workload.step, clock)
        if isinstance(workload, Overlapping):
            self._loop = workload.loop(load, identity.index - load.before, self._lock, clock)
            # A batch has at least one request of each lane.
            in_flight = 2 * (load.most_in_flight or 1)
            self._rule = rule = replace(rule, min_iterations=max(rule.min_iterations, in_flight))
        self._judge = SteadinessJudge(rule, self._begun_ns)
        # Of an open load, once it has begun.
        self._queue: ArrivalQueue | None = None
        self._first_verdict: Steadiness | None = None
        self._last_verdict: Steadiness | None = None
        self._warmup_seconds = 0.0
        self._first_seconds: float | None = None
        # The last window that was set, and its record once complete; the recorder has it while it is open.
        self._window: Window | None = None
        self._outcome = Outcome()
        self._record: TenantReport | None = None
        # What the last window asked for, if that was fixed work.
        self._job: Job | None = None
        # Of the last window: whether its digest was asked for, and the digest.
        self._is_digest_wanted = False
        self._digest: OutputDigest | None = None
        self._metrics = b""

    # The loop thread.

    def warm_up(self) -> None:
        """Run back to back, whatever the arrivals, until steady or out of time; then start the load."""
        while self._judge.verdict(self._clock()) is None:
            self.turn()
        self._warmup_seconds = (self._clock() - self._begun_ns) / 1e9
        # Only now all that is imported lazily is there. A framework brings hundreds of thousands of objects; the tenth
        # of a second in which the collector looks at them, and all threads wait, shall be in no window.
        gc.collect()
        gc.freeze()
        if self._load.rate_hz is not None:
            # This thread wakes when its sleep ends, not up to 50 µs later, where that can be set.
            with contextlib.suppress(OSError):
                Path(f"/proc/{get_native_id()}/timerslack_ns").write_text("1")
        with self._lock:
            self._first_verdict = self._last_verdict = self._judge.verdict(self._clock())
            if self._load.rate_hz is not None:
                self._queue = ArrivalQueue(
                    arrival_times_ns(self._load, self._identity.index, self._clock(), BEFORE_WINDOW)
                )
                self._loop = self._loop.opened(self._queue, self._lock, self._sleep)

    def turn(self) -> None:
        """Run one chunk and count it; completes the window when this was its last. After a job, wait for a window.

        After a window the load goes on: neighbours may still measure their last iteration.
        """
        with self._lock:
            job, window, is_digest_wanted = self._job, self._recorder.window, self._is_digest_wanted
            if job is not None and window is None and not is_digest_wanted:
                self._changed.wait(REST_SECONDS)
                return
        if is_digest_wanted:
            self._sum_up_output()
            return
        if job is not None and window is not None and self._clock() >= window.start_ns:
            self._work(job, window)
            return
        self._loop.run(self._chunk_end_ns())
        window = self._window_over()
        if window is None:
            with self._lock:
                self._fold()
            return
        drain_seconds = self._drain_seconds()
        with self._lock:
            self._fold()
            # Unless the deadline passed meanwhile.
            if self._recorder.window is window:
                self._outcome.drain_seconds = drain_seconds
                self._close(window)

    def _drain_seconds(self) -> float:
        begin_ns = self._clock()
        self._workload.synchronize()
        return (self._clock() - begin_ns) / 1e9

    def _sum_up_output(self) -> None:
        window = self._window
        digest = finite(self._workload.output_digest())
        with self._lock:
            # Unless another window was set meanwhile.
            if self._window is window:
                self._digest, self._is_digest_wanted = digest, False
                self._changed.notify_all()

    def _work(self, job: Job, window: Window) -> None:
        """Run what is left of the job, or as much as the loop has room for; with its last iteration the window ends."""
        with self._lock:
            self._meet_window()
        self._loop.run(window.end_ns, job.left)
        with self._lock:
            job.take(self._loop.rows(), self._drained())
            self._loop.clear()
            if job.left and self._clock() < window.end_ns:
                return
            self._outcome.cpu_end = self._meter.read()
            self._note_end()
        drain_seconds = self._drain_seconds()
        with self._lock:
            if self._recorder.window is window:
                self._outcome.drain_seconds = drain_seconds
                self._recorder.close_window()
                self._recorder.window = counted = Window(window.start_ns, job.end_ns(window))
                # The rest of the iteration of warm-up that was under way at the start.
                counted.active_ns, counted.in_flight_ns = window.active_ns, window.in_flight_ns
                job.fold(self._recorder)
                self._close(counted)

    def _chunk_end_ns(self) -> int:
        # Within a window only a full array is folded: nothing but the work runs, and no timer wakes anything.
        with self._lock:
            window, now_ns = self._meet_window()
        if window is None or now_ns >= window.end_ns:
            return now_ns + CHUNK_NS
        return min(now_ns + CHUNK_NS, window.start_ns) if now_ns < window.start_ns else window.end_ns

    def _meet_window(self) -> tuple[Window | None, int]:
        """The window and the time; reads the CPU times if that is the first time seen within the window."""
        window, now_ns = self._recorder.window, self._clock()
        if window is not None and now_ns >= window.start_ns:
            self._outcome.cpu_start = self._outcome.cpu_start or self._meter.read()
        return window, now_ns

    def _window_over(self) -> Window | None:
        """The window, if all that belongs to it has finished; reads the CPU times at its end."""
        with self._lock:
            (window, now_ns), outcome = self._meet_window(), self._outcome
            if window is None or now_ns < window.end_ns:
                return None
            outcome.cpu_end = outcome.cpu_end or self._meter.read()
            if self._loop.unfinished(window.end_ns):
                return None
            self._note_end()
            return window

    def _note_end(self) -> None:
        self._outcome.memory_bytes, self._outcome.drain_begin_ns = self._workload.memory_bytes(), self._clock()

    def _fold(self) -> None:
        rows = self._loop.rows()
        if self._first_seconds is None and rows.ended.size:
            self._first_seconds = (int(rows.ended[0]) - self._begun_ns) / 1e9
        self._recorder.fold(rows, self._drained())
        good = rows.successful()
        self._judge.add(good.intended if good.begun is None else good.begun, good.ended)
        self._loop.clear()

    def _drained(self) -> list[Sample]:
        taken = self._samples.copy()
        self._samples.clear()
        return taken

    # The HTTP thread.

    def readiness(self, since_ns: int | None) -> Steadiness | None:
        """The first verdict, or one on iterations from `since_ns` on; None while there is none."""
        with self._lock:
            if since_ns is None or self._first_verdict is None:
                return self._first_verdict
            if self._judge.since_ns != since_ns:
                self._judge = SteadinessJudge(self._rule, since_ns)
            verdict = self._judge.verdict(self._clock())
            if verdict is not None:
                self._last_verdict = verdict
            return verdict

    def set_window(self, start_ns: int, end_ns: int, iterations: int | None = None) -> None:
        """Announce a window. The loop hears of it within CHUNK_NS or an iteration, whichever is longer.

        With `iterations` it is a job: the load goes on until the start, from then on that number of iterations runs,
        and `end_ns` is their deadline. Raises RefusedError when it cannot be.
        """
        window = Window(start_ns, end_ns)
        with self._lock:
            now_ns, is_job = self._clock(), iterations is not None
            for is_refused, why in (
                (self._first_verdict is None, "the tenant is not ready"),
                (self._recorder.window is not None, "a window is pending or running"),
                (end_ns <= start_ns, "the window ends before it starts"),
                (start_ns < now_ns, "the window starts in the past"),
                (is_job and self._load.rate_hz is not None, "a job has a closed load"),
                # A chunk that runs beyond the start would delay the job, and count iterations in its window.
                (is_job and start_ns < now_ns + CHUNK_NS, "the job starts too soon"),
            ):
                if is_refused:
                    raise RefusedError(why)
            self._metrics = self._exposition()
            self._window = self._recorder.window = window
            self._outcome = Outcome()
            self._record = None
            self._digest, self._is_digest_wanted = None, False
            self._workload.window_set(start_ns, end_ns)
            if self._queue is not None:
                # However long warm-up took, the window has the same arrivals under every strategy.
                arrivals_ns = arrival_times_ns(self._load, self._identity.index, start_ns, IN_WINDOW)
                self._queue.restart(start_ns, arrivals_ns)
            self._job = None if iterations is None else Job(iterations)
            self._changed.notify_all()

    def wait_record(self, deadline_seconds: float) -> TenantReport:
        """The last window's record; what has not finished `deadline_seconds` after its end is censored.

        Raises RefusedError when no window was set.
        """
        with self._lock:
            window = self._window
            if window is None:
                raise RefusedError("no window was set")
            while self._window is window and self._record is None:
                left_seconds = (window.end_ns - self._clock()) / 1e9 + deadline_seconds
                if left_seconds > 0:
                    self._changed.wait(left_seconds)
                else:
                    self._censor(window)
            if self._record is None:
                raise RefusedError("another window was set")
            return self._record

    def wait_digest(self, deadline_seconds: float) -> OutputDigest | None:
        """The digest of the last output, made now; None when it is not there within the deadline.

        To sum the output up is work that the window did not have, so it is done when no neighbour measures any more.
        There is none of a window that was cut off: its loop may be stuck. Raises RefusedError before there is a record.
        """
        with self._lock:
            window = self._window
            if window is None or self._record is None:
                raise RefusedError("no record is complete")
            if self._outcome.is_cut_off:
                return None
            self._is_digest_wanted = self._digest is None
            self._changed.notify_all()
            until_ns = self._clock() + round(deadline_seconds * 1e9)
            while self._window is window and self._digest is None:
                left_seconds = (until_ns - self._clock()) / 1e9
                if left_seconds <= 0:
                    return None
                self._changed.wait(left_seconds)
            if self._window is not window:
                raise RefusedError("another window was set")
            return self._digest

    def _censor(self, window: Window) -> None:
        """Close the window while the loop is stuck: what has finished counts, what has not is censored.

        The stuck chunk is counted in a copy of the window: the loop thread folds it again if it ever goes on.
        """
        now_ns, outcome = self._clock(), self._outcome
        counted = copy.deepcopy(window)
        if self._job is not None:
            self._job.fold(Recorder(counted))
        unfinished = self._loop.unfinished(window.end_ns)
        Recorder(counted).fold(self._loop.peek(now_ns), self._samples.copy())
        counted.in_flight_ns += sum(counted.overlap_ns(start, now_ns) for start in unfinished)
        outcome.censored = sum(map(counted.holds, unfinished))
        outcome.is_cut_off = True
        if outcome.drain_begin_ns is not None:
            outcome.drain_seconds = (now_ns - outcome.drain_begin_ns) / 1e9
        outcome.cpu_end = outcome.cpu_end or self._meter.read()
        self._close(counted)

    def _close(self, counted: Window) -> None:
        self._recorder.close_window()
        self._outcome.last_error = self._loop.last_error
        self._record = tenant_record(
            self._identity,
            self._workload,
            self._load,
            counted,
            self._outcome,
            (self._warmup_seconds, self._first_seconds),
            self._last_verdict,
            None if self._job is None else self._job.record(counted),
        )
        self._changed.notify_all()

    def metrics(self) -> tuple[bytes, str]:
        """Prometheus text of the totals and its content type.

        While a window is open, it is that of its announcement: making one costs a millisecond of the tenant's time,
        which is spent only where Prometheus is to watch the study.
        """
        with self._lock:
            if self._recorder.window is None or self._watched_cell:
                self._metrics = self._exposition()
            return self._metrics, CONTENT_TYPE

    def _exposition(self) -> bytes:
        totals, errors = self._recorder.totals(), self._recorder.errors
        if self._watched_cell:
            # What the loop has not handed over yet.
            rows = self._loop.peek(self._clock())
            errors += len(rows.failed)
            good = rows.successful()
            totals.add(good.ended - good.intended)
        is_ready = self._first_verdict is not None
        return exposition(totals, errors, is_ready, self._identity.name, self._identity.index, self._watched_cell)
