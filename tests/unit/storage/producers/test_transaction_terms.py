"""A transaction begins in a partition only after a verification for the same batch."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.storage.log.admission import Origin
from ottla.storage.log.log import PartitionLog
from ottla.storage.producers.producer_state import PRODUCER_ID_EXPIRATION_MS
from ottla.storage.producers.transaction_terms import VERIFIED_ONLY, TransactionTerms, Verification
from ottla.wire.records.control import ControlType
from tests.log_building import NOW_MS, batch, marker, new_log

PRODUCER = 7


def new() -> PartitionLog:
    return new_log(segment_bytes=1 << 20)


def verified(
    log: PartitionLog, epoch: int = 0, sequence: int = 0, *, is_epoch_bumped: bool = False
) -> TransactionTerms:
    found = log.producers.verification(PRODUCER, epoch, sequence, is_epoch_bumped=is_epoch_bumped)
    return VERIFIED_ONLY._replace(verification=found)


def write(
    log: PartitionLog,
    terms: TransactionTerms,
    *,
    sequence: int = 0,
    epoch: int = 0,
    is_transactional: bool = True,
) -> ErrorCode:
    data = batch(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=is_transactional,
    )
    try:
        log.append_as_leader(data, 0, NOW_MS, terms=terms)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def end(log: PartitionLog, kind: ControlType = ControlType.ABORT, epoch: int = 0) -> None:
    log.append_as_leader(marker(kind, PRODUCER, epoch), 0, NOW_MS, origin=Origin.COORDINATOR)


def test_an_unverified_batch_begins_no_transaction() -> None:
    log = new()
    assert write(log, VERIFIED_ONLY) == ErrorCode.INVALID_TXN_STATE
    assert write(log, VERIFIED_ONLY, is_transactional=False) == ErrorCode.NONE


def test_a_verified_batch_begins_a_transaction_without_further_questions() -> None:
    log = new()
    assert write(log, verified(log)) == ErrorCode.NONE
    assert log.producers.verification(PRODUCER, 0, 1, is_epoch_bumped=False) is None
    assert write(log, VERIFIED_ONLY, sequence=1) == ErrorCode.NONE


@pytest.mark.parametrize("kind", [ControlType.ABORT, ControlType.COMMIT])
def test_a_verified_batch_that_comes_after_the_end_is_refused(kind: ControlType) -> None:
    log = new()
    terms = verified(log)  # the coordinator ends the transaction before its response arrives
    end(log, kind)
    assert write(log, terms) == ErrorCode.INVALID_TXN_STATE
    assert log.producers.first_unstable_offset is None
    assert write(log, verified(log)) == ErrorCode.NONE


def test_a_batch_that_is_late_for_a_transaction_of_several_batches_is_refused() -> None:
    log = new()
    write(log, verified(log))
    end(log)
    assert write(log, VERIFIED_ONLY, sequence=1) == ErrorCode.INVALID_TXN_STATE


def test_a_repeated_batch_is_answered_even_after_the_end() -> None:
    log = new()
    write(log, verified(log))
    end(log)
    assert write(log, VERIFIED_ONLY) == ErrorCode.NONE
    assert log.end_offset == 2


def test_a_verification_is_good_for_the_batches_that_waited_for_it_in_their_order() -> None:
    log = new()
    second = verified(log, sequence=1)
    first = verified(log, sequence=0)
    assert second.verification is first.verification
    assert write(log, second, sequence=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(log, first, sequence=0) == ErrorCode.NONE
    assert write(log, second, sequence=1) == ErrorCode.NONE


def test_an_epoch_of_its_own_begins_with_sequence_0() -> None:
    log = new()
    terms = verified(log, sequence=3, is_epoch_bumped=True)
    assert write(log, terms, sequence=3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    older = new()
    assert write(older, verified(older, sequence=3), sequence=3) == ErrorCode.NONE


def test_the_end_of_the_transaction_before_may_come_while_the_next_is_verified() -> None:
    log = new()
    write(log, verified(log, is_epoch_bumped=True))
    terms = verified(log, epoch=1, is_epoch_bumped=True)
    end(log, epoch=1)
    assert write(log, terms, epoch=1) == ErrorCode.NONE
    late = verified(log, epoch=2, is_epoch_bumped=True)
    end(log, epoch=2)
    end(log, epoch=3)
    assert write(log, late, epoch=3) == ErrorCode.INVALID_TXN_STATE


def test_a_late_repetition_does_not_stand_in_the_way_of_what_comes_next() -> None:
    log = new()
    write(log, verified(log))
    write(log, verified(log), sequence=1)
    end(log)
    assert write(log, verified(log, sequence=0), sequence=0) == ErrorCode.NONE
    assert log.end_offset == 3
    assert write(log, verified(log, sequence=2), sequence=2) == ErrorCode.NONE


def test_another_epoch_has_to_be_verified_while_the_old_transaction_is_open() -> None:
    log = new()
    write(log, verified(log))
    assert write(log, VERIFIED_ONLY, epoch=1) == ErrorCode.INVALID_TXN_STATE
    assert write(log, verified(log, epoch=1), epoch=1) == ErrorCode.NONE


def test_a_later_epoch_begins_its_sequences_anew() -> None:
    verification = Verification(1, 5, is_epoch_bumped=False)
    verification.note(2, 9)
    verification.note(1, 0)
    assert (verification.producer_epoch, verification.lowest_sequence) == (2, 9)


def test_so_many_verifications_are_kept_and_no_more() -> None:
    log = new()
    states = log.producers
    states._producers_max = 3
    first = states.verification(0, 0, 0, is_epoch_bumped=False)
    for producer_id in range(1, 4):
        states.verification(producer_id, 0, 0, is_epoch_bumped=False)
    assert states.verification(0, 0, 0, is_epoch_bumped=False) is not first


def test_what_is_being_verified_stays_when_its_producer_is_forgotten() -> None:
    log = new()
    write(log, verified(log))
    end(log, epoch=1)
    terms = verified(log, epoch=1, is_epoch_bumped=True)
    log.producers.expire(NOW_MS + PRODUCER_ID_EXPIRATION_MS)
    assert log.producers.producer(PRODUCER) is None
    assert write(log, terms, epoch=1) == ErrorCode.NONE
