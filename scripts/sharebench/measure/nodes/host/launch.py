"""The processes of a tenant, by the kind of its workload: the programs to start, and the endpoints to ask."""

import json
import os
import subprocess
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sharebench.core.files import SCRIPTS
from sharebench.measure.nodes.contract import Grant, PlannedLoad, classify_exit
from sharebench.measure.nodes.host.logs import LogSearch, log_end
from sharebench.measure.nodes.host.template import ForkedProcess
from sharebench.measure.nodes.tenants.endpoint import HttpEndpoint
from sharebench.measure.nodes.tenants.tenant_set import Ending, Unit
from sharebench.model.spec import Spec
from tenant.contract import TOKEN_VARIABLE

LOG_TAIL_BYTES = 2000


@dataclass(frozen=True)
class CellContext:
    """Common settings of a cell's tenants.

    `python` is the interpreter that has the workload's framework, `device` is cpu or cuda. `watched_cell` is the cell's
    name in the metrics, where Prometheus watches.
    """

    spec: Spec
    loads: Sequence[PlannedLoad]
    python: Path
    device: str
    token: str
    watched_cell: str | None = None


@dataclass(frozen=True)
class Program:
    """One process to start; with `cores` None it may run on all cores of this process.

    Its errors go to `log`, and its standard output to `out`, or there too where `out` is None. `workload` is the module
    and the device of a built-in workload, which the run's template may fork.
    """

    argv: Sequence[str]
    environment: Mapping[str, str]
    cores: tuple[int, ...] | None
    log: Path
    out: Path | None = None
    workload: tuple[str, str] | None = None


def inherited_environment() -> dict[str, str]:
    """This process's environment without CUDA's settings, which come from the grant alone."""
    return {key: value for key, value in os.environ.items() if not key.startswith("CUDA_")}


def grant_environment(grant: Grant) -> dict[str, str]:
    """The environment of a process of scripts/ with the grant."""
    return {**inherited_environment(), **grant.environment, "PYTHONPATH": str(SCRIPTS)}


class TenantProcess(Unit):
    """The processes of one tenant, or of several on streams of one process; the first has the grants and the log.

    `home` is their folder. `search` is that for a text by which a program says that it is ready.
    """

    search: LogSearch | None = None

    def __init__(self, context: CellContext, grants: Sequence[Grant], home: Path) -> None:
        super().__init__(context.spec, grants)
        self.context = context
        self.home = home
        self.out, self.log = home.with_suffix(".out"), home.with_suffix(".log")
        self.popens: list[subprocess.Popen[bytes] | ForkedProcess] = []

    @property
    def pid(self) -> int:
        return self.popens[0].pid

    @abstractmethod
    def programs(self) -> Iterable[Program]:
        """The programs to start, the one with the grants first; each is asked for when those before it run.

        Raises NodeError.
        """

    def code(self) -> int | None:
        """Exit code of its first process if that has ended unexpectedly, else None."""
        return self.popens[0].poll() if self.popens else None

    def ending(self) -> Ending | None:
        if (code := self.code()) is None:
            return None
        return (*classify_exit(code, not self.is_program, log_end(self.log)), code)

    def log_tail(self) -> str:
        return log_end(self.log, LOG_TAIL_BYTES)

    def logs(self) -> list[str]:
        """The ends of the logs that matter."""
        return [log_end(self.log)]

    def cpu_seconds_at_end(self) -> float:
        """CPU seconds of a tenant that has exited, else 0."""
        return 0.0


class BuiltInTenant(TenantProcess):
    """A process of scripts/tenant/ with one tenant, or with several tenants on streams."""

    def command(self) -> list[str]:
        first = self.grants[0]
        workload = self.context.spec.workloads[first.index]
        argv = tenant_command(self.context, first.index, str(workload.module), workload.params, self.context.device)
        return argv if first.process is None else [*argv, "--streams", json.dumps(list(map(self._stream, self.grants)))]

    def _stream(self, grant: Grant) -> dict[str, object]:
        """The arguments of one of several tenants of the process."""
        workload = self.context.spec.workloads[grant.index]
        return {
            "workload": workload.module,
            "name": workload.name,
            "params": workload.params,
            "load": self.context.loads[grant.index],
            "sms": grant.sm_count,
        }

    def programs(self) -> Iterable[Program]:
        first = self.grants[0]
        variables = {**grant_environment(first), TOKEN_VARIABLE: self.context.token}
        workload = str(self.context.spec.workloads[first.index].module), self.context.device
        forked = workload if first.is_forkable else None
        return [Program(self.command(), variables, first.cores, self.log, self.out, forked)]

    def connect(self) -> Sequence[HttpEndpoint]:
        return [HttpEndpoint(port, self.context.token) for port in announced_ports(self.out)]


def tenant_command(
    context: CellContext,
    index: int,
    module: str,
    params: Mapping[str, Any],
    device: str,
    python: str | None = None,
) -> list[str]:
    """The command line of a process of scripts/tenant/, with the tenants' interpreter or another `python`."""
    arguments = {
        "workload": module,
        "name": context.spec.workloads[index].name,
        "params": json.dumps(params),
        "device": device,
        "load": json.dumps(context.loads[index]),
        "warmup": json.dumps(context.spec.warmup_rule),
        "port": "0",
        "index": str(index),
        "spawned-ns": str(time.monotonic_ns()),
    }
    if context.watched_cell is not None:
        arguments["watched-cell"] = context.watched_cell
    return [
        *(python or str(context.python), "-m", "tenant"),
        *(part for k, v in arguments.items() for part in (f"--{k}", v)),
    ]


def announced_ports(out: Path) -> list[int]:
    """The ports that a tenant process has announced on its standard output; empty before that."""
    line = out.read_text()
    return list(json.loads(line.splitlines()[0])["ports"]) if line.endswith("\n") else []
