"""The kernel's TCP. The contract is `ottla.environment.network`."""

import asyncio
import errno
import sys
from fcntl import ioctl
from socket import (
    AF_INET6,
    AI_PASSIVE,
    IPPROTO_IPV6,
    IPPROTO_TCP,
    IPV6_V6ONLY,
    SO_KEEPALIVE,
    SO_RCVBUF,
    SO_REUSEADDR,
    SO_SNDBUF,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_NODELAY,
    AddressFamily,
    socket,
)
from struct import calcsize
from termios import TIOCOUTQ
from typing import Any, Final

from ottla.environment.network import ListeningSocket, StreamSocket

BACKLOG: Final = 1024
"""Connections that the kernel keeps until they are accepted."""
ADDRESS_SECONDS_MAX: Final = 2.0
"""How long to wait for an address of a host before the next address is tried."""
_MISSING_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})
_INT_BYTES: Final = calcsize("i")

_Address = tuple[AddressFamily, tuple[Any, ...]]


class KernelListener(socket):
    """A listening socket; accepted sockets are non-blocking and have TCP_NODELAY set."""

    def accept(self) -> tuple[socket, Any]:
        """Return the next connection, and its remote address."""
        accepted, address = super().accept()
        _prepare(accepted)
        accepted.setsockopt(SOL_SOCKET, SO_KEEPALIVE, 1)
        return accepted, address


class KernelNetwork:
    """Listens and connects with the kernel's sockets."""

    __slots__ = ()

    async def listen(self, host: str, port: int) -> list[KernelListener]:
        """Listen on every address of the host.

        If the host has several addresses, addresses that this machine lacks are left out, such as
        `::1` of localhost on a machine without IPv6.
        """
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host or None, port, type=SOCK_STREAM, flags=AI_PASSIVE)
        addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        listening: list[KernelListener] = []
        for address in addresses:
            try:
                listening.append(_listen(address, port, is_alone=len(addresses) == 1))
            except OSError as error:
                if error.errno in _MISSING_HERE and (listening or address != addresses[-1]):
                    continue
                for opened in listening:
                    opened.close()
                raise
            port = listening[0].getsockname()[1]
        return listening

    async def connect(self, host: str, port: int) -> StreamSocket:
        """Connect to the host's first address that accepts; only the last has no time limit.

        OSError if none accepts, or if the host is no name.
        """
        loop = asyncio.get_running_loop()
        refused: OSError = ConnectionRefusedError(errno.ECONNREFUSED, f"{host} has no address")
        try:
            found = await loop.getaddrinfo(host, port, type=SOCK_STREAM)
        except UnicodeError as error:  # For instance, a part of the name is too long.
            raise OSError(errno.EINVAL, f"{host!r:.80} is no host name: {error}") from None
        for row in found:
            family, kind, protocol, _, address = row
            connected = socket(family, kind, protocol)
            try:
                _prepare(connected)
                async with asyncio.timeout(None if row is found[-1] else ADDRESS_SECONDS_MAX):
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

    def set_send_buffer(self, connected: StreamSocket, size_bytes: int) -> None:
        """Set SO_SNDBUF; the kernel doubles it for its own bookkeeping."""
        assert isinstance(connected, socket)
        connected.setsockopt(SOL_SOCKET, SO_SNDBUF, size_bytes)

    def set_receive_buffer(self, listening: ListeningSocket, size_bytes: int) -> None:
        """Set SO_RCVBUF on the listening socket; accepted connections inherit it.

        The size is then known during the handshake, in which both sides agree on the window scale.
        """
        assert isinstance(listening, socket)
        listening.setsockopt(SOL_SOCKET, SO_RCVBUF, size_bytes)

    def untaken_bytes(self, connected: StreamSocket) -> int:
        """Return the bytes in the send buffer that the peer has not acknowledged."""
        held = ioctl(connected.fileno(), TIOCOUTQ, bytes(_INT_BYTES))
        return int.from_bytes(held, sys.byteorder)


def _prepare(connected: socket) -> None:
    connected.setblocking(False)
    connected.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)


def _listen(address: _Address, port: int, *, is_alone: bool) -> KernelListener:
    family, (host, _, *scope) = address
    opened = KernelListener(family, SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        if family == AF_INET6:  # as the only address it accepts IPv4 too, as "::" does for Kafka
            opened.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, not is_alone)
        opened.bind((host, port, *scope))
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened
