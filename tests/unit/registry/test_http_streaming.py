"""Streamed responses and streamed bodies of the HTTP server."""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from ottla.registry import http_server
from ottla.registry.http_messages import (
    BadRequestError,
    HttpRequest,
    HttpResponse,
    StreamedResponse,
)
from ottla.registry.http_server import Handler, HttpServer

Story = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"


async def numbers(request: HttpRequest) -> StreamedResponse:
    await asyncio.sleep(0)

    async def pieces() -> AsyncGenerator[bytes, None]:
        for number in range(int(request.target[1:])):
            yield b"%d\n" % number
            await asyncio.sleep(0)

    return StreamedResponse(200, pieces(), "text/plain")


async def echo(request: HttpRequest) -> StreamedResponse:
    """Send every piece of the body back as it arrives."""
    await asyncio.sleep(0)

    async def pieces() -> AsyncGenerator[bytes, None]:
        assert request.stream is not None
        try:
            while piece := await request.stream.read():
                yield piece
        except BadRequestError as bad:
            yield str(bad).encode()

    return StreamedResponse(200, pieces(), "text/plain")


@asynccontextmanager
async def served(handler: Handler, **settings: int) -> AsyncIterator[int]:
    server = HttpServer(handler, streams_body=lambda request: request.method == "POST", **settings)
    listener = socket.create_server(("127.0.0.1", 0), backlog=16)
    port = listener.getsockname()[1]
    await server.start([listener])
    try:
        yield port
    finally:
        await server.stop()


def told(handler: Handler, story: Story, **settings: int) -> None:
    async def run() -> None:
        async with served(handler, **settings) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                await story(reader, writer)
            finally:
                writer.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_a_streamed_response_is_chunked_and_keeps_the_connection() -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            writer.write(GET % b"2")
            head = await reader.readuntil(b"\r\n\r\n")
            assert b"Transfer-Encoding: chunked" in head
            assert b"Connection: close" not in head
            assert await reader.readuntil(b"0\r\n\r\n") == b"2\r\n0\n\r\n2\r\n1\n\r\n0\r\n\r\n"

    told(numbers, story)


def test_pipelined_requests_wait_for_the_stream_before_them() -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET % b"1" + GET % b"3")
        first = await reader.readuntil(b"0\r\n\r\n")
        second = await reader.readuntil(b"0\r\n\r\n")
        assert first.count(b"2\r\n") == 1
        assert b"2\n" in second

    told(numbers, story)


def test_a_peer_with_http_1_0_reads_the_stream_to_the_end_of_the_connection() -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /3 HTTP/1.0\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert b"Connection: close" in head
        assert body == b"0\n1\n2\n"

    told(numbers, story)


def test_the_stream_of_head_is_empty() -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HEAD /3 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\n")

    told(numbers, story)


def test_each_piece_of_a_body_is_answered_before_the_next_is_sent() -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(POST)
        await reader.readuntil(b"\r\n\r\n")
        for piece in (b"one", b"three"):
            sent = b"%x\r\n%b\r\n" % (len(piece), piece)
            writer.write(sent)
            assert await reader.readexactly(len(sent)) == sent
        writer.write(b"0\r\n\r\n")
        assert await reader.readexactly(5) == b"0\r\n\r\n"

    told(echo, story)


def test_a_streamed_body_may_be_larger_than_the_limit_and_its_chunks_may_not() -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(POST + b"8\r\n12345678\r\n" * 4)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        writer.write(b"b\r\n12345678901\r\n")
        assert b"the body is larger than 10 bytes" in await reader.read()

    told(echo, story, body_bytes_max=10)


def test_a_body_of_megabytes_passes_through_a_slow_reader() -> None:
    size = 3 << 20

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode()
        writer.write(head + b"~" * size)
        writer.write_eof()
        received = await reader.read()
        assert received.count(b"~") == size

    told(echo, story, body_bytes_max=size)


def test_a_body_that_is_cut_off_ends_in_an_error() -> None:
    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(POST + b"3\r\none\r\n")
        writer.write_eof()
        assert b"the body is cut off" in await reader.read()

    told(echo, story)


def test_a_response_before_the_end_of_the_body_closes_the_connection() -> None:
    def refuse(_: HttpRequest) -> HttpResponse:
        return HttpResponse(400, b"no")

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(POST + b"3\r\none\r\n")
        assert (await reader.read()).endswith(b"Connection: close\r\n\r\nno")

    told(refuse, story)


def test_a_generator_is_closed_when_its_peer_goes_away() -> None:
    closed: list[bool] = []

    async def run() -> None:
        is_closed = asyncio.Event()

        async def endless(_: HttpRequest) -> StreamedResponse:
            await asyncio.sleep(0)

            async def pieces() -> AsyncGenerator[bytes, None]:
                try:
                    yield b"first"
                    await asyncio.Event().wait()
                finally:
                    closed.append(True)
                    is_closed.set()

            return StreamedResponse(200, pieces(), "text/plain")

        async with served(endless) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET % b"")
            await reader.readuntil(b"first")
            writer.transport.abort()
            await asyncio.wait_for(is_closed.wait(), 20)

    asyncio.run(run())
    assert closed == [True]


def test_an_error_in_a_stream_leaves_the_body_incomplete() -> None:
    async def failing(_: HttpRequest) -> StreamedResponse:
        await asyncio.sleep(0)

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield b"first"
            await asyncio.sleep(0)
            raise ValueError("second")

        return StreamedResponse(200, pieces(), "text/plain")

    async def story(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(GET % b"")
        received = b""
        with suppress(ConnectionError):
            received = await reader.read()
        assert not received.endswith(b"0\r\n\r\n")

    told(failing, story)


def test_a_peer_that_does_not_read_its_stream_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "SENDING_SECONDS_MAX", 0.0)
    monkeypatch.setattr(http_server, "SWEEP_SECONDS", 0.01)
    closed: list[bool] = []

    async def run() -> None:
        is_closed = asyncio.Event()

        async def endless(_: HttpRequest) -> StreamedResponse:
            await asyncio.sleep(0)

            async def pieces() -> AsyncGenerator[bytes, None]:
                try:
                    while True:
                        yield b"x" * 65536
                        await asyncio.sleep(0)
                finally:
                    closed.append(True)
                    is_closed.set()

            return StreamedResponse(200, pieces(), "text/plain")

        async with served(endless) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET % b"")
            await asyncio.wait_for(is_closed.wait(), 20)
            writer.close()

    asyncio.run(run())
    assert closed == [True]
