"""Registries for tests: on a log in memory, called directly or by HTTP."""

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ottla.registry.http_application import Cluster, RegistryApplication
from ottla.registry.http_messages import HttpRequest, HttpResponse
from ottla.registry.http_server import HttpServer
from ottla.registry.registry import Registry
from ottla.registry.registry_machine import RegistryMachine
from tests.schemas_log_twin import SchemasLogTwin, SharedLog


async def no_forward(url: str, request: HttpRequest) -> HttpResponse:  # noqa: RUF029
    raise OSError(f"there is no broker at {url}")


@dataclass
class Answer:
    status: int
    content: Any
    response: HttpResponse

    @property
    def code(self) -> int:
        return self.content["error_code"]


class DirectClient:
    """Calls an application without a socket."""

    def __init__(self, application: RegistryApplication) -> None:
        self.application = application

    async def call(self, method: str, target: str, body: object = None, **headers: str) -> Answer:
        encoded = body if isinstance(body, bytes) else b"" if body is None else _json(body)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        request = HttpRequest(method, target, names, encoded)
        handled = self.application.handle(request)
        response = handled if isinstance(handled, HttpResponse) else await handled
        try:
            content = json.loads(response.body) if response.body else None
        except ValueError:
            content = response.body.decode()
        return Answer(response.status, content, response)

    async def get(self, target: str, **headers: str) -> Answer:
        return await self.call("GET", target, **headers)

    async def put(self, target: str, body: object, **headers: str) -> Answer:
        return await self.call("PUT", target, body, **headers)

    async def post(self, target: str, body: object, **headers: str) -> Answer:
        return await self.call("POST", target, body, **headers)

    async def delete(self, target: str, **headers: str) -> Answer:
        return await self.call("DELETE", target, **headers)

    async def register(self, subject: str, schema: object, query: str = "", **more: Any) -> Answer:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        path = f"/subjects/{quote(subject, safe='')}/versions{query}"
        return await self.post(path, {"schema": text, **more})


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


@asynccontextmanager
async def direct_client(shared: SharedLog | None = None) -> AsyncIterator[DirectClient]:
    """Run a registry that leads its log."""
    shared = shared or SharedLog()
    shared.elect(0)
    registry = Registry(SchemasLogTwin(shared), RegistryMachine(), no_forward)
    reading = asyncio.ensure_future(registry.run())
    await registry.wait_ready()
    try:
        yield DirectClient(RegistryApplication(registry, Cluster("cluster", "1")))
    finally:
        reading.cancel()


@asynccontextmanager
async def http_registry(**settings: Any) -> AsyncIterator[str]:
    """Serve a registry on a free port of the running event loop."""
    async with direct_client() as client:
        server = HttpServer(client.application.handle, **settings)
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        port = listener.getsockname()[1]
        await server.start([listener])
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await server.stop()


@contextmanager
def threaded_registry(**settings: Any) -> Iterator[str]:
    """Serve a registry on an event loop of its own, for blocking clients."""
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()
    started: list[str] = []
    is_started = threading.Event()

    async def serve() -> None:
        async with http_registry(**settings) as url:
            started.append(url)
            is_started.set()
            await stopping.wait()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            is_started.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    is_started.wait()
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join()


def with_registry(story: Callable[[DirectClient], Awaitable[None]]) -> Callable[[], None]:
    """Make a test of a coroutine that needs an empty registry."""

    async def run() -> None:
        async with direct_client() as client:
            await story(client)

    def test() -> None:
        asyncio.run(run())

    test.__name__ = story.__name__
    test.__doc__ = story.__doc__
    return test
