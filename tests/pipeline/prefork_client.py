"""The client of the server in `prefork.py`. Jobs import it, so it imports little, not even `socket`."""

import _socket
import marshal
import os
import sys
from collections.abc import Mapping, Sequence

SERVER = "SHAREBENCH_TEST_SERVER"
"""The environment variable with the server's name; jobs of a run without it are processes of their own."""
CODE = "SHAREBENCH_TEST_CODE"
"""The environment variable with the folder of a run's code, where all unedited code is the same."""
NUMBER_BYTES = 16


def ask(server: str, command: Sequence[str], cwd: str, env: Mapping[str, str], files: Sequence[int]) -> _socket.socket:
    """Have the server start a run; `files` are its standard streams.

    Returns the connection, on which the run's process ID comes and later its exit code. Closing it kills the run.
    """
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(f"\0{server}")
    rights = b"".join(file.to_bytes(4, sys.byteorder) for file in files)
    connection.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    connection.sendall(marshal.dumps({"command": list(command), "cwd": cwd, "env": dict(env)}))
    return connection


def send_number(connection: _socket.socket, number: int) -> None:
    connection.sendall(f"{number:{NUMBER_BYTES}}".encode())


def receive_number(connection: _socket.socket) -> int:
    """The next number that the server sends; 1 if the server ends before."""
    return int(connection.recv(NUMBER_BYTES, _socket.MSG_WAITALL) or b"1")


def run_in_server(command: Sequence[str]) -> int:
    """Have the server run the script in place of this process; returns the exit code."""
    # pathlib would take as long as all other imports.
    connection = ask(os.environ[SERVER], command, os.getcwd(), os.environ, (0, 1, 2))  # noqa: PTH109
    receive_number(connection)
    return receive_number(connection)
