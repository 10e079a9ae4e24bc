"""A process that forks tenants which have imported their frameworks already: `python -m tenant.template FD PARENT`.

It belongs to a run and ends with the process PARENT, which started it. For each workload it forks a process that
imports the workload's frameworks, opens no device, and forks the workload's tenants. A connection to the socket FD is
one tenant, from the request for it to its end (`tenant.contract.forking`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import tenant
from tenant import __main__ as command_line
from tenant import workloads
from tenant.contract.forking import MAX_MESSAGE_BYTES, SOCKET_KIND, ForkRequest

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

PR_SET_PDEATHSIG = 1
# jemalloc's own, which pyarrow brings: it handles forks, and starts again.
FORK_SAFE_THREADS = {"jemalloc_bg_thd"}


def die_with(parent: int) -> None:
    """Have the kernel kill this process as soon as its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def _fork() -> int:
    """`os.fork` for a child that dies with this process."""
    parent = os.getpid()
    if pid := os.fork():
        return pid
    die_with(parent)
    return 0


def _other_threads() -> set[str]:
    """Names of the threads besides this one. A fork does not copy them, but does copy the locks that they hold."""
    tasks = [task for task in Path("/proc/self/task").iterdir() if task.name != str(os.getpid())]
    return {(task / "comm").read_text().strip() for task in tasks}


def _close_all_but(*kept: int) -> None:
    for descriptor in [int(link.name) for link in Path("/proc/self/fd").iterdir()]:
        if descriptor > 2 and descriptor not in kept:
            with contextlib.suppress(OSError):
                os.close(descriptor)


def _is_own(connection: socket.socket) -> bool:
    """Whether the other side is this user's."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", credentials)
    return bool(user == os.getuid())


def serve(listener: socket.socket) -> NoReturn:
    """Pass each request on to the process of its workload."""
    channels: dict[tuple[str, str], socket.socket] = {}
    while True:
        connection, _ = listener.accept()
        with connection:
            if not _is_own(connection):
                continue
            text, streams, _, _ = socket.recv_fds(connection, MAX_MESSAGE_BYTES, 2)
            if text:
                request: ForkRequest = json.loads(text)
                key = request["module"], request["device"]
                if key not in channels:
                    channels[key], theirs = socket.socketpair(socket.AF_UNIX, SOCKET_KIND)
                    if not _fork():
                        _close_all_but(theirs.fileno())
                        Forker(theirs, *key).serve()
                    theirs.close()
                socket.send_fds(channels[key], [text], [connection.fileno(), *streams])
            for stream in streams:
                os.close(stream)


class Forker:
    """The process of one workload. A tenant's connection and pidfd are registered under its process id."""

    def __init__(self, channel: socket.socket, module: str, device: str) -> None:
        self._channel = channel
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ)
        self._connections: dict[int, socket.socket] = {}
        begun = time.monotonic()
        # What cannot be imported fails again in the tenant, which reports it.
        with contextlib.suppress(Exception):
            workloads.load_module(module, device)
            from tenant import measure, startup  # noqa: F401
        self._import_seconds = time.monotonic() - begun
        # Memory that the garbage collector never touches stays shared between the tenants.
        gc.collect()
        gc.freeze()

    def serve(self) -> NoReturn:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._channel:
                    self._begin()
                elif key.data in self._connections:
                    self._end(key.fileobj, key.data)

    def _begin(self) -> None:
        text, descriptors, _, _ = socket.recv_fds(self._channel, MAX_MESSAGE_BYTES, 3)
        connection, streams = socket.socket(fileno=descriptors[0]), descriptors[1:]
        if _other_threads() - FORK_SAFE_THREADS:
            connection.send(b'{"pid": null}')
            connection.close()
        elif pid := _fork():
            connection.send(json.dumps({"pid": pid}).encode())
            self._connections[pid] = connection
            for fileobj in (connection, os.pidfd_open(pid)):
                self._selector.register(fileobj, selectors.EVENT_READ, pid)
        else:
            self._become(json.loads(text), *streams)
        for stream in streams:
            os.close(stream)

    def _end(self, fileobj: FileDescriptorLike, pid: int) -> None:
        """End a tenant whose connection has ended, or report the end of the tenant itself."""
        self._selector.unregister(fileobj)
        if fileobj is self._connections[pid]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            return
        os.close(fileobj if isinstance(fileobj, int) else fileobj.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection = self._connections.pop(pid)
        with contextlib.suppress(KeyError):
            self._selector.unregister(connection)
        with contextlib.suppress(OSError), connection:
            connection.send(json.dumps({"code": code}).encode())

    def _become(self, request: ForkRequest, out: int, errors: int) -> NoReturn:
        """Be the tenant, in its own process and session."""
        tenant.FIRST_LINE_NS = time.monotonic_ns()
        os.setsid()
        for number, stream in enumerate((os.open(os.devnull, os.O_RDONLY), out, errors)):
            os.dup2(stream, number)
        _close_all_but()
        os.chdir(request["folder"])
        os.sched_setaffinity(0, request["cores"])
        os.environ.clear()
        os.environ.update(request["environment"])
        tempfile.tempdir = None
        sys.argv = ["tenant", *request["arguments"], "--import-seconds", str(self._import_seconds)]
        try:
            command_line.main()
        except SystemExit as end:
            sys.stdout.flush()
            sys.stderr.flush()
            # The exit handlers of this process are those of a process that forks.
            os._exit(end.code if isinstance(end.code, int) else bool(end.code))
        os._exit(1)


def main() -> NoReturn:
    descriptor, parent = map(int, sys.argv[1:])
    die_with(parent)
    os.environ.update(dict.fromkeys(command_line.THREAD_VARIABLES, "1"))
    serve(socket.socket(fileno=descriptor))


if __name__ == "__main__":
    main()
