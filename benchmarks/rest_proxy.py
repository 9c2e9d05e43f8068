"""The REST proxy in a broker: records in and out over HTTP.

The CPU time is of the whole broker process: HTTP, the proxy's clients, and the broker itself. The
client has one connection, so at most one request is in progress.
"""

import json
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.broker_process import MeasuredBroker
from benchmarks.broker_starts import started_ottla
from benchmarks.comparison import Case, Unit
from benchmarks.imports import with_bytecode_in
from benchmarks.wire_client import free_port

TITLE = "The REST proxy in a broker"
HOST: Final = "127.0.0.1"
ANSWER_SECONDS_MAX: Final = 60
REQUESTS: Final = 300
RECORDS: Final = 100
"""Of one request."""
SINGLES: Final = 2_000
PER_CORE = Unit("records/s of a core", 1, is_time=False)
SCHEMA: Final = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "price", "type": "double"},
        ],
    }
)


def cases() -> Iterator[Case]:
    """Yield the figures of one broker with a proxy and a registry."""
    with TemporaryDirectory() as folder:
        environment = with_bytecode_in(f"{folder}/bytecode")
        port = free_port()
        registry = f"{HOST}:{free_port()}"
        started = started_ottla(
            f"{folder}/data", environment, registry=registry, rest=f"{HOST}:{port}"
        )
        with started as (broker, _):
            yield from _measured(broker, Proxy(port))


class Proxy:
    """A client with one connection."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection(HOST, port, timeout=ANSWER_SECONDS_MAX)

    def ask(self, method: str, path: str, body: bytes | None = None, kind: str = "") -> bytes:
        """Return the body of a response."""
        headers = {"Content-Type": kind} if kind else {}
        self._connection.request(method, path, body, headers)
        response = self._connection.getresponse()
        found = response.read()
        assert response.status == 200, found
        return found


def _measured(broker: MeasuredBroker, proxy: Proxy) -> Iterator[Case]:
    rows = [{"id": n, "customer": f"customer {n}", "price": n / 7} for n in range(RECORDS)]
    records = [{"value": row} for row in rows]
    plain = json.dumps({"records": records}).encode()
    typed = json.dumps({"value_schema": SCHEMA, "records": records}).encode()
    many = REQUESTS * RECORDS
    work = f"version 2, JSON, {RECORDS} records a request"
    yield _case(work, many, broker, lambda: _post(proxy, "plain", plain, "json"))
    work = f"version 2, Avro, {RECORDS} records a request"
    yield _case(work, many, broker, lambda: _post(proxy, "typed", typed, "avro"))
    single = json.dumps({"value": {"type": "JSON", "data": rows[0]}}).encode()
    cluster = json.loads(proxy.ask("GET", "/v3/clusters"))["data"][0]["cluster_id"]
    path = f"/v3/clusters/{cluster}/topics/plain/records"
    yield _case(
        "version 3, a record a request", SINGLES, broker, lambda: _singles(proxy, path, single)
    )
    yield _case("NDJSON of a topic of JSON", many, broker, lambda: _stream(proxy, "plain"))
    yield _case("NDJSON of a topic of Avro", many, broker, lambda: _stream(proxy, "typed"))


def _case(work: str, amount: int, broker: MeasuredBroker, run: Callable[[], None]) -> Case:
    run()  # opens connections and files
    busy_seconds = broker.cpu_seconds()
    run()
    busy_seconds = broker.cpu_seconds() - busy_seconds
    return Case(work=work, unit=PER_CORE, ours=lambda: None, figures=(amount / busy_seconds,))


def _post(proxy: Proxy, topic: str, body: bytes, form: str) -> None:
    for _ in range(REQUESTS):
        proxy.ask("POST", f"/topics/{topic}", body, f"application/vnd.kafka.{form}.v2+json")


def _singles(proxy: Proxy, path: str, body: bytes) -> None:
    for _ in range(SINGLES):
        proxy.ask("POST", path, body, "application/json")


def _stream(proxy: Proxy, topic: str) -> None:
    path = f"/v1/topics/{topic}/records?limit={REQUESTS * RECORDS}"
    assert proxy.ask("GET", path).count(b"\n") >= REQUESTS * RECORDS
