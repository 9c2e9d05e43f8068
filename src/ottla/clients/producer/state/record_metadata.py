"""Where a record landed."""

from typing import Final, NamedTuple

UNKNOWN_OFFSET: Final = -1
"""The broker did not say: nobody was to answer (acks 0), or a copy of the record came first."""


class RecordMetadata(NamedTuple):
    """What a broker said about a record that it took; timestamp is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
