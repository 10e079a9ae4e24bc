"""How a driver asks a template (`tenant.template`) for a tenant."""

import socket
from typing import TypedDict

# Messages arrive whole, and the end of the other side shows.
SOCKET_KIND = socket.SOCK_SEQPACKET
MAX_MESSAGE_BYTES = 2**17


class ForkRequest(TypedDict):
    """A tenant; its standard output and error come with the message, as file descriptors.

    The answer is {"pid": N}, and at its end {"code": N}, negative for a signal. {"pid": null} means that it cannot be
    forked. The tenant ends with its connection.
    """

    module: str
    device: str
    arguments: list[str]
    environment: dict[str, str]
    cores: list[int]
    folder: str
