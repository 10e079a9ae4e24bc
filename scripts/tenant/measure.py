"""One tenant's measurement: warm-up, readiness, windows and their records.

Two threads meet here. The loop thread calls `warm_up` and `run_chunk`, the HTTP thread everything else. One lock guards
the recorder, the judge, the window and the clearing of the loop's rows. The loop thread holds it only between chunks,
never during an iteration, so a tenant that hangs in an iteration still answers.
"""

import contextlib
import copy
import gc
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from threading import Condition, Lock, get_native_id
from typing import Any

from tenant.contract import NO_OUTPUTS, Outputs, Steadiness, SteadinessRule, TenantReport
from tenant.exposition import CONTENT_TYPE, exposition
from tenant.failures import RefusedError
from tenant.load import BEFORE_WINDOW, IN_WINDOW, ArrivalQueue, Load, NamedLoad, arrival_times_ns
from tenant.loop import ClosedLoop, Loop, OverlappingWorkload
from tenant.parameters import Params
from tenant.record import Identity, WindowOutcome, json_digest, tenant_record
from tenant.recorder import Job, Recorder, SteadinessJudge, Window
from tenant.usage import CpuMeter
from tenant.workload import TimeSample, Workload

CHUNK_NS = 50_000_000
# Python handles a signal that arrives just before the main thread starts to wait only when the wait ends.
IDLE_WAIT_SECONDS = 0.2


class Measurement:
    """The measurement of a workload under a load. Create it in the loop thread."""

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
        self._loop: Loop = ClosedLoop(workload.step, clock)
        if isinstance(workload, OverlappingWorkload):
            self._loop = workload.loop(load, identity.index - load.before, self._lock, clock)
            # A batch must have at least one request per lane.
            in_flight = 2 * (load.max_in_flight or 1)
            self._rule = rule = replace(rule, min_iterations=max(rule.min_iterations, in_flight))
        self._begun_ns = clock()
        self._judge = SteadinessJudge(rule, self._begun_ns)
        # Set once an open load has begun.
        self._queue: ArrivalQueue | None = None
        self._first_verdict: Steadiness | None = None
        self._last_verdict: Steadiness | None = None
        self._warmup_seconds = 0.0
        self._first_seconds: float | None = None
        # The last window, which the recorder has while it is open, and its record once complete.
        self._window: Window | None = None
        self._outcome = WindowOutcome()
        self._record: TenantReport | None = None
        # The last window's job, if it has one.
        self._job: Job | None = None
        # Whether the last window's outputs were requested, and the outputs.
        self._are_outputs_wanted = False
        self._outputs: Outputs | None = None
        self._tasks: SimpleQueue[tuple[Future[Mapping[str, Any]], str, Params]] = SimpleQueue()
        self._metrics = b""
        self._following: NamedLoad | None = None

    # The loop thread.

    def warm_up(self) -> None:
        """Run back-to-back iterations until steady or out of time, then start the load."""
        while self._judge.verdict(self._clock()) is None:
            self.run_chunk()
        self._warmup_seconds = (self._clock() - self._begun_ns) / 1e9
        # Only now have frameworks finished their lazy imports. They bring hundreds of thousands of objects, and all
        # threads wait for 0.1 s while the garbage collector scans them, which must not happen in a window.
        gc.collect()
        gc.freeze()
        if self._load.rate_hz is not None:
            # By default, a sleeping thread wakes up to 50 µs late.
            with contextlib.suppress(OSError):
                Path(f"/proc/{get_native_id()}/timerslack_ns").write_text("1")
        with self._lock:
            self._first_verdict = self._last_verdict = self._judge.verdict(self._clock())
            if self._load.rate_hz is not None:
                self._queue = ArrivalQueue(self._arrivals_ns(self._clock(), BEFORE_WINDOW))
                self._loop = self._loop.as_open_loop(self._queue, self._lock, self._sleep)

    def _arrivals_ns(self, start_ns: int, phase: int) -> Iterator[int]:
        return arrival_times_ns(self._load, self._identity.index, start_ns, phase, self._workload.trace)

    def run_until_followed(self) -> NamedLoad:
        """Run this load until another one is set; returns that when no request of this one is in flight."""
        while self._following is None or self._recorder.window is not None:
            self.run_chunk()
        self._workload.end_load()
        return self._following

    def run_chunk(self) -> None:
        """Run one chunk and count it; closes the window if this was its last chunk. After a job, wait for a window.

        The load continues after a window, because neighbours may still measure their last iteration.
        """
        if not self._tasks.empty():
            self._perform(*self._tasks.get())
            return
        with self._lock:
            job, window, are_outputs_wanted = self._job, self._recorder.window, self._are_outputs_wanted
            if job is not None and window is None and not are_outputs_wanted:
                self._changed.wait(IDLE_WAIT_SECONDS)
                return
        if are_outputs_wanted:
            self._compute_outputs()
            return
        if job is not None and window is not None and self._clock() >= window.start_ns:
            self._run_job(job, window)
            return
        self._loop.run(self._chunk_end_ns())
        window = self._finished_window()
        if window is None:
            with self._lock:
                self._fold()
            return
        drain_seconds = self._drain_seconds()
        with self._lock:
            self._fold()
            # The HTTP thread may have closed the window at its deadline.
            if self._recorder.window is window:
                self._outcome.drain_seconds = drain_seconds
                self._close(window)

    def _perform(self, done: Future[Mapping[str, Any]], name: str, params: Params) -> None:
        try:
            done.set_result(self._workload.perform(name, params))
        except RefusedError as error:
            done.set_exception(error)
        except Exception as error:
            # What a strategy does not grant is a result.
            done.set_result({"error": f"{type(error).__name__}: {str(error).splitlines()[0]}"})

    def _drain_seconds(self) -> float:
        begin_ns = self._clock()
        self._workload.synchronize()
        return (self._clock() - begin_ns) / 1e9

    def _compute_outputs(self) -> None:
        window = self._window
        outputs: Outputs = {"output_digest": json_digest(self._workload.output_digest())}
        if answers := self._workload.fixed_answers():
            outputs["answers"] = answers
        with self._lock:
            # Another window may have been set meanwhile.
            if self._window is window:
                self._outputs, self._are_outputs_wanted = outputs, False
                self._changed.notify_all()

    def _run_job(self, job: Job, window: Window) -> None:
        """Run the rest of the job, or as much as the loop has room for; the window ends with its last iteration."""
        with self._lock:
            self._enter_window()
        self._loop.run(window.end_ns, job.remaining)
        with self._lock:
            job.take(self._loop.rows(), self._take_samples())
            self._loop.clear()
            if job.remaining and self._clock() < window.end_ns:
                return
            self._outcome.cpu_end = self._meter.read()
            self._note_window_end()
        drain_seconds = self._drain_seconds()
        with self._lock:
            if self._recorder.window is window:
                self._outcome.drain_seconds = drain_seconds
                self._recorder.close_window()
                self._recorder.window = counted = Window(window.start_ns, job.end_ns(window))
                # The rest of the iteration that was running when the window started.
                counted.active_ns, counted.in_flight_ns = window.active_ns, window.in_flight_ns
                job.fold(self._recorder)
                self._close(counted)

    def _chunk_end_ns(self) -> int:
        # Within a window, rows are folded only when the list is full, so that only the work runs.
        with self._lock:
            window, now_ns = self._enter_window()
        if window is None or now_ns >= window.end_ns:
            return now_ns + CHUNK_NS
        return min(now_ns + CHUNK_NS, window.start_ns) if now_ns < window.start_ns else window.end_ns

    def _enter_window(self) -> tuple[Window | None, int]:
        """Return the window and the time; reads the CPU times on the first call within the window."""
        window, now_ns = self._recorder.window, self._clock()
        if window is not None and now_ns >= window.start_ns:
            self._outcome.cpu_start = self._outcome.cpu_start or self._meter.read()
        return window, now_ns

    def _finished_window(self) -> Window | None:
        """Return the window if all its iterations have finished; reads the CPU times at its end."""
        with self._lock:
            (window, now_ns), outcome = self._enter_window(), self._outcome
            if window is None or now_ns < window.end_ns:
                return None
            outcome.cpu_end = outcome.cpu_end or self._meter.read()
            if self._loop.unfinished(window.end_ns):
                return None
            self._note_window_end()
            return window

    def _note_window_end(self) -> None:
        self._outcome.memory_bytes, self._outcome.drain_begin_ns = self._workload.memory_bytes(), self._clock()

    def _fold(self) -> None:
        rows = self._loop.rows()
        if self._first_seconds is None and rows.ended.size:
            self._first_seconds = (int(rows.ended[0]) - self._begun_ns) / 1e9
        self._recorder.fold(rows, self._take_samples())
        good = rows.successful()
        self._judge.add(good.intended if good.begun is None else good.begun, good.ended)
        self._loop.clear()

    def _take_samples(self) -> list[TimeSample]:
        samples = self._samples.copy()
        self._samples.clear()
        return samples

    # The HTTP thread.

    def readiness(self, since_ns: int | None) -> Steadiness | None:
        """The verdict of the warm-up, or one on iterations from `since_ns` on; None before there is one."""
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
        """Announce a window. The loop notices it within CHUNK_NS or one iteration, whichever is longer.

        With `iterations` it is a job: the load continues until the start, then this number of iterations runs, and
        `end_ns` is their deadline. Raises RefusedError if the window is not possible.
        """
        window = Window(start_ns, end_ns)
        with self._lock:
            now_ns, is_job = self._clock(), iterations is not None
            for is_refused, reason in (
                (self._first_verdict is None, "the tenant is not ready"),
                (self._recorder.window is not None, "a window is pending or running"),
                (end_ns <= start_ns, "the window ends before it starts"),
                (start_ns < now_ns, "the window starts in the past"),
                (is_job and self._load.rate_hz is not None, "a job has a closed load"),
                # A chunk that runs past the start would delay the job and count iterations in its window.
                (is_job and start_ns < now_ns + CHUNK_NS, "the job starts too soon"),
            ):
                if is_refused:
                    raise RefusedError(reason)
            self._metrics = self._exposition()
            self._window = self._recorder.window = window
            self._outcome = WindowOutcome()
            self._record = None
            self._outputs, self._are_outputs_wanted = None, False
            self._workload.on_window(start_ns, end_ns)
            if self._queue is not None:
                # The window's arrivals must not depend on how long the warm-up took.
                self._queue.restart(start_ns, self._arrivals_ns(start_ns, IN_WINDOW))
            self._job = None if iterations is None else Job(iterations)
            self._changed.notify_all()

    def set_load(self, following: NamedLoad) -> None:
        """Have another load follow this one, after the window if there is one."""
        self._following = following

    def wait_task(self, name: str, params: Params, deadline_seconds: float) -> Mapping[str, Any]:
        """The result of a task that the loop thread does before its next iteration. Raises RefusedError."""
        done: Future[Mapping[str, Any]] = Future()
        self._tasks.put((done, name, params))
        try:
            return done.result(deadline_seconds)
        except TimeoutError:
            raise RefusedError(f"the task {name} was not done within {deadline_seconds:g} s") from None

    def wait_record(self, deadline_seconds: float) -> TenantReport:
        """Wait for the last window's record; iterations unfinished `deadline_seconds` after its end are censored.

        Raises RefusedError if no window was set.
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

    def wait_outputs(self, deadline_seconds: float) -> Outputs:
        """Compute the digest of the last output, and ask the fixed prompts; NO_OUTPUTS if it is not ready in time.

        This is extra work, so the driver requests it when no neighbour is measuring any more. There are none for a
        window that was cut off, whose loop may be stuck. Raises RefusedError before there is a record.
        """
        with self._lock:
            window = self._window
            if window is None or self._record is None:
                raise RefusedError("no record is complete")
            if self._outcome.is_cut_off:
                return NO_OUTPUTS
            self._are_outputs_wanted = self._outputs is None
            self._changed.notify_all()
            until_ns = self._clock() + round(deadline_seconds * 1e9)
            while self._window is window and self._outputs is None:
                left_seconds = (until_ns - self._clock()) / 1e9
                if left_seconds <= 0:
                    return NO_OUTPUTS
                self._changed.wait(left_seconds)
            if self._window is not window or self._outputs is None:
                raise RefusedError("another window was set")
            return self._outputs

    def _censor(self, window: Window) -> None:
        """Close the window while the loop is stuck: finished iterations count, unfinished ones are censored.

        The stuck chunk is counted in a copy of the window, because the loop thread folds it again if it ever continues.
        """
        now_ns, outcome = self._clock(), self._outcome
        counted = copy.deepcopy(window)
        if self._job is not None:
            self._job.fold(Recorder(counted))
        unfinished = self._loop.unfinished(window.end_ns)
        Recorder(counted).fold(self._loop.peek(now_ns), self._samples.copy())
        counted.in_flight_ns += sum(counted.overlap_ns(start, now_ns) for start in unfinished)
        outcome.censored = sum(map(counted.contains, unfinished))
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
        """The totals as Prometheus text, and its content type.

        Rendering costs a millisecond of the tenant's time. While a window is open, the text is therefore that of its
        announcement, unless Prometheus watches the study.
        """
        with self._lock:
            if self._recorder.window is None or self._watched_cell:
                self._metrics = self._exposition()
            return self._metrics, CONTENT_TYPE

    def _exposition(self) -> bytes:
        totals, errors = self._recorder.totals(), self._recorder.errors
        if self._watched_cell:
            # Rows that the loop has not handed over yet.
            rows = self._loop.peek(self._clock())
            errors += len(rows.failed)
            good = rows.successful()
            totals.add(good.ended - good.intended)
        is_ready = self._first_verdict is not None
        return exposition(totals, errors, is_ready, self._identity.name, self._identity.index, self._watched_cell)
