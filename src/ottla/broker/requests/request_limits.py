"""The limits of the requests of each API: bytes of the frame, array items, and memory.

A request may arrive before authentication, so its limits hold before anything is allocated: an
oversized frame is not received, and an oversized array is not read. The connection is closed, and a
log message names the limit. The limits are far above the needs of clients (decision 0039).
"""

from typing import Final, NamedTuple

from ottla.wire.api_key import ApiKey

SHORT_BYTES: Final = 2_048
"""A request in a smaller frame is handled at once. Larger ones share a time slice."""
SHORT_ITEMS: Final = 2_000
"""A message with at most so many array items is read, or written, in one piece: about 0.3 ms."""
LIST_BYTES_MAX: Final = 16 << 20
LIST_ITEMS_MAX: Final = 250_000
"""Partitions and topics in one request: 100,000 partitions in as many topics, and some more."""
CHANGE_ITEMS_MAX: Final = 20_000
"""For requests that are decided at once, or name the partitions of one leader. Offset commits are
decided in parts (`handlers/offset_commit.py`), and leave a record for each partition."""
OTHER_BYTES_MAX: Final = 4 << 20
OTHER_ITEMS_MAX: Final = 10_000
LOGGED_ITEMS_MAX: Final = 2_000
"""Where each item may leave a line in the log."""
DECODED_BYTES_MAX: Final = 64 << 20
"""The memory limit of a request besides its frame, as counted while it is decoded."""
DECODED_MULTIPLE: Final = 16
"""How many times its frame a request takes at most, as decision 0005 has it."""
SHORT_DECODED_BYTES: Final = 1 << 20
"""The approximate memory limit of a request with SHORT_ITEMS."""

WAITING_BYTES: Final = 8 << 10
"""The minimum memory of a waiting request: mostly its coroutines."""


class RequestLimits(NamedTuple):
    """The limits of one API."""

    frame_bytes_max: int | None
    """None stands for `socket.request.max.bytes`, which is a limit of all others, too."""
    items_max: int
    """Of all arrays in a request together, the inner ones included."""
    decoded_bytes_max: int = DECODED_BYTES_MAX

    @property
    def short_items_max(self) -> int:
        """How many items may be read in one piece."""
        return min(self.items_max, SHORT_ITEMS)

    def decoded_bytes(self, frame_bytes: int) -> int:
        """Return the memory limit of a request in this frame, besides the frame."""
        return min(DECODED_MULTIPLE * frame_bytes, self.decoded_bytes_max)


_RECORDS: Final = RequestLimits(None, CHANGE_ITEMS_MAX)
_LIST: Final = RequestLimits(LIST_BYTES_MAX, LIST_ITEMS_MAX)
_CHANGE: Final = RequestLimits(LIST_BYTES_MAX, CHANGE_ITEMS_MAX)
_LOGGED: Final = RequestLimits(OTHER_BYTES_MAX, LOGGED_ITEMS_MAX)
_OTHER: Final = RequestLimits(OTHER_BYTES_MAX, OTHER_ITEMS_MAX)
LIMITS_BY_API: Final[dict[int, RequestLimits]] = {
    ApiKey.PRODUCE: _RECORDS,
    ApiKey.FETCH: _CHANGE,
    ApiKey.LIST_OFFSETS: _LIST,
    ApiKey.METADATA: _LIST,
    ApiKey.OFFSET_FETCH: _LIST,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _LIST,
    ApiKey.DELETE_RECORDS: _CHANGE,
    ApiKey.DESCRIBE_PRODUCERS: _LIST,
    ApiKey.DESCRIBE_LOG_DIRS: _LIST,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _LIST,
    ApiKey.WRITE_TXN_MARKERS: _CHANGE,
    ApiKey.OFFSET_COMMIT: _CHANGE,
    ApiKey.TXN_OFFSET_COMMIT: _CHANGE,
    ApiKey.ADD_PARTITIONS_TO_TXN: _CHANGE,
    ApiKey.OFFSET_DELETE: _CHANGE,
    ApiKey.JOIN_GROUP: _CHANGE,
    ApiKey.SYNC_GROUP: _CHANGE,
    ApiKey.CREATE_TOPICS: _CHANGE,
    ApiKey.CREATE_PARTITIONS: _CHANGE,
    ApiKey.DELETE_TOPICS: _CHANGE,
    ApiKey.DESCRIBE_CONFIGS: _CHANGE,
    ApiKey.ALTER_CONFIGS: _CHANGE,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _CHANGE,
    ApiKey.ELECT_LEADERS: _CHANGE,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CHANGE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _CHANGE,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _LOGGED,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: _CHANGE,
    ApiKey.ALTER_PARTITION: _CHANGE,
    ApiKey.ENVELOPE: _CHANGE,
}


def limits_of(api_key: int) -> RequestLimits:
    """Return the limits of an API."""
    return LIMITS_BY_API.get(api_key, _OTHER)


def frame_bytes_max_of(api_key: int) -> int | None:
    """Return the limit of a request's frame; None if only the limit of all requests applies."""
    return limits_of(api_key).frame_bytes_max


def counted_bytes(frame: memoryview) -> int:
    """Return the memory charged for a request while it is handled.

    Records are not decoded; all other fields become objects. The extra memory of a large request
    is counted by `dispatch.py`.
    """
    size_bytes = len(frame)
    if size_bytes < 2 or frame[1] == ApiKey.PRODUCE:
        return size_bytes
    decoded_bytes = min(DECODED_MULTIPLE * size_bytes, SHORT_DECODED_BYTES)
    return size_bytes + decoded_bytes + WAITING_BYTES
