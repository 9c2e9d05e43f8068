"""Ports of the HTTP servers in a broker's process: the admin listener and the schema registry.

A default port may be in use by another broker on the same machine: that is logged, and the broker
starts without the server. A configured port that cannot be bound ends the start.
"""

import logging
from typing import NamedTuple

from ottla.broker.transport.listeners import cannot_listen
from ottla.model.settings.listeners import HttpListener, Listener
from ottla.runtime.network import KernelListener, KernelNetwork

_log = logging.getLogger(__name__)


class HttpServer(NamedTuple):
    """The names of an HTTP server in messages."""

    purpose: str
    name: str
    setting: str


async def http_sockets(
    server: HttpServer, listener: HttpListener | None, *, is_asked_for: bool
) -> list[KernelListener]:
    """Listen on every address of the host; no sockets without a listener.

    OSError if `is_asked_for` and the port cannot be bound; else a warning, and no sockets.
    """
    if listener is None:
        return []
    place = Listener(server.name, listener.host, listener.port)
    try:
        return await KernelNetwork().listen(place.host, place.port)
    except OSError as refused:
        error = cannot_listen(place, refused)
        if is_asked_for:
            hint = f"{error.strerror}; {server.setting} must be another place, or empty"
            raise OSError(error.errno, hint) from None
        _log.warning(
            "No %s: %s (%s names another place)", server.purpose, error.strerror, server.setting
        )
        return []
