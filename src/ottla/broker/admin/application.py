"""The HTTP endpoints of the admin listener. Imported on first use: starlette imports slowly.

GET /metrics                  Prometheus' text
GET /healthz, /readyz         200, or 503 and the reasons
GET /v1/loggers               level by logger
GET, PUT /v1/loggers/{name}   one of them; {"level": "DEBUG"}, or null for its parent's level
"""

import json
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable
from threading import Lock
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ottla.broker.admin.health import Health
from ottla.broker.describing.log_levels import (
    LEVEL_BY_NAME,
    ROOT,
    log_level,
    log_levels,
    logger_names,
    set_log_level,
)
from ottla.broker.metrics.exposition import CONTENT_TYPE
from ottla.broker.metrics.scrape import scrape_text
from ottla.broker.metrics.snapshot import Sources

BODY_BYTES_MAX: Final = 4096
_PYTHON_WORDS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}


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
            exception_handlers={HTTPException: _told},
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


async def _told(_: Request, error: Exception) -> Response:  # noqa: RUF029 - starlette waits
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)
