"""The topic that keeps the groups, and which of its partitions keeps which group."""

from dataclasses import dataclass

from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC, partition_of_name
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig


@dataclass(frozen=True, slots=True)
class ConsumerOffsetsTopic:
    """The settings of `__consumer_offsets` at its creation."""

    partition_count: int
    segment_bytes: int
    replication_factor: int = 1

    def wanted(self) -> CreatableTopic:
        """Return the request for the controller."""
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(self.segment_bytes),
        }
        return CreatableTopic(
            name=CONSUMER_OFFSETS_TOPIC,
            num_partitions=self.partition_count,
            replication_factor=self.replication_factor,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in settings.items()],
        )


def partition_of_group(group_id: str, partition_count: int) -> int:
    """Return the number of the partition that keeps a group, as Kafka finds it."""
    return partition_of_name(group_id, partition_count)
