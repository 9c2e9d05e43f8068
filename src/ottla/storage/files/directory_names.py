"""The names of the directories in a log dir, as in Kafka.

    orders-3                           a partition
    orders-3.<32 hex digits>-future    a future replica, while it moves here from another log dir
    orders-3.<32 hex digits>-delete    a deleted partition, whose files are removed soon
    orders-3.<32 hex digits>-stray     a partition of no known topic, kept for the operator

A name that exceeds the filesystem's limit has its topic part truncated.
"""

import re
from collections.abc import Iterator
from itertools import count
from typing import Final

from ottla.model.identifiers import TopicPartition
from ottla.model.topic_names import CLUSTER_METADATA_TOPIC

NAME_CHARACTERS_MAX: Final = 255
LOCK_FILE: Final = ".lock"

_PARTITION: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-([0-9]{1,10})")
_FUTURE: Final = re.compile(rf"{_PARTITION.pattern}\.[0-9a-f]{{32}}-future")
_DELETED: Final = re.compile(r".+-[0-9]{1,10}\.[0-9a-f]{32}-delete")


def partition_of(name: str) -> TopicPartition | None:
    """Return the partition of a directory's name; None for the metadata log."""
    match = _PARTITION.fullmatch(name)
    if match is None or match[1] == CLUSTER_METADATA_TOPIC:
        return None
    return TopicPartition(match[1], int(match[2]))


def future_of(name: str) -> TopicPartition | None:
    """Return the partition whose future replica has this directory name."""
    match = _FUTURE.fullmatch(name)
    return None if match is None else TopicPartition(match[1], int(match[2]))


def is_deleted(name: str) -> bool:
    """Return whether this is the directory of a deleted partition."""
    return _DELETED.fullmatch(name) is not None


def future_name(partition: TopicPartition, mark: bytes) -> str | None:
    """Return the name of a future replica, with the whole topic; None if that is too long."""
    name = _marked(str(partition), mark, "-future")
    return name if len(name) <= NAME_CHARACTERS_MAX else None


def deleted_name(partition: TopicPartition, mark: bytes) -> str:
    """Return the name under which a deleted partition waits for its end."""
    return _cut(partition, mark, "-delete")


def stray_names(partition: TopicPartition, mark: bytes) -> Iterator[str]:
    """Go through names under which a partition of no topic can be set aside, the best one first."""
    for number in count(int.from_bytes(mark)):
        yield _cut(partition, (number % (1 << 128)).to_bytes(16), "-stray")


def _cut(partition: TopicPartition, mark: bytes, suffix: str) -> str:
    rest = _marked(f"-{partition.partition}", mark, suffix)
    return partition.topic[: NAME_CHARACTERS_MAX - len(rest)] + rest


def _marked(name: str, mark: bytes, suffix: str) -> str:
    return f"{name}.{mark.hex()}{suffix}"
