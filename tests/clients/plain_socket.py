"""A client that sends any request in any version, and believes nothing."""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from ottla.testing import Broker
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records.builder import BatchBuilder

SECONDS_MAX = 240


class PlainSocket:
    """One connection."""

    def __init__(self, broker: Broker) -> None:
        self._socket = socket.create_connection(("127.0.0.1", broker.port), timeout=SECONDS_MAX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()

    def send(self, key: ApiKey, version: int, request: Any) -> None:
        header = RequestHeader(key, version, 5, "plain")
        self._socket.sendall(b"".join(encode_request(header, request)))

    def receive(self, key: ApiKey, version: int) -> Any:
        (size,) = struct.unpack(">i", self._read(4))
        return decode_response(key, version, memoryview(self._read(size)))[1]

    def ask(self, key: ApiKey, version: int, request: Any) -> Any:
        self.send(key, version, request)
        return self.receive(key, version)

    def is_closed(self) -> bool:
        """Wait for bytes from the broker; return whether it closed the connection instead."""
        try:
            return not self._socket.recv(1)
        except ConnectionResetError:
            return True

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(count - len(found))
            assert more, "the broker hung up"
            found += more
        return found

    def create(self, name: str, partitions: int = 1, **settings: str) -> bytes:
        """Make a topic and return its id."""
        configs = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in settings.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, configs=configs
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=SECONDS_MAX * 1000)
        (made,) = self.ask(ApiKey.CREATE_TOPICS, 7, request).topics
        assert made.error_code == 0
        return bytes(made.topic_id)

    def produce(
        self, topic: str, records: bytes, *, index: int = 0, version: int = 9, acks: int = -1
    ) -> Any:
        """Produce to one partition and return its part of the response."""
        request = produce_request(topic, records, index=index, acks=acks)
        (answered,) = self.ask(ApiKey.PRODUCE, version, request).responses
        return answered.partition_responses[0]

    def fetch(self, topic: str, offset: int = 0, *, version: int = 12, **how: Any) -> Any:
        """Fetch from one partition and return its part of the response."""
        request = fetch_request(topic, offset, **how)
        (answered,) = self.ask(ApiKey.FETCH, version, request).responses
        return answered.partitions[0]


def produce_request(
    topic: str, records: bytes | None, *, index: int = 0, acks: int = -1, topic_id: bytes = b""
) -> ProduceRequest:
    data = PartitionProduceData(index=index, records=records)
    named = TopicProduceData(name=topic, topic_id=topic_id or bytes(16), partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=SECONDS_MAX * 1000, topic_data=[named])


def fetch_request(
    topic: str,
    offset: int = 0,
    *,
    index: int = 0,
    topic_id: bytes = b"",
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    partition_max_bytes: int = 1 << 20,
    **how: Any,
) -> FetchRequest:
    wanted = FetchPartition(
        partition=index,
        fetch_offset=offset,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_fetched_epoch,
        partition_max_bytes=partition_max_bytes,
    )
    named = FetchTopic(topic=topic, topic_id=topic_id or bytes(16), partitions=[wanted])
    return FetchRequest(**{"max_bytes": 1 << 20, "topics": [named], **how})


def batch(*values: bytes | None, key: bytes | None = None, **how: Any) -> bytes:
    builder = BatchBuilder(**how)
    for value in values:
        builder.append(1_700_000_000_000, key, value)
    return bytes(builder.build())
