"""Verifies a transaction with its coordinator before its first batch in a partition (KIP-890).

A transaction that its coordinator does not know would never end, and hold back all later records
from read_committed consumers. So a partition takes the first batch only after a response of the
coordinator; `storage/producers/transaction_terms.py` explains how a late response is detected. For
the newest versions of Produce the partition is added at the same time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla.broker.coordinators.partition_enlistment import Enlist
from ottla.concurrency.keyed_lock import KeyedLock
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.machines.transactions.add_partitions import Enlistment
from ottla.machines.transactions.producer_ids import Producer
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId, TopicPartition
from ottla.replication.partition import Partition
from ottla.storage.producers.transaction_terms import ANY_TRANSACTION, TransactionTerms

ASK_AGAIN_MS: Final = 5
"""The usual time to write markers; Kafka retries after 20."""
ASK_AGAIN_MAX_MS: Final = 100
"""The maximum wait for the markers of the producer's previous transaction."""

VerdictByPartition = Mapping[TopicPartition, TransactionTerms | ApiError]
"""On which terms a batch may be appended to each partition, or why it may not."""


class Support(NamedTuple):
    """The error codes that a client of some version knows."""

    is_adding: bool
    """Whether its transactions have epochs of their own, and get partitions by being written to."""
    knows_abortable: bool
    """Whether the client understands an error that aborts its transaction."""


class Write(NamedTuple):
    """A batch of a transaction that is to be appended."""

    partition: Partition
    producer_id: ProducerId
    producer_epoch: int
    base_sequence: int


@dataclass(frozen=True, slots=True)
class TransactionVerification:
    """Says on which terms batches of transactions may be appended."""

    clock: Clock
    notifier: Notifier
    is_enabled: Callable[[], bool]
    """Whether `transaction.partition.verification.enable` is set."""
    enlist: Enlist | None = None
    """None if there is no coordinator."""
    locks: KeyedLock = field(default_factory=KeyedLock)
    """Batches of one transaction are verified and appended in the order in which they came."""

    async def verdicts(
        self, transactional_id: str, writes: Sequence[Write], support: Support
    ) -> VerdictByPartition:
        """Return for each partition on which terms it takes its batch, or an error.

        For versions that add partitions by writing, they are added even if verification is
        disabled.
        """
        if not self.is_enabled() and not support.is_adding:
            return {write.partition.name: ANY_TRANSACTION for write in writes}
        if len({(write.producer_id, write.producer_epoch) for write in writes}) > 1:
            error = ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, "batches of more than one producer"
            )
            return {write.partition.name: error for write in writes}
        found = {write.partition.name: _begun(write, support) for write in writes}
        asked = [name for name, terms in found.items() if terms.verification is not None]
        if not asked:
            return dict(found)
        errors = await self._ask(transactional_id, writes[0], asked, support)
        told = {name: _producer_error(errors[name], support) for name in asked if errors.get(name)}
        return {**found, **told}

    async def _ask(
        self,
        transactional_id: str,
        write: Write,
        names: Sequence[TopicPartition],
        support: Support,
    ) -> Mapping[TopicPartition, ErrorCode]:
        producer = Producer(write.producer_id, write.producer_epoch)
        wanted = Enlistment(transactional_id, producer, names, support.is_adding)
        deadline_ms = self.clock.monotonic_ms() + ASK_AGAIN_MAX_MS
        while True:
            errors = await self._ask_once(wanted)
            is_busy = ErrorCode.CONCURRENT_TRANSACTIONS in errors.values()
            if not is_busy or not support.is_adding or self.notifier.is_closed:
                return errors
            if self.clock.monotonic_ms() + ASK_AGAIN_MS > deadline_ms:
                return errors
            await self.notifier.wait_any((), self.clock.monotonic_ms() + ASK_AGAIN_MS)

    async def _ask_once(self, wanted: Enlistment) -> Mapping[TopicPartition, ErrorCode]:
        if self.enlist is None:  # so that no transaction can have begun
            return dict.fromkeys(wanted.partitions, ErrorCode.INVALID_TXN_STATE)
        try:
            return await self.enlist(wanted)
        except ApiError as error:
            return dict.fromkeys(wanted.partitions, error.code)


def _begun(write: Write, support: Support) -> TransactionTerms:
    verification = write.partition.log.producers.verification(
        write.producer_id,
        write.producer_epoch,
        write.base_sequence,
        is_epoch_bumped=support.is_adding,
    )
    return TransactionTerms(is_verified_only=True, verification=verification)


def _producer_error(code: ErrorCode, support: Support) -> ApiError:
    """Say it in words that a producer knows."""
    if code == ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code == ErrorCode.TRANSACTION_ABORTABLE and not support.knows_abortable:
        code = ErrorCode.INVALID_TXN_STATE
    return ApiError(code, "it is not known to be in the producer's transaction")
