"""Tenants as processes of this host, each process in a session and a scratch folder of its own."""

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
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import psutil

from sharebench.collect.scrape import HttpEndpoint
from sharebench.mixes import workload_of
from sharebench.nodes.base import Grant, NodeError, TenantsFailed, TenantUnreachable
from sharebench.ownership import RUN_ID_VARIABLE, STOP_SIGNALS, scratch_folders, scratch_prefix

SCRIPTS = Path(__file__).resolve().parents[2]
TENANT_VARIABLE = "SHAREBENCH_TENANT"
TOKEN_VARIABLE = "SHAREBENCH_TOKEN"
# How a tenant says that it cannot do what it was asked to, and that it ran out of memory (errno ENOMEM).
EXIT_USAGE = 2
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


@dataclass
class TenantProcess:
    """A process and the grants of its tenants, of which more than one are on streams of it."""

    grants: tuple[Grant, ...]
    popen: subprocess.Popen[bytes]

    @property
    def name(self) -> str:
        """The number of its tenant, or of its first and last."""
        first, last = self.grants[0].index, self.grants[-1].index
        return str(first) if first == last else f"{first}-{last}"


def by_process(grants: Sequence[Grant]) -> list[tuple[Grant, ...]]:
    """The grants of each process, in order."""
    # One without a number has a process to itself.
    groups = groupby(grants, key=lambda grant: (grant.process, grant.index if grant.process is None else None))
    return [tuple(group) for _, group in groups]


def _ended(popen: subprocess.Popen[bytes]) -> bool:
    """Whether the process ends now; one that waits inside a driver may never do so."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(GRACE_SECONDS)
    return popen.poll() is not None


class ProcessTenants:
    """The tenants of one cell; `spec` is the cell's, `settings` has `timeouts` and the resolved `loads`, by tenant.

    `python` is the interpreter that has the workload's framework, `device` what the tenants run on: cpu or cuda.
    """

    are_local = True

    def __init__(
        self,
        spec: Mapping[str, Any],
        settings: Mapping[str, Any],
        python: Path = Path(sys.executable),
        device: str = "cpu",
    ) -> None:
        self.spec = spec
        self.loads = settings["loads"]
        self.start_seconds = settings["timeouts"]["start_seconds"]
        self.python = python
        self.device = device
        self.token = secrets.token_hex(16)
        self.processes: list[TenantProcess] = []
        self._endpoints: list[HttpEndpoint] = []
        self._hung: set[int] = set()
        self.scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix(os.environ.get(RUN_ID_VARIABLE))))

    def pids(self) -> list[int]:
        """Process id of each tenant that was started, in order; tenants of one process have the same."""
        return [process.popen.pid for process in self._processes_of_tenants()]

    def _processes_of_tenants(self) -> list[TenantProcess]:
        return [process for process in self.processes for _ in process.grants]

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

    def _command(self, grants: Sequence[Grant]) -> list[str]:
        # Tenants of one process run the same.
        index = grants[0].index
        workload = workload_of(self.spec, index)
        arguments = {
            "workload": workload["module"],
            "name": workload["name"],
            "params": json.dumps(workload["params"]),
            "device": self.device,
            "load": json.dumps(self.loads[index]),
            "warmup": json.dumps(self.spec["warmup"]),
            "port": "0",
            "index": str(index),
            "spawned-ns": str(time.monotonic_ns()),
        }
        if grants[0].process is not None:
            arguments["streams"] = str(len(grants))
        return [
            str(self.python),
            "-m",
            "tenant",
            *(part for k, v in arguments.items() for part in (f"--{k}", v)),
        ]

    @staticmethod
    def environment(grant: Grant) -> dict[str, str]:
        """What the grant's process sees: this process's environment, but of CUDA's settings only the grant's."""
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}
        return {**inherited, **grant.environment, "PYTHONPATH": str(SCRIPTS)}

    def start(self, grants: Sequence[Grant]) -> None:
        """Launch one process per grant, or per group of grants with the same process."""
        for number, group in enumerate(by_process(grants)):
            first = group[0]
            home = self.scratch / str(number)
            home.mkdir(mode=0o700)
            environment = {
                **self.environment(first),
                TENANT_VARIABLE: str(first.index),
                TOKEN_VARIABLE: self.token,
                "TMPDIR": str(home),
            }
            with (
                _undisturbed(),
                _pinned(first.cores),
                self._out(number).open("wb") as out,
                self._log(number).open("wb") as log,
            ):
                popen = subprocess.Popen(
                    self._command(group),
                    cwd=home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=log,
                    start_new_session=True,
                )
                self.processes.append(TenantProcess(group, popen))

    def _out(self, number: int) -> Path:
        return self.scratch / f"{number}.out"

    def _log(self, number: int) -> Path:
        return self.scratch / f"{number}.log"

    def _log_tail(self, number: int) -> str:
        return self._log(number).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")

    def _connect(self, number: int) -> list[HttpEndpoint]:
        line = self._out(number).read_text()
        if not line.endswith("\n"):
            return []
        ports = json.loads(line.splitlines()[0])["ports"]
        return [HttpEndpoint("127.0.0.1", port, self.token) for port in ports]

    def _is_ready(self, number: int, connected: dict[int, list[HttpEndpoint]]) -> bool:
        endpoints = connected.get(number) or self._connect(number)
        if not endpoints:
            return False
        connected[number] = endpoints
        # A tenant that dies just now shows up in poll() a moment later.
        with contextlib.suppress(TenantUnreachable):
            return all(endpoint.ready() for endpoint in endpoints)
        return False

    def wait_ready(self) -> None:
        """Until every tenant is warm. Raises TenantsFailed when one died or time ran out.

        After an out-of-memory the others are still waited for: how many fit is the result. Raises NodeError when a
        tenant cannot do what it was asked to, as when a framework is not installed: that says nothing about sharing.
        """
        deadline = time.monotonic() + self.start_seconds
        connected: dict[int, list[HttpEndpoint]] = {}
        waiting = set(range(len(self.processes)))
        while waiting and time.monotonic() < deadline:
            codes = [process.popen.poll() for process in self.processes]
            if any(code is not None and code != EXIT_OUT_OF_MEMORY for code in codes):
                break
            waiting = {i for i in waiting if codes[i] is None and not self._is_ready(i, connected)}
            if waiting:
                time.sleep(POLL_SECONDS)
        codes = [process.popen.poll() for process in self.processes]
        if EXIT_USAGE in codes:
            said = self._log_tail(codes.index(EXIT_USAGE)).strip() or "a tenant refused its arguments"
            raise NodeError(said.splitlines()[-1])
        dead = [code for code in codes if code is not None]
        if not dead:
            self._hung = waiting
        if dead or waiting:
            raise TenantsFailed("not every tenant got ready")
        self._endpoints = [endpoint for number in range(len(codes)) for endpoint in connected[number]]

    def endpoints(self) -> Sequence[HttpEndpoint]:
        """The tenants' HTTP endpoints, in order."""
        return self._endpoints

    def outcomes(self) -> list[dict[str, Any]]:
        """`status` and `exit` of each tenant, in order; a running one is `ok`. All of a process end as it does."""
        outcomes: list[dict[str, Any]] = []
        for number, process in enumerate(self.processes):
            code = process.popen.poll()
            if code is not None:
                status, reason = classify(code)
            elif number in self._hung:
                status, reason = "hung", f"not ready after {self.start_seconds:g} s"
            else:
                outcomes += [{"status": "ok", "exit": None} for _ in process.grants]
                continue
            end = {"code": code, "reason": reason, "log_tail": self._log_tail(number)}
            outcomes += [{"status": status, "exit": end} for _ in process.grants]
        return outcomes

    def now_ns(self) -> int:
        """This host's monotonic clock, which its processes share."""
        return time.monotonic_ns()

    def sleep_until(self, monotonic_ns: int) -> None:
        """Sleep, looking now and then whether all tenants live. Raises TenantsFailed when one does not."""
        while (left := monotonic_ns - time.monotonic_ns()) > 0:
            time.sleep(min(left / 1e9, WATCH_SECONDS))
            if any(process.popen.poll() is not None for process in self.processes):
                raise TenantsFailed("a tenant ended early")

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """Sleep until then; when tenants ended meanwhile, in ns, by index: to the moment, since each is waited for."""
        ended: dict[int, int] = {}

        def watch(process: TenantProcess) -> None:
            process.popen.wait()
            now_ns = time.monotonic_ns()
            ended.update({grant.index: now_ns for grant in process.grants})

        for process in self.processes:
            threading.Thread(target=watch, args=(process,), daemon=True).start()
        time.sleep(max(0.0, (monotonic_ns - time.monotonic_ns()) / 1e9))
        return ended.copy()

    @_undisturbed()
    def stop(self) -> None:
        """End all tenants and what they started, put their logs into this job's log, remove their scratch.

        Raises NodeError when one cannot be ended.
        """
        started = [process.popen for process in self.processes]
        for popen in started:
            self._signal(popen, signal.SIGTERM)
            self._signal(popen, signal.SIGCONT)
        deadline = time.monotonic() + GRACE_SECONDS
        for popen in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(max(0.0, deadline - time.monotonic()))
        for popen in started:
            # The whole session: a tenant may have started processes of its own.
            self._signal(popen, signal.SIGKILL)
        immortal = [popen.pid for popen in started if not _ended(popen)]
        for number, process in enumerate(self.processes):
            for line in self._log(number).read_text(errors="replace").splitlines():
                print(f"tenant {process.name}: {line}", file=sys.stderr)
        shutil.rmtree(self.scratch, ignore_errors=True)
        if immortal:
            raise NodeError(
                "a tenant cannot be ended, not even by SIGKILL: a driver hangs; see the kernel's log (dmesg)"
            )

    @staticmethod
    def _signal(popen: subprocess.Popen[bytes], number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, number)
