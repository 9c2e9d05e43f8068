"""The topic that keeps the groups, and which of its partitions keeps which group."""

from dataclasses import dataclass

from ottla.model.topic_names import CONSUMER_OFFSETS_TOPIC
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig


@dataclass(frozen=True, slots=True)
class OffsetsTopic:
    """How `__consumer_offsets` is made."""

    partition_count: int
    segment_bytes: int
    replication_factor: int = 1

    def wanted(self) -> CreatableTopic:
        """Return what is asked of the controller."""
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
    return abs(_java_hash(group_id)) % partition_count


def _java_hash(text: str) -> int:
    """Return what Java's String.hashCode says, by which Kafka finds the partition of a group."""
    code = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    # Kafka's abs() maps the one number that has no positive twin to 0.
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else signed
