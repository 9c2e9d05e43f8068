"""Bugs of transactions, from Kafka's history or made up: the checkers must find each.

Every mutant is named after its behaviour; the table in `test_transaction_mutants.py` says how soon
it is found.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.coordinators.transaction_verification import TransactionVerification
from ottla.broker.decision_runtime import DecisionRuntime
from ottla.machines.transactions.add_partitions import AddPartitionsRequests
from ottla.machines.transactions.machine import TransactionMachine
from ottla.machines.transactions.transaction import Transaction
from ottla.machines.transactions.transaction_store import TransactionStore
from ottla.replication.partition import Partition
from ottla.storage.indexes.aborted_index import AbortedTransaction
from ottla.storage.indexes.time_index import NO_TIMESTAMP_MS
from ottla.storage.log.log import PartitionLog
from ottla.storage.producers import producer
from ottla.storage.producers.producer_state import CompletedTransaction, ProducerStates
from ottla.storage.producers.transaction_terms import ANY_TRANSACTION
from ottla.wire.records.batch import RecordBatch
from ottla.wire.records.control import EndTxnMarker
from tests.simulation.mutants import Mutant, patched

# -- late requests ---------------------------------------------------------------------------------


def ending_without_a_new_epoch() -> AbstractContextManager[None]:
    """A late end, or a late batch, joins the next transaction: before KIP-890."""
    return patched(TransactionStore, "version_of", lambda self, *, is_able: 0)


def taking_markers_of_the_same_epoch() -> AbstractContextManager[None]:
    """A late marker ends the next transaction: before KIP-1228."""
    return patched(producer, "STRICT_MARKER_VERSION", 1 << 15)


def asking_no_coordinator() -> AbstractContextManager[None]:
    """A late batch begins a transaction that will never end: before KIP-890."""

    async def verdicts(  # noqa: RUF029
        _self: TransactionVerification, _id: str, writes: Sequence[Any], _support: object
    ) -> dict[Any, Any]:
        return {write.partition.name: ANY_TRANSACTION for write in writes}

    return patched(TransactionVerification, "verdicts", verdicts)


def being_slow_to_append() -> AbstractContextManager[None]:
    """A leader delays the append of verified batches: harmless by itself."""
    verdicts = TransactionVerification.verdicts

    async def slow(self: TransactionVerification, *asked: Any) -> dict[Any, Any]:
        found = await verdicts(self, *asked)
        await self.notifier.wait_any((), self.clock.monotonic_ms() + 20)
        return found

    return patched(TransactionVerification, "verdicts", slow)


@contextmanager
def trusting_an_answer_from_before_the_end() -> Iterator[None]:
    """A verified batch is appended, though its transaction has ended since: KIP-890."""
    with (
        being_slow_to_append(),
        patched(ProducerStates, "_check_verified", lambda *_, from_client: None),
    ):
        yield


def obeying_whoever_has_the_producer_id() -> AbstractContextManager[None]:
    """A coordinator does not check epochs, so zombies can write."""

    def checked(self: AddPartitionsRequests, transactional_id: str, asker: Any) -> Transaction:
        return self._store.asked_for(transactional_id, asker)

    return patched(AddPartitionsRequests, "_checked", checked)


def expiring_producers_all_the_time() -> AbstractContextManager[None]:
    """Idle producers are expired after each marker: harmless by itself."""
    apply_marker = ProducerStates._apply_marker

    def apply_and_expire(self: ProducerStates, batch: RecordBatch) -> CompletedTransaction | None:
        completed = apply_marker(self, batch)
        self.expire(batch.max_timestamp_ms)
        return completed

    return patched(ProducerStates, "_apply_marker", apply_and_expire)


@contextmanager
def letting_markers_tell_no_time() -> Iterator[None]:
    """A marker leaves no timestamp, so its producer expires with its coordinator epoch: KAFKA-9144.

    So a marker of an earlier coordinator may arrive later, and end the next transaction.
    """
    end_transaction = producer.Producer.end_transaction

    def end_without_time(self: producer.Producer, batch: RecordBatch, marker: EndTxnMarker) -> int:
        first_offset = end_transaction(self, batch, marker)
        self.timestamp_ms = NO_TIMESTAMP_MS
        return first_offset

    with (
        expiring_producers_all_the_time(),
        patched(producer.Producer, "end_transaction", end_without_time),
    ):
        yield


# -- coordinators ----------------------------------------------------------------------------------


def sending_markers_before_the_end_is_committed() -> AbstractContextManager[None]:
    """Markers are sent before the end is committed: a successor may not know it, and abort."""

    publish_once_committed = DecisionRuntime.publish_once_committed

    def publish(self: DecisionRuntime[Any, Any, Any], effect: Any) -> None:
        if isinstance(self.machine, TransactionMachine):
            self._publish(effect)
        else:
            publish_once_committed(self, effect)

    return patched(DecisionRuntime, "publish_once_committed", publish)


def forgetting_markers_at_a_fail_over() -> AbstractContextManager[None]:
    """A new coordinator does not send the pending markers of its predecessor."""

    async def on_loaded(  # noqa: RUF029
        _self: TransactionCoordinator, _index: int, runtime: Any
    ) -> None:
        runtime.machine.take_markers()

    return patched(TransactionCoordinator, "_on_loaded", on_loaded)


def answering_before_the_end_is_committed() -> AbstractContextManager[None]:
    """A producer gets the response to a commit that a successor does not know."""

    async def wait_replicated(_self: TransactionCoordinator, _id: str) -> None:
        pass

    return patched(TransactionCoordinator, "wait_replicated", wait_replicated)


# -- readers ---------------------------------------------------------------------------------------


@contextmanager
def letting_readers_see_what_is_open() -> Iterator[None]:
    """The last stable offset is the high watermark."""
    with (
        patched(Partition, "last_stable_offset", property(lambda self: self.high_watermark)),
        patched(ProducerStates, "first_unstable_offset", None),
    ):
        yield


def telling_nobody_what_was_aborted() -> AbstractContextManager[None]:
    """Readers take aborted records for committed."""

    def none(_self: PartitionLog, *_: object) -> tuple[AbortedTransaction, ...]:
        return ()

    return patched(PartitionLog, "aborted_transactions", none)


MUTANTS: dict[str, Mutant] = {
    one.__name__: one
    for one in (
        ending_without_a_new_epoch,
        taking_markers_of_the_same_epoch,
        asking_no_coordinator,
        being_slow_to_append,
        trusting_an_answer_from_before_the_end,
        obeying_whoever_has_the_producer_id,
        expiring_producers_all_the_time,
        letting_markers_tell_no_time,
        sending_markers_before_the_end_is_committed,
        forgetting_markers_at_a_fail_over,
        answering_before_the_end_is_committed,
        letting_readers_see_what_is_open,
        telling_nobody_what_was_aborted,
    )
}
