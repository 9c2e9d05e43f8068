"""Kafka's tools write and copy in transactions, describe them, and abort a hanging one."""

import json
import re
import time
from collections.abc import Iterable, Iterator

import pytest
from confluent_kafka import Producer

from ottla.testing import Broker, Cluster
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records.builder import BatchBuilder
from tests.clients.plain_socket import PlainSocket
from tests.interop.console import Console, table
from tests.interop.kafka_clients import ANSWER_SECONDS_MAX, NewRecord, consume, producer, send
from tests.interop.kafka_dump import dump
from tests.interop.ottla_process import OttlaProcess

COPIED = 10_000
COPIED_AMONG_CRASHES = 20_000
CRASHES_SECONDS_MAX = 600
AN_HOUR_MS = 3_600_000
CREATED_MS = 1_700_000_000_000
STATE_LOG = "__transaction_state"


@pytest.fixture
def open_transaction(ottla: OttlaProcess) -> Iterator[Producer]:
    """Begin a transaction with an hour-old record, and leave it open for the test."""
    client = producer(ottla.server, transactional_id="open", transaction_timeout_ms=600_000)
    client.init_transactions(ANSWER_SECONDS_MAX)
    client.begin_transaction()
    an_hour_ago_ms = int(time.time() * 1000) - AN_HOUR_MS
    send(client, "opened", 0, [NewRecord(an_hour_ago_ms, None, "unheard")])
    yield client
    client.abort_transaction(ANSWER_SECONDS_MAX)


def fill(server: str, topic: str, count: int) -> list[str]:
    """Write numbers, which are returned."""
    numbers = [str(number) for number in range(count)]
    records = [NewRecord(CREATED_MS, None, number) for number in numbers]
    send(producer(server, batch_num_messages=500), topic, 0, records)
    return numbers


def copier(source: str, target: str, size: int) -> str:
    return (
        f"transactional-message-copier --input-topic {source} --input-partition 0"
        f" --output-topic {target} --consumer-group {target} --transactional-id {target}"
        f" --transaction-size {size} --enable-random-aborts --use-group-metadata"
    )


def progress(printed: Iterable[str]) -> Iterator[int]:
    """Yield the number of copied records from each progress line of a copier."""
    return (json.loads(line)["totalProcessed"] for line in printed if line.startswith("{"))


def committed(server: str, topic: str) -> list[str | None]:
    seen = consume(server, topic, 0, isolation_level="read_committed")
    return [record.value for record in seen]


@pytest.mark.parametrize("mode", ["", "--group-mode"])
def test_a_copy_with_random_aborts_is_exact(kafka: Console, ottla: OttlaProcess, mode: str) -> None:
    source, target = f"source{mode}", f"copy{mode}"
    kafka(f"topics --create --topic {source} --partitions 1")
    kafka(f"topics --create --topic {target} --partitions 1")
    numbers = fill(ottla.server, source, COPIED)
    printed = kafka(f"{copier(source, target, 100)} {mode}")
    assert [*progress(printed.splitlines())][-1] == COPIED

    assert committed(ottla.server, target) == numbers
    everything = consume(ottla.server, target, 0, isolation_level="read_uncommitted")
    assert len(everything) > COPIED, "some transactions were aborted"
    reader = f"console-consumer --topic {target} --from-beginning --timeout-ms 20000"
    printed = kafka(f"{reader} --isolation-level read_committed --max-messages {COPIED}")
    assert printed.split() == numbers
    described = kafka(f"consumer-groups --describe --group {target}")
    (row,) = table(described[described.index("GROUP ") :])
    assert row[3:6] == [str(COPIED), str(COPIED), "0"]


def test_a_copy_is_exact_while_one_broker_after_the_other_is_killed() -> None:
    with Cluster(3, zookeeper=True) as cluster:
        kafka = Console(cluster.bootstrap_servers)
        for topic in ("source", "copy"):
            kafka(f"topics --create --topic {topic} --partitions 1 --replication-factor 3")
        numbers = fill(cluster.bootstrap_servers, "source", COPIED_AMONG_CRASHES)
        with kafka.running(copier("source", "copy", 50), CRASHES_SECONDS_MAX) as printed:
            assert crash_each(cluster, progress(printed)) == COPIED_AMONG_CRASHES
        assert committed(cluster.bootstrap_servers, "copy") == numbers


def crash_each(cluster: Cluster, progress: Iterator[int]) -> int:
    """Kill and start one broker after the other in the first half of a copy; return its end."""
    crashes = [*cluster.brokers.values()]
    processed = 0
    for processed in progress:
        if crashes and processed >= COPIED_AMONG_CRASHES / 2 / len(crashes):
            broker = crashes.pop()
            broker.kill()
            broker.start()
            cluster.wait_until_ready()
    assert not crashes
    return processed


def test_the_load_test_commits_every_few_milliseconds(kafka: Console, ottla: OttlaProcess) -> None:
    kafka("topics --create --topic load --partitions 1")
    load = (
        "producer-perf-test --topic load --num-records 20000 --record-size 100 --throughput 20000"
    )
    sent = kafka(f"{load} --transactional-id load --transaction-duration-ms 50")
    assert re.match(r"20000 records sent, \d+", sent.splitlines()[-1])
    assert len(committed(ottla.server, "load")) == 20_000
    (end_offset,) = kafka("get-offsets --topic load").split()
    assert int(end_offset.rpartition(":")[2]) > 20_000 + 1, "several markers are there"
    (row,) = table(kafka("transactions describe --transactional-id load"))
    assert (row[1], row[4]) == ("load", "CompleteCommit")


@pytest.mark.usefixtures("open_transaction")
def test_an_open_transaction_is_listed_and_described(kafka: Console) -> None:
    (found,) = [row for row in table(kafka("transactions list")) if row[0] == "open"]
    (row,) = table(kafka("transactions describe --transactional-id open"))
    assert found == ["open", "1", row[2], "Ongoing"]
    assert row[:2] == ["1", "open"]
    assert (row[4], row[5], row[-1]) == ("Ongoing", "600000", "opened-0")
    (writer,) = table(kafka("transactions describe-producers --topic opened --partition 0"))
    assert (writer[0], writer[-1]) == (row[2], "0")

    assert table(kafka("transactions list --duration-filter 3600000")) == []
    (same,) = table(kafka("transactions list --transactional-id-pattern op.n"))
    assert same == found
    assert table(kafka("transactions find-hanging --broker-id 1")) == []


def test_a_transaction_that_hangs_is_found_and_aborted() -> None:
    with Broker({"transaction.partition.verification.enable": "false"}) as broker:
        kafka = Console(broker.bootstrap_servers)
        kafka("topics --create --topic hung --partitions 1")
        with PlainSocket(broker) as client:
            write_unasked(client, "hung")
        assert committed(broker.bootstrap_servers, "hung") == []

        (row,) = table(kafka("transactions find-hanging --broker-id 1"))
        assert (row[0], row[1], row[2], row[5]) == ("hung", "0", "4711", "0")
        kafka("transactions abort --topic hung --partition 0 --start-offset 0")
        assert table(kafka("transactions find-hanging --broker-id 1")) == []
        send(producer(broker.bootstrap_servers), "hung", 0, [NewRecord(CREATED_MS, None, "on")])
        assert committed(broker.bootstrap_servers, "hung") == ["on"]


def write_unasked(client: PlainSocket, topic: str) -> None:
    """Write a batch of a transaction that has no coordinator."""
    builder = BatchBuilder(
        producer_id=4711, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    builder.extend(int(time.time() * 1000) - AN_HOUR_MS, [b"unheard"])
    data = PartitionProduceData(index=0, records=bytes(builder.build()))
    request = ProduceRequest(
        transactional_id="nobody",
        acks=-1,
        timeout_ms=20_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    (answered,) = client.ask(ApiKey.PRODUCE, 9, request).responses
    assert answered.partition_responses[0].error_code == 0


@pytest.mark.usefixtures("open_transaction")
def test_the_log_of_transactions_is_read_by_kafkas_decoders(
    kafka: Console, ottla: OttlaProcess
) -> None:
    logs = [path for path in ottla.logs.glob(f"{STATE_LOG}-*/*.log") if path.stat().st_size]
    found = dump(logs, "--transaction-log-decoder")
    assert found.complaints == []
    records = [record for file in found.by_path.values() for record in file.records]
    assert any("transactionalId" in str(r["key"]) and "open" in str(r["key"]) for r in records)

    formatter = "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"
    reader = f"console-consumer --topic {STATE_LOG} --from-beginning --timeout-ms 5000"
    printed = kafka(f"{reader} --formatter {formatter}")
    decoder = json.JSONDecoder()  # there is nothing between one row and the next
    rows = [decoder.raw_decode(printed, at.start())[0] for at in re.finditer('{"key":', printed)]
    mine = [row["value"]["data"] for row in rows if row["key"]["data"]["transactionalId"] == "open"]
    assert [row["transactionStatus"] for row in mine][-1] == 1
    assert mine[-1]["transactionPartitions"] == [{"topic": "opened", "partitionIds": [0]}]
