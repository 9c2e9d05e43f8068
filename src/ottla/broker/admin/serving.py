"""Serves the pages by uvicorn's HTTP. Imported when the admin listener begins to serve."""

import asyncio
from asyncio import Transport
from collections.abc import Sequence
from socket import socket
from typing import Any, Final

from starlette.applications import Starlette
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

CONNECTIONS_MAX: Final = 64
"""Further connections are closed at once."""
CONNECTION_SECONDS_MAX: Final = 30.0
"""The lifetime of a connection, from its first moment on; it serves one request only."""
HEAD_BYTES_MAX: Final = 16 << 10
"""The first line of a request and its headers."""


class _BoundedProtocol(H11Protocol):
    """A connection with limits on the peer's time and bytes."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin, unless too many are here already."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            transport.abort()
            return
        self._deadline = self.loop.call_later(CONNECTION_SECONDS_MAX, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)


async def serve(application: Starlette, sockets: Sequence[socket], stopping: asyncio.Event) -> None:
    """Serve until stopped; then close every connection. Takes ownership of the sockets."""
    config = Config(
        application,
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES_MAX,
        headers=[("Connection", "close")],
    )
    config.load()
    state = ServerState()
    state.default_headers = config.encoded_headers

    def connection() -> _BoundedProtocol:
        return _BoundedProtocol(config=config, server_state=state, app_state={})

    loop = asyncio.get_running_loop()
    servers = [await loop.create_server(connection, sock=sock) for sock in sockets]
    await stopping.wait()
    for server in servers:
        server.close()
    _cut_off(list(state.connections))


def _cut_off(connections: list[Any]) -> None:
    for connection in connections:
        connection.transport.abort()
