"""A listener that speaks just enough of Kafka for librdkafka to show and to be shown record bytes.

One broker, one topic, one partition, over loopback. Only the versions of `VERSIONS_BY_MAGIC` are
spoken, all of them from before flexible encoding, so plain struct will do. Its one thread is joined
and its sockets are closed when the broker is left; nothing waits longer than `WAIT_SECONDS_MAX`.
"""

import select
import socket
import struct
import threading
from queue import Queue
from types import TracebackType
from typing import NamedTuple, Self

TOPIC = "vectors"
WAIT_SECONDS_MAX = 20.0
IDLE_SECONDS = 0.02

PRODUCE, FETCH, METADATA, FIND_COORDINATOR, API_VERSIONS = 0, 1, 3, 10, 18
COORDINATOR_NOT_AVAILABLE = 15
UNSUPPORTED_VERSION = 35

VERSIONS_BY_MAGIC = {
    0: {PRODUCE: (0, 1), FETCH: (0, 1), METADATA: (0, 0)},
    1: {PRODUCE: (0, 2), FETCH: (0, 2), METADATA: (0, 0)},
    2: {PRODUCE: (0, 7), FETCH: (0, 10), METADATA: (0, 1)},
}
"""The ApiVersions response of a broker of each message format. Clients take the newest."""


class Request(NamedTuple):
    """A request without its header."""

    version: int
    body: bytes


class LoopbackBroker:
    """Captures produced batches in `produced`, and serves `log`, offsets 0 to `end_offset`."""

    def __init__(self, *, magic: int = 2, log: bytes = b"", end_offset: int = 0) -> None:
        self.produced: Queue[bytes] = Queue()
        self._log = log
        self._end_offset = end_offset
        self._versions = VERSIONS_BY_MAGIC[magic] | {
            FIND_COORDINATOR: (0, 0),  # librdkafka takes it as the sign that LZ4 is known
            API_VERSIONS: (0, 0),
        }
        self._answers = {
            PRODUCE: self._produce,
            FETCH: self._fetch,
            METADATA: self._metadata,
            FIND_COORDINATOR: self._find_coordinator,
            API_VERSIONS: self._api_versions,
        }
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._listener.getsockname()[1]
        self._stop_asked, self._stop = socket.socketpair()
        self._buffers: dict[socket.socket, bytearray] = {}
        self._thread = threading.Thread(target=self._run)

    @property
    def address(self) -> str:
        """The bootstrap address."""
        return f"127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stop.close()
        self._thread.join(WAIT_SECONDS_MAX)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while True:
                watched = [self._stop_asked, self._listener, *self._buffers]
                readable, _, _ = select.select(watched, [], [], WAIT_SECONDS_MAX)
                if not readable or self._stop_asked in readable:
                    return
                for connection in readable:
                    self._serve(connection)
        finally:
            for open_socket in (self._stop_asked, self._listener, *self._buffers):
                open_socket.close()

    def _serve(self, connection: socket.socket) -> None:
        if connection is self._listener:
            accepted, _ = self._listener.accept()
            accepted.settimeout(WAIT_SECONDS_MAX)
            self._buffers[accepted] = bytearray()
            return
        try:
            received = connection.recv(1 << 20)
            self._buffers[connection] += received
            while frame := self._take_frame(self._buffers[connection]):
                connection.sendall(self._answer(frame))
        except OSError:
            received = b""
        if not received:
            del self._buffers[connection]
            connection.close()

    @staticmethod
    def _take_frame(buffer: bytearray) -> bytes:
        size_bytes = struct.unpack_from(">i", buffer)[0] if len(buffer) >= 4 else 0
        if not 0 < size_bytes <= len(buffer) - 4:
            return b""
        frame = bytes(buffer[4 : 4 + size_bytes])
        del buffer[: 4 + size_bytes]
        return frame

    def _answer(self, frame: bytes) -> bytes:
        api_key, version, correlation_id, length = struct.unpack_from(">hhih", frame)
        body = frame[10 + max(length, 0) :]  # the length is the client id's
        answer = struct.pack(">i", correlation_id)
        answer += self._answers[api_key](Request(version, body))
        return struct.pack(">i", len(answer)) + answer

    def _api_versions(self, request: Request) -> bytes:
        error = UNSUPPORTED_VERSION if request.version > 0 else 0
        rows = [struct.pack(">hhh", key, *span) for key, span in self._versions.items()]
        return struct.pack(">hi", error, len(rows)) + b"".join(rows)

    def _find_coordinator(self, request: Request) -> bytes:
        assert request.version == 0
        return struct.pack(">hi", COORDINATOR_NOT_AVAILABLE, -1) + string("") + bytes(4)

    def _metadata(self, request: Request) -> bytes:
        is_newer = request.version >= 1
        broker = struct.pack(">i", 0) + string("127.0.0.1") + struct.pack(">i", self._port)
        if is_newer:
            broker += struct.pack(">h", -1)  # no rack
        controller = struct.pack(">i", 0) if is_newer else b""
        is_internal = b"\0" if is_newer else b""
        partition = struct.pack(">hii", 0, 0, 0) + 2 * struct.pack(">ii", 1, 0)
        topic = struct.pack(">h", 0) + string(TOPIC) + is_internal + array(partition)
        return array(broker) + controller + array(topic)

    def _produce(self, request: Request) -> bytes:
        position = 0
        if request.version >= 3:
            (length,) = struct.unpack_from(">h", request.body)
            position = 2 + max(length, 0)  # the transactional id
        position += 2 + 4 + 4 + len(string(TOPIC)) + 4 + 4
        (size_bytes,) = struct.unpack_from(">i", request.body, position)
        self.produced.put(request.body[position + 4 :][:size_bytes])
        row = struct.pack(">ihq", 0, 0, 0)
        row += struct.pack(">q", -1) if request.version >= 2 else b""
        row += struct.pack(">q", 0) if request.version >= 5 else b""
        throttle = struct.pack(">i", 0) if request.version >= 1 else b""
        return self._topic(row) + throttle

    def _fetch(self, request: Request) -> bytes:
        offset = self._fetch_offset(request)
        records = self._log if offset is not None and offset < self._end_offset else b""
        if not records:
            select.select([self._stop_asked], [], [], IDLE_SECONDS)
        answer = struct.pack(">i", 0) if request.version >= 1 else b""  # throttle
        answer += struct.pack(">hi", 0, 0) if request.version >= 7 else b""  # error, session
        row = struct.pack(">ihq", 0, 0, self._end_offset)
        row += struct.pack(">q", self._end_offset) if request.version >= 4 else b""
        row += struct.pack(">q", 0) if request.version >= 5 else b""
        row += struct.pack(">i", -1) if request.version >= 4 else b""  # aborted transactions
        row += struct.pack(">i", len(records)) + records
        return answer + (array() if offset is None else self._topic(row))

    def _fetch_offset(self, request: Request) -> int | None:
        position = 12  # replica, wait and least size
        position += 4 if request.version >= 3 else 0  # most size
        position += 1 if request.version >= 4 else 0  # isolation
        position += 8 if request.version >= 7 else 0  # session
        (topic_count,) = struct.unpack_from(">i", request.body, position)
        if topic_count == 0:
            return None
        position += 4 + len(string(TOPIC)) + 4 + 4
        position += 4 if request.version >= 9 else 0  # leader epoch
        offset: int
        (offset,) = struct.unpack_from(">q", request.body, position)
        return offset

    @staticmethod
    def _topic(partition: bytes) -> bytes:
        return array(string(TOPIC) + array(partition))


def string(text: str) -> bytes:
    """Encode a string as the protocol's old versions do."""
    return struct.pack(">h", len(text)) + text.encode()


def array(*items: bytes) -> bytes:
    """Encode an array of items that are encoded already."""
    return struct.pack(">i", len(items)) + b"".join(items)
