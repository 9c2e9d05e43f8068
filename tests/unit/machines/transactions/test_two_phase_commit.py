"""Two-phase commit (KIP-939): transactions that an external coordinator ends."""

import pytest

from ottla.machines.transactions.producer_ids import EPOCH_MAX, LAST_EPOCH_GIVEN, Producer
from ottla.machines.transactions.transaction import State
from ottla.model.error_code import ErrorCode
from tests.unit.machines.transactions.host import DAY_MS, P0, P1, TIMEOUT_MS, Host


def prepared() -> tuple[Host, Producer]:
    """Let a producer prepare a transaction, and die before it learns the decision."""
    host = Host(transaction_two_phase_commit_enable=True)
    producer = host.init(enable2_pc=True)
    host.add(producer, P0, P1)
    return host, producer


def keep(host: Host) -> tuple[Producer, Producer]:
    """Initialize its successor; return the successor, and the producer of the open transaction."""
    response = host.init_response(enable2_pc=True, keep_prepared_txn=True)
    assert response.error_code == ErrorCode.NONE
    ongoing = Producer(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
    return Producer(response.producer_id, response.producer_epoch), ongoing


def test_a_prepared_transaction_has_all_the_time_in_the_world() -> None:
    host, _ = prepared()
    host.pass_ms(30 * DAY_MS)
    assert host.transaction().state is State.ONGOING


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_successor_ends_it_either_way(committed: bool, is_reloaded: bool) -> None:
    host, producer = prepared()
    successor, ongoing = keep(host)
    assert (successor, ongoing) == (Producer(producer.producer_id, 1), producer)
    if is_reloaded:
        host.reload()
    told = host.end(successor, committed=committed)
    assert told == Producer(producer.producer_id, 2)
    (owed,) = host.owed
    assert (owed.producer, owed.is_commit, owed.partitions) == (told, committed, (P0, P1))
    assert host.end_error(successor, committed=committed) is ErrorCode.CONCURRENT_TRANSACTIONS
    host.mark_all()
    assert host.end(successor, committed=committed) == told
    assert host.add(told, P0) is ErrorCode.NONE


def test_the_producer_that_wrote_it_is_fenced() -> None:
    host, producer = prepared()
    successor, _ = keep(host)
    assert host.end_error(producer) is ErrorCode.PRODUCER_FENCED
    assert host.verify(producer, P0) is ErrorCode.PRODUCER_FENCED
    assert host.add(producer, P0) is ErrorCode.PRODUCER_FENCED
    assert host.init_error(expected=producer) is ErrorCode.PRODUCER_FENCED
    assert host.verify(successor, P0) is ErrorCode.INVALID_TXN_STATE, "it may end it, not go on"
    assert host.add(successor, P0) is ErrorCode.INVALID_TXN_STATE


def test_a_second_successor_fences_the_first() -> None:
    host, producer = prepared()
    first, _ = keep(host)
    second, ongoing = keep(host)
    assert (second.epoch, ongoing) == (2, producer)
    assert host.end_error(first) is ErrorCode.PRODUCER_FENCED
    assert host.end(second).epoch == 3


def test_a_successor_that_keeps_nothing_aborts_it() -> None:
    host, producer = prepared()
    keep(host)
    assert host.init_error() is ErrorCode.CONCURRENT_TRANSACTIONS
    (owed,) = host.owed
    assert (owed.producer, owed.is_commit) == (Producer(producer.producer_id, 2), False)
    host.mark_all()
    assert host.init() == Producer(producer.producer_id, 3)


def test_without_a_transaction_there_is_nothing_to_keep() -> None:
    host = Host()
    producer = host.init()
    response = host.init_response(keep_prepared_txn=True)
    assert response.producer_epoch == producer.epoch + 1
    assert (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch) == (-1, -1)


def test_a_prepared_transaction_cannot_be_kept() -> None:
    host, producer = prepared()
    host.end(producer)
    assert host.init_error(keep_prepared_txn=True) is ErrorCode.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize("committed", [True, False])
def test_when_epochs_are_used_up_the_successor_has_another_id(committed: bool) -> None:
    host = Host(transaction_two_phase_commit_enable=True)
    producer = host.go_to_epoch(LAST_EPOCH_GIVEN)
    host.add(producer, P0)
    successor, ongoing = keep(host)
    assert (successor, ongoing) == (Producer(1002, 0), producer)
    host.reload()
    told = host.end(successor, committed=committed)
    assert told == Producer(1002, 1)
    (owed,) = host.owed
    assert owed.producer == Producer(producer.producer_id, EPOCH_MAX), "in whose partitions it is"
    host.reload()
    host.mark_all()
    host.reload()
    assert host.end(successor, committed=committed) == told
    assert host.transaction().producer == told


def test_a_successor_with_another_id_can_be_fenced_too() -> None:
    host = Host()
    producer = host.go_to_epoch(LAST_EPOCH_GIVEN)
    host.add(producer, P0)
    keep_response = host.init_response(keep_prepared_txn=True)
    assert keep_response.producer_id == 1002
    host.pass_ms(TIMEOUT_MS + 10_001)
    (owed,) = host.owed
    assert owed.producer == Producer(producer.producer_id, EPOCH_MAX)
    host.mark_all()
    assert host.transaction().holder == Producer(1002, 1)
    assert host.end_error(Producer(1002, 0)) is ErrorCode.INVALID_TXN_STATE


def test_a_client_of_the_first_version_can_end_a_kept_transaction() -> None:
    host, _ = prepared()
    successor, _ = keep(host)
    host.end(successor, version=4)
    assert host.owed[0].producer == successor
    host.mark_all()
    assert host.transaction().holder == successor


def test_keeping_needs_a_cluster_of_the_second_version() -> None:
    host = Host(level=1)
    host.add(host.init(), P0, version=3)
    assert host.init_error(keep_prepared_txn=True) is ErrorCode.UNSUPPORTED_VERSION
    assert host.transaction().state is State.ONGOING


def test_a_kept_transaction_never_gets_a_shorter_timeout() -> None:
    host, _ = prepared()
    host.init_response(keep_prepared_txn=True, timeout_ms=1_000)
    host.pass_ms(DAY_MS)
    assert host.transaction().state is State.ONGOING
