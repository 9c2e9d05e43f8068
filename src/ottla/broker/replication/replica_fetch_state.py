"""A follower's position in one partition, and the position that its leader knows."""

from typing import Final, NamedTuple

from ottla.model.identifiers import LeaderEpoch, Offset
from ottla.replication.follower import next_fetch
from ottla.replication.partition import Partition
from ottla.rpc.fetch_session import PartitionKey
from ottla.wire.messages.fetch import FetchPartition

FIRST_BACKOFF_MS: Final = 20
"""Doubled with each refusal, up to `replica.fetch.backoff.ms`."""
_DOUBLINGS_MAX: Final = 30


def key_of(partition: Partition) -> PartitionKey:
    """Return the name of a partition in requests and responses."""
    return PartitionKey(partition.topic_id, partition.name.partition)


class Asked(NamedTuple):
    """The request for the partition; a response fits only this state."""

    offset: Offset
    last_fetched_epoch: LeaderEpoch
    leader_epoch: LeaderEpoch


class FetchPosition:
    """One partition that is being followed."""

    __slots__ = ("asked", "is_caught_up", "partition", "refusals", "retry_ms")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.asked: Asked | None = None
        """The last request for the partition; None if there was none, or it has no response."""
        self.retry_ms: int | None = None
        """When to try again, if the leader has refused."""
        self.refusals = 0
        """The number of errors from the leader since its last success."""
        self.is_caught_up = False
        """Whether all committed records were here, by the last response."""

    @property
    def key(self) -> PartitionKey:
        """Its name in requests and responses."""
        return key_of(self.partition)

    @property
    def has_nothing(self) -> bool:
        """Whether the log is empty, and no former epoch is known."""
        log = self.partition.log
        return log.log_start_offset == log.end_offset and log.epochs.latest_epoch is None

    def refuse(self, now_ms: int, backoff_ms: int) -> None:
        """Wait before the next try: at first briefly, because the leader may be about to lead."""
        delay_ms = min(FIRST_BACKOFF_MS << min(self.refusals, _DOUBLINGS_MAX), backoff_ms)
        self.refusals += 1
        self.retry_ms = now_ms + delay_ms

    def is_answered(self) -> bool:
        """Return whether a response fits the present state: same leader epoch, same log end."""
        partition, asked = self.partition, self.asked
        return (
            asked is not None
            and partition.in_sync is None
            and asked.leader_epoch == partition.leader_epoch
            and asked.offset == partition.log.end_offset
        )

    def ask(self, bytes_max: int) -> FetchPartition:
        """Return the request for the partition, and remember it."""
        partition = self.partition
        offset, epoch = next_fetch(partition.log)
        self.asked = Asked(offset, epoch, partition.leader_epoch)
        return FetchPartition(
            partition=partition.name.partition,
            current_leader_epoch=partition.leader_epoch,
            fetch_offset=offset,
            last_fetched_epoch=epoch,
            log_start_offset=partition.log.log_start_offset,
            partition_max_bytes=bytes_max,
        )
