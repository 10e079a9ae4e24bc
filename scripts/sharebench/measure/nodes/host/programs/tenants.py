"""Tenants that are user programs, with our client next to each."""

import errno
import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

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
from sharebench.measure.nodes.host.logs import LogSearch, log_end
from sharebench.measure.nodes.programs import fill_in, placeholder_values
from sharebench.measure.nodes.tenants.programs.endpoints import ClientEndpoint, ExitEndpoint, ObservedProgram
from sharebench.measure.nodes.tenants.programs.scraped import endpoint_class
from sharebench.measure.nodes.tenants.tenant_set import Ending
from sharebench.model.workload import CLIENT, Workload
from tenant.contract import EXIT_USAGE, TOKEN_VARIABLE
from tenant.contract.requests import variable_problem

# Stops itself; after SIGCONT, which its client sends at the window's start, it becomes the program, under the same pid.
LAUNCHER = ["/bin/sh", "-c", 'kill -STOP $$; exec "$@"', "sh"]
PORT_VARIABLE = "SHAREBENCH_PORT"
INDEX_VARIABLE = "SHAREBENCH_INDEX"
SILENCE_SECONDS = 1.0
# Below the ports that Linux uses for outgoing connections.
PORT_RANGE = range(20_000, 32_768)
_PORTS = itertools.cycle(random.sample(PORT_RANGE, len(PORT_RANGE)))


def port_conflict(workloads: Sequence[Workload]) -> str | None:
    """The reason why one port keeps these programs, one per tenant, from running at once, or None."""
    with_fixed_port = [each for each in workloads if each.is_program and each.port is not None]
    counts = Counter(each.port for each in with_fixed_port)
    shared = next((each for each in with_fixed_port if counts[each.port] > 1), None)
    if shared is None:
        return None
    port = f"port {shared.port}, which only one tenant of a host can use"
    return f"{shared.name} always listens on {port}; give it a port with {{port}}"


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
    """A user program and our client next to it, which has no grant; for a server elsewhere the client alone."""

    def __init__(self, context: CellContext, grants: Sequence[Grant], home: Path) -> None:
        super().__init__(context, grants, home)
        (self.grant,) = grants
        self.port: int = free_port() if self.workload.port is None else self.workload.port
        self.is_elsewhere = self.workload.url is not None
        self.client_log = home.with_suffix(".client.log")
        self._has_client_failed = False

    def fill_in(self, word: str) -> str:
        own = {"port": self.port, "here": Path.cwd(), "python": self.context.python}
        return fill_in(word, placeholder_values(self.context.spec, self.index) | own)

    def programs(self) -> Iterator[Program]:
        """Raises NodeError where a program is missing, its port is taken, or the client lacks a variable."""
        arguments = self._client_arguments()
        if not self.is_elsewhere:
            yield self._program()
        arguments["pid"] = "0" if self.is_elsewhere else str(self.pid)
        # The client uses the driver's Python and packages, not the tenants'.
        argv = tenant_command(self.context, self.index, CLIENT, {}, device="cpu", python=sys.executable)
        argv += [part for name, value in arguments.items() for part in (f"--{name}", value)]
        # The client computes nothing on the device: it sees none, and runs wherever there is room.
        variables = {**grant_environment(Grant(self.index, 0)), TOKEN_VARIABLE: self.context.token}
        yield Program(argv, variables, None, self.client_log, self.out)

    def _program(self) -> Program:
        argv = [self.fill_in(word) for word in self.workload.command or ()]
        refuse_taken_port(self.port)
        variables = {
            **inherited_environment(),
            **self.grant.environment,
            PORT_VARIABLE: str(self.port),
            INDEX_VARIABLE: str(self.index),
        }
        if self.ends_itself:
            # The launcher would start also without the program.
            if shutil.which(argv[0], path=variables.get("PATH")) is None:
                raise WorkloadError(f"cannot start {argv[0]!r}: {os.strerror(errno.ENOENT)}")
            argv = [*LAUNCHER, *argv]
        return Program(argv, variables, self.grant.cores, self.log)

    def _client_arguments(self) -> dict[str, str]:
        if self.ends_itself:
            return {"program": "exit"}
        if self.workload.kind == "command":
            return {
                "program": "scrape",
                "params": json.dumps({"port": self.port, "path": self.workload.metrics.path}),
            }
        if why := variable_problem(self.workload.request_texts(), os.environ):
            raise WorkloadError(f"{self.workload.name}: {why}")
        params = self.workload.client_params((self.workload.url or f"http://127.0.0.1:{self.port}").rstrip("/"))
        params |= {key: str(Path.cwd() / path) for key, path in self.workload.client_files().items()}
        return {"program": "server", "params": json.dumps(params)}

    def connect(self) -> Sequence[ClientEndpoint]:
        program = ObservedProgram(self.context.spec, self.index, self._has_printed, self._await_ending)
        make = endpoint_class(self.workload)
        return [make(program, port, self.context.token) for port in announced_ports(self.out)]

    def is_ready(self) -> bool:
        # Searched from the start, also before the client listens: a long log is cut.
        if not self.ends_itself and (text := self.workload.ready.log) is not None:
            self._has_printed(text)
        return super().is_ready()

    def _has_printed(self, text: str) -> bool:
        self.search = self.search or LogSearch(self.log, text)
        return self.search.is_found()

    def _await_ending(self) -> Ending | None:
        """Wait a moment for the end of a program that does not answer; how it has failed, or None."""
        with suppress(subprocess.TimeoutExpired):
            self.popens[0].wait(SILENCE_SECONDS)
        return self.ending()

    @property
    def _exit(self) -> ExitEndpoint | None:
        return next((each for each in self.connected if isinstance(each, ExitEndpoint)), None)

    def code(self) -> int | None:
        if self.is_elsewhere:
            return None
        if self._exit is None or self._exit.window == (0, 0):
            return super().code()
        # Its client reads what it has used before its exit code is taken. A good end is its work's.
        return None if self._exit.is_running else super().code() or None

    def refuse_unavailable(self) -> None:
        """Raise NodeError where the client has ended: that is not the program's fault."""
        if len(self.popens) == 2 - self.is_elsewhere and (code := self.popens[-1].poll()) is not None:
            self._has_client_failed = True
            lines = log_end(self.client_log).strip().splitlines()[-1:]
            line = ": ".join([f"tenant {self.index}: its client ended with exit code {code}", *lines])
            raise (WorkloadError if code == EXIT_USAGE else NodeError)(line)

    def waiting_for(self) -> str | None:
        return super().waiting_for() or next(reversed(log_end(self.client_log).splitlines()), None)

    def logs(self) -> list[str]:
        """The program's log; that of its client repeats why the program was not ready."""
        return [log_end(self.log), *([log_end(self.client_log)] if self._has_client_failed else [])]

    def cpu_seconds_at_end(self) -> float:
        return 0.0 if self._exit is None else self._exit.cpu_seconds


def tenant_class(workload: Workload) -> type[TenantProcess]:
    return ProgramTenant if workload.is_program else BuiltInTenant
