"""Ask the process of `prefork.py` for a run. Jobs do, so this imports little."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

SERVER = "SHAREBENCH_TEST_SERVER"
"""Names the variable with the server's name; a run without it has processes of its own."""


def ask(server: str, command: Sequence[str], cwd: str, env: Mapping[str, str], files: Sequence[int]) -> socket.socket:
    """A connection to the server, which has begun the run; `files` are its standard streams.

    It answers with the exit code. Closing it before ends the run.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(f"\0{server}")
    socket.send_fds(connection, [b"\0"], list(files))
    connection.sendall(json.dumps({"command": command, "cwd": cwd, "env": dict(env)}).encode() + b"\n")
    return connection


def code_of(connection: socket.socket) -> int:
    """The exit code that the server answers with; 1 if it ends without an answer."""
    return int(connection.recv(16) or b"1")


def become(command: Sequence[str]) -> int:
    """Have the server run the script in place of this process; the exit code."""
    with ask(os.environ[SERVER], command, str(Path.cwd()), os.environ, (0, 1, 2)) as connection:
        return code_of(connection)
