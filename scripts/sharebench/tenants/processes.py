"""Tenants as processes of this host, each in a session and a scratch folder of its own."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from sharebench.collect.scrape import HttpEndpoint
from sharebench.nodes.base import Grant, TenantsFailed, TenantUnreachable
from sharebench.ownership import RUN_ID_VARIABLE, STOP_SIGNALS, scratch_folders, scratch_prefix

SCRIPTS = Path(__file__).resolve().parents[2]
TENANT_VARIABLE = "SHAREBENCH_TENANT"
TOKEN_VARIABLE = "SHAREBENCH_TOKEN"
# How a tenant says that it ran out of memory (errno ENOMEM).
EXIT_OUT_OF_MEMORY = 12
GRACE_SECONDS = 2.0
POLL_SECONDS = 0.05
# The driver runs on the cores that it measures, so it wakes rarely.
WATCH_SECONDS = 0.5
LOG_TAIL_BYTES = 2000


@contextlib.contextmanager
def _pinned(cores: tuple[int, ...] | None) -> Iterator[None]:
    """Let processes started inside inherit this affinity: they are pinned from their first instruction on."""
    if cores is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold stop signals back until the block is done: no process is forgotten between its start and its end."""
    held: list[int] = []
    before = {number: signal.signal(number, lambda caught, _: held.append(caught)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def classify(code: int) -> tuple[str, str]:
    """Status and reason of a tenant that ended with this exit code before it was asked to."""
    if code == EXIT_OUT_OF_MEMORY:
        return "oom", "ran out of memory"
    if code < 0:
        names = {known.value: known.name for known in signal.Signals}
        name = names.get(-code, f"signal {-code}")
        return ("killed" if name in ("SIGKILL", "SIGTERM") else "crashed"), f"ended by {name}"
    return "crashed", f"ended by itself with exit code {code}"


class ProcessTenants:
    """The tenants of one cell; `spec` is the cell's, `settings` has `timeouts` and the resolved `load`."""

    are_local = True

    def __init__(self, spec: Mapping[str, Any], settings: Mapping[str, Any]) -> None:
        self.spec = spec
        self.load = settings["load"]
        self.start_seconds = settings["timeouts"]["start_seconds"]
        self.token = secrets.token_hex(16)
        self.processes: list[subprocess.Popen[bytes]] = []
        self._endpoints: list[HttpEndpoint] = []
        self._hung: set[int] = set()
        self.scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix(os.environ.get(RUN_ID_VARIABLE))))

    def pids(self) -> list[int]:
        """Process ids of the tenants that were started."""
        return [process.pid for process in self.processes]

    def sweep(self) -> None:
        """End tenants of earlier cells of this run, whose driver died, and remove their scratch."""
        run_id = os.environ.get(RUN_ID_VARIABLE)
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                environment = process.environ()
                if TENANT_VARIABLE in environment and environment.get(RUN_ID_VARIABLE) == run_id:
                    process.kill()
                    process.wait(GRACE_SECONDS)
        for folder in scratch_folders(run_id):
            if folder != self.scratch:
                shutil.rmtree(folder, ignore_errors=True)

    def _command(self, index: int) -> list[str]:
        workload = self.spec["workload"]
        arguments = {
            "workload": workload["module"],
            "name": workload["name"],
            "params": json.dumps(workload["params"]),
            "load": json.dumps(self.load),
            "warmup": json.dumps(self.spec["warmup"]),
            "port": "0",
            "index": str(index),
            "spawned-ns": str(time.monotonic_ns()),
        }
        return [
            sys.executable,
            "-m",
            "tenant",
            *(part for k, v in arguments.items() for part in (f"--{k}", v)),
        ]

    def start(self, grants: Sequence[Grant]) -> None:
        """Launch one process per grant."""
        for grant in grants:
            environment = {
                **os.environ,
                **grant.environment,
                "PYTHONPATH": str(SCRIPTS),
                TENANT_VARIABLE: str(grant.index),
                TOKEN_VARIABLE: self.token,
            }
            home = self.scratch / str(grant.index)
            home.mkdir()
            with (
                _undisturbed(),
                _pinned(grant.cores),
                self._out(grant.index).open("wb") as out,
                self._log(grant.index).open("wb") as log,
            ):
                process = subprocess.Popen(
                    self._command(grant.index),
                    cwd=home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    start_new_session=True,
                )
                self.processes.append(process)

    def _out(self, index: int) -> Path:
        return self.scratch / f"{index}.out"

    def _log(self, index: int) -> Path:
        return self.scratch / f"{index}.log"

    def _connect(self, index: int) -> HttpEndpoint | None:
        line = self._out(index).read_text()
        if not line.endswith("\n"):
            return None
        return HttpEndpoint("127.0.0.1", json.loads(line.splitlines()[0])["port"], self.token)

    def _is_ready(self, index: int, connected: dict[int, HttpEndpoint]) -> bool:
        endpoint = connected.get(index) or self._connect(index)
        if endpoint is None:
            return False
        connected[index] = endpoint
        # A tenant that dies just now shows up in poll() a moment later.
        with contextlib.suppress(TenantUnreachable):
            return endpoint.ready()
        return False

    def wait_ready(self) -> None:
        """Until every tenant is warm. Raises TenantsFailed when one died or time ran out.

        After an out-of-memory the others are still waited for: how many fit is the result.
        """
        deadline = time.monotonic() + self.start_seconds
        connected: dict[int, HttpEndpoint] = {}
        waiting = set(range(len(self.processes)))
        while waiting and time.monotonic() < deadline:
            codes = [process.poll() for process in self.processes]
            if any(code is not None and code != EXIT_OUT_OF_MEMORY for code in codes):
                break
            waiting = {i for i in waiting if codes[i] is None and not self._is_ready(i, connected)}
            if waiting:
                time.sleep(POLL_SECONDS)
        dead = [i for i, process in enumerate(self.processes) if process.poll() is not None]
        if not dead:
            self._hung = waiting
        if dead or waiting:
            raise TenantsFailed("not every tenant got ready")
        self._endpoints = [connected[i] for i in range(len(self.processes))]

    def endpoints(self) -> Sequence[HttpEndpoint]:
        """The tenants' HTTP endpoints, in order."""
        return self._endpoints

    def outcomes(self) -> list[dict[str, Any]]:
        """`status` and `exit` of each tenant, in order; a running one is `ok`."""
        outcomes: list[dict[str, Any]] = []
        for index, process in enumerate(self.processes):
            code = process.poll()
            if code is not None:
                status, reason = classify(code)
            elif index in self._hung:
                status, reason = "hung", f"not ready after {self.start_seconds:g} s"
            else:
                outcomes.append({"status": "ok", "exit": None})
                continue
            tail = self._log(index).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            outcomes.append({"status": status, "exit": {"code": code, "reason": reason, "log_tail": tail}})
        return outcomes

    def now_ns(self) -> int:
        """This host's monotonic clock, which its processes share."""
        return time.monotonic_ns()

    def sleep_until(self, monotonic_ns: int) -> None:
        """Sleep, looking now and then whether all tenants live. Raises TenantsFailed when one does not."""
        while (left := monotonic_ns - time.monotonic_ns()) > 0:
            time.sleep(min(left / 1e9, WATCH_SECONDS))
            if any(process.poll() is not None for process in self.processes):
                raise TenantsFailed("a tenant ended early")

    @_undisturbed()
    def stop(self) -> None:
        """End all tenants and what they started, put their logs into this job's log, remove their scratch."""
        for process in self.processes:
            self._signal(process, signal.SIGTERM)
            self._signal(process, signal.SIGCONT)
        deadline = time.monotonic() + GRACE_SECONDS
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for process in self.processes:
            # The whole session: a tenant may have started processes of its own.
            self._signal(process, signal.SIGKILL)
            process.wait()
        for index in range(len(self.processes)):
            for line in self._log(index).read_text(errors="replace").splitlines():
                print(f"tenant {index}: {line}", file=sys.stderr)
        shutil.rmtree(self.scratch, ignore_errors=True)

    @staticmethod
    def _signal(process: subprocess.Popen[bytes], number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)
