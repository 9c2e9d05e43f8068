"""The schema registry in a broker: requests, the load of many versions, start, and memory.

The CPU time of a request is of the whole broker process. The client has one connection, so at most
one request is in progress.
"""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final

from confluent_kafka import Producer

from benchmarks.broker_process import MeasuredBroker
from benchmarks.broker_starts import started_ottla
from benchmarks.comparison import BYTES_EACH, Case, Unit
from benchmarks.imports import with_bytecode_in
from benchmarks.side_by_side import MILLISECONDS, in_turns
from benchmarks.wire_client import free_port

TITLE = "The schema registry in a broker"
REQUESTS: Final = 50_000
REGISTERED: Final = 500
KEPT: Final = 1_000
LOADED: Final = 10_000
STARTS: Final = 15
LOADS: Final = 3
FLUSH_SECONDS: Final = 60
HOST: Final = "127.0.0.1"
ANSWER_SECONDS_MAX: Final = 60
PER_CORE = Unit("requests/s of a core", 1, is_time=False)
MEGABYTES_MORE = Unit("MB", 1, is_time=True)
SECONDS = Unit("s", 1, is_time=True)
CONTENT = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def cases() -> Iterator[Case]:
    """Yield the figures of a registry that has the schemas of its own benchmark."""
    with TemporaryDirectory() as folder:
        environment = with_bytecode_in(f"{folder}/bytecode")
        yield from _requests(f"{folder}/requests", environment)
        yield from _starts(folder, environment)
        yield _load(f"{folder}/load", environment)
        yield from _memory(folder, environment)


def _given(work: str, unit: Unit, figures: tuple[float, ...], asked: float | None = None) -> Case:
    return Case(work=work, unit=unit, ours=lambda: None, figures=figures, asked=asked)


class Registry:
    """A client with one connection."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection(HOST, port, timeout=ANSWER_SECONDS_MAX)
        self._connection.connect()
        self._connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Return the status and the value of a response."""
        text = None if body is None else json.dumps(body).encode()
        self._connection.request(method, path, text, CONTENT)
        response = self._connection.getresponse()
        return response.status, json.loads(response.read())

    def register(self, subject: str, number: int) -> int:
        """Register a schema that is not there yet; return its id."""
        path = f"/subjects/{subject}/versions"
        status, answer = self.ask("POST", path, {"schema": schema_text(number)})
        assert status == 200, answer
        return int(answer["id"])


def schema_text(number: int) -> str:
    """Return a schema of six fields, as one of a topic's records may be."""
    fields = [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": f"extra{number}", "type": "int", "default": 0},
    ]
    return json.dumps({"type": "record", "name": f"Order{number}", "fields": fields})


@contextmanager
def registered(folder: str, environment: dict[str, str]) -> Iterator[tuple[MeasuredBroker, int]]:
    """Run a broker with a registry; yield the broker and the registry's port."""
    port = free_port()
    with started_ottla(folder, environment, registry=f"{HOST}:{port}") as (broker, _):
        yield broker, port


def _requests(folder: str, environment: dict[str, str]) -> Iterator[Case]:
    with registered(f"{folder}-warm", environment) as (_, port):
        Registry(port).register("first", 0)  # compiles all byte code
    with registered(folder, environment) as (broker, port):
        began = time.perf_counter()
        client = Registry(port)
        client.ask("GET", "/subjects")
        ready_ms = 1000 * (time.perf_counter() - began)
        work = "first response, from the broker's first response"
        yield _given(work, MILLISECONDS, (ready_ms,))
        first_ms = _timed_ms(client, 0)
        yield _given("first write, which creates the topic", MILLISECONDS, (first_ms,), 50)
        waits_ms = [_timed_ms(client, number) for number in range(1, REGISTERED)]
        yield _given("register a new schema, p50", MILLISECONDS, (median(waits_ms),), 3)
        tail_ms = sorted(waits_ms)[len(waits_ms) * 99 // 100]
        yield _given("register a new schema, p99", MILLISECONDS, (tail_ms,))
        busy_seconds = broker.cpu_seconds()
        _get_many(port)
        busy_seconds = broker.cpu_seconds() - busy_seconds
        yield _given("GET /schemas/ids/N", PER_CORE, (REQUESTS / busy_seconds,), 5000)


def _timed_ms(client: Registry, number: int) -> float:
    began = time.perf_counter()
    client.register(f"subject-{number}", number)
    return 1000 * (time.perf_counter() - began)


def _get_many(port: int) -> None:
    """Ask for all schemas by their ids on one connection, in turns of request and response."""
    requests = [
        f"GET /schemas/ids/{number} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()
        for number in range(1, REGISTERED)
    ]
    with socket.create_connection((HOST, port), ANSWER_SECONDS_MAX) as connected:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(REQUESTS):
            connected.sendall(requests[number % len(requests)])
            response = b""
            while not response.endswith(b"}"):
                response += connected.recv(1 << 16)


def _starts(folder: str, environment: dict[str, str]) -> Iterator[Case]:
    def start(registry: str) -> tuple[float, ...]:
        data = f"{folder}/start-{bool(registry)}"
        with started_ottla(data, environment, registry=registry) as (_, seconds):
            return (1000 * seconds,)

    contenders = (f"{HOST}:0", "")
    for each in contenders:
        start(each)
    ((with_it, without),) = in_turns(contenders, STARTS, start)
    yield _given("start of the broker with a registry", MILLISECONDS, with_it)
    more_ms = median(with_it) - median(without)
    yield _given("... more than without one", MILLISECONDS, (more_ms,), 30)


def _load(folder: str, environment: dict[str, str]) -> Case:
    with registered(folder, environment) as (broker, port):
        Registry(port).register("first", 0)
        _fill(broker.port)
    loads_seconds = []
    for _ in range(LOADS):
        with registered(folder, environment) as (broker, port):
            began = time.perf_counter()
            status, answer = Registry(port).ask("GET", f"/schemas/ids/{LOADED}")
            loads_seconds.append(time.perf_counter() - began)
            assert status == 200, answer
    work = f"load of {LOADED:,} versions, from the broker's first response"
    return _given(work, SECONDS, tuple(loads_seconds), 2)


def _fill(port: int) -> None:
    """Write versions to the topic in the form of the registry."""
    producer = Producer({"bootstrap.servers": f"{HOST}:{port}", "log_level": 0})
    for number in range(2, LOADED + 1):
        subject = f"subject-{number % KEPT}"
        place = {"subject": subject, "version": 1 + number // KEPT}
        key = {"keytype": "SCHEMA", **place, "magic": 1}
        value = {**place, "id": number, "schema": schema_text(number), "deleted": False}
        producer.produce("_schemas", *(_compact(one) for one in (value, key)))
        producer.poll(0)
    assert producer.flush(FLUSH_SECONDS) == 0


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _memory(folder: str, environment: dict[str, str]) -> Iterator[Case]:
    with started_ottla(f"{folder}/without", environment) as (broker, _):
        time.sleep(1)
        without = broker.memory_megabytes()
    with registered(f"{folder}/with", environment) as (broker, port):
        Registry(port).ask("GET", "/subjects")
        none = broker.memory_megabytes() - without
        client = Registry(port)
        for number in range(KEPT):
            client.register(f"subject-{number}", number)
        more = broker.memory_megabytes() - without
    yield _given("memory more than without a registry, no schema", MEGABYTES_MORE, (none,))
    yield _given(f"memory more, {KEPT:,} schemas registered", MEGABYTES_MORE, (more,), 10)
    each = (more - none) * (1 << 20) / KEPT
    yield _given("... for each schema", BYTES_EACH, (each,), 5 << 10)
