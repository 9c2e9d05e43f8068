"""The HTTP endpoints of the admin listener, on uvicorn. Imported on first use: it imports slowly.

GET /metrics                  Prometheus' text
GET /healthz, /readyz         200, or 503 and the reasons
GET /v1/loggers               level by logger
GET, PUT /v1/loggers/{name}   one of them; {"level": "DEBUG"}, or null for its parent's level
"""

import asyncio
import json
import logging
from asyncio import AbstractEventLoop, Transport
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from socket import socket
from threading import Lock
from time import sleep
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from ottla.broker.admin.health import Health
from ottla.broker.describing.log_levels import (
    LEVEL_BY_NAME,
    ROOT,
    log_level,
    log_levels,
    logger_names,
    set_log_level,
)
from ottla.broker.metrics.exposition import CONTENT_TYPE, Family, text_parts
from ottla.broker.metrics.jmx import jmx_families, jmx_request_families
from ottla.broker.metrics.kafka_exporter import kafka_exporter_families
from ottla.broker.metrics.ottla_metrics import ottla_families, process_families
from ottla.broker.metrics.snapshot import Snapshot, Sources

CONNECTIONS_MAX: Final = 64
"""Further connections are closed at once."""
CONNECTION_SECONDS_MAX: Final = 30.0
"""The lifetime of a connection, from its first moment on; it serves one request only."""
HEAD_BYTES_MAX: Final = 16 << 10
"""The first line of a request and its headers."""

REST_SECONDS: Final = 0.0005
GATHERING_SECONDS_MAX: Final = 8.0
"""Less than Prometheus' default timeout."""

BODY_BYTES_MAX: Final = 4096
_PYTHON_WORDS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}


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


def scrape_text(sources: Sources, loop: asyncio.AbstractEventLoop) -> bytes:
    """Write all metrics; blocks, so it must be called on a thread that is not the loop's.

    A thread that computes takes the interpreter away from the event loop for five milliseconds each
    time, and the loop gives it up at every call of the kernel. So the thread rests after every
    part: a request that comes in meanwhile waits for one part only.
    TimeoutError if the event loop does not respond.
    """
    gathering = asyncio.run_coroutine_threadsafe(sources.snapshot(), loop)
    try:
        snapshot = gathering.result(GATHERING_SECONDS_MAX)
    finally:
        gathering.cancel()
    parts = []
    for part in text_parts(_families(snapshot)):
        parts.append(part.encode())
        sleep(REST_SECONDS)
    return b"".join(parts)


def _families(snapshot: Snapshot) -> Iterator[Family]:
    return chain(
        kafka_exporter_families(snapshot),
        jmx_families(snapshot),
        jmx_request_families(snapshot),
        ottla_families(snapshot),
        process_families(),
    )


class Pages:
    """The dependencies of all pages. There are no metrics before the broker is ready.

    Pages that need no thread are coroutines, though they wait for nothing.
    """

    def __init__(
        self,
        health: Health,
        sources: Callable[[], Sources | None],
        broker_loop: AbstractEventLoop,
    ) -> None:
        self._health = health
        self._sources = sources
        self._broker_loop = broker_loop
        self._scraping = Lock()

    def application(self) -> Starlette:
        """Return the pages as an ASGI application."""
        return Starlette(
            routes=[
                Route("/metrics", self._metrics),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/v1/loggers", self._loggers),
                Route("/v1/loggers/{name}", self._logger),
                Route("/v1/loggers/{name}", self._change_logger, methods=["PUT"]),
            ],
            exception_handlers={HTTPException: _error_response},
        )

    def _metrics(self, _: Request) -> Response:
        """Not a coroutine, so it gets a thread. Scrapes come one after the other."""
        sources = self._sources()
        if sources is None:
            raise HTTPException(503, "there are no metrics yet")
        with self._scraping:
            try:
                text = scrape_text(sources, self._broker_loop)
            except TimeoutError as error:
                raise HTTPException(503, "the event loop does not answer") from error
        return Response(text, media_type=CONTENT_TYPE)

    async def _healthz(self, _: Request) -> Response:
        return _verdict("alive", self._health.why_not_alive())

    async def _readyz(self, _: Request) -> Response:
        return _verdict("ready", self._health.why_not_ready())

    async def _loggers(self, _: Request) -> Response:
        return JSONResponse(log_levels())

    async def _logger(self, request: Request) -> Response:
        return _level(request.path_params["name"])

    async def _change_logger(self, request: Request) -> Response:
        name = request.path_params["name"]
        _check_is_logger(name)
        set_log_level(name, _number_of(name, _wanted_level(await _body(request))))
        return _level(name)


def _verdict(word: str, reasons: list[str]) -> Response:
    if reasons:
        return JSONResponse({"status": f"not {word}", "reasons": reasons}, 503)
    return JSONResponse({"status": word})


def _level(name: str) -> Response:
    _check_is_logger(name)
    return JSONResponse({"name": name, "level": log_level(name)})


def _check_is_logger(name: str) -> None:
    # Otherwise every invented name would create a logger for good.
    if name not in logger_names():
        raise HTTPException(404, "there is no such logger")


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > BODY_BYTES_MAX:
            raise HTTPException(413, f"a body has at most {BODY_BYTES_MAX} bytes")
    return bytes(body)


def _wanted_level(body: bytes) -> str | None:
    try:
        wanted = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is no JSON: {error}") from error
    if not isinstance(wanted, dict) or not isinstance(wanted.get("level", 0), str | None):
        raise HTTPException(400, 'the body must be like {"level": "DEBUG"}')
    level: str | None = wanted["level"]
    return level


def _number_of(name: str, wanted: str | None) -> int:
    """Return the number of a level with Kafka's or Python's name; None means the parent's."""
    if wanted is None:
        if name == ROOT:
            raise HTTPException(400, "the level of root can only be set")
        return logging.NOTSET
    word = wanted.upper()
    level = LEVEL_BY_NAME.get(_PYTHON_WORDS.get(word, word))
    if level is None:
        raise HTTPException(400, f"a level is one of {', '.join(LEVEL_BY_NAME)}")
    return level


async def _error_response(_: Request, error: Exception) -> Response:  # noqa: RUF029 - starlette waits
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
