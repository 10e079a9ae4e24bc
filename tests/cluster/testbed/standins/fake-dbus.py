#!/usr/bin/python3
"""fake-dbus SOCKET: just enough of a system bus for nvidia-mig-manager.

It connects to systemd's bus before every change, and writes no state when it cannot. Authentication and Hello are
answered, any other call gets an error. The format is that of the D-Bus specification, little-endian.
"""

import socket
import struct
import sys
import threading
from pathlib import Path

RETURN, ERROR, NO_REPLY_EXPECTED = 2, 3, 1
ERROR_NAME, REPLY_SERIAL, DESTINATION, SIGNATURE = 4, 5, 6, 8
CLIENT = ":1.1"


def padded(data: bytes, size: int) -> bytes:
    return data + b"\0" * (-len(data) % size)


def text(value: str) -> bytes:
    return struct.pack("<I", len(value)) + value.encode() + b"\0"


def header_field(code: int, kind: str, value: bytes) -> bytes:
    return bytes([code, 1, ord(kind), 0]) + value


def reply(serial: int, is_hello: bool) -> bytes:
    body = text(CLIENT if is_hello else "a stand-in has no such service")
    fields = padded(header_field(REPLY_SERIAL, "u", struct.pack("<I", serial)), 8)
    fields = padded(fields + header_field(DESTINATION, "s", text(CLIENT)), 8)
    if not is_hello:
        fields = padded(fields + header_field(ERROR_NAME, "s", text("org.freedesktop.DBus.Error.ServiceUnknown")), 8)
    fields += header_field(SIGNATURE, "g", b"\x01s\0")
    kind = RETURN if is_hello else ERROR
    return padded(struct.pack("<BBBBIII", ord("l"), kind, 1, 1, len(body), 1, len(fields)) + fields, 8) + body


def serve(connection: socket.socket) -> None:
    stream = connection.makefile("rb")
    stream.read(1)
    while (line := stream.readline().strip()) != b"BEGIN":
        if not line:
            return
        if line.startswith(b"AUTH EXTERNAL"):
            connection.sendall(b"OK 00000000000000000000000000000001\r\n")
        else:
            connection.sendall(b"REJECTED EXTERNAL\r\n" if line.startswith(b"AUTH") else b"ERROR\r\n")
    while len(start := stream.read(16)) == 16:
        body_size, serial, fields_size = struct.unpack("<III", start[4:16])
        rest = stream.read(fields_size + -fields_size % 8 + body_size)
        if start[1] == 1 and not start[2] & NO_REPLY_EXPECTED:
            connection.sendall(reply(serial, b"Hello" in rest))


def main() -> None:
    path = Path(sys.argv[1])
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


if __name__ == "__main__":
    main()
