"""Ownership of the results and the node: locks, the run record, takeover from a dead run, the circuit breaker.

The *run* is the owner, not the job: `claim` is called once, when a run starts, and the kernel frees its locks when that
process ends. Jobs get the run's id from the environment and verify that the run is still the owner.
"""

import contextlib
import copy
import fcntl
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from sharebench.core import file_lock
from sharebench.core.files import DamagedFile, Refusal, write_json
from sharebench.core.run_names import RUN_ID_VARIABLE, STOP_SIGNALS
from sharebench.measure.run import leftovers
from sharebench.model.run_record import RUN_ID, RunRecord, last_run, read_run, state_folder

FAILURES_BEFORE_DOWN = 2


class OwnershipError(Refusal):
    """This run does not own the results or the node; the message is one line."""


@dataclass
class Claim:
    """The locks of a running run; keep it alive as long as the run."""

    run_id: str
    results: Path
    record: RunRecord
    locks: list[file_lock.FileLock]
    guard: leftovers.Guard
    restore_command: str = ""
    """What restores the node after this run, with its config and in its folder."""
    cleanups: list[Callable[[], None]] = field(default_factory=list)
    """Called when the run releases its claim."""

    def current_record(self) -> RunRecord:
        """The run record as the jobs have left it; as the run began, where that cannot be read."""
        with contextlib.suppress(DamagedFile, OSError):
            return read_run(self.results) or self.record
        return self.record

    def end_processes(self) -> None:
        """End every process that the run's jobs have left, such as the tenants of a job that was killed."""
        leftovers.end_strays(os.getpid())
        leftovers.sweep(self.run_id)

    def release(self) -> None:
        """Mark the run as ended and release its locks."""
        self.guard.dismiss()
        for clean_up in self.cleanups:
            clean_up()
        record = self.current_record()
        if record["run_id"] == self.run_id:
            # On a full disk the run must still be able to print its failure.
            with contextlib.suppress(OSError):
                write_run(self.results, record | {"ended": True})
        for lock in self.locks:
            lock.write("")
            lock.close()
        self.locks.clear()


def write_run(results: Path, record: RunRecord) -> None:
    write_json(state_folder(results) / "run.json", record)


def acquire(path: Path, on_wait: Callable[[], None] | None = None) -> file_lock.FileLock | None:
    """The lock of this process, or None when another process holds it; `on_wait` as in `file_lock.acquire`.

    Raises OwnershipError.
    """
    try:
        return file_lock.acquire(path, on_wait)
    except file_lock.LockError as error:
        raise OwnershipError(str(error)) from None


def holder_text(path: Path) -> str:
    """The run that holds the lock, and since when; "another run" when the file names no living process."""
    owner = file_lock.read_holder(path)
    with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError, OSError):
        started = time.strftime("%H:%M:%S", time.localtime(owner["started_epoch_seconds"]))
        line = f"run {owner['run_id']} (process {owner['pid']:d}, started {started}, results in {owner['results']})"
        if Path(f"/proc/{owner['pid']}").exists() and line.isprintable():
            return line
    return "another run"


def claim(results: Path, record: RunRecord, *node_locks: Path) -> Claim:
    """Claim the results folder and the node, or all its devices, and remove what a dead owner left behind.

    `record` becomes the run record (`.sharebench/run.json`). Raises OwnershipError naming a live owner, or when the
    results cannot be written to.
    """
    # The id sorts by time and does not identify the machine.
    run_id = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.urandom(4).hex()}"
    owner: RunRecord = {
        "run_id": run_id,
        "pid": os.getpid(),
        "started_epoch_seconds": time.time(),
        "results": os.path.relpath(results),
    }
    locks = [("results folder", state_folder(results) / "lock")]
    locks += (("node", path) for path in dict.fromkeys(node_locks))
    held: list[file_lock.FileLock] = []
    with contextlib.ExitStack() as undo:
        for name, path in locks:
            lock = acquire(path)
            if lock is None:
                raise OwnershipError(f"the {name} is in use by {holder_text(path)}; wait for it to end, or stop it")
            undo.callback(lock.close)
            held.append(lock)
        leftovers.sweep_dead_runs()
        if unclear := leftovers.unclear_line():
            raise OwnershipError(unclear)
        try:
            for lock in held:
                # An owner that ended well has left no name. Another user's file is ignored, and so is one that came
                # with a copy of the folder: its run may be alive, and owns the original.
                previous = file_lock.read_holder(lock.path)
                dead, is_original = previous.get("run_id"), previous.get("lock") == lock.identity
                if lock.is_own and is_original and isinstance(dead, str) and RUN_ID.fullmatch(dead):
                    leftovers.remove_scratch(dead)
                lock.write(json.dumps({**owner, "lock": lock.identity}))
            fresh: RunRecord = {
                "locks": {str(lock.path.absolute()): lock.identity for lock in held},
                "ended": False,
                "done": 0,
                "first_cell_epoch_seconds": None,
                "failure": None,
                "down": None,
                "overhead": last_run(results).get("overhead"),
            }
            written = owner | fresh | record
            write_run(results, written)
        except OSError as error:
            raise OwnershipError(f"{results} cannot be written to: {error.strerror}") from None
        undo.pop_all()
    return Claim(run_id, results, written, held, leftovers.Guard(run_id))


def verify(results: Path) -> RunRecord:
    """The run record, when the run that started this job still owns the results and is alive.

    Raises OwnershipError otherwise, and when the circuit breaker has tripped.
    """
    record = read_run(results)
    run_id = os.environ.get(RUN_ID_VARIABLE)
    if run_id is None:
        raise OwnershipError("started outside a run: measure with `snakemake`, not by calling the script")
    if record.get("run_id") != run_id or record["ended"]:
        raise OwnershipError(f"run {run_id} no longer owns these results")
    for path, identity in record["locks"].items():
        if file_lock.identity_at(Path(path)) != identity:
            raise OwnershipError(f"{path} was removed while run {run_id} held it: another run may measure here, too")
    lock = acquire(state_folder(results) / "lock")
    if lock is not None:
        lock.close()
        raise OwnershipError(f"run {run_id} has died; start it again")
    if record["down"]:
        raise OwnershipError(f"not tried, the node is down: {record['down']}")
    return record


@contextlib.contextmanager
def _editing_run_record(results: Path) -> Iterator[RunRecord]:
    """The run record, written back if the block has changed it; jobs on other devices wait meanwhile."""
    folder = os.open(state_folder(results), os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        record = read_run(results)
        before = copy.deepcopy(record)
        yield record
        if record != before:
            write_run(results, record)
    finally:
        os.close(folder)


def record_outcome(
    results: Path, failure: str | None, output: str = "", is_final: bool = False, number: int | None = None
) -> None:
    """Record a job's success (`failure` None) or harness failure.

    Failures in a row with one cause in two jobs trip the circuit breaker; a retry has the `output` of the job before.
    With `is_final` one failure trips it. `number` is the index of the device, of several. The record of a run that has
    taken over is left alone.
    """
    with _editing_run_record(results) as record:
        if record.get("run_id") != os.environ.get(RUN_ID_VARIABLE):
            return
        entry = record if number is None else record["devices"][number]
        if failure is None:
            entry["failure"] = None
            return
        previous = entry["failure"]
        outputs = {output, *(previous["outputs"] if previous and previous["cause"] == failure else ())}
        entry["failure"] = {"cause": failure, "outputs": sorted(outputs)}
        entry["down"] = failure if is_final or len(outputs) >= FAILURES_BEFORE_DOWN else None


def count_cell(results: Path) -> RunRecord:
    """Note in the run record that one more cell has begun, and return the record."""
    with _editing_run_record(results) as record:
        record["done"] += 1
        record["first_cell_epoch_seconds"] = record["first_cell_epoch_seconds"] or time.time()
    return record


def add_overhead(results: Path, seconds: float, cells: int) -> None:
    """Note what these cells took beyond their windows; the mean over all runs here estimates the time left."""
    with _editing_run_record(results) as record:
        overhead = record["overhead"] or {"cells": 0, "seconds": 0.0}
        record["overhead"] = {"cells": overhead["cells"] + cells, "seconds": overhead["seconds"] + seconds}


class Interrupted(BaseException):
    """The job got a stop signal; a BaseException like KeyboardInterrupt, so that only cleanup catches it."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first stop signal into `Interrupted` and ignore later ones, so that cleanup completes.

    A signal that this process was started to ignore (nohup) stays ignored.
    """
    handled_signals = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]

    def stop(number: int, frame: object) -> None:
        for other in handled_signals:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupted(signal.Signals(number).name)

    before = {number: signal.signal(number, stop) for number in handled_signals}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
