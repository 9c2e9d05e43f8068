"""Transactions are verified with their coordinator first; producers get the resulting error."""

import asyncio
from collections.abc import Mapping

import pytest

from ottla.broker.coordinators.transaction_verification import (
    Support,
    TransactionVerification,
    VerdictByPartition,
    Write,
)
from ottla.concurrency.notifier import Notifier
from ottla.machines.transactions.add_partitions import Enlistment
from ottla.machines.transactions.producer_ids import Producer
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.producers.transaction_terms import ANY_TRANSACTION, TransactionTerms
from tests.log_building import NOW_MS, PARTITION, batch, new_log
from tests.metadata_building import FixedClock

OLD = Support(is_adding=False, knows_abortable=False)
NEW = Support(is_adding=True, knows_abortable=True)


class Coordinators:
    """Returns the prepared error codes, one per call."""

    def __init__(self, *answers: ErrorCode) -> None:
        self.answers = list(answers)
        self.asked: list[Enlistment] = []

    async def enlist(self, wanted: Enlistment) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append(wanted)
        answer = self.answers.pop(0)
        if answer == ErrorCode.NOT_COORDINATOR:
            raise ApiError(answer)
        return dict.fromkeys(wanted.partitions, answer) if answer else {}


class PassingClock(FixedClock):
    """A clock that advances by some milliseconds at each reading."""

    def monotonic_ms(self) -> int:
        self.time_ms += 7
        return self.time_ms


def new_partition(name: TopicPartition = PARTITION) -> Partition:
    partition = Partition(name, bytes(16), new_log(), lambda _: None)
    partition.lead(0)
    return partition


def verdicts_on(
    coordinators: Coordinators | None,
    *writes: Write,
    support: Support = OLD,
    is_enabled: bool = True,
) -> VerdictByPartition:
    clock = PassingClock()
    enlist = None if coordinators is None else coordinators.enlist
    verification = TransactionVerification(clock, Notifier(clock), lambda: is_enabled, enlist)
    return asyncio.run(verification.verdicts("copier", writes, support))


def told(found: TransactionTerms | ApiError) -> ErrorCode:
    assert isinstance(found, ApiError)
    return found.code


@pytest.mark.parametrize("support", [OLD, NEW])
def test_a_transaction_begins_once_its_coordinator_has_said_yes(support: Support) -> None:
    partition = new_partition()
    coordinators = Coordinators(ErrorCode.NONE)
    write = Write(partition, 9, 2, 0)
    verdict = verdicts_on(coordinators, write, support=support)[PARTITION]
    assert coordinators.asked == [
        Enlistment("copier", Producer(9, 2), [PARTITION], support.is_adding)
    ]
    assert isinstance(verdict, TransactionTerms)
    data = batch(producer_id=9, producer_epoch=2, base_sequence=0, is_transactional=True)
    partition.append_as_leader(data, NOW_MS, terms=verdict)
    assert partition.last_stable_offset == 0
    more = verdicts_on(coordinators, write._replace(base_sequence=1), support=support)
    assert len(coordinators.asked) == 1, "it is open here, so nobody is asked"
    assert isinstance(more[PARTITION], TransactionTerms)


def test_no_coordinator_is_asked_if_verification_is_disabled() -> None:
    coordinators = Coordinators()
    write = Write(new_partition(), 9, 0, 0)
    assert verdicts_on(coordinators, write, is_enabled=False) == {PARTITION: ANY_TRANSACTION}
    assert coordinators.asked == []


def test_a_produce_request_adds_partitions_even_if_verification_is_disabled() -> None:
    coordinators = Coordinators(ErrorCode.NONE)
    write = Write(new_partition(), 9, 0, 0)
    verdicts_on(coordinators, write, support=NEW, is_enabled=False)
    assert coordinators.asked == [Enlistment("copier", Producer(9, 0), [PARTITION], True)]


def test_a_request_has_batches_of_one_producer() -> None:
    other = TopicPartition("events", 1)
    writes = [Write(new_partition(), 9, 0, 0), Write(new_partition(other), 8, 0, 0)]
    found = verdicts_on(Coordinators(), *writes)
    assert {told(one) for one in found.values()} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}


@pytest.mark.parametrize(
    ("answer", "old", "new"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (
            ErrorCode.PRODUCER_FENCED,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ),
        (
            ErrorCode.TRANSACTION_ABORTABLE,
            ErrorCode.INVALID_TXN_STATE,
            ErrorCode.TRANSACTION_ABORTABLE,
        ),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_producers_are_told_in_their_words(
    answer: ErrorCode, old: ErrorCode, new: ErrorCode
) -> None:
    write = Write(new_partition(), 9, 0, 0)
    assert told(verdicts_on(Coordinators(answer), write)[PARTITION]) == old
    assert told(verdicts_on(Coordinators(answer), write, support=NEW)[PARTITION]) == new


def test_the_end_of_the_transaction_before_is_waited_for_a_while() -> None:
    busy = ErrorCode.CONCURRENT_TRANSACTIONS
    write = Write(new_partition(), 9, 0, 0)
    patient = Coordinators(busy, busy, ErrorCode.NONE)
    assert isinstance(verdicts_on(patient, write, support=NEW)[PARTITION], TransactionTerms)
    stuck = Coordinators(*[busy] * 50)
    assert told(verdicts_on(stuck, write, support=NEW)[PARTITION]) == busy
    assert 1 < len(stuck.asked) < 50
    once = Coordinators(busy)
    assert told(verdicts_on(once, write)[PARTITION]) == busy
