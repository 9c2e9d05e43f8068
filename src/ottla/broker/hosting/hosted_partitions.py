"""The partitions that this broker keeps, found by name or by topic id."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from ottla.metadata.image import ClusterImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition, Traffic

_NOTHING_KNOWN: Final = ClusterImage("")


class HostedPartitions:
    """All partitions here."""

    def __init__(self) -> None:
        self.image = _NOTHING_KNOWN
        """The metadata that the partitions follow; it may be about to be published."""
        self._by_name: dict[TopicPartition, Partition] = {}
        self._topic_by_id: dict[bytes, str] = {}
        self._count_by_id: Counter[bytes] = Counter()
        self.offline: dict[TopicPartition, str] = {}
        """This broker's replicas with unusable logs, with the reasons."""
        self.being_made: set[TopicPartition] = set()
        """Replicas with logs under creation. An early fetch waits instead of failing."""
        self.past_traffic = Traffic()
        """Of partitions that are here no longer."""

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def add(self, partition: Partition) -> None:
        """Keep a partition from now on."""
        assert partition.name not in self._by_name, partition.name
        self.offline.pop(partition.name, None)
        self._by_name[partition.name] = partition
        self._count_by_id[partition.topic_id] += 1
        self._topic_by_id[partition.topic_id] = partition.name.topic

    def remove(self, name: TopicPartition) -> Partition:
        """Keep a partition no longer."""
        partition = self._by_name.pop(name)
        self.past_traffic.add(partition.traffic)
        self._count_by_id[partition.topic_id] -= 1
        if not self._count_by_id[partition.topic_id]:
            del self._count_by_id[partition.topic_id]
            del self._topic_by_id[partition.topic_id]
        return partition

    def find(self, name: TopicPartition) -> Partition | None:
        """Return a partition if it is here."""
        return self._by_name.get(name)

    def get(self, name: TopicPartition) -> Partition:
        """Return a partition; ApiError if it is not here.

        KAFKA_STORAGE_ERROR if its disk has failed. NOT_LEADER_OR_FOLLOWER if it is on other
        brokers, and UNKNOWN_TOPIC_OR_PARTITION if it is on none, or its log is under creation here.
        """
        partition = self._by_name.get(name)
        if partition is None:
            raise self._absence(name)
        return partition

    def _absence(self, name: TopicPartition) -> ApiError:
        if name in self.offline:
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, self.offline[name])
        topic = self.image.topics.get(name.topic)
        is_known = topic is not None and topic.partition(name.partition) is not None
        if not is_known or name in self.being_made:
            return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(name))
        return ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is not kept here")

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, hosted here or not."""
        name = self._topic_by_id.get(topic_id)
        if name is None:
            topic = self.image.topics_by_id.get(topic_id)
            name = None if topic is None else topic.name
        return name
