"""Tenants that are user programs: one that measures itself, one that exits, or a server with the driver's client."""

import errno
import itertools
import os
import random
import shutil
import socket
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from sharebench.measure.nodes.contract import Grant, NodeError, WorkloadError
from sharebench.measure.nodes.host.launch import (
    BuiltInTenant,
    CellContext,
    Program,
    TenantProcess,
    announced_ports,
    grant_environment,
    inherited_environment,
    tenant_command,
)
from sharebench.measure.nodes.host.programs.endpoints import ScrapedEndpoint, ServedEndpoint
from sharebench.measure.nodes.host.programs.exiting import LAUNCHER, ExitEndpoint, ProgramExit
from sharebench.measure.nodes.host.programs.process_tree import ProcessTree
from sharebench.measure.nodes.programs import fill_in, placeholder_values
from sharebench.measure.nodes.tenants.tenant_set import StartingEndpoint
from sharebench.model.programs import CLIENT, client_files, is_program, request_texts
from sharebench.model.spec import WorkloadSpec, runs_until_exit
from tenant.contract import TOKEN_VARIABLE, SteadinessRule
from tenant.contract.requests import variable_problem

PORT_VARIABLE = "SHAREBENCH_PORT"
INDEX_VARIABLE = "SHAREBENCH_INDEX"
# Below the ports that Linux uses for outgoing connections.
PORT_RANGE = range(20_000, 32_768)
_PORTS = itertools.cycle(random.sample(PORT_RANGE, len(PORT_RANGE)))


def port_conflict(workloads: Sequence[WorkloadSpec]) -> str | None:
    """The reason why one port keeps these programs, one per tenant, from running at once, or None."""
    with_fixed_port = [each for each in workloads if is_program(each) and each["port"] is not None]
    counts = Counter(each["port"] for each in with_fixed_port)
    shared = next((each for each in with_fixed_port if counts[each["port"]] > 1), None)
    if shared is None:
        return None
    port = f"port {shared['port']}, which only one tenant of a host can use"
    return f"{shared['name']} always listens on {port}; give it a port with {{port}}"


def free_port() -> int:
    """A free port of this host, outside the range that connections take while a server starts."""
    for port in itertools.islice(_PORTS, len(PORT_RANGE)):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise NodeError(f"no port between {PORT_RANGE[0]} and {PORT_RANGE[-1]} is free on this host")


def refuse_taken_port(port: int) -> None:
    """Raise NodeError when another program listens on this port."""
    with socket.socket() as probe:
        if probe.connect_ex(("127.0.0.1", port)) == 0:
            raise NodeError(f"port {port} is in use by another program on this host; stop that, or use another port")


class ProgramTenant(TenantProcess):
    def __init__(self, context: CellContext, grants: Sequence[Grant], home: Path) -> None:
        super().__init__(context, grants, home)
        (self.grant,) = grants
        self.port: int = free_port() if self.workload["port"] is None else self.workload["port"]

    def fill_in(self, word: str) -> str:
        own = {"port": self.port, "here": Path.cwd(), "python": self.context.python}
        return fill_in(word, placeholder_values(self.context.spec, self.index) | own)

    def program(self) -> Program:
        argv = [self.fill_in(word) for word in self.workload["command"] or ()]
        refuse_taken_port(self.port)
        variables = {
            **inherited_environment(),
            **self.grant.environment,
            PORT_VARIABLE: str(self.port),
            INDEX_VARIABLE: str(self.index),
        }
        return Program(argv, variables, self.grant.cores, None)


class CommandTenant(ProgramTenant):
    """A program that measures itself."""

    def programs(self) -> list[Program]:
        return [self.program()]

    def on_started(self) -> None:
        rule = SteadinessRule(**self.context.spec["warmup"])
        self._endpoint = ScrapedEndpoint(self.index, self.workload, self.port, self.log, ProcessTree(self.pid), rule)

    def connect(self) -> Sequence[StartingEndpoint]:
        return [self._endpoint]


class ExitTenant(ProgramTenant):
    """A program that runs until it exits."""

    _endpoint: ExitEndpoint | None = None

    @property
    def _ended(self) -> ProgramExit | None:
        return None if self._endpoint is None else self._endpoint.ended

    def programs(self) -> list[Program]:
        """The program behind its launcher. Raises NodeError for a missing program, since the launcher would start."""
        own = self.program()
        if shutil.which(own.argv[0], path=own.environment.get("PATH")) is None:
            raise WorkloadError(f"cannot start {own.argv[0]!r}: {os.strerror(errno.ENOENT)}")
        return [replace(own, argv=[*LAUNCHER, *own.argv])]

    def on_started(self) -> None:
        self._endpoint = ExitEndpoint(self.index, self.workload, self.port, self.log, self.pid)

    def code(self) -> int | None:
        return None if self._ended is None else self._ended.code or None

    def cpu_seconds_at_end(self) -> float:
        return 0.0 if self._ended is None else self._ended.cpu_seconds

    def connect(self) -> Sequence[StartingEndpoint]:
        return [] if self._endpoint is None else [self._endpoint]


class HttpTenant(ProgramTenant):
    """A server and the driver's client, a separate process without a grant; for an external server only the client."""

    def programs(self) -> list[Program]:
        """The server, unless it is external, and the client. Raises NodeError where the client lacks a variable."""
        if why := variable_problem(request_texts(self.workload), os.environ):
            raise WorkloadError(f"{self.workload['name']}: {why}")
        own = [] if self.workload["url"] is not None else [self.program()]
        url = self.workload["url"] or f"http://127.0.0.1:{self.port}"
        request = self.workload["request"]
        params: dict[str, Any] = {
            "url": url.rstrip("/"),
            **request,
            "ready_path": self.workload["ready"]["path"],
            "stream": self.workload["stream"],
            "note": str(self._client_note),
        }
        params |= {key: str(Path.cwd() / path) for key, path in client_files(self.workload).items()}
        # The client uses the driver's Python and packages, not the tenants'.
        argv = tenant_command(self.context, self.index, CLIENT, params, device="cpu", python=sys.executable)
        # The client computes nothing on the device: it sees none, and runs wherever there is room.
        variables = {**grant_environment(Grant(self.index, 0)), TOKEN_VARIABLE: self.context.token}
        return [*own, Program(argv, variables, None, self.out)]

    @property
    def _client_note(self) -> Path:
        return self.out.with_suffix(".note")

    def waiting_for(self) -> str | None:
        return self._client_note.read_text() if self._client_note.exists() else None

    def on_started(self) -> None:
        self._outside = ProcessTree(self.pid) if self.workload["url"] is None else None

    def connect(self) -> Sequence[StartingEndpoint]:
        return [ServedEndpoint(port, self.context.token, self._outside) for port in announced_ports(self.out)]


def tenant_class(workload: WorkloadSpec) -> type[TenantProcess]:
    if runs_until_exit(workload):
        return ExitTenant
    kinds: Mapping[str, type[TenantProcess]] = {"command": CommandTenant, "http": HttpTenant}
    return kinds.get(workload.get("kind", "loop"), BuiltInTenant)
