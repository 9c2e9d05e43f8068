"""The admin listener over real sockets: its pages, its limits, and hostile peers."""

import asyncio
import json
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest

from ottla.broker.admin import application
from ottla.broker.admin.admin_server import AdminServer
from ottla.model.settings.listeners import HttpListener
from ottla.runtime.clock import SystemClock

HOST = "127.0.0.1"
SECONDS_MAX = 240
FREE = HttpListener(HOST, 0)


@contextmanager
def serving_broker() -> Iterator[AdminServer]:
    """Serve from a thread, for a broker that never becomes ready."""
    begun = threading.Event()
    served: list[AdminServer] = []

    async def serve() -> None:
        admin = await AdminServer.open(FREE, SystemClock(), is_asked_for=True)
        admin.begin()
        stopping = asyncio.Event()
        served.append(admin)
        loops.append((asyncio.get_running_loop(), stopping))
        begun.set()
        await stopping.wait()
        await admin.close()

    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    begun.wait(SECONDS_MAX)
    yield served[0]
    loop, stopping = loops[0]
    loop.call_soon_threadsafe(stopping.set)
    thread.join()


@pytest.fixture(scope="module")
def admin() -> Iterator[AdminServer]:
    with serving_broker() as admin:
        yield admin


def ask(
    admin: AdminServer, path: str, method: str = "GET", body: bytes | None = None
) -> tuple[int, dict[str, object]]:
    assert admin.port is not None
    connection = HTTPConnection(HOST, admin.port, timeout=SECONDS_MAX)
    try:
        connection.request(method, path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def raw(admin: AdminServer, sent: bytes) -> bytes:
    """Send raw bytes; return all received bytes until the connection ends."""
    with socket.create_connection((HOST, admin.port), timeout=SECONDS_MAX) as peer:
        answer = b""
        try:
            peer.sendall(sent)
            while part := peer.recv(1 << 16):
                answer += part
        except ConnectionError:
            pass
        return answer


def test_a_broker_that_starts_is_alive_not_ready_and_without_metrics(admin: AdminServer) -> None:
    assert ask(admin, "/healthz") == (200, {"status": "alive"})
    status, told = ask(admin, "/readyz")
    assert (status, told["status"]) == (503, "not ready")
    assert told["reasons"] == ["the broker is starting: its logs are being opened"]
    assert ask(admin, "/metrics")[0] == 503


def test_a_level_is_changed_and_given_back(admin: AdminServer) -> None:
    logger = logging.getLogger("ottla.tests.admin")
    path = f"/v1/loggers/{logger.name}"
    assert ask(admin, path, "PUT", b'{"level": "debug"}')[1]["level"] == "DEBUG"
    assert logger.level == logging.DEBUG
    assert ask(admin, path) == (200, {"name": logger.name, "level": "DEBUG"})
    assert ask(admin, "/v1/loggers")[1][logger.name] == "DEBUG"
    assert ask(admin, path, "PUT", b'{"level": "WARNING"}')[1]["level"] == "WARN"
    assert logger.level == logging.WARNING
    assert ask(admin, path, "PUT", b'{"level": null}')[0] == 200
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"DEBUG",
        b"[]",
        b"{}",
        b'{"level": 10}',
        b'{"level": "LOUD"}',
        b"\xff\xfe",
        b"[" * 4000,
    ],
)
def test_a_level_that_is_none_is_refused(admin: AdminServer, body: bytes) -> None:
    logging.getLogger("ottla.tests.admin")
    status, told = ask(admin, "/v1/loggers/ottla.tests.admin", "PUT", body)
    assert status == 400
    assert told["error"]


def test_root_stands_for_all_loggers_of_ottla_and_for_no_others(admin: AdminServer) -> None:
    topmost, everything = logging.getLogger("ottla"), logging.getLogger()
    before = topmost.level, everything.level
    try:
        assert ask(admin, "/v1/loggers/root", "PUT", b'{"level": "TRACE"}')[1]["level"] == "TRACE"
        assert ask(admin, "/v1/loggers/ottla")[1]["level"] == "TRACE"
        assert everything.level == before[1]
        assert ask(admin, "/v1/loggers/root", "PUT", b'{"level": null}')[0] == 400
        assert ask(admin, "/v1/loggers/asyncio")[0] == 404
    finally:
        topmost.setLevel(before[0])


def test_a_logger_without_a_name_in_use_is_not_created(admin: AdminServer) -> None:
    name = "ottla.made.up"
    assert ask(admin, f"/v1/loggers/{name}", "PUT", b'{"level": "INFO"}')[0] == 404
    assert ask(admin, f"/v1/loggers/{name}")[0] == 404
    assert name not in logging.Logger.manager.loggerDict


def test_a_body_that_is_too_long_is_refused(admin: AdminServer) -> None:
    assert ask(admin, "/v1/loggers/root", "PUT", b" " * 100_000)[0] == 413


def test_other_pages_and_methods_are_refused(admin: AdminServer) -> None:
    assert ask(admin, "/nothing") == (404, {"error": "Not Found"})
    assert ask(admin, "/healthz", "POST", b"")[0] == 405


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x01\xff\xff",
        b"GET /healthz\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: " + b"x" * 100_000,
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 50_000,
        b"G" * 100_000,
    ],
    ids=["kafka", "no version", "long header", "many headers", "no line"],
)
def test_bytes_that_are_no_request_close_the_connection(admin: AdminServer, sent: bytes) -> None:
    answer = raw(admin, sent)
    assert answer.startswith(b"HTTP/1.1 4") or not answer
    assert ask(admin, "/healthz")[0] == 200


def test_every_answer_ends_its_connection(admin: AdminServer) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    answer = raw(admin, request + request)
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.count(b"HTTP/1.1 200") == 1


def test_a_peer_that_sends_slowly_is_cut_off(
    admin: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "CONNECTION_SECONDS_MAX", 0.2)
    assert raw(admin, b"GET /healthz HTT") == b""


def test_connections_beyond_the_limit_are_closed(
    admin: AdminServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application, "CONNECTIONS_MAX", 2)
    opened = [socket.create_connection((HOST, admin.port), SECONDS_MAX) for _ in range(2)]
    try:
        # The response to the first request shows that the limit is already reached.
        assert raw(admin, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n") == b""
    finally:
        for peer in opened:
            peer.close()


def test_a_port_that_was_asked_for_and_is_taken_ends_the_start() -> None:
    async def scenario(port: int) -> None:
        await AdminServer.open(HttpListener(HOST, port), SystemClock(), is_asked_for=True)

    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(OSError, match=f"cannot listen on ADMIN://{HOST}:{port}: Address"):
            asyncio.run(scenario(port))


def test_the_usual_port_being_taken_is_told_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(port: int) -> int | None:
        admin = await AdminServer.open(HttpListener(HOST, port), SystemClock(), is_asked_for=False)
        await admin.close()
        return admin.port

    with socket.create_server((HOST, 0)) as taken:
        assert asyncio.run(scenario(taken.getsockname()[1])) is None
    (message,) = caplog.messages
    assert "No metrics and health by HTTP" in message
    assert "ottla.admin.listener" in message


def test_one_that_is_closed_before_it_begins_leaves_nothing() -> None:
    async def scenario() -> int:
        admin = await AdminServer.open(FREE, SystemClock(), is_asked_for=True)
        await admin.close()
        assert admin.port is not None
        return admin.port

    before = set(threading.enumerate())
    port = asyncio.run(scenario())
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, port))
    assert set(threading.enumerate()) <= before
