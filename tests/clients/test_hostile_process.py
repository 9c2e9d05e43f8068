"""A broker under clients that mean no good: it serves the others, and stays small."""

import random
import resource
import selectors
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import pytest
from confluent_kafka import Producer

from ottla.testing.child_process import ReservedPort
from ottla.wire.api_key import ApiKey
from ottla.wire.headers import RequestHeader, request_header_version, write_request_header
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.writing import encode
from tests.clients.cli_calls import OTTLA
from tests.clients.test_hostile import damaged_frame

FRAMES = 10_000
IDLE_CONNECTIONS = 3_000
SLOW_WRITERS = 200
DEAF_CLIENTS = 10
QUESTIONS_MAX = 2_000_000
GROWTH_BYTES_MAX = 48 << 20
"""Room for caches, allocators and the attackers' topics: far below the bytes they send."""
SECONDS_MAX = 240


class Process:
    """`ottla start`, with a directory of its own."""

    settings = ("-X", "max.connections.per.ip=5000", "-X", "ottla.schema.registry.listener=")

    def __init__(self, folder: Path, stderr: int | IO[bytes] = subprocess.DEVNULL) -> None:
        ready = folder / "ready"
        self._reserved = ReservedPort()
        self.admin_port = self._reserved.number
        options = ["--ephemeral", "--port", "0", "--ready-file", str(ready)]
        admin = ("-X", f"ottla.admin.listener=127.0.0.1:{self.admin_port}")
        self._running = subprocess.Popen(
            [*OTTLA, "start", *options, *admin, *self.settings], stderr=stderr
        )
        while not ready.exists():
            assert self._running.poll() is None, "the broker did not start"
            time.sleep(0.01)
        host, _, port = ready.read_text().strip().rpartition(":")
        self.address = (host, int(port))

    def memory_bytes(self) -> int:
        """Return the current memory use of the process."""
        pages = Path(f"/proc/{self._running.pid}/statm").read_text().split()[1]
        return int(pages) * resource.getpagesize()

    def serves(self) -> bool:
        """Return whether a real client gets a record through."""
        host, port = self.address
        producer = Producer({"bootstrap.servers": f"{host}:{port}"})
        failures: list[object] = []
        producer.produce("served", b"x", on_delivery=lambda e, _: failures.append(e) if e else None)
        return producer.flush(SECONDS_MAX) == 0 and not failures

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=SECONDS_MAX)

    @contextmanager
    def crowd(self, count: int) -> Iterator[list[socket.socket]]:
        """Open this many connections."""
        with ExitStack() as stack:
            yield [stack.enter_context(self.connect()) for _ in range(count)]

    def stop(self) -> None:
        self._running.terminate()
        assert self._running.wait(SECONDS_MAX) == 0
        self._reserved.release()


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    running = Process(tmp_path_factory.mktemp("hostile"))
    assert running.serves()
    yield running
    running.stop()


@pytest.fixture
def stays_small(process: Process) -> Iterator[Process]:
    """The broker, of which a test must leave no more than it found."""
    before = process.memory_bytes()
    yield process
    assert process.serves()
    assert process.memory_bytes() - before < GROWTH_BYTES_MAX


def test_ten_thousand_damaged_frames(stays_small: Process) -> None:
    dice = random.Random(20_261_115)
    for _ in range(FRAMES // 10):
        with stays_small.connect() as stranger, suppress(OSError):
            stranger.sendall(b"".join(damaged_frame(dice) for _ in range(9)) + noise(dice))


def test_a_crowd_that_says_nothing(stays_small: Process) -> None:
    with stays_small.crowd(IDLE_CONNECTIONS):
        assert stays_small.serves()


def test_writers_that_send_a_byte_at_a_time(stays_small: Process) -> None:
    frame = struct.pack(">i", 100_000_000) + bytes(100)
    with stays_small.crowd(SLOW_WRITERS) as writers:
        for at in range(len(frame)):
            for writer in writers:
                writer.send(frame[at : at + 1])
        assert stays_small.serves()


def test_clients_that_ask_and_never_read(stays_small: Process) -> None:
    question = metadata_question()
    with stays_small.crowd(DEAF_CLIENTS) as deaf:
        asked = sum(ask_until_refused(client, question) for client in deaf)
        assert asked < DEAF_CLIENTS * QUESTIONS_MAX, "nobody made them wait"
        assert stays_small.serves()


def noise(dice: random.Random) -> bytes:
    return dice.randbytes(dice.randrange(1, 2_000))


def metadata_question() -> bytes:
    version = MetadataRequest.versions[1]
    header = RequestHeader(ApiKey.METADATA, version, 1, "deaf")
    body = write_request_header(header, request_header_version(ApiKey.METADATA, version))
    body += encode(MetadataRequest(topics=None), version)
    return struct.pack(">i", len(body)) + body


def ask_until_refused(client: socket.socket, question: bytes) -> int:
    """Ask without reading until the socket has taken nothing for a second; return how often."""
    client.setblocking(False)
    asked = 0
    many = question * 10_000
    with selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_WRITE)
        while asked < QUESTIONS_MAX and selector.select(timeout=1):
            asked += client.send(many) // len(question)
    return asked
