"""Offsets to commit, and the member that commits them."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any, NamedTuple

from ottla.clients.consumer.state.subscription import Position
from ottla.model.identifiers import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next offset to read, its leader epoch, and free text."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The identity of a member, for a transactional producer that commits on its behalf.

    The result of `group_metadata()`, valid until the next rebalance.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def offset_of(given: Any) -> OffsetAndMetadata:
    """Convert a number to an OffsetAndMetadata; ValueError if it is negative."""
    try:
        found: OffsetAndMetadata = (
            given if hasattr(given, "offset") else OffsetAndMetadata(index(given))
        )
    except TypeError:
        raise TypeError(f"{given!r} is no offset") from None
    if found.offset < 0:
        raise ValueError(f"offset {found.offset}: offsets begin with 0")
    return found


def to_commit(
    consumed: Mapping[TopicPartition, Position],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Convert positions to offsets to commit."""
    return {
        name: OffsetAndMetadata(position.offset, position.leader_epoch)
        for name, position in consumed.items()
    }
