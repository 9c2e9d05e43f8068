"""Attacks of hostile clients: frames that are cheap to make and expensive to process."""

import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.headers import RequestHeader, request_header_version, write_request_header
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema import Field, Message, Struct
from ottla.wire.writing import encode

SECONDS_MAX = 240
TOPIC = "steady"
GROUP = "hostile"
WAITING_CONNECTIONS = 1_500
WAITING_EACH = 32
Address = tuple[str, int]


def frame_of(key: ApiKey, version: int, request: Message) -> bytes:
    """Write a request with its length."""
    header = RequestHeader(key, version, 1, "hostile")
    body = write_request_header(header, request_header_version(key, version))
    body += encode(request, version)
    return struct.pack(">i", len(body)) + body


def list_offsets(partitions: int, topic: str = "steady") -> bytes:
    wanted = [ListOffsetsPartition(partition_index=7, timestamp=-1)] * partitions
    topics = [ListOffsetsTopic(name=topic, partitions=wanted)]
    return frame_of(ApiKey.LIST_OFFSETS, 9, ListOffsetsRequest(topics=topics))


def tagged_list_offsets(partitions: int, tags: int) -> bytes:
    wanted = ListOffsetsPartition(partition_index=7, timestamp=-1)
    wanted.unknown_tags = {1000 + number: b"" for number in range(tags)}
    topics = [ListOffsetsTopic(name="steady", partitions=[wanted] * partitions)]
    return frame_of(ApiKey.LIST_OFFSETS, 9, ListOffsetsRequest(topics=topics))


def metadata(topics: int) -> bytes:
    wanted = [MetadataRequestTopic(name=f"missing-{number}") for number in range(topics)]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    return frame_of(ApiKey.METADATA, 12, request)


def all_metadata() -> bytes:
    return frame_of(ApiKey.METADATA, 12, MetadataRequest(topics=None))


def offset_fetch(partitions: int) -> bytes:
    topics = [OffsetFetchRequestTopics(name="steady", partition_indexes=[7] * partitions)]
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
    return frame_of(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=groups))


def offset_commit(partitions: int) -> bytes:
    one = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topics = [OffsetCommitRequestTopic(name="steady", partitions=[one] * partitions)]
    request = OffsetCommitRequest(group_id=GROUP, topics=topics)
    return frame_of(ApiKey.OFFSET_COMMIT, 8, request)


def produce(partitions: int) -> bytes:
    data = [PartitionProduceData(index=7, records=None)] * partitions
    topics = [TopicProduceData(name="steady", partition_data=data)]
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics)
    return frame_of(ApiKey.PRODUCE, 9, request)


def fetch(partitions: int, *, wait_ms: int = 0, index: int = 0, replica_id: int = -1) -> bytes:
    wanted = [
        FetchPartition(
            partition=index + number,
            fetch_offset=1 << 40 if replica_id >= 0 else 0,
            partition_max_bytes=1,
        )
        for number in range(partitions)
    ]
    request = FetchRequest(
        replica_id=replica_id,
        max_wait_ms=wait_ms,
        min_bytes=1 << 20,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchTopic(topic="crowded", partitions=wanted)],
    )
    return frame_of(ApiKey.FETCH, 12, request)


def largest_request(key: ApiKey, items: int) -> Message | None:
    """Return a request with this many items in its innermost array; None if it has no array."""
    request = API_BY_KEY[key].request()
    return request if _fill(request, items) else None


def _fill(value: Struct, items: int) -> bool:
    """Fill the innermost of the first arrays; name a topic that exists."""
    for name in ("name", "topic", "topic_name"):
        if hasattr(value, name):
            setattr(value, name, TOPIC)
    for field in type(value).fields:
        if not field.is_array or not field.is_present(_last_version(type(value), field)):
            continue
        if field.struct is None:
            one: Any = {"string": "t", "bytes": b"", "uuid": bytes(16)}.get(field.kind, 0)
        else:
            one = field.struct()
            if _fill(one, items):
                setattr(value, field.name, [one])
                return True
        setattr(value, field.name, [one] * items)
        return True
    return False


def _last_version(cls: type[Struct], field: Field) -> int:
    return cls.versions[1] if issubclass(cls, Message) else field.since


@contextmanager
def crowd(
    address: Address, count: int, receive_bytes: int | None = None
) -> Iterator[list[socket.socket]]:
    """Open this many connections; `receive_bytes` bounds the receive buffer of each."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            if receive_bytes is not None:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            one.settimeout(SECONDS_MAX)
            one.connect(address)
        yield sockets


def flood(
    sockets: list[socket.socket],
    frame: bytes,
    is_over: Callable[[], bool],
    *,
    pipelined: int = 1,
    reads: bool = True,
    lost_max: int = 1 << 30,
) -> int:
    """Send a frame on all sockets again and again; return how many were disconnected.

    `pipelined` requests are in flight on each connection at a time; if responses are not read,
    as many as the connection takes.
    """
    lost = 0
    with selectors.DefaultSelector() as selector:
        for one in sockets:
            one.setblocking(False)
            wanted = selectors.EVENT_WRITE | (selectors.EVENT_READ if reads else 0)
            selector.register(one, wanted, _Flooding(frame, pipelined if reads else 1 << 40))
        while selector.get_map() and lost < lost_max and not is_over():
            for key, events in selector.select(0.05):
                lost += not _go_on(selector, key, events, reads=reads)
    return lost


def _go_on(
    selector: selectors.BaseSelector, key: selectors.SelectorKey, events: int, *, reads: bool
) -> bool:
    """Send and read on one connection; False if the broker has hung up."""
    flooding: _Flooding = key.data
    sock: Any = key.fileobj
    try:
        flooding.go_on(sock, events)
    except OSError:
        selector.unregister(sock)
        return False
    wanted = selectors.EVENT_READ if reads else 0
    wanted |= selectors.EVENT_WRITE if flooding.may_send else 0
    selector.modify(sock, wanted, flooding)
    return True


class _Flooding:
    """One connection's share in a flood."""

    def __init__(self, frame: bytes, pipelined: int) -> None:
        self._frame = memoryview(frame)
        self._sent = 0
        self._in_flight = 0
        self._pipelined = pipelined
        self._size_left = 0
        self._head = b""

    @property
    def may_send(self) -> bool:
        return self._in_flight < self._pipelined or self._sent > 0

    def go_on(self, sock: socket.socket, events: int) -> None:
        if events & selectors.EVENT_READ:
            self._read(sock)
        if events & selectors.EVENT_WRITE and self.may_send:
            if not self._sent:
                self._in_flight += 1
            with suppress(BlockingIOError):
                self._sent += sock.send(self._frame[self._sent : self._sent + (1 << 18)])
            if self._sent == len(self._frame):
                self._sent = 0

    def _read(self, sock: socket.socket) -> None:
        data = sock.recv(1 << 18)
        if not data:
            raise ConnectionResetError
        while data:
            if self._size_left:
                taken = min(self._size_left, len(data))
                self._size_left -= taken
                data = data[taken:]
            else:
                need = 4 - len(self._head)
                self._head += data[:need]
                data = data[need:]
                if len(self._head) == 4:
                    (self._size_left,) = struct.unpack(">i", self._head)
                    self._head = b""
                    self._in_flight -= 1
