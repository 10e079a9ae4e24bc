"""Runs a program in a network of its own, so that several may listen on one and the same port of one host.

`python port_proxy.py --port P --inside Q COMMAND ...` listens on port P of this host, makes a network namespace with
nothing but a loopback, runs the command in it in place of this process, and hands every connection to P on to port Q
in there. No rights are needed where the kernel lets users make user namespaces. `--check` only reports whether it does.
"""

import argparse
import ctypes
import fcntl
import os
import signal
import socket
import struct
import sys
import threading
from pathlib import Path

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SIOCGIFFLAGS = 0x8913
SIOCSIFFLAGS = 0x8914
IFF_UP = 0x1
PR_SET_PDEATHSIG = 1
PIECE_BYTES = 1 << 16
LIBC = ctypes.CDLL(None, use_errno=True)


def enter_network() -> None:
    """Move this process into a new user and network namespace as the same user. Raises OSError."""
    user, group = os.getuid(), os.getgid()
    if LIBC.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14s", b"lo", 0, b"")
        name, flags, _ = struct.unpack("16sh14s", fcntl.ioctl(any_socket, SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14s", name, flags | IFF_UP, b""))


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while piece := source.recv(PIECE_BYTES):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One side is gone: the other must not wait.
        source.close()
        target.close()


def _hand_on(outside: socket.socket, port: int) -> None:
    try:
        inside = socket.create_connection(("127.0.0.1", port))
    except OSError:
        outside.close()
        return
    back = threading.Thread(target=_pump, args=(inside, outside), daemon=True)
    back.start()
    _pump(outside, inside)
    back.join()
    inside.close()
    outside.close()


def serve(listener: socket.socket, port: int) -> None:
    """Hand every connection on, until the program that is served ends."""
    # The listener belongs to the network it was made in, what is connected from here to the new one.
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_hand_on, args=(connection, port), daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(prog="port_proxy")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--port", type=int, help="port on this host")
    parser.add_argument("--inside", type=int, help="port that the command listens on")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    try:
        if arguments.check:
            enter_network()
            return
        listener = socket.create_server(("127.0.0.1", arguments.port))
        enter_network()
    except OSError as error:
        sys.exit(f"no network of its own: {error.strerror or error}")
    if os.fork() == 0:
        serve(listener, arguments.inside)
    listener.close()
    try:
        os.execvp(arguments.command[0], arguments.command)
    except OSError as error:
        sys.exit(f"cannot start {arguments.command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
