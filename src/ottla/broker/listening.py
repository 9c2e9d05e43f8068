"""Sockets that listen: one for each address that a listener's host has."""

import errno
from asyncio import AbstractEventLoop
from socket import (
    AF_INET6,
    AI_PASSIVE,
    IPPROTO_IPV6,
    IPV6_V6ONLY,
    SO_REUSEADDR,
    SOCK_STREAM,
    SOL_SOCKET,
    AddressFamily,
    socket,
)
from typing import Any, Final

from ottla.model.listeners import Listener

BACKLOG: Final = 1024
"""Connections that the kernel keeps until they are accepted."""
_MISSING_HERE: Final = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})

_Address = tuple[AddressFamily, tuple[Any, ...]]


async def listening_sockets(listener: Listener, loop: AbstractEventLoop) -> list[socket]:
    """Listen, on one port, on every address of the host; an OSError says why that cannot be.

    Of several addresses those that this machine does not have are left out, as it is with
    localhost where there is no IPv6.
    """
    sockets: list[socket] = []
    port = listener.port
    addresses = await _addresses(listener, loop)
    for address in addresses:
        try:
            sockets.append(_listening_socket(address, port, is_alone=len(addresses) == 1))
        except OSError as error:
            if error.errno in _MISSING_HERE and (sockets or address != addresses[-1]):
                continue
            for opened in sockets:
                opened.close()
            raise _error(listener, error) from None
        port = port_of(sockets[0])
    return sockets


def port_of(listening: socket) -> int:
    """Return the port that a socket listens on."""
    port: int = listening.getsockname()[1]
    return port


async def _addresses(listener: Listener, loop: AbstractEventLoop) -> list[_Address]:
    try:
        found = await loop.getaddrinfo(
            listener.host or None, listener.port, type=SOCK_STREAM, flags=AI_PASSIVE
        )
    except OSError as error:
        raise _error(listener, error) from None
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))


def _listening_socket(address: _Address, port: int, *, is_alone: bool) -> socket:
    family, (host, _, *scope) = address
    opened = socket(family, SOCK_STREAM)
    try:
        opened.setblocking(False)
        opened.setsockopt(SOL_SOCKET, SO_REUSEADDR, 1)
        if family == AF_INET6:  # alone it takes IPv4 too, as "::" does for Kafka
            opened.setsockopt(IPPROTO_IPV6, IPV6_V6ONLY, not is_alone)
        opened.bind((host, port, *scope))
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


def _error(listener: Listener, error: OSError) -> OSError:
    return OSError(error.errno, f"cannot listen on {listener}: {error.strerror}")
