"""InitProducerId: assigns a transactional id to a producer.

A request without a former producer id is from a new producer. It fences the former producer, and
first aborts its transaction: the response is CONCURRENT_TRANSACTIONS until that is done. A producer
that can complete the transaction for an external coordinator may keep it (KIP-939).

A request with a former producer id and epoch continues after an error (KIP-360). Only the latest
epoch may, and the previous epoch, whose response may have been lost. Kafka lets older epochs abort
the latest producer's transaction; here they are fenced.
"""

from typing import TypeAlias

from ottla.machines.decision import Decision
from ottla.machines.moment import Moment
from ottla.machines.transactions.calls import FENCED_SINCE_OF_INIT, Records, answer_only, known
from ottla.machines.transactions.end_txn import EndTxnRequests
from ottla.machines.transactions.producer_ids import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_ID,
    NO_PRODUCER,
    NeedsProducerId,
    Producer,
    ProducerIdNeeded,
    first_of,
    successor,
)
from ottla.machines.transactions.records import TransactionRecord, record_of
from ottla.machines.transactions.settings import TransactionSettings
from ottla.machines.transactions.transaction import (
    EPOCH_BUMP_VERSION,
    NO_TIMEOUT_MS,
    PREPARED,
    State,
    Transaction,
)
from ottla.machines.transactions.transaction_store import TransactionStore
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

InitDecision: TypeAlias = Decision[TransactionRecord, InitProducerIdResponse | NeedsProducerId]


class InitProducerIdRequests:
    """Decides about InitProducerId with a transactional id."""

    def __init__(
        self, settings: TransactionSettings, store: TransactionStore, end_txn: EndTxnRequests
    ) -> None:
        self._settings = settings
        self._store = store
        self._end_txn = end_txn

    def init(
        self,
        request: InitProducerIdRequest,
        api_version: int,
        fresh_id: int | None,
        now: Moment,
    ) -> InitDecision:
        """Decide; a refusal is in the response."""
        try:
            records, response = self._init(request, fresh_id, now)
        except ProducerIdNeeded:
            return answer_only(NeedsProducerId())
        except ApiError as error:
            code = known(error.code, api_version, FENCED_SINCE_OF_INIT)
            return answer_only(_refusal(code))
        return Decision(records, response)

    def _init(
        self, request: InitProducerIdRequest, fresh_id: int | None, now: Moment
    ) -> tuple[Records, InitProducerIdResponse]:
        timeout_ms = self._checked_timeout_ms(request)
        expected = _expected(request)
        found = self._store.get(request.transactional_id or "")
        if found is None:
            return self._begin(request, timeout_ms, fresh_id, now)
        if found.state in PREPARED:
            self._check_expected(found, expected)
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "a transaction is about to end")
        if found.state is not State.ONGOING:
            return self._take_over(found, expected, timeout_ms, fresh_id, now)
        if expected not in {None, found.holder}:
            raise _fenced(found)
        if request.keep_prepared_txn:
            return self._keep(found, expected, timeout_ms, fresh_id, now)
        records = self._end_txn.fence(found, now)
        return records, _refusal(ErrorCode.CONCURRENT_TRANSACTIONS)

    def _checked_timeout_ms(self, request: InitProducerIdRequest) -> int:
        if not request.transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        check_whole(request)
        if request.keep_prepared_txn and self._store.level < EPOCH_BUMP_VERSION:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "transaction.version is below 2")
        if request.enable2_pc:
            if not self._settings.transaction_two_phase_commit_enable:
                raise ApiError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
                    "transaction.two.phase.commit.enable is false",
                )
            return NO_TIMEOUT_MS
        if not 0 < request.transaction_timeout_ms <= self._settings.transaction_max_timeout_ms:
            raise ApiError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT, str(request.transaction_timeout_ms)
            )
        return request.transaction_timeout_ms

    def _begin(
        self,
        request: InitProducerIdRequest,
        timeout_ms: int,
        fresh_id: int | None,
        now: Moment,
    ) -> tuple[Records, InitProducerIdResponse]:
        """Assign an unused id."""
        if len(self._store) >= self._settings.transactional_ids_max:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "there are too many producers")
        producer = first_of(fresh_id)
        begun = Transaction(request.transactional_id or "", producer, timeout_ms, now.wall_ms)
        return self._initialized(begun)

    def _take_over(
        self,
        found: Transaction,
        expected: Producer | None,
        timeout_ms: int,
        fresh_id: int | None,
        now: Moment,
    ) -> tuple[Records, InitProducerIdResponse]:
        """Assign an id that has no transaction."""
        self._check_expected(found, expected)
        holder = found.holder
        if expected in {None, holder} or holder.epoch == EPOCH_MAX:
            producer = successor(holder, fresh_id)
            previous_id = NO_ID if expected is None else holder.producer_id
        else:
            # The response was lost: repeat it.
            producer, previous_id = holder, found.previous_producer_id
        held = found.held_by(producer, timeout_ms, now.wall_ms, previous_id=previous_id)
        return self._initialized(held)

    def _keep(
        self,
        found: Transaction,
        expected: Producer | None,
        timeout_ms: int,
        fresh_id: int | None,
        now: Moment,
    ) -> tuple[Records, InitProducerIdResponse]:
        """Assign an id together with its prepared transaction."""
        producer = successor(found.holder, fresh_id)
        previous_id = NO_ID if expected is None else found.holder.producer_id
        kept = found.kept_for(producer, timeout_ms, now.wall_ms, previous_id=previous_id)
        return self._initialized(kept, ongoing=found.producer)

    def _initialized(
        self, held: Transaction, ongoing: Producer = NO_PRODUCER
    ) -> tuple[Records, InitProducerIdResponse]:
        response = InitProducerIdResponse(
            producer_id=held.holder.producer_id,
            producer_epoch=held.holder.epoch,
            ongoing_txn_producer_id=ongoing.producer_id,
            ongoing_txn_producer_epoch=ongoing.epoch,
        )
        return (record_of(held, self._store.level),), response

    def _check_expected(self, found: Transaction, expected: Producer | None) -> None:
        is_known = expected in {None, found.holder}
        if not is_known and not (expected is not None and found.is_predecessor(expected)):
            raise _fenced(found)


def _expected(request: InitProducerIdRequest) -> Producer | None:
    if request.producer_id == NO_ID:
        return None
    return Producer(ProducerId(request.producer_id), request.producer_epoch)


def _refusal(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_id=NO_ID, producer_epoch=NO_EPOCH)


def _fenced(found: Transaction) -> ApiError:
    return ApiError(
        ErrorCode.PRODUCER_FENCED, f"another producer has taken {found.transactional_id}"
    )


def check_whole(request: InitProducerIdRequest) -> None:
    """Raise ApiError INVALID_REQUEST for a producer id without an epoch, or the reverse."""
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a producer id and an epoch go together")
