"""The partitions that this broker keeps, found by name or by topic id."""

from collections.abc import Iterator

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition


class Partitions:
    """All partitions here."""

    def __init__(self) -> None:
        self._by_name: dict[TopicPartition, Partition] = {}
        self._topic_by_id: dict[bytes, str] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def add(self, partition: Partition) -> None:
        """Keep a partition from now on."""
        self._by_name[partition.name] = partition
        self._topic_by_id[partition.topic_id] = partition.name.topic

    def remove(self, name: TopicPartition) -> Partition:
        """Keep a partition no longer."""
        partition = self._by_name.pop(name)
        if not any(other.topic == name.topic for other in self._by_name):
            self._topic_by_id.pop(partition.topic_id, None)
        return partition

    def find(self, name: TopicPartition) -> Partition | None:
        """Return a partition if it is here."""
        return self._by_name.get(name)

    def get(self, name: TopicPartition) -> Partition:
        """Return a partition; ApiError UNKNOWN_TOPIC_OR_PARTITION if it is not here."""
        partition = self._by_name.get(name)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(name))
        return partition

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic of which a partition is here."""
        return self._topic_by_id.get(topic_id)
