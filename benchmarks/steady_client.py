"""A client at a steady rate, in a process of its own: `python -m benchmarks.steady_client PORT`.

It produces a record and fetches it, a hundred times a second, until its stdin is closed. Then it
prints the latencies of both, in milliseconds.
"""

import json
import select
import socket
import struct
import sys
import time
from typing import Any

from ottla.wire.api_key import ApiKey
from ottla.wire.codec import decode_response, encode_request
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.schema import Message

RATE = 100
TOPIC = "steady"


class SteadyClient:
    """One connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        builder = BatchBuilder()
        builder.append(1_700_000_000_000, None, b"x" * 100)
        self._records = bytes(builder.build())

    def ask(self, key: ApiKey, version: int, request: Message) -> Any:
        """Send a request and return its response."""
        self._socket.sendall(
            b"".join(encode_request(RequestHeader(key, version, 1, "steady"), request))
        )
        (size,) = struct.unpack(">i", self._read(4))
        return decode_response(key, version, memoryview(self._read(size)))[1]

    def _read(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(count - len(found))
            assert more, "the broker hung up"
            found += more
        return found

    def make_topic(self, name: str = TOPIC) -> None:
        """Create the topic, and wait until it exists."""
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
        while self.ask(ApiKey.METADATA, 9, wanted).topics[0].error_code:
            time.sleep(0.05)

    def produce(self) -> int:
        """Append a record and return its offset."""
        data = PartitionProduceData(index=0, records=self._records)
        topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
        request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics)
        answer = self.ask(ApiKey.PRODUCE, 9, request).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def fetch(self, offset: int) -> None:
        """Read the record at an offset."""
        wanted = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = FetchRequest(max_wait_ms=500, min_bytes=1, session_epoch=-1, topics=topics)
        answer = self.ask(ApiKey.FETCH, 12, request).responses[0].partitions[0]
        assert answer.error_code == 0, answer
        assert answer.records


def main() -> None:
    """Run until stdin ends."""
    client = SteadyClient(int(sys.argv[1]))
    client.make_topic()
    sys.stdout.write("\n")
    sys.stdout.flush()
    taken_ms: list[float] = []
    due = time.perf_counter()
    while not select.select([sys.stdin], [], [], 0)[0]:
        start = time.perf_counter()
        offset = client.produce()
        between = time.perf_counter()
        client.fetch(offset)
        taken_ms += [(between - start) * 1e3, (time.perf_counter() - between) * 1e3]
        due = max(due + 1 / RATE, time.perf_counter())
        time.sleep(max(due - time.perf_counter(), 0))
    json.dump(taken_ms, sys.stdout)


if __name__ == "__main__":
    main()
