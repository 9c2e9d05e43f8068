"""InitProducerId: new producers fence old producers, which may recover (KIP-360, KIP-588)."""

import pytest

from ottla.machines.transactions.producer_ids import EPOCH_MAX, LAST_EPOCH_GIVEN, Producer
from ottla.machines.transactions.transaction import State
from ottla.model.error_code import ErrorCode
from tests.unit.machines.transactions.host import ID, P0, TIMEOUT_MS, Host


def test_the_first_producer_gets_a_new_id() -> None:
    host = Host()
    assert host.init() == Producer(1001, 0)
    assert host.init("another") == Producer(1002, 0)
    found = host.transaction()
    assert (found.state, found.timeout_ms, found.start_ms) == (State.EMPTY, TIMEOUT_MS, -1)


def test_the_next_producer_has_the_next_epoch_and_fences_the_former_producer() -> None:
    host = Host()
    first = host.init()
    second = host.init()
    assert second == Producer(first.producer_id, 1)
    assert host.add(first, P0) is ErrorCode.PRODUCER_FENCED
    assert host.end_error(first, committed=False) is ErrorCode.PRODUCER_FENCED
    assert host.init_error(expected=first) is ErrorCode.PRODUCER_FENCED
    assert host.add(second, P0) is ErrorCode.NONE


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_transaction_of_the_former_producer_is_aborted_first(level: int) -> None:
    host = Host(level)
    first = host.init()
    host.add(first, P0)
    assert host.init_error() is ErrorCode.CONCURRENT_TRANSACTIONS
    (owed,) = host.owed
    assert owed.producer == Producer(first.producer_id, 1)
    assert (owed.is_commit, owed.partitions) == (False, (P0,))
    assert owed.transaction_version == (2 if level == 2 else 0)
    assert host.init_error() is ErrorCode.CONCURRENT_TRANSACTIONS, "until the markers are there"
    host.mark_all()
    assert host.init() == Producer(first.producer_id, 2)


def test_a_producer_goes_on_after_an_error_with_the_next_epoch() -> None:
    host = Host()
    first = host.init()
    assert host.init(expected=first) == Producer(first.producer_id, 1)


@pytest.mark.parametrize("is_reloaded", [False, True])
def test_a_repeated_request_gets_the_same_response(is_reloaded: bool) -> None:
    host = Host()
    first = host.init()
    second = host.init(expected=first)
    if is_reloaded:
        host.reload()
    assert host.init(expected=first) == second
    assert host.init(expected=first) == second
    assert host.init(expected=second) == Producer(first.producer_id, 2)
    assert host.init_error(expected=first) is ErrorCode.PRODUCER_FENCED


def test_a_producer_cannot_recover_after_a_new_producer() -> None:
    host = Host()
    first = host.init()
    second = host.init(expected=first)
    host.init()
    assert host.init_error(expected=second) is ErrorCode.PRODUCER_FENCED
    assert host.init_error(expected=first) is ErrorCode.PRODUCER_FENCED


def test_older_clients_are_told_of_the_epoch_in_place_of_a_fence() -> None:
    host = Host()
    first = host.init()
    host.init()
    assert host.init_error(expected=first, version=3) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert host.init_error(expected=first, version=4) is ErrorCode.PRODUCER_FENCED


def test_a_late_recovery_does_not_abort_the_next_transaction() -> None:
    host = Host()
    first = host.init()
    second = host.init(expected=first)
    host.add(second, P0)
    assert host.init_error(expected=first) is ErrorCode.PRODUCER_FENCED
    assert host.transaction().state is State.ONGOING
    assert host.init_error(expected=second) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.transaction().state is State.PREPARE_ABORT


def test_a_producer_recovers_from_its_own_abort() -> None:
    host = Host()
    first = host.init()
    host.add(first, P0)
    assert host.init_error(expected=first) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.init_error(expected=first) is ErrorCode.CONCURRENT_TRANSACTIONS
    host.mark_all()
    assert host.init(expected=first) == Producer(first.producer_id, 1)


def test_a_producer_whose_id_was_forgotten_begins_anew() -> None:
    assert Host().init(expected=Producer(5, 17)) == Producer(1001, 0)


def test_another_producer_id_is_fenced() -> None:
    host = Host()
    host.init()
    assert host.init_error(expected=Producer(77, 0)) is ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("is_recovering", [False, True])
def test_when_epochs_are_used_up_there_is_another_id(is_recovering: bool) -> None:
    host = Host()
    last = host.go_to_epoch(LAST_EPOCH_GIVEN)
    new = host.init(expected=last if is_recovering else None)
    assert new == Producer(1002, 0)
    if is_recovering:
        host.reload()
        assert host.init(expected=last) == new
    else:
        assert host.init_error(expected=last) is ErrorCode.PRODUCER_FENCED


def test_the_fencing_epoch_is_given_to_no_producer() -> None:
    host = Host()
    last = host.go_to_epoch(LAST_EPOCH_GIVEN)
    host.add(last, P0)
    assert host.init_error() is ErrorCode.CONCURRENT_TRANSACTIONS
    assert host.owed[0].producer == Producer(last.producer_id, EPOCH_MAX)
    host.mark_all()
    highest = host.transaction().holder
    assert highest.epoch == EPOCH_MAX
    assert host.add(highest, P0) is ErrorCode.PRODUCER_FENCED
    assert host.end_error(highest, committed=False) is ErrorCode.PRODUCER_FENCED
    assert host.end_error(last, committed=False) is ErrorCode.PRODUCER_FENCED
    assert host.init(expected=last) == Producer(1002, 0)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 4}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 4}, ErrorCode.INVALID_REQUEST),
        ({"enable2_pc": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_requests_that_cannot_be_are_refused(fields: dict[str, object], code: ErrorCode) -> None:
    host = Host()
    assert host.init_error(**fields) is code  # type: ignore[arg-type]
    assert host.log == []


def test_there_is_a_limit_to_transactional_ids() -> None:
    host = Host(transactional_ids_max=1)
    host.init()
    assert host.init_error("another") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert host.init(ID).epoch == 1


def test_the_oldest_record_format_has_no_previous_producer() -> None:
    host = Host(level=0)
    first = host.init()
    second = host.init(expected=first)
    assert host.init_error(expected=first) is ErrorCode.PRODUCER_FENCED
    assert host.init(expected=second).epoch == 2
