"""Where connections come from: the one thing of the outside world that a client is given."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

from ottla.environment.network import StreamSocket

Connect = Callable[[str, int], Awaitable[StreamSocket]]
"""Gives a connection to a host and port, or raises `OSError`: `Network.connect` is one."""


async def connect(host: str, port: int) -> StreamSocket:
    """Connect through the kernel, to the first address of the host that answers."""
    loop = asyncio.get_running_loop()
    refused: OSError = ConnectionRefusedError(f"{host} has no address")
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for family, kind, protocol, _, address in addresses:
        connected = socket.socket(family, kind, protocol)
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await loop.sock_connect(connected, address)
        except OSError as error:
            connected.close()
            refused = error
        except BaseException:
            connected.close()
            raise
        else:
            return connected
    raise refused
