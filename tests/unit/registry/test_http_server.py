import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

import pytest

from ottla.registry import http_server
from ottla.registry.http_messages import HttpRequest, HttpResponse
from ottla.registry.http_server import HttpServer
from tests.registries import http_registry

SECONDS_MAX = 240

Talk = Callable[[bytes], Awaitable[bytes]]


async def echo(request: HttpRequest) -> HttpResponse:
    await asyncio.sleep(0)
    shown = {"method": request.method, "target": request.target, "body": request.body.decode()}
    return HttpResponse(200, json.dumps(shown).encode(), "application/json")


def quick(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, request.target.encode())


def with_server(
    story: Callable[[HttpServer, int], Awaitable[None]],
    handler: http_server.Handler = echo,
    **settings: int,
) -> None:
    async def run() -> None:
        server = HttpServer(handler, **settings)
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        port = listener.getsockname()[1]
        await server.start([listener])
        try:
            await story(server, port)
        finally:
            await server.stop()

    asyncio.run(run())


async def exchange(port: int, sent: bytes) -> bytes:
    """Send bytes, and return all that is sent back until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await reader.read()
    finally:
        writer.close()


def responses(handler: http_server.Handler, sent: bytes) -> bytes:
    received = b""

    async def story(_: HttpServer, port: int) -> None:
        nonlocal received
        received = await exchange(port, sent)

    with_server(story, handler)
    return received


CLOSE = b"Host: h\r\nConnection: close\r\n"


def test_requests_of_a_connection_are_answered_in_order() -> None:
    for handler in (echo, quick):
        sent = b"".join(b"GET /n-%d- HTTP/1.1\r\nHost: h\r\n\r\n" % n for n in range(50))
        received = responses(handler, sent + b"GET /last HTTP/1.1\r\n" + CLOSE + b"\r\n")
        places = [received.index(b"/n-%d-" % n) for n in range(50)]
        assert places == sorted(places)
        assert received.count(b"HTTP/1.1 200 OK") == 51
        assert b"/last" in received


def test_bodies_come_with_a_length_or_in_chunks() -> None:
    sent = (
        b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello\r\n"
        b"POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;x=y\r\nwor\r\n2\r\nld\r\n0\r\nTrailer: x\r\n\r\n"
        b"GET /c HTTP/1.0\r\n\r\n"
    )
    received = responses(echo, sent)
    assert b'"body": "hello"' in received
    assert b'"body": "world"' in received
    assert b"Connection: close" in received


def test_requests_may_arrive_byte_by_byte() -> None:
    async def story(_: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = b"POST / HTTP/1.1\r\n" + CLOSE + b"Transfer-Encoding: chunked\r\n\r\n"
        for byte in sent + b"1\r\nx\r\n0\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        assert b'"body": "x"' in await reader.read()
        writer.close()

    with_server(story)


def test_head_has_the_length_without_the_body() -> None:
    received = responses(quick, b"HEAD /abc HTTP/1.1\r\n" + CLOSE + b"\r\n")
    assert b"Content-Length: 4\r\n" in received
    assert received.endswith(b"\r\n\r\n")


def test_a_client_that_expects_100_gets_it_before_its_body() -> None:
    async def story(_: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST / HTTP/1.1\r\n" + CLOSE + b"Expect: 100-continue\r\n"
        head += b"Content-Length: 2\r\n\r\n"
        writer.write(head)
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"ok")
        assert b'"body": "ok"' in await reader.read()
        writer.close()

    with_server(story)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 400),
        (b"get / HTTP/1.1\r\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\x00b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 1\r\n\r\nx", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", 400),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n", 413),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0x1\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1" * 300, 400),
        (
            b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nbad\r\n\r\n",
            400,
        ),
        (b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", 431),
        (b"POST / HTTP/1.1\r\nHost: h\r\nExpect: miracles\r\nContent-Length: 1\r\n\r\n", 417),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200 + b"\r\n\r\n", 400),
    ],
)
def test_hostile_input_gets_one_error_and_a_close(sent: bytes, status: int) -> None:
    received = responses(echo, sent + b"GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n")
    assert received.startswith(b"HTTP/1.1 %d " % status), received
    assert received.count(b"HTTP/1.1") == 1
    assert b"Connection: close" in received
    assert json.loads(received.partition(b"\r\n\r\n")[2])["error_code"] == status


def test_random_bytes_never_stop_the_server() -> None:
    async def story(_: HttpServer, port: int) -> None:
        seed = 7
        for size in range(1, 200, 7):
            seed = seed * 6364136223846793005 % 2**64
            sent = seed.to_bytes(8, "big") * size + b"\r\n\r\n"
            assert (await exchange(port, sent)).startswith(b"HTTP/1.1 400")
        received = await exchange(port, b"GET / HTTP/1.1\r\n" + CLOSE + b"\r\n")
        assert received.startswith(b"HTTP/1.1 200")

    with_server(story)


def test_a_handler_that_fails_is_500_and_the_connection_goes_on() -> None:
    def fails(request: HttpRequest) -> HttpResponse:
        raise ZeroDivisionError

    async def fails_later(request: HttpRequest) -> HttpResponse:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    for handler in (fails, fails_later):
        sent = b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.1\r\n" + CLOSE + b"\r\n"
        assert responses(handler, sent).count(b"HTTP/1.1 500") == 2


def test_an_incomplete_request_is_408_after_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "REQUEST_SECONDS_MAX", 0.0)
    monkeypatch.setattr(http_server, "SWEEP_SECONDS", 0.01)
    sent = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nslow"
    assert responses(echo, sent).startswith(b"HTTP/1.1 408")


def test_an_idle_connection_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_SECONDS_MAX", 0.0)
    monkeypatch.setattr(http_server, "SWEEP_SECONDS", 0.01)

    async def story(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()

    with_server(story)


def test_a_peer_that_does_not_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SENDING_SECONDS_MAX", 0.0)
    monkeypatch.setattr(http_server, "SWEEP_SECONDS", 0.01)
    handled = 0

    def large(request: HttpRequest) -> HttpResponse:
        nonlocal handled
        handled += 1
        return HttpResponse(200, b"x" * (8 << 20))

    async def story(server: HttpServer, port: int) -> None:
        sender = socket.create_connection(("127.0.0.1", port))
        sender.sendall(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n" * 100)
        while server.connection_count == 0 and handled == 0:  # noqa: ASYNC110 - no notification
            await asyncio.sleep(0)
        while server.connection_count > 0:  # noqa: ASYNC110 - no notification
            await asyncio.sleep(0.001)
        sender.close()
        assert handled <= 2

    with_server(story, large)


def test_connections_over_the_limit_are_closed_at_once() -> None:
    async def story(server: HttpServer, port: int) -> None:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(10)]
        request = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
        for _, writer in held:
            writer.write(request)
        for reader, _ in held:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert server.connection_count == 10
        for _ in range(100):
            with suppress(ConnectionError):
                assert await exchange(port, request) == b""
        assert server.connection_count == 10
        for _, writer in held:
            writer.close()

    with_server(story, connections_max=10)


def test_unread_input_of_all_connections_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "BODIES_BYTES_MAX", 1 << 20)

    async def story(server: HttpServer, port: int) -> None:
        head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2000000\r\n\r\n"
        statuses = []
        writers = []
        for _ in range(4):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writers.append(writer)
            writer.write(head + b"x" * 600_000)
            await writer.drain()
            statuses.append(reader)
        done, waiting = await asyncio.wait(
            [asyncio.ensure_future(reader.readline()) for reader in statuses],
            return_when=asyncio.FIRST_COMPLETED,
        )
        assert all(task.result().startswith(b"HTTP/1.1 503") for task in done)
        for task in waiting:
            task.cancel()
        for writer in writers:
            writer.close()

    with_server(story)


def test_a_slow_handler_does_not_delay_other_connections() -> None:
    async def story(_: HttpServer, port: int) -> None:
        slow = asyncio.ensure_future(exchange(port, b"GET /slow HTTP/1.1\r\n" + CLOSE + b"\r\n"))
        while not waiting:  # noqa: ASYNC110 - no notification
            await asyncio.sleep(0)
        fast = await exchange(port, b"GET /fast HTTP/1.1\r\n" + CLOSE + b"\r\n")
        assert fast.startswith(b"HTTP/1.1 200")
        waiting[0].set_result(HttpResponse(204))
        assert b"204 No Content\r\n" in await slow

    waiting: list[asyncio.Future[HttpResponse]] = []

    def handler(request: HttpRequest) -> HttpResponse | asyncio.Future[HttpResponse]:
        if request.target == "/fast":
            return HttpResponse(200)
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[0]

    with_server(story, handler)


def test_a_drained_server_answers_requests_in_progress_and_accepts_no_more() -> None:
    async def story(server: HttpServer, port: int) -> None:
        idle, other = await asyncio.open_connection("127.0.0.1", port)
        slow = asyncio.ensure_future(exchange(port, b"POST /slow HTTP/1.1\r\nHost: a\r\n\r\n"))
        while not waiting or server.connection_count < 2:  # noqa: ASYNC110 - no notification
            await asyncio.sleep(0)
        draining = asyncio.ensure_future(server.drain(SECONDS_MAX))
        with suppress(ConnectionError):
            assert await idle.read() == b""
        other.close()
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", port)
        waiting[0].set_result(HttpResponse(200, b"done"))
        assert (await slow).endswith(b"Connection: close\r\n\r\ndone")
        await draining
        assert server.connection_count == 0

    waiting: list[asyncio.Future[HttpResponse]] = []

    def handler(_: HttpRequest) -> asyncio.Future[HttpResponse]:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[0]

    with_server(story, handler)


def test_draining_ends_in_time_although_a_request_is_not_answered() -> None:
    async def story(server: HttpServer, port: int) -> None:
        stuck = asyncio.ensure_future(exchange(port, b"GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n"))
        while not waiting:  # noqa: ASYNC110 - no notification
            await asyncio.sleep(0)
        await server.drain(0.01)
        await server.stop()
        with suppress(ConnectionError):
            assert await stuck == b""

    waiting: list[asyncio.Future[HttpResponse]] = []

    def handler(_: HttpRequest) -> asyncio.Future[HttpResponse]:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[0]

    with_server(story, handler)


def test_large_bodies_and_deep_json_end_in_errors_of_the_registry() -> None:
    async def story() -> None:
        async with http_registry() as url:
            port = urlsplit(url).port or 0
            for body, status in (
                (json.dumps({"schema": "x" * (1 << 20) + "y"}).encode(), b"422"),
                (b"[" * (1 << 20), b"422"),
                (b'{"schema":' + b'{"a":' * 200_000, b"422"),
                (json.dumps({"schema": "[" * (1 << 19)}).encode(), b"422"),
            ):
                head = b"POST /subjects/a/versions HTTP/1.1\r\n" + CLOSE
                head += b"Content-Length: %d\r\n\r\n" % len(body)
                received = await exchange(port, head + body)
                assert received.startswith(b"HTTP/1.1 " + status), received[:300]

    asyncio.run(story())
