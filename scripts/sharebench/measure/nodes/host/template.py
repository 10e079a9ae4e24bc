"""Tenants that a process forks which has imported their frameworks (`tenant.template`), by the run's own process."""

import contextlib
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

from sharebench.core.files import SCRIPTS
from sharebench.core.run_names import RUN_ID_VARIABLE
from sharebench.measure.nodes.limits import CLIENT_VARIABLES
from sharebench.measure.nodes.node import Node
from tenant.contract.forking import MAX_MESSAGE_BYTES, SOCKET_KIND, ForkRequest

KILLED = -9
"""Exit code of a tenant whose template has died, and which died with it."""
# A library that is put into programs works at their start, and the variables that a process was started with are the
# node's evidence of a client's own limits.
START_VARIABLES = {"LD_PRELOAD", *CLIENT_VARIABLES}
STOP_SECONDS = 5.0


def _address(python: Path) -> str:
    """The abstract socket of the run's template with this interpreter."""
    digest = hashlib.sha256(str(python).encode()).hexdigest()[:16]
    return f"\0sharebench/{os.environ[RUN_ID_VARIABLE]}/{digest}"


def start(python: Path) -> Callable[[], None] | None:
    """Start the template of a run, from the main thread of the process that owns it; returns what ends it.

    None where the run has one already: its devices share it.
    """
    with socket.socket(socket.AF_UNIX, SOCKET_KIND) as listener:
        try:
            listener.bind(_address(python))
        except OSError:
            return None
        listener.listen()
        process = subprocess.Popen(
            [str(python), "-m", "tenant.template", str(listener.fileno()), str(os.getpid())],
            env={**os.environ, "PYTHONPATH": str(SCRIPTS)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        process.kill()
        process.wait(STOP_SECONDS)

    return end


class ForkedProcess:
    """A tenant that the template has forked, with the interface of `subprocess.Popen`."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self._connection = connection
        # Several threads may wait for one tenant.
        self._lock = threading.Lock()
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("tenant", timeout or 0)
            with self._lock:
                if self.returncode is None:
                    message = _receive(self._connection)
                    self.returncode = KILLED if message is None else message["code"]
        return self.returncode


def _receive(connection: socket.socket) -> Mapping[str, int] | None:
    with contextlib.suppress(ConnectionError):
        if text := connection.recv(MAX_MESSAGE_BYTES):
            message: Mapping[str, int] = json.loads(text)
            return message
    return None


def fork(python: Path, request: ForkRequest, out: BinaryIO, errors: BinaryIO) -> ForkedProcess | None:
    """Have the run's template fork a tenant; None where there is no template, or it cannot fork."""
    if RUN_ID_VARIABLE not in os.environ or not START_VARIABLES.isdisjoint(request["environment"]):
        return None
    connection = socket.socket(socket.AF_UNIX, SOCKET_KIND)
    try:
        connection.connect(_address(python))
        socket.send_fds(connection, [json.dumps(request).encode()], [out.fileno(), errors.fileno()])
        answer = _receive(connection)
    except OSError:
        answer = None
    if answer is None or answer["pid"] is None:
        connection.close()
        return None
    return ForkedProcess(connection, answer["pid"])


class HostNode(Node):
    """A node of this host, whose runs have a template with the interpreter of its tenants."""

    _end_template: Callable[[], None] | None = None

    @property
    def tenant_python(self) -> Path:
        """The interpreter that has the frameworks."""
        return Path(sys.executable)

    def claim(self, run_id: str) -> None:
        self._end_template = start(self.tenant_python)

    def release(self) -> None:
        if self._end_template is not None:
            self._end_template()
