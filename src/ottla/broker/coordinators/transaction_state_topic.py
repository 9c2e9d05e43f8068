"""The topic that keeps the transactions, and which of its partitions keeps which."""

from dataclasses import dataclass

from ottla.model.topic_names import TRANSACTION_STATE_TOPIC, partition_of_name
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig


@dataclass(frozen=True, slots=True)
class TransactionStateTopic:
    """The settings of `__transaction_state` at its creation."""

    partition_count: int
    segment_bytes: int
    replication_factor: int = 1
    min_in_sync_replicas: int = 1

    def wanted(self) -> CreatableTopic:
        """Return the request for the controller."""
        settings = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(self.min_in_sync_replicas),
            "segment.bytes": str(self.segment_bytes),
            "unclean.leader.election.enable": "false",
        }
        return CreatableTopic(
            name=TRANSACTION_STATE_TOPIC,
            num_partitions=self.partition_count,
            replication_factor=self.replication_factor,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in settings.items()],
        )


def partition_of_transaction(transactional_id: str, partition_count: int) -> int:
    """Return the number of the partition that keeps a transactional id, as Kafka finds it."""
    return partition_of_name(transactional_id, partition_count)
