"""Messages: requests read and responses written, against kio and kafka-python.

The three do the same to the same bytes. Reading starts from the whole message in memory, without
its header; writing starts from numbers and names, so that building the response is part of it,
and ends in the same bytes.
"""

from collections.abc import Iterator
from functools import partial

from benchmarks import kafka_python_messages, kio_messages
from benchmarks.cluster import BASE_OFFSET, BROKERS, LEADER_EPOCH, LOG_START_OFFSET, TOPICS
from benchmarks.comparison import MICROSECONDS, MILLISECONDS, Case, Peer
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.reading import decode, reader_for
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.writing import encode, writer_for

TITLE = "Messages, beside kio and kafka-python"
RECORDS_BYTES = 1024
PARTITIONS_BY_TOPICS = {1: 100, 10: 10, 100: 1}


def cases() -> Iterator[Case]:
    """Yield the work on messages."""
    yield _produce()
    for topics, partitions in PARTITIONS_BY_TOPICS.items():
        yield _fetch(topics, partitions)
    yield _metadata()
    yield Case(
        work="generate the reader and the writer of Fetch v12, once",
        unit=MILLISECONDS,
        ours=compile_fetch,
    )


def produce_request() -> bytes:
    """Write a Produce request with a kilobyte of records for one partition."""
    builder = BatchBuilder()
    builder.append(1_700_000_000_000, None, b"x" * 954)
    records = builder.build()
    assert len(records) == RECORDS_BYTES
    partition = PartitionProduceData(index=3, records=records)
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return encode(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic]), 9)


def answer_produce(raw: memoryview) -> bytes:
    """Read a Produce request, and write a response that acknowledges all of it."""
    (topic,) = decode(ProduceRequest, 9, raw).topic_data
    (partition,) = topic.partition_data
    outcome = PartitionProduceResponse(
        index=partition.index,
        base_offset=BASE_OFFSET,
        log_start_offset=LOG_START_OFFSET,
    )
    answer = TopicProduceResponse(name=topic.name, partition_responses=[outcome])
    return encode(ProduceResponse(responses=[answer]), 9)


def produced_records(raw: bytes) -> bytes:
    """Return the records in a Produce request."""
    (topic,) = decode(ProduceRequest, 9, memoryview(raw)).topic_data
    return bytes(topic.partition_data[0].records)


def fetch_request(topics: int, partitions: int) -> bytes:
    """Write a consumer's Fetch request for this many topics, with this many partitions in each."""
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_epoch=0,
        topics=[
            FetchTopic(
                topic=f"orders-{topic:03}",
                partitions=[
                    FetchPartition(
                        partition=partition,
                        current_leader_epoch=LEADER_EPOCH,
                        fetch_offset=BASE_OFFSET + partition,
                        partition_max_bytes=1 << 20,
                    )
                    for partition in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )
    return encode(request, 12)


def read_fetch(raw: memoryview) -> FetchRequest:
    """Read a Fetch request."""
    return decode(FetchRequest, 12, raw)


def write_metadata() -> bytes:
    """Describe the cluster."""
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=broker.node_id, host=broker.host, port=broker.port)
            for broker in BROKERS
        ],
        cluster_id="ottla",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id.bytes,
                partitions=[
                    MetadataResponsePartition(
                        partition_index=index,
                        leader_id=replicas[0],
                        leader_epoch=LEADER_EPOCH,
                        replica_nodes=replicas,
                        isr_nodes=replicas,
                    )
                    for index, replicas in enumerate(topic.replicas)
                ],
            )
            for topic in TOPICS
        ],
    )
    return encode(response, 12)


def compile_fetch() -> None:
    """Do the one-time work of the first request of its version."""
    reader_for.__wrapped__(FetchRequest, 12)
    writer_for.__wrapped__(FetchRequest, 12)


def _produce() -> Case:
    raw = produce_request()
    answer, records = answer_produce(memoryview(raw)), produced_records(raw)
    for peer in (kio_messages, kafka_python_messages):
        assert peer.answer_produce(raw) == answer
        assert peer.produced_records(raw) == records
    return Case(
        work=f"Produce v9, {RECORDS_BYTES} bytes of records: read, answer",
        unit=MICROSECONDS,
        ours=partial(answer_produce, memoryview(raw)),
        asked=8,
        peers=(
            Peer("kio", partial(kio_messages.answer_produce, raw), 4),
            Peer("kafka-python", partial(kafka_python_messages.answer_produce, raw), 2),
        ),
    )


def _fetch(topics: int, partitions: int) -> Case:
    raw = fetch_request(topics, partitions)
    read = [
        (topic.topic, partition.partition, partition.fetch_offset)
        for topic in read_fetch(memoryview(raw)).topics
        for partition in topic.partitions
    ]
    assert read == kio_messages.positions(raw) == kafka_python_messages.positions(raw)
    return Case(
        work=f"Fetch v12, {topics} x {partitions} partitions: read",
        unit=MICROSECONDS,
        ours=partial(read_fetch, memoryview(raw)),
        asked=60 if topics == 1 else None,
        peers=(
            Peer("kio", partial(kio_messages.read_fetch, raw)),
            Peer("kafka-python", partial(kafka_python_messages.read_fetch, raw)),
        ),
    )


def _metadata() -> Case:
    written = write_metadata()
    assert written == kio_messages.write_metadata() == kafka_python_messages.write_metadata()
    return Case(
        work=f"Metadata v12, {len(TOPICS)} x {len(TOPICS[0].replicas)} partitions: write",
        unit=MICROSECONDS,
        ours=write_metadata,
        peers=(
            Peer("kio", kio_messages.write_metadata),
            Peer("kafka-python", kafka_python_messages.write_metadata),
        ),
    )
