"""EndTxn, and the other ends of a transaction: a new producer, a timeout, its last marker.

The result of EndTxn in transaction version 2, by the state and the epoch in the request ("held" is
the current epoch, "ended" the previous epoch, whose response may have been lost):

                    abort, held      abort, ended     commit, held     commit, ended
    Empty           a new epoch      fenced           invalid          fenced
    Ongoing         PrepareAbort     fenced           PrepareCommit    fenced
    PrepareAbort    concurrent       concurrent       concurrent       invalid
    PrepareCommit   concurrent       invalid          concurrent       concurrent
    CompleteAbort   a new epoch      as before        invalid          invalid
    CompleteCommit  a new epoch      invalid          invalid          as before

In version 1 only the current epoch is known: in Empty the result is INVALID_TXN_STATE, and a
repeated request gets the same response again.
"""

from collections.abc import Iterable

from ottla.machines.decision import Decision
from ottla.machines.moment import Moment
from ottla.machines.transactions.calls import Records, answer_only, known
from ottla.machines.transactions.markers import OwedMarkers
from ottla.machines.transactions.producer_ids import (
    EPOCH_MAX,
    NO_ID,
    NO_PRODUCER,
    NeedsProducerId,
    Producer,
    ProducerIdNeeded,
    successor,
)
from ottla.machines.transactions.records import TransactionRecord, record_of
from ottla.machines.transactions.transaction import (
    ENDED,
    EPOCH_BUMP_VERSION,
    PREPARED,
    State,
    Transaction,
)
from ottla.machines.transactions.transaction_store import TransactionStore
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId, TopicPartition
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse

EPOCH_BUMP_SINCE = 5
"""The first version of EndTxn with the new epoch in the response."""


class EndTxnRequests:
    """Decides how transactions end."""

    def __init__(self, store: TransactionStore) -> None:
        self._store = store

    def end(
        self, request: EndTxnRequest, api_version: int, fresh_id: int | None, now: Moment
    ) -> Decision[TransactionRecord, EndTxnResponse | NeedsProducerId]:
        """Decide on EndTxn; a refusal is in the response."""
        version = self._store.version_of(is_able=api_version >= EPOCH_BUMP_SINCE)
        try:
            records, told = self._end(request, version, fresh_id, now)
        except ProducerIdNeeded:
            return answer_only(NeedsProducerId())
        except ApiError as error:
            return answer_only(EndTxnResponse(error_code=known(error.code, api_version)))
        if version < EPOCH_BUMP_VERSION:
            told = NO_PRODUCER
        response = EndTxnResponse(producer_id=told.producer_id, producer_epoch=told.epoch)
        return Decision(records, response)

    def fence(self, found: Transaction, now: Moment) -> Records:
        """Abort an ongoing transaction in an epoch that its producer does not have."""
        can_recover = self._store.level >= EPOCH_BUMP_VERSION
        version = self._store.version_of(is_able=can_recover)
        holder = found.holder
        prepared = found.prepared(
            State.PREPARE_ABORT,
            holder.fenced(),
            version,
            now.wall_ms,
            previous_id=holder.producer_id if can_recover else NO_ID,
        )
        return self._records(prepared, now)

    def mark(
        self, owed: OwedMarkers, written: Iterable[TopicPartition], now: Moment
    ) -> Decision[TransactionRecord, bool]:
        """Strike out markers; with the last of them the transaction is complete."""
        found = self._store.mark(owed, written)
        if found is None:
            return answer_only(False)
        return Decision((record_of(found.completed(now.wall_ms), self._store.level),), True)

    def _end(
        self, request: EndTxnRequest, version: int, fresh_id: int | None, now: Moment
    ) -> tuple[Records, Producer]:
        asker = Producer(ProducerId(request.producer_id), request.producer_epoch)
        found = self._store.asked_for(request.transactional_id, asker)
        if version < EPOCH_BUMP_VERSION:
            is_answered = _is_answered_at_first(found, asker, is_commit=request.committed)
        else:
            is_answered = _is_answered(found, asker, is_commit=request.committed)
        if is_answered:
            return (), found.holder
        return self._prepare(found, version, fresh_id, now, is_commit=request.committed)

    def _prepare(
        self,
        found: Transaction,
        version: int,
        fresh_id: int | None,
        now: Moment,
        *,
        is_commit: bool,
    ) -> tuple[Records, Producer]:
        holder = found.holder
        is_bumped = version >= EPOCH_BUMP_VERSION
        prepared = found.prepared(
            State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
            successor(holder, fresh_id) if is_bumped else holder,
            version,
            now.wall_ms,
            previous_id=holder.producer_id if is_bumped else found.previous_producer_id,
        )
        return self._records(prepared, now), prepared.holder

    def _records(self, prepared: Transaction, now: Moment) -> Records:
        """Return the record of an end, and that nothing is left to do if there are no markers."""
        level = self._store.level
        first = record_of(prepared, level)
        if prepared.partitions:
            return (first,)
        return first, record_of(prepared.completed(now.wall_ms), level)


def _is_answered_at_first(found: Transaction, asker: Producer, *, is_commit: bool) -> bool:
    """Return whether the transaction ended that way before; raise if it cannot end that way."""
    if asker != found.holder:
        raise _fenced(found)
    if found.state is State.ONGOING:
        return False
    if found.state is State.EMPTY or is_commit != found.is_commit:
        raise _invalid(found, is_commit=is_commit)
    if found.state in PREPARED:
        raise _concurrent(found)
    return True


def _is_answered(found: Transaction, asker: Producer, *, is_commit: bool) -> bool:
    """Decide the same for a client that takes a new epoch from the response."""
    if found.state in ENDED and found.is_ended_by(asker):
        if is_commit != found.is_commit:
            raise _invalid(found, is_commit=is_commit)
        if found.state in PREPARED:
            raise _concurrent(found)
        if found.holder.epoch == EPOCH_MAX:  # never assigned: the producer was fenced
            raise _fenced(found)
        return True
    if asker != found.holder or asker.epoch == EPOCH_MAX:
        raise _fenced(found)
    if found.state in PREPARED:
        raise _concurrent(found)  # the new epoch is known to its holder before there are markers
    if found.state is not State.ONGOING and is_commit:
        raise _invalid(found, is_commit=is_commit)
    return False


def _fenced(found: Transaction) -> ApiError:
    return ApiError(ErrorCode.PRODUCER_FENCED, f"{found.transactional_id} is at another epoch")


def _concurrent(found: Transaction) -> ApiError:
    return ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{found.transactional_id} is about to end")


def _invalid(found: Transaction, *, is_commit: bool) -> ApiError:
    wanted = "commit" if is_commit else "abort"
    return ApiError(
        ErrorCode.INVALID_TXN_STATE,
        f"{found.transactional_id} is in {found.state.value} and cannot {wanted}",
    )
