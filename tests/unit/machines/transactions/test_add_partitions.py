"""AddPartitionsToTxn and AddOffsetsToTxn: by producers, by leaders, and to verify (KIP-890)."""

import pytest

from ottla.machines.transactions.producer_ids import Producer
from ottla.machines.transactions.transaction import State
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.unit.machines.transactions.host import ID, P0, P1, P2, Host

OFFSETS = TopicPartition("__consumer_offsets", 7)


def test_the_first_partition_begins_a_transaction_and_others_join_it() -> None:
    host = Host()
    producer = host.init()
    began_ms = host.wall_ms
    assert host.add(producer, P0) is ErrorCode.NONE
    host.wall_ms += 50
    assert host.add(producer, P1, P2) is ErrorCode.NONE
    found = host.transaction()
    assert (found.state, found.partitions) == (State.ONGOING, (P0, P1, P2))
    assert (found.start_ms, found.update_ms) == (began_ms, began_ms + 50)


def test_a_partition_that_is_enlisted_already_needs_no_record() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0, P1)
    count = len(host.log)
    assert host.add(producer, P1) is ErrorCode.NONE
    assert len(host.log) == count


def test_offsets_are_a_partition_like_others() -> None:
    host = Host()
    producer = host.init()
    assert host.add_offsets(producer, OFFSETS) is ErrorCode.NONE
    assert host.transaction().partitions == (OFFSETS,)
    host.init_error()
    assert host.add_offsets(producer, OFFSETS) is ErrorCode.PRODUCER_FENCED
    assert host.add_offsets(producer, OFFSETS, version=1) is ErrorCode.INVALID_PRODUCER_EPOCH


@pytest.mark.parametrize(("version", "client_version"), [(3, 0), (4, 2), (5, 2)])
def test_brokers_add_in_the_second_version_of_transactions(
    version: int, client_version: int
) -> None:
    host = Host()
    host.add(host.init(), P0, version=version)
    assert host.transaction().client_version == client_version


@pytest.mark.parametrize("verify_only", [False, True])
def test_only_the_current_producer_may_ask(verify_only: bool) -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)

    def ask(asker: Producer, version: int = 5, transactional_id: str = "copier") -> ErrorCode:
        return host.add(
            asker,
            P0,
            verify_only=verify_only,
            version=version,
            transactional_id=transactional_id,
        )

    assert ask(producer) is ErrorCode.NONE
    assert ask(Producer(99, 0)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert ask(producer._replace(epoch=1)) is ErrorCode.PRODUCER_FENCED
    assert ask(producer._replace(epoch=1), version=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert ask(producer, transactional_id="nobody") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert ask(producer, transactional_id="") is ErrorCode.INVALID_REQUEST
    told = host.end(producer)
    assert ask(producer) is ErrorCode.PRODUCER_FENCED
    assert ask(told) is ErrorCode.CONCURRENT_TRANSACTIONS, "its markers are owed"


def test_verifying_adds_nothing() -> None:
    host = Host()
    producer = host.init()
    assert host.verify(producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    host.add(producer, P0)
    count = len(host.log)
    assert host.verify(producer, P0) is ErrorCode.NONE
    assert host.verify(producer, P1) is ErrorCode.TRANSACTION_ABORTABLE
    assert host.verify(producer, P1, version=4) is ErrorCode.INVALID_TXN_STATE
    assert len(host.log) == count


def test_a_late_batch_finds_its_partition_in_no_transaction_of_the_first_version() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0, version=3)
    host.end(producer, version=4)
    host.mark_all()
    assert host.verify(producer, P0) is ErrorCode.TRANSACTION_ABORTABLE
    host.add(producer, P1, version=3)
    assert host.verify(producer, P0) is ErrorCode.TRANSACTION_ABORTABLE


def test_a_late_addition_does_not_join_the_next_transaction() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    told = host.end(producer)
    host.mark_all()
    assert host.add(producer, P1) is ErrorCode.PRODUCER_FENCED
    host.add(told, P2)
    assert host.add(producer, P1) is ErrorCode.PRODUCER_FENCED
    assert host.transaction().partitions == (P2,)


def test_every_partition_has_its_own_answer() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    wanted = AddPartitionsToTxnTransaction(
        transactional_id=ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name=P0.topic, partitions=[1, 0])],
    )
    result = host.run(host.machine.decide_add_partitions(wanted, 5, host.now))
    rows = result.topic_results[0].results_by_partition
    assert [(row.partition_index, row.partition_error_code) for row in rows] == [
        (1, ErrorCode.TRANSACTION_ABORTABLE),
        (0, ErrorCode.NONE),
    ]
