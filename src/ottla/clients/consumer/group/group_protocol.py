"""The interface between a consumer and its group membership."""

from collections.abc import Callable, Collection, Mapping
from operator import index
from typing import Any, NamedTuple, Protocol

from ottla.clients.consumer.state.subscription import Position
from ottla.model.identifiers import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next offset to read, its leader epoch, and free text."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupSide(Protocol):
    """A group membership. Consumers without group.id have none.

    All methods but `is_due` and `rebalance_count` must be called on the event loop's thread.
    Deadlines use the loop's clock. The assignment changes only through SubscriptionState, which the
    fetcher follows.
    """

    @property
    def rebalance_count(self) -> int:
        """The number of rebalances in which this member received an assignment."""
        ...

    def is_due(self) -> bool:
        """Whether `before_poll` has something to do. Cheap, from any thread, called at every poll.

        Each call also records that the application is alive (max.poll.interval.ms).
        """
        ...

    async def before_poll(self) -> None:
        """Do the due work: join, rejoin, call listeners, commit automatically.

        It blocks only on listeners. Background work that makes it due again while a poll waits for
        records must call the `wake` callback of the membership.
        """
        ...

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the group's committed offsets; partitions without a commit are left out."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit, within default.api.timeout.ms."""
        ...

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_commit: Callable[[Any, Exception | None], object] | None,
    ) -> None:
        """Start a commit; a later `before_poll`, or `close`, calls the callback."""
        ...

    def set_auto_commit(self, *, is_wanted: bool) -> bool:
        """Enable or disable automatic commits; return the former value."""
        ...

    def enforce_rebalance(self, reason: str) -> None:
        """Rejoin with the next poll, unless the member is joining already."""
        ...

    async def unsubscribe(self) -> None:
        """Leave the group after the application has unsubscribed; listeners are called."""
        ...

    async def close(self, deadline: float) -> None:
        """Commit if auto-commit is on, call listeners, and leave the group unless static."""
        ...

    def group_metadata(self) -> Any:
        """Return the member's identity, for `send_offsets_to_transaction`."""
        ...


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
