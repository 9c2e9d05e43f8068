"""The errors of a consumer: each names the partition and the remedy."""

from collections.abc import Iterable, Mapping

from ottla.clients.records.serializers import MissingSchemaError
from ottla.model.api_error import ApiError, PicklableError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition


class ConsumerError(PicklableError):
    """Errors that only a consumer raises, besides ApiError and the network's errors."""


class NotAssignedError(ConsumerError):
    """A partition that this consumer does not read."""


class WakeupError(ConsumerError):
    """`wakeup()` was called during this call, or before it."""


class ConcurrentUseError(ConsumerError):
    """Two threads use one consumer at the same time. Only `wakeup()` may come from another."""


class NoOffsetForPartitionError(ConsumerError):
    """There is no position to start from, and auto.offset.reset is none: seek to one."""

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.partitions = tuple(partitions)
        names = ", ".join(map(str, self.partitions))
        super().__init__(f"no offset to start from in {names}, and auto.offset.reset is none: seek")


class OffsetOutOfRangeError(ApiError):
    """The log does not contain the offset, and auto.offset.reset is none: seek to another."""

    def __init__(self, offset_by_partition: Mapping[TopicPartition, int]) -> None:
        self.offset_by_partition = dict(offset_by_partition)
        named = ", ".join(f"{offset} in {name}" for name, offset in offset_by_partition.items())
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"{named}, and auto.offset.reset is none: seek"
        )


class LogTruncationError(OffsetOutOfRangeError):
    """The log was truncated below the position: consumed records have been replaced by others.

    `diverged_at` is the first offset that may differ, None if the leader does not know.
    """

    def __init__(self, partition: TopicPartition, offset: int, diverged_at: int | None) -> None:
        super().__init__({partition: offset})
        self.partition = partition
        self.offset = offset
        self.diverged_at = diverged_at
        where = "at an offset that is not known" if diverged_at is None else f"at {diverged_at}"
        self.args = (
            f"{partition}: read up to {offset}, but the log was truncated {where}; seek to go on",
        )


class RecordError(ConsumerError):
    """A record that cannot be read. The position stays at it: `seek` past it to go on."""

    def __init__(
        self, partition: TopicPartition, offset: int, reason: str, next_offset: int
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.next_offset = next_offset
        super().__init__(
            f"{partition} offset {offset}: {reason}; to leave it out, "
            f"seek(TopicPartition({partition.topic!r}, {partition.partition}), {next_offset})"
        )


class CorruptRecordError(RecordError):
    """The checksum does not match, or the bytes are not a record."""


class DeserializationError(RecordError):
    """The deserializer does not accept the key or the value."""


class SchemaNeededError(RecordError):
    """The record's schema is not known yet: poll fetches it, and reads the record again."""

    def __init__(self, partition: TopicPartition, offset: int, missing: MissingSchemaError) -> None:
        super().__init__(partition, offset, str(missing), offset + 1)
        self.fetch = missing.fetch
