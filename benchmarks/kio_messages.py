"""The same messages with kio: readers and writers are made once, and values have kio's types.

A broker counts offsets itself, so these are checked into kio's integers as its annotations demand.
All other values have their types already, because kio has read them or a broker would keep them so.
"""

from datetime import timedelta
from io import BytesIO

from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchRequest
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.produce.v9.request import ProduceRequest
from kio.schema.produce.v9.response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kio.schema.types import BrokerId, TopicName
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta, i64

from benchmarks.cluster import BASE_OFFSET, BROKERS, LEADER_EPOCH, LOG_START_OFFSET, TOPICS

_read_produce = entity_reader(ProduceRequest)
_write_produce = entity_writer(ProduceResponse)
_read_fetch = entity_reader(FetchRequest)
_write_metadata = entity_writer(MetadataResponse)
_NO_TIME = i32Timedelta.parse(timedelta(0))
_LEADER_EPOCH = i32(LEADER_EPOCH)
_CONTROLLER_ID = BrokerId(1)
_BROKERS = [(BrokerId(broker.node_id), broker.host, i32(broker.port)) for broker in BROKERS]
_TOPICS = [
    (
        TopicName(topic.name),
        topic.topic_id,
        [
            (i32(index), tuple(map(BrokerId, replicas)))
            for index, replicas in enumerate(topic.replicas)
        ],
    )
    for topic in TOPICS
]


def answer_produce(raw: bytes) -> bytes:
    """Read a Produce request, and write a response that acknowledges all of it."""
    request, _ = _read_produce(raw, 0)
    (topic,) = request.topic_data
    (partition,) = topic.partition_data
    outcome = PartitionProduceResponse(
        index=partition.index,
        error_code=ErrorCode.none,
        base_offset=i64(BASE_OFFSET),
        log_start_offset=i64(LOG_START_OFFSET),
        record_errors=(),
    )
    answer = TopicProduceResponse(name=topic.name, partition_responses=(outcome,))
    written = BytesIO()
    _write_produce(written, ProduceResponse(responses=(answer,)))
    return written.getvalue()


def produced_records(raw: bytes) -> bytes:
    """Return the records in a Produce request."""
    request, _ = _read_produce(raw, 0)
    return bytes(request.topic_data[0].partition_data[0].records or b"")


def read_fetch(raw: bytes) -> FetchRequest:
    """Read a Fetch request."""
    request, _ = _read_fetch(raw, 0)
    return request


def positions(raw: bytes) -> list[tuple[str, int, int]]:
    """Return the positions in a Fetch request."""
    return [
        (topic.topic, partition.partition, partition.fetch_offset)
        for topic in read_fetch(raw).topics
        for partition in topic.partitions
    ]


def write_metadata() -> bytes:
    """Describe the cluster."""
    response = MetadataResponse(
        throttle_time=_NO_TIME,
        brokers=tuple(
            [
                MetadataResponseBroker(node_id=node_id, host=host, port=port)
                for node_id, host, port in _BROKERS
            ]
        ),
        cluster_id="ottla",
        controller_id=_CONTROLLER_ID,
        topics=tuple(
            [
                MetadataResponseTopic(
                    error_code=ErrorCode.none,
                    name=name,
                    topic_id=topic_id,
                    partitions=tuple(
                        [
                            MetadataResponsePartition(
                                error_code=ErrorCode.none,
                                partition_index=index,
                                leader_id=replicas[0],
                                leader_epoch=_LEADER_EPOCH,
                                replica_nodes=replicas,
                                isr_nodes=replicas,
                            )
                            for index, replicas in partitions
                        ]
                    ),
                )
                for name, topic_id, partitions in _TOPICS
            ]
        ),
    )
    written = BytesIO()
    _write_metadata(written, response)
    return written.getvalue()
