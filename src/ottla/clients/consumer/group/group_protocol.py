"""What a consumer asks of its group: the seam between reading and belonging to one."""

from collections.abc import Callable, Collection, Mapping
from operator import index
from typing import Any, NamedTuple, Protocol

from ottla.clients.consumer.state.subscription import Position
from ottla.model.identifiers import TopicPartition


class OffsetAndMetadata(NamedTuple):
    """What is committed for a partition: the next offset to read, and a note."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupSide(Protocol):
    """A membership. Consumers without group.id have none.

    All but `is_due` and `rebalance_count` are for the event loop's thread. Deadlines are the loop's
    time. What changes the assignment goes through SubscriptionState; the fetcher follows that.
    """

    @property
    def rebalance_count(self) -> int:
        """How often partitions were shared out, with this member taking part."""
        ...

    def is_due(self) -> bool:
        """Whether `before_poll` has something to do. Cheap, from any thread, at every poll.

        It also counts as a sign of life from the application (max.poll.interval.ms).
        """
        ...

    async def before_poll(self) -> None:
        """Join, rejoin, call listeners, commit automatically: whatever is due.

        It waits for listeners alone. Whatever makes it due again while a poll waits for records,
        as the end of what it has begun does, must call the `wake` that the membership was made
        with.
        """
        ...

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed, without those for which it has not."""
        ...

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit, within the time for a call."""
        ...

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        on_commit: Callable[[Any, Exception | None], object] | None,
    ) -> None:
        """Begin to commit; the callback is called by a later `before_poll`, or by `close`."""
        ...

    def set_auto_commit(self, *, is_wanted: bool) -> bool:
        """Commit automatically from now on, or no longer; return how it was before."""
        ...

    def enforce_rebalance(self, reason: str) -> None:
        """Join again with the next poll, unless that goes on already."""
        ...

    async def unsubscribe(self) -> None:
        """Leave: the application has given up its subscription; listeners are called."""
        ...

    async def close(self, deadline: float) -> None:
        """Commit if that is automatic, call listeners, leave the group unless it is static."""
        ...

    def group_metadata(self) -> Any:
        """Return what a transactional producer needs to commit for this member."""
        ...


def offset_of(given: Any) -> OffsetAndMetadata:
    """Return an offset that was given as such, or as a number; ValueError if it is negative."""
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
    """Return positions as what is committed for them."""
    return {
        name: OffsetAndMetadata(position.offset, position.leader_epoch)
        for name, position in consumed.items()
    }
