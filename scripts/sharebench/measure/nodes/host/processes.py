"""Tenants as processes of this host, each process with its own session and scratch folder."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

import psutil

from sharebench.core.run_names import DEVICE_VARIABLE, RUN_ID_VARIABLE, STOP_SIGNALS, scratch_folders, scratch_prefix
from sharebench.core.units import NS
from sharebench.measure.nodes.contract import Grant, NodeError, Sampler, Settings, WorkloadError
from sharebench.measure.nodes.host import template
from sharebench.measure.nodes.host.launch import CellContext, Program, TenantProcess
from sharebench.measure.nodes.host.logs import truncate_log
from sharebench.measure.nodes.host.programs.process_tree import Orphans, tree_pids
from sharebench.measure.nodes.host.programs.tenants import tenant_class
from sharebench.measure.nodes.host.template import ForkedProcess
from sharebench.measure.nodes.tenants.tenant_set import TenantSet
from sharebench.model.spec import Spec
from tenant.contract.forking import ForkRequest

TENANT_VARIABLE = "SHAREBENCH_TENANT"
GRACE_SECONDS = 2.0
POLL_SECONDS = 0.05
# The driver runs on the cores that it measures, so it wakes rarely.
WATCH_SECONDS = 0.5
NewSampler = Callable[[Sequence[Sequence[int]], Callable[[], float]], Sampler]
"""Starts telemetry for tenants with these process ids; the function returns the CPU seconds of those that ended."""


@contextlib.contextmanager
def _pinned(cores: tuple[int, ...] | None) -> Iterator[None]:
    """Pin processes started inside to these cores from their first instruction on, by inheritance."""
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
def _stop_signals_held() -> Iterator[None]:
    """Hold stop signals back until the block is done, so that no started process is forgotten."""
    held: list[int] = []
    before = {number: signal.signal(number, lambda caught, _: held.append(caught)) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            signal.raise_signal(held[0])


def group_by_process(grants: Sequence[Grant]) -> list[tuple[Grant, ...]]:
    """The grants of each process, in order; a grant without a process number has a process to itself."""
    groups = groupby(grants, key=lambda grant: (grant.process, grant.index if grant.process is None else None))
    return [tuple(group) for _, group in groups]


def _has_ended(popen: subprocess.Popen[bytes] | ForkedProcess) -> bool:
    """Whether the process ends within the grace time; one that waits inside a driver may never end."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(GRACE_SECONDS)
    return popen.poll() is not None


class ProcessTenants(TenantSet[TenantProcess]):
    """The tenants of one cell as processes.

    `sampler` starts the telemetry of their device. `python` is the interpreter that has the workload's framework,
    `device` what the tenants run on: cpu or cuda.
    """

    are_local = True
    poll_seconds = POLL_SECONDS

    def __init__(
        self,
        spec: Spec,
        settings: Settings,
        sampler: NewSampler,
        python: Path = Path(sys.executable),
        device: str = "cpu",
    ) -> None:
        super().__init__(spec, settings)
        self._new_sampler = sampler
        watched_cell = settings.get("watched_cell")
        self.context = CellContext(spec, settings["loads"], python, device, secrets.token_hex(16), watched_cell)
        self._orphans: Orphans | None = None
        self.scratch = Path(tempfile.mkdtemp(prefix=scratch_prefix(os.environ.get(RUN_ID_VARIABLE))))

    def pids(self) -> list[int]:
        """Process id of each started tenant, in order; tenants of one process have the same."""
        return [process.pid for process in self._processes_of_tenants()]

    def families(self) -> list[list[int]]:
        """Process ids of each tenant, in order: the process with the grant, its descendants, and a server's client.

        Only user programs have more than one.
        """
        return [
            [*tree_pids(process.pid), *(popen.pid for popen in process.popens[1:])]
            if process.is_program
            else [process.pid]
            for process in self._processes_of_tenants()
        ]

    def _processes_of_tenants(self) -> list[TenantProcess]:
        return [process for process in self.units for _ in process.grants]

    def sweep(self) -> None:
        """End tenants of earlier cells of this run whose driver died, and remove their scratch."""
        self._kill_strays()
        for folder in scratch_folders(os.environ.get(RUN_ID_VARIABLE)):
            if folder != self.scratch:
                shutil.rmtree(folder, ignore_errors=True)

    @staticmethod
    def _kill_strays() -> None:
        """End every process that a tenant of this run started on this device, whatever session it is in."""
        ours = [os.environ.get(name) for name in (RUN_ID_VARIABLE, DEVICE_VARIABLE)]
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                environment = process.environ()
                if TENANT_VARIABLE in environment and ours == [
                    environment.get(name) for name in (RUN_ID_VARIABLE, DEVICE_VARIABLE)
                ]:
                    # A descendant may have written its title over its environment.
                    family = [process, *process.children(recursive=True)]
                    for each in family:
                        with contextlib.suppress(psutil.Error):
                            each.kill()
                    psutil.wait_procs(family, GRACE_SECONDS)

    def _process(self, grants: Sequence[Grant], home: Path) -> TenantProcess:
        return tenant_class(self.context.spec.workloads[grants[0].index])(self.context, grants, home)

    def prepare(self, grants: Sequence[Grant]) -> list[TenantProcess]:
        """A process per grant, or per group of grants with the same process."""
        if any(self.spec.workloads[grant.index].is_program for grant in grants):
            self._orphans = Orphans()
        groups = group_by_process(grants)
        return [self._process(group, self.scratch / str(number)) for number, group in enumerate(groups)]

    def launch(self, units: Sequence[TenantProcess]) -> None:
        """Raises NodeError for a missing program."""
        for process in units:
            process.home.mkdir(mode=0o700)
            with _stop_signals_held():
                self.units.append(process)
                for program in process.programs():
                    process.popens.append(self._launch(process, program))

    def _launch(self, process: TenantProcess, program: Program) -> subprocess.Popen[bytes] | ForkedProcess:
        """The one place where an argv and an environment become a process. Raises NodeError."""
        index, home = str(process.grants[0].index), str(process.home)
        environment = {**program.environment, TENANT_VARIABLE: index, "TMPDIR": home}
        with _pinned(program.cores), (program.out or program.log).open("ab") as out, program.log.open("ab") as errors:
            if program.workload is not None:
                module, device = program.workload
                request: ForkRequest = {
                    "module": module,
                    "device": device,
                    "arguments": list(program.argv[3:]),
                    "environment": environment,
                    # Those of the job's device, unless the tenant has its own.
                    "cores": sorted(os.sched_getaffinity(0)),
                    "folder": home,
                }
                if forked := template.fork(self.context.python, request, out, errors):
                    return forked
            try:
                return subprocess.Popen(
                    program.argv,
                    cwd=home,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=errors,
                    start_new_session=True,
                )
            except OSError as error:
                raise WorkloadError(f"cannot start {program.argv[0]!r}: {error.strerror or error}") from None

    def pause(self, seconds: float) -> None:
        for process in self.units:
            truncate_log(process.log, process.search)
        time.sleep(min(seconds, WATCH_SECONDS))

    def cpu_seconds_at_end(self) -> float:
        return sum(process.cpu_seconds_at_end() for process in self.units)

    def sampler(self) -> Sampler:
        return self._new_sampler(self.families(), self.cpu_seconds_at_end)

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def watch_until(self, monotonic_ns: int) -> dict[int, int]:
        """Sleep until then; returns the exact times in ns of tenants that ended meanwhile, by index."""
        ended: dict[int, int] = {}

        def watch(process: TenantProcess, popen: subprocess.Popen[bytes] | ForkedProcess) -> None:
            popen.wait()
            now_ns = time.monotonic_ns()
            for grant in process.grants:
                # A tenant ends with the first of its processes.
                ended.setdefault(grant.index, now_ns)

        for process in self.units:
            for popen in process.popens:
                threading.Thread(target=watch, args=(process, popen), daemon=True).start()
        while (left := monotonic_ns - time.monotonic_ns()) > 0:
            self.pause(left / NS)
        return ended.copy()

    @_stop_signals_held()
    def stop(self) -> None:
        """End all tenants and their descendants, copy their logs into this job's log, remove their scratch.

        Raises NodeError when one cannot be ended.
        """
        self.close()
        started = [popen for process in self.units for popen in process.popens]
        for popen in started:
            self._signal(popen, signal.SIGTERM)
            self._signal(popen, signal.SIGCONT)
        deadline = time.monotonic() + GRACE_SECONDS
        for popen in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                popen.wait(max(0.0, deadline - time.monotonic()))
        for popen in started:
            # The whole session, since a tenant may have started other processes.
            self._signal(popen, signal.SIGKILL)
        immortal = [popen.pid for popen in started if not _has_ended(popen)]
        if self._orphans is not None:
            # A user program may have started processes in another session, with another environment.
            self._orphans.end()
            self._kill_strays()
        for process in self.units:
            name = "-".join(str(index) for index in sorted({process.grants[0].index, process.grants[-1].index}))
            for line in "\n".join(process.logs()).splitlines():
                print(f"tenant {name}: {line}", file=sys.stderr)
        shutil.rmtree(self.scratch, ignore_errors=True)
        if immortal:
            raise NodeError(
                "a tenant cannot be ended, not even by SIGKILL: a driver hangs; see the kernel's log (dmesg)"
            )

    @staticmethod
    def _signal(popen: subprocess.Popen[bytes] | ForkedProcess, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(popen.pid, number)
