"""A fetch with too few bytes gets its response after max_wait_ms, and never before."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.broker.requests.response_error_codes import error_finder
from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tests.clients.raw_requests import RawConnection
from tests.interop.kafka_node import kafka_node

VERSION = 12
"""The last version in which topics are named."""
WAIT_MS = 320
ROUNDS = 5
SECONDS_MAX = 30


@pytest.fixture(scope="module", params=["Kafka", "Ottla"])
def servers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    if request.param == "Ottla":
        with Broker() as broker:
            create(broker.bootstrap_servers)
            yield broker.bootstrap_servers
        return
    with kafka_node(tmp_path_factory.mktemp("kafka")) as node:
        create(node.start().bootstrap_server)
        yield node.bootstrap_server


@pytest.fixture
def connection(servers: str) -> Iterator[RawConnection]:
    with RawConnection(servers) as connected:
        yield connected


def create(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for made in admin.create_topics([NewTopic("quiet", 3, 1), NewTopic("busy", 1, 1)]).values():
        made.result(SECONDS_MAX)
    # Kafka's broker may lag behind its controller's metadata, and responds at once then.
    with RawConnection(servers) as connection:
        while any(error_finder(ApiKey.FETCH)(ask(connection))):
            pass


def ask(connection: RawConnection) -> FetchResponse:
    answer: FetchResponse = connection.ask(ApiKey.FETCH, VERSION, fetch(("quiet", "busy")))
    return answer


def fetch(
    topics: tuple[str, ...], session_id: int = 0, epoch: int = -1, bytes_min: int = 1
) -> FetchRequest:
    wanted = {"quiet": range(3), "busy": range(1)}
    return FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=bytes_min,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(partition=index, partition_max_bytes=1 << 20)
                    for index in wanted[topic]
                ],
            )
            for topic in topics
        ],
    )


def waited_ms(connection: RawConnection, request: FetchRequest) -> tuple[float, FetchResponse]:
    began = time.monotonic()
    answer: FetchResponse = connection.ask(ApiKey.FETCH, VERSION, request)
    took_ms = (time.monotonic() - began) * 1000
    assert not list(error_finder(ApiKey.FETCH)(answer))
    return took_ms, answer


def test_a_fetch_without_a_session_waits_for_its_whole_time(connection: RawConnection) -> None:
    for _ in range(ROUNDS):
        took_ms, _ = waited_ms(connection, fetch(("quiet",)))
        assert took_ms >= WAIT_MS


def test_a_fetch_of_a_session_waits_for_its_whole_time(connection: RawConnection) -> None:
    took_ms, answer = waited_ms(connection, fetch(("quiet",), epoch=0))
    assert took_ms >= WAIT_MS
    assert answer.session_id
    for epoch in range(1, ROUNDS):
        took_ms, _ = waited_ms(connection, fetch((), answer.session_id, epoch))
        assert took_ms >= WAIT_MS


def test_records_below_min_bytes_do_not_end_the_wait(
    connection: RawConnection, servers: str
) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    for _ in range(ROUNDS):
        producer.produce("busy", b"x")
        took_ms, _ = waited_ms(connection, fetch(("quiet", "busy"), bytes_min=1 << 20))
        assert took_ms >= WAIT_MS
        assert producer.flush(SECONDS_MAX) == 0
