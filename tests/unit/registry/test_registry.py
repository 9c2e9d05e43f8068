import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from ottla.registry import registry as registry_module
from ottla.registry.forwarding import Forwarder
from ottla.registry.http_application import RegistryApplication
from ottla.registry.http_messages import HttpRequest, HttpResponse
from ottla.registry.http_server import HttpServer
from ottla.registry.registry import Forward, Registry
from ottla.registry.registry_machine import RegistryMachine
from ottla.registry.schemas_log import LeaderWithoutRegistryError
from ottla.registry.schemas_records import schema_record
from ottla.schemas.schema import Schema
from tests.registries import DirectClient, no_forward
from tests.schemas_log_twin import SchemasLogTwin, SharedLog

INT = '"int"'


@asynccontextmanager
async def running(
    log: SchemasLogTwin, forward: Forward = no_forward
) -> AsyncIterator[DirectClient]:
    registry = Registry(log, RegistryMachine(), forward)
    reading = asyncio.ensure_future(registry.run())
    await registry.wait_ready()
    try:
        yield DirectClient(RegistryApplication(registry))
    finally:
        reading.cancel()


def run(story: Callable[[SharedLog], Awaitable[None]]) -> None:
    shared = SharedLog()
    shared.elect(0)
    asyncio.run(story(shared))  # type: ignore[arg-type]


def test_the_first_write_creates_the_topic() -> None:
    async def story() -> None:
        log = SchemasLogTwin(SharedLog())
        async with running(log) as client:
            assert (await client.get("/subjects")).content == []
            assert log.topic_requests == 0
            assert (await client.register("a", INT)).content == {"id": 1}
            assert log.topic_requests == 1

    asyncio.run(story())


def test_a_decision_on_an_old_state_is_repeated() -> None:
    async def story(shared: SharedLog) -> None:
        log = SchemasLogTwin(shared, delay_ms=lambda: 2)
        async with running(log) as client:
            # A record that this registry has not replayed yet takes the id of the decision.
            shared.add(schema_record("b", 1, 1, Schema('"string"')))
            assert (await client.register("a", INT)).content == {"id": 2}

    run(story)


def test_concurrent_clients_of_one_text_get_one_id() -> None:
    async def story(shared: SharedLog) -> None:
        async with running(SchemasLogTwin(shared, delay_ms=lambda: 0.1)) as client:
            registered = [client.register(f"s{n % 3}", INT) for n in range(30)]
            registered += [client.register(f"s{n % 3}", '"string"') for n in range(3)]
            answers = await asyncio.gather(*registered)
            assert {answer.content["id"] for answer in answers[:30]} == {1}
            assert len(shared.records) == 3
            assert [answer.code for answer in answers[30:]] == [40901] * 3

    run(story)


def test_a_store_that_fails_is_50001() -> None:
    async def story(shared: SharedLog) -> None:
        log = SchemasLogTwin(shared)
        async with running(log) as client:
            log.failing = OSError("the disk is full")
            answer = await client.register("a", INT)
            assert (answer.status, answer.code) == (500, 50001)
            assert "the disk is full" in answer.content["message"]

    run(story)


def test_an_unknown_outcome_is_50002() -> None:
    async def story(shared: SharedLog) -> None:
        async with running(SchemasLogTwin(shared, fate=lambda: "lost")) as client:
            assert (await client.register("a", INT)).code == 50002
            assert (await client.register("a", INT)).content == {"id": 1}

    run(story)


def test_a_leader_that_cannot_be_reached_is_50003() -> None:
    async def story(shared: SharedLog) -> None:
        async with running(SchemasLogTwin(shared, broker=1)) as client:
            assert (await client.register("a", INT)).code == 50003

    run(story)


def test_a_request_that_was_forwarded_too_often_is_50004() -> None:
    async def story(shared: SharedLog) -> None:
        async with running(SchemasLogTwin(shared, broker=1)) as client:
            body = {"schema": INT}
            answer = await client.post("/subjects/a/versions", body, x_ottla_hops="2")
            assert answer.code == 50004
            answer = await client.post("/subjects/a/versions", body, x_forward="false")
            assert answer.code == 50004

    run(story)


def test_a_write_without_a_leader_is_50002_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "WRITE_SECONDS_MAX", 0.05)

    async def story(shared: SharedLog) -> None:
        shared.elect(None)
        async with running(SchemasLogTwin(shared)) as client:
            assert (await client.register("a", INT)).code == 50002

    run(story)


def test_reading_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry_module, "_READ_AGAIN_MS", 0.1)

    class Failing(SchemasLogTwin):
        async def read(self, offset: int) -> AsyncIterator[list]:  # type: ignore[type-arg,override]
            if not self.failed:
                self.failed = True
                raise OSError("once")
            # Known records come again: replay skips them.
            async for records in super().read(0):
                yield records

        failed = False

    async def story(shared: SharedLog) -> None:
        shared.add(schema_record("a", 1, 1, Schema(INT)))
        async with running(Failing(shared)) as client:
            assert (await client.get("/subjects")).content == ["a"]
            assert (await client.register("b", '"string"')).content == {"id": 2}

    run(story)


@asynccontextmanager
async def served(log: SchemasLogTwin, url: str | None) -> AsyncIterator[str]:
    forwarder = Forwarder()

    async def forward(_: str, request: HttpRequest) -> HttpResponse:
        assert url is not None
        return await forwarder(url, request)

    async with running(log, forward) as client:
        server = HttpServer(client.application.handle)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await server.start([listener])
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await server.stop()


def test_a_follower_forwards_and_answers_when_it_can_read_the_write_itself() -> None:
    async def story(shared: SharedLog) -> None:
        async with (
            served(SchemasLogTwin(shared), None) as leader,
            served(SchemasLogTwin(shared, broker=1, delay_ms=lambda: 5), leader) as follower,
        ):
            forwarder = Forwarder()
            body = json.dumps({"schema": INT}).encode()
            request = HttpRequest("POST", "/subjects/%3A.c%3Aa/versions?normalize=true", {}, body)
            response = await forwarder(follower, request)
            assert (response.status, json.loads(response.body)) == (200, {"id": 1})
            read = replace(request, method="GET", target="/subjects", body=b"")
            assert json.loads((await forwarder(follower, read)).body) == [":.c:a"]
            refused = await forwarder(follower, replace(request, body=b'{"schema":"x"}'))
            assert (refused.status, json.loads(refused.body)["error_code"]) == (422, 42201)

    run(story)


def test_a_leader_without_a_registry_ends_writes_at_once() -> None:
    class Alone(SchemasLogTwin):
        def leader_url(self) -> str | None:
            raise LeaderWithoutRegistryError("broker 0 leads _schemas-0")

    async def story(shared: SharedLog) -> None:
        async with running(Alone(shared, broker=1)) as client:
            refused = await client.register("a", INT)
        assert (refused.status, refused.code) == (500, 50004)
        assert "broker 0 leads _schemas-0 and has no schema registry" in refused.content["message"]

    run(story)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -9\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000 + b"\r\n\r\n",
    ],
)
def test_a_leader_with_a_broken_response_is_an_os_error(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async def story() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(OSError, match="whole response"):
            await Forwarder()(f"http://127.0.0.1:{port}", HttpRequest("GET", "/", {}))
        server.close()

    asyncio.run(story())
