"""`ottla transaction`: open transactions of librdkafka, and hanging ones that no coordinator knows.

The tests make a hanging transaction by sending transactional batches without a coordinator. So the
broker is configured not to verify them with the coordinator.
"""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from ottla.testing import Broker, Cluster
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.records.builder import BatchBuilder
from tests.clients.cli_calls import call, refused, rows, text
from tests.clients.plain_socket import PlainSocket, produce_request
from tests.clients.raw_requests import RawConnection

SECONDS_MAX = 240
HOUR_MS = 3_600_000
SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "3",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(SETTINGS) as running:
        yield running


@pytest.fixture
def servers(broker: Broker) -> str:
    return broker.bootstrap_servers


@pytest.fixture
def client(broker: Broker) -> Iterator[PlainSocket]:
    with PlainSocket(broker) as connection:
        yield connection


def transactional(servers: str, transactional_id: str) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 600_000,
            "linger.ms": 0,
            "log_level": 0,
        }
    )
    producer.init_transactions(SECONDS_MAX)
    return producer


def begin(producer: Producer, topic: str, *, age_ms: int = 0) -> None:
    """Begin a transaction with one record of this age, and see it written."""
    producer.begin_transaction()
    producer.produce(topic, b"value", partition=0, timestamp=now_ms() - age_ms)
    assert producer.flush(SECONDS_MAX) == 0


def write_unasked(
    client: PlainSocket | RawConnection,
    topic: str,
    producer_id: int,
    *,
    epoch: int = 0,
    age_ms: int = 0,
) -> None:
    """Write a batch into a partition that its transaction, as its coordinator knows it, lacks."""
    builder = BatchBuilder(
        producer_id=producer_id, producer_epoch=epoch, base_sequence=0, is_transactional=True
    )
    builder.append(now_ms() - age_ms, None, b"value")
    request = produce_request(topic, bytes(builder.build()))
    request.transactional_id = "nobody's"
    (answered,) = client.ask(ApiKey.PRODUCE, 9, request).responses
    (found,) = answered.partition_responses
    assert found.error_code == 0


def last_stable_offset(client: PlainSocket, topic: str) -> int:
    latest = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        isolation_level=1, topics=[ListOffsetsTopic(name=topic, partitions=[latest])]
    )
    (answered,) = client.ask(ApiKey.LIST_OFFSETS, 7, request).topics
    return int(answered.partitions[0].offset)


def wait_until_stable(client: PlainSocket, topic: str, offset: int) -> None:
    """Wait for a transaction's markers, which are written after the response to its end."""
    deadline = time.monotonic() + SECONDS_MAX
    while (found := last_stable_offset(client, topic)) != offset:
        assert time.monotonic() < deadline, found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def described(servers: str, transactional_id: str) -> Any:
    return rows("transaction", "describe", transactional_id, brokers=servers)


def described_when(servers: str, transactional_id: str, state: str) -> Any:
    """Wait until all markers are written."""
    deadline = time.monotonic() + SECONDS_MAX
    while (found := described(servers, transactional_id))["state"] != state:
        assert time.monotonic() < deadline, found
    return found


def listed(servers: str, *options: str) -> list[tuple[str, str]]:
    found = rows("transaction", "list", *options, brokers=servers)
    return [(row["transactional_id"], row["state"]) for row in found]


def hanging(servers: str, *options: str) -> list[tuple[str, int, int]]:
    found = rows("transaction", "find-hanging", *options, brokers=servers)
    return [(row["topic"], row["producer_id"], row["start_offset"]) for row in found]


def test_a_transaction_is_seen_from_its_beginning_to_its_end(
    servers: str, client: PlainSocket, topic: str
) -> None:
    client.create(topic)
    producer = transactional(servers, "writer")
    new = described(servers, "writer")
    assert (new["state"], new["partitions"], new["duration_ms"]) == ("Empty", [], None)
    begin(producer, topic)
    going_on = described(servers, "writer")
    assert (going_on["state"], going_on["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert going_on["timeout_ms"] == 600_000
    assert 0 <= going_on["duration_ms"] < SECONDS_MAX * 1000
    (row,) = rows("transaction", "producers", f"{topic}:0", brokers=servers)
    assert (row["producer_id"], row["start_offset"]) == (going_on["producer_id"], 0)
    producer.commit_transaction(SECONDS_MAX)
    ended = described_when(servers, "writer", "CompleteCommit")
    assert (ended["partitions"], ended["duration_ms"]) == ([], None)
    (row,) = rows("transaction", "producers", topic, brokers=servers)
    assert (row["start_offset"], row["coordinator_epoch"]) == (None, 0)


def test_transactions_are_listed_as_filters_want_them(
    servers: str, client: PlainSocket, topic: str
) -> None:
    client.create(topic)
    going_on, ended = transactional(servers, "list-1"), transactional(servers, "list-2")
    begin(ended, topic)
    ended.abort_transaction(SECONDS_MAX)
    begin(going_on, topic)
    described_when(servers, "list-2", "CompleteAbort")
    both = [("list-1", "Ongoing"), ("list-2", "CompleteAbort")]
    assert listed(servers, "--id", "list-.") == both
    assert listed(servers, "--id", "list-.", "--state", "ongoing") == both[:1]
    assert listed(servers, "--id", "list-.", "--duration", "0s") == both[:1]
    assert listed(servers, "--id", "list-.", "--duration", "1h") == []
    producer_id = described(servers, "list-2")["producer_id"]
    assert listed(servers, "--producer-id", str(producer_id)) == both[1:]
    assert "'list-('" in refused("transaction", "list", "--id", "list-(", brokers=servers)
    assert "list-1  " in text("transaction", "ls", "--id", "list-1", brokers=servers)
    going_on.abort_transaction(SECONDS_MAX)


def test_what_no_coordinator_knows_is_found_and_aborted_and_readers_go_on(
    servers: str, client: PlainSocket, topic: str
) -> None:
    client.create(topic)
    write_unasked(client, topic, 70_001, age_ms=2 * HOUR_MS)
    write_unasked(client, topic, 70_002)
    assert hanging(servers, "--topic", topic) == [(topic, 70_001, 0)]
    both = hanging(servers, "--broker", "1", "--max-transaction-timeout", "0")
    assert both[-2:] == [(topic, 70_001, 0), (topic, 70_002, 1)]
    (row,) = rows("transaction", "find-hanging", "-t", f"{topic}:0", brokers=servers)
    assert row["duration_min"] in range(120, 125)
    assert last_stable_offset(client, topic) == 0
    where = ("--topic", topic, "--partition", "0")
    (done,) = rows("transaction", "abort", *where, "--start-offset", "0", brokers=servers)
    assert (done["producer_id"], done["status"]) == (70_001, "aborted")
    assert last_stable_offset(client, topic) == 1
    (lost,) = client.fetch(topic, isolation_level=1).aborted_transactions
    assert (lost.producer_id, lost.first_offset) == (70_001, 0)
    assert hanging(servers, "-t", topic) == []
    again = refused("transaction", "abort", *where, "--start-offset", "0", brokers=servers)
    assert "no open transaction that begins at offset 0" in again


def test_a_transaction_that_a_coordinator_will_end_does_not_hang(
    servers: str, client: PlainSocket, topic: str
) -> None:
    client.create(topic)
    producer = transactional(servers, "slow")
    begin(producer, topic, age_ms=2 * HOUR_MS)
    assert hanging(servers, "-t", topic) == []
    abort = ("transaction", "abort", "-t", topic, "-p", "0", "--start-offset", "0")
    assert "does not hang" in refused(*abort, brokers=servers)
    assert last_stable_offset(client, topic) == 0
    producer.commit_transaction(SECONDS_MAX)
    wait_until_stable(client, topic, 2)


def test_a_partition_that_the_coordinator_does_not_have_hangs_beside_one_that_it_has(
    servers: str, client: PlainSocket, topic: str
) -> None:
    known, unknown = f"{topic}-known", f"{topic}-unknown"
    for name in (known, unknown):
        client.create(name)
    producer = transactional(servers, "torn")
    begin(producer, known, age_ms=2 * HOUR_MS)
    found = described(servers, "torn")
    write_unasked(
        client,
        unknown,
        found["producer_id"],
        epoch=found["producer_epoch"],
        age_ms=2 * HOUR_MS,
    )
    expected = [(unknown, found["producer_id"], 0)]
    assert hanging(servers, "-t", known, "-t", unknown) == expected
    rows("transaction", "abort", "-t", unknown, "-p", "0", "--start-offset", "0", brokers=servers)
    assert last_stable_offset(client, unknown) == 2
    producer.commit_transaction(SECONDS_MAX)
    wait_until_stable(client, known, 2)


def test_a_transaction_can_be_named_by_its_producer(
    servers: str, client: PlainSocket, topic: str
) -> None:
    client.create(topic)
    write_unasked(client, topic, 70_003, epoch=4)

    def abort(epoch: int) -> tuple[str, ...]:
        numbers = ("--producer-id", "70003", "--producer-epoch", str(epoch))
        where = ("transaction", "abort", "--topic", topic, "--partition", "0")
        return (*where, *numbers, "--coordinator-epoch", "-1")

    assert "INVALID_PRODUCER_EPOCH" in refused(*abort(3), brokers=servers)
    assert last_stable_offset(client, topic) == 0
    assert rows(*abort(4), brokers=servers)[0]["status"] == "aborted"
    assert last_stable_offset(client, topic) == 2
    (row,) = rows("transaction", "producers", topic, brokers=servers)
    assert (row["coordinator_epoch"], row["start_offset"]) == (0, None)


def test_to_terminate_a_transaction_shuts_its_producer_out(
    servers: str, client: PlainSocket, topic: str
) -> None:
    client.create(topic)
    producer = transactional(servers, "zombie")
    begin(producer, topic)
    (done,) = rows("transaction", "terminate", "zombie", brokers=servers)
    assert done == {"transactional_id": "zombie", "status": "terminated"}
    assert last_stable_offset(client, topic) == 2
    with pytest.raises(KafkaException) as caught:
        producer.commit_transaction(SECONDS_MAX)
    assert caught.value.args[0].fatal()
    assert described(servers, "zombie")["state"] == "Empty"


def test_what_is_not_there_is_said_and_not_made(servers: str) -> None:
    for verb in ("describe", "terminate"):
        sentence = refused("transaction", verb, "nobody", brokers=servers)
        assert sentence.startswith("there is no transactional id 'nobody'"), sentence
    assert listed(servers, "--id", "nobody") == []
    assert "no topic 'none'" in refused("transaction", "producers", "none", brokers=servers)
    find = ("transaction", "find-hanging", "--broker", "77")
    assert "there is no broker 77" in refused(*find, brokers=servers)
    where = ("transaction", "abort", "-t", "none", "-p", "0")
    assert "say which one" in refused(*where, expect=2, brokers=servers)
    both = ("--start-offset", "0", "--producer-id", "1")
    assert "say which one" in refused(*where, *both, expect=2, brokers=servers)


@pytest.mark.parametrize(
    "words",
    [
        ("list", "--producer-id", "9" * 23),
        ("list", "--duration", "9" * 20 + "d"),
        ("abort", "-t", "t", "-p", "0", "--producer-epoch", "99999"),
        ("abort", "-t", "t", "-p", "0", "--producer-id", "9" * 23),
        ("abort", "-t", "t", "-p", "0", "--coordinator-epoch", "9" * 11),
    ],
)
def test_numbers_that_no_request_can_carry_are_wrong_calls(
    servers: str, words: tuple[str, ...]
) -> None:
    assert words[-1].encode() in call("transaction", *words, expect=2, brokers=servers).stderr


@pytest.mark.usefixtures("needs_zookeeper")
def test_every_broker_is_asked_and_each_replica_tells_what_hangs(topic: str) -> None:
    with Cluster(2, SETTINGS, zookeeper=True) as cluster:
        servers = cluster.bootstrap_servers
        call("topic", "create", topic, "-r", "2", brokers=servers)
        producers = [transactional(servers, f"writer-{number}") for number in range(6)]
        for producer in producers:
            begin(producer, topic)
        found = rows("transaction", "list", "--state", "Ongoing", brokers=servers)
        assert [row["transactional_id"] for row in found] == [f"writer-{n}" for n in range(6)]
        assert {row["coordinator"] for row in found} == {1, 2}
        for row in found:
            one = described(servers, row["transactional_id"])
            assert (one["coordinator"], one["state"]) == (row["coordinator"], "Ongoing")
        (partition,) = rows("partition", "list", topic, brokers=servers)
        with RawConnection(cluster.brokers[partition["leader"]].bootstrap_servers) as leader:
            write_unasked(leader, topic, 70_004, age_ms=2 * HOUR_MS)
        for broker_id in (1, 2):
            assert hanging(servers, "--broker", str(broker_id)) == [(topic, 70_004, 6)]
        abort = ("transaction", "abort", "-t", topic, "-p", "0", "--start-offset", "6")
        assert rows(*abort, brokers=servers)[0]["status"] == "aborted"
        assert hanging(servers) == []
