"""The __transaction_state topic, created as in Kafka."""

from ottla.broker.coordinators.consumer_offsets_topic import partition_of_group
from ottla.broker.coordinators.transaction_state_topic import (
    TransactionStateTopic,
    partition_of_transaction,
)


def test_the_topic_is_compacted_uncompressed_and_without_unclean_elections() -> None:
    wanted = TransactionStateTopic(50, 100 << 20, 3, 2).wanted()
    assert (wanted.name, wanted.num_partitions) == ("__transaction_state", 50)
    assert wanted.replication_factor == 3
    assert {config.name: config.value for config in wanted.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }


def test_transactions_are_placed_as_groups_are() -> None:
    assert partition_of_transaction("copier", 50) == partition_of_group("copier", 50)
