"""The same messages with kafka-python: every field is set, which is faster than its defaults."""

from typing import Any

from kafka.protocol.consumer import FetchRequest
from kafka.protocol.metadata import MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from benchmarks.cluster import BASE_OFFSET, BROKERS, LEADER_EPOCH, LOG_START_OFFSET, TOPICS

_ProduceRequest = ProduceRequest[9]
_ProduceResponse = ProduceResponse[9]
_TopicProduceResponse = ProduceResponse.TopicProduceResponse
_PartitionProduceResponse = _TopicProduceResponse.PartitionProduceResponse
_FetchRequest = FetchRequest[12]
_MetadataResponse = MetadataResponse[12]
_Broker = MetadataResponse.MetadataResponseBroker
_Topic = MetadataResponse.MetadataResponseTopic
_Partition = _Topic.MetadataResponsePartition


def answer_produce(raw: bytes) -> bytes:
    """Read a Produce request, and write a response that acknowledges all of it."""
    (topic,) = _ProduceRequest.decode(raw).topic_data
    (partition,) = topic.partition_data
    outcome = _PartitionProduceResponse(
        index=partition.index,
        error_code=0,
        base_offset=BASE_OFFSET,
        log_append_time_ms=-1,
        log_start_offset=LOG_START_OFFSET,
        record_errors=[],
        error_message=None,
    )
    answer = _TopicProduceResponse(name=topic.name, partition_responses=[outcome])
    written: bytes = _ProduceResponse(responses=[answer], throttle_time_ms=0).encode()
    return written


def produced_records(raw: bytes) -> bytes:
    """Return the records in a Produce request."""
    return bytes(_ProduceRequest.decode(raw).topic_data[0].partition_data[0].records)


def read_fetch(raw: bytes) -> Any:
    """Read a Fetch request."""
    return _FetchRequest.decode(raw)


def positions(raw: bytes) -> list[tuple[str, int, int]]:
    """Return the positions in a Fetch request."""
    return [
        (topic.topic, partition.partition, partition.fetch_offset)
        for topic in read_fetch(raw).topics
        for partition in topic.partitions
    ]


def write_metadata() -> bytes:
    """Describe the cluster."""
    response = _MetadataResponse(
        throttle_time_ms=0,
        brokers=[
            _Broker(node_id=broker.node_id, host=broker.host, port=broker.port, rack=None)
            for broker in BROKERS
        ],
        cluster_id="ottla",
        controller_id=1,
        topics=[
            _Topic(
                error_code=0,
                name=topic.name,
                topic_id=topic.topic_id,
                is_internal=False,
                partitions=[
                    _Partition(
                        error_code=0,
                        partition_index=index,
                        leader_id=replicas[0],
                        leader_epoch=LEADER_EPOCH,
                        replica_nodes=replicas,
                        isr_nodes=replicas,
                        offline_replicas=[],
                    )
                    for index, replicas in enumerate(topic.replicas)
                ],
                authorized_operations=None,
            )
            for topic in TOPICS
        ],
    )
    written: bytes = response.encode()
    return written
