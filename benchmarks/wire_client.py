"""A client that costs next to nothing: prepared frames out, responses counted and discarded."""

import socket
import time
from struct import unpack

from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record
from ottla.wire.schema import Message

TOPIC = "letters"
PRODUCE_VERSION = 9
FETCH_VERSION = 12
CREATE_TOPICS_VERSION = 7
API_VERSIONS_VERSION = 3
TIMEOUT_MS = 30_000
CLIENT_ID = "benchmark"


class WireClient:
    """One connection."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_MS / 1000)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    @classmethod
    def as_soon_as_possible(cls, port: int) -> "WireClient":
        """Connect to a broker that is starting on this port."""
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while True:
            try:
                return cls(port)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.001)

    def ask(self, frame: bytes) -> bytes:
        """Send a request and wait for its response."""
        self.socket.sendall(frame)
        return self.answer()

    def answer(self) -> bytes:
        """Read the next response."""
        (size_bytes,) = unpack(">i", self._file.read(4))
        return self._file.read(size_bytes)

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic, and return when its first partition has acknowledged a record."""
        self.ask(create_topic_frame(topic, partitions))
        self.produce_until_acknowledged(topic)

    def produce_until_acknowledged(self, topic: str) -> None:
        """Send a record to the first partition until the broker acknowledges it."""
        deadline = time.monotonic() + TIMEOUT_MS / 1000
        while _is_refused(self.ask(produce_frame(topic))):
            assert time.monotonic() < deadline, f"{topic} takes no records"
            time.sleep(0.01)

    def skip_bytes(self, size_bytes: int) -> None:
        """Read responses by their known total size."""
        while size_bytes:
            received = self._file.read(min(size_bytes, 1 << 16))
            assert received, "the broker hung up"
            size_bytes -= len(received)

    def close(self) -> None:
        """Close the connection."""
        self._file.close()
        self.socket.close()


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def produce_frame(topic: str = TOPIC, partition: int = 0, value: bytes = b"Dearest Ottla") -> bytes:
    """Return a Produce of one record."""
    records = bytes(build_batch([Record(0, 1_700_000_000_000, b"key", value)]))
    data = PartitionProduceData(index=partition, records=memoryview(records))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=TIMEOUT_MS,
        topic_data=[TopicProduceData(name=topic, partition_data=[data])],
    )
    return _frame(ApiKey.PRODUCE, PRODUCE_VERSION, request)


def fetch_frame(
    topic: str = TOPIC, partition: int = 0, offset: int = 0, max_wait_ms: int = 500
) -> bytes:
    """Return a Fetch of one partition."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=100)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1000,
        topics=[FetchTopic(topic=topic, partitions=[wanted])],
    )
    return _frame(ApiKey.FETCH, FETCH_VERSION, request)


def create_topic_frame(topic: str = TOPIC, partitions: int = 1, **configs: str) -> bytes:
    """Return a CreateTopics; settings are given with underscores."""
    wanted = CreatableTopic(
        name=topic,
        num_partitions=partitions,
        replication_factor=1,
        configs=[
            CreatableTopicConfig(name=name.replace("_", "."), value=value)
            for name, value in configs.items()
        ],
    )
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=TIMEOUT_MS)
    return _frame(ApiKey.CREATE_TOPICS, CREATE_TOPICS_VERSION, request)


def api_versions_frame() -> bytes:
    """Return the first request of every client."""
    request = ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1")
    return _frame(ApiKey.API_VERSIONS, API_VERSIONS_VERSION, request)


def _is_refused(answer: bytes) -> bool:
    """Return whether the response to a Produce of one record has an error."""
    _, response = decode_response(ApiKey.PRODUCE, PRODUCE_VERSION, memoryview(answer))
    assert isinstance(response, ProduceResponse)
    return response.responses[0].partition_responses[0].error_code != ErrorCode.NONE


def _frame(api_key: int, api_version: int, request: Message) -> bytes:
    header = RequestHeader(api_key, api_version, 1, CLIENT_ID)
    return b"".join(map(bytes, encode_request(header, request)))
