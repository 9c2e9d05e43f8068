"""The metadata of a delivered record."""

from typing import Final, NamedTuple

UNKNOWN_OFFSET: Final = -1
"""The offset is unknown: there was no response (acks 0), or the record was a duplicate."""


class RecordMetadata(NamedTuple):
    """The position of a delivered record; the timestamp is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
