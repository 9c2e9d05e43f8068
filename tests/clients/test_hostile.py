"""Hostile clients on the broker's port: for any input, all other clients are served."""

import random
import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.headers import RequestHeader, request_header_version, write_request_header
from ottla.wire.writing import encode

FRAMES = 2_000
SECONDS_MAX = 240


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def is_served(broker: Broker) -> bool:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    failures: list[object] = []
    producer.produce("served", b"x", on_delivery=lambda e, _: failures.append(e) if e else None)
    return producer.flush(SECONDS_MAX) == 0 and not failures


def connect(broker: Broker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", broker.port), timeout=SECONDS_MAX)


def send(broker: Broker, data: bytes) -> None:
    """Send and hang up; the broker may do so first."""
    stranger = connect(broker)
    try:
        stranger.sendall(data)
    except OSError:
        return
    finally:
        stranger.close()


def test_thousands_of_damaged_frames_delay_no_client(broker: Broker) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    stream = [damaged_frame(dice) for _ in range(FRAMES)]
    for start in range(0, FRAMES, 10):
        send(broker, b"".join(stream[start : start + 10]))
    assert is_served(broker), f"seed {seed}"


@pytest.mark.parametrize("length", [-1, -(1 << 31), 104_857_601, (1 << 31) - 1])
def test_a_length_that_lies_ends_the_connection(broker: Broker, length: int) -> None:
    stranger = connect(broker)
    stranger.sendall(struct.pack(">i", length) + b"x" * 100)
    assert _hangs_up(stranger)
    assert is_served(broker)


def test_an_unknown_api_ends_the_connection(broker: Broker) -> None:
    stranger = connect(broker)
    stranger.sendall(struct.pack(">ihhi", 8, 4242, 0, 1))
    assert _hangs_up(stranger)
    assert is_served(broker)


def test_an_unknown_version_of_api_versions_is_answered_in_version_0(broker: Broker) -> None:
    stranger = connect(broker)
    header = write_request_header(RequestHeader(ApiKey.API_VERSIONS, 99, 7, "new"), 2)
    stranger.sendall(struct.pack(">i", len(header)) + header)
    length, correlation_id, code = struct.unpack(">iih", _read(stranger, 10))
    stranger.close()
    assert (correlation_id, code) == (7, 35)
    assert length > 10


def test_half_a_frame_and_many_silent_connections_delay_no_client(broker: Broker) -> None:
    crowd = [connect(broker) for _ in range(200)]
    for stranger in crowd[::2]:
        stranger.sendall(struct.pack(">i", 1000) + b"half")
    assert is_served(broker)
    for stranger in crowd:
        stranger.close()
    assert is_served(broker)


def damaged_frame(dice: random.Random) -> bytes:
    key = dice.choice(list(ApiKey))
    cls = API_BY_KEY[key].request
    version = dice.randint(*cls.versions)
    header = RequestHeader(key, version, dice.getrandbits(31), "stranger")
    body = bytearray(write_request_header(header, request_header_version(key, version)))
    body += encode(cls(), version)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(body) + 1)
        body[at : at + dice.randint(0, 2)] = dice.randbytes(dice.randint(0, 3))
    return struct.pack(">i", len(body)) + body


def _hangs_up(stranger: socket.socket) -> bool:
    try:
        return stranger.recv(1) == b""
    except ConnectionResetError:
        return True
    finally:
        stranger.close()


def _read(stranger: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        found += stranger.recv(count - len(found))
    return found
