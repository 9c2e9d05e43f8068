"""Identifiers of partitions, and the text form of ids."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType

Offset = NewType("Offset", int)
"""The position of a record in a partition, or in the metadata log."""

LeaderEpoch = NewType("LeaderEpoch", int)
"""The number of leader changes of a partition; a record batch carries the epoch of its leader."""

BrokerId = NewType("BrokerId", int)
"""The node id of a broker."""

ProducerId = NewType("ProducerId", int)
"""The id that the cluster assigned to an idempotent or transactional producer."""

FIRST_OFFSET: Final = Offset(0)
"""The start of a partition before any of its records is deleted."""

NO_OFFSET: Final = Offset(-1)
"""Stands for an offset that does not exist, or is not known."""

ZERO_UUID = bytes(16)
"""The id that stands for "none". Ids are kept as their sixteen bytes."""


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def partitions_by_topic(
    partitions: Iterable[TopicPartition],
) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic, in their given order."""
    found: dict[str, list[TopicPartition]] = {}
    for name in partitions:
        found.setdefault(name.topic, []).append(name)
    return found


def numbers_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partition numbers by topic, in their given order."""
    found: dict[str, list[int]] = {}
    for name in sorted(partitions):
        found.setdefault(name.topic, []).append(name.partition)
    return found


def uuid_to_text(raw: bytes) -> str:
    """Write an id as Kafka does: twenty-two characters of URL-safe base64."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """Read an id that uuid_to_text wrote; ValueError for anything else."""
    raw = urlsafe_b64decode(text + "==") if text.isascii() and len(text) == 22 else b""
    if len(raw) != 16 or uuid_to_text(raw) != text:
        raise ValueError(f"{text!r} is not an id: expected 22 characters of URL-safe base64")
    return raw
