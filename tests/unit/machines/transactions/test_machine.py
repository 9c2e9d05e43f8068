"""The machine and its log: replay restores the complete state."""

import pytest

from ottla.machines.transactions.producer_ids import Producer
from ottla.machines.transactions.records import TransactionRecord
from ottla.machines.transactions.transaction import State, Transaction
from ottla.model.error_code import ErrorCode
from ottla.wire.coordinator_records.classic_group import GroupMetadataKey
from ottla.wire.coordinator_records.transaction_state import TransactionLogKey, TransactionLogValue
from ottla.wire.messages.end_txn import EndTxnRequest
from tests.unit.machines.transactions.host import ID, P0, P1, Host


def test_deciding_changes_nothing() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    before = host.transaction()
    request = EndTxnRequest(
        transactional_id=ID,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        committed=True,
    )
    decision = host.machine.decide_end(request, 5, None, host.now)
    assert decision.records
    assert host.transaction() == before
    assert host.machine.take_markers() == ()


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_reload_knows_all_that_was_known(level: int) -> None:
    host = Host(level)
    producer = host.init()
    host.init("another")
    for committed in (True, False):
        host.add(producer, P0, P1)
        producer = max(host.end(producer, committed=committed), producer)
        before = host.transaction()
        host.reload()
        assert host.transaction() == before
        host.mark_all()
        before = host.transaction()
        host.reload()
        assert host.transaction() == before
    assert host.machine.transactional_ids() == [ID, "another"]


def test_markers_are_taken_once() -> None:
    host = Host()
    producer = host.init()
    host.add(producer, P0)
    host.end(producer)
    assert len(host.owed) == 1
    assert host.machine.take_markers() == ()


def test_what_is_no_transaction_is_passed_over() -> None:
    host = Host()
    host.machine.replay(GroupMetadataKey(group="g"), None)
    host.machine.replay(
        TransactionLogKey(transactional_id=ID), TransactionLogValue(transaction_status=99)
    )
    host.machine.replay(
        TransactionLogKey(transactional_id="dead"), TransactionLogValue(transaction_status=6)
    )
    assert host.machine.transactional_ids() == []


def test_a_cluster_goes_on_to_the_second_version_between_transactions() -> None:
    host = Host(level=0)
    producer = host.init()
    host.add(producer, P0, version=3)
    host.end(producer, version=4)
    host.machine.use_level(2)
    host.level = 2
    assert host.end_error(producer, version=5) is ErrorCode.CONCURRENT_TRANSACTIONS
    host.mark_all()
    host.add(producer, P0)
    assert host.end(producer) == Producer(producer.producer_id, 1)


def test_a_record_of_kafkas_without_who_came_before_goes_on_where_it_was() -> None:
    host = Host()
    value = TransactionLogValue(
        producer_id=5,
        producer_epoch=8,
        transaction_timeout_ms=1_000,
        transaction_status=4,
        transaction_partitions=[],
        client_transaction_version=2,
    )
    host.machine.replay(TransactionLogKey(transactional_id=ID), value)
    assert host.end(Producer(5, 7)) == Producer(5, 8), "the answer was lost"
    assert host.init_error(expected=Producer(5, 7)) is ErrorCode.PRODUCER_FENCED
    assert host.add(Producer(5, 8), P0) is ErrorCode.NONE
    assert host.transaction().state is State.ONGOING


@pytest.mark.parametrize(
    "wrong",
    [
        Transaction(ID, Producer(7, 3), 1_000, 60, State.COMPLETE_COMMIT),
        Transaction(ID, Producer(7, 2), 1_000, 60, State.ONGOING),
        None,
    ],
)
def test_a_decision_that_breaks_the_rules_of_a_transaction_is_not_replayed(
    wrong: Transaction | None,
) -> None:
    machine = Host().machine
    begun = Transaction(ID, Producer(7, 3), 1_000, 50, State.ONGOING, partitions=(P0,))
    machine.take(TransactionRecord(ID, begun, 1))
    with pytest.raises(AssertionError):
        machine.take(TransactionRecord(ID, wrong, 1))
    assert machine.transaction(ID) == begun
