"""A producer's transactions, as in Kafka 4's clients; transaction_state.py has the states.

The sender reads the producer id and epoch here. Before each request it asks whether the batches may
go (`before_send`), and it reports refused batches (`batch_failed`). All of it runs in one event
loop.

The contract: after `commit` returned, the brokers have committed. After it raised
TransactionFailedError, they have not, and never will. After a timeout the result is unknown: call
`commit` again; it asks the coordinator. Until then every other call is refused.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Final, NoReturn, Protocol, TypeVar

from ottla.clients.errors import NoResponseError
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.clients.producer.transactions.coordinator_client import CoordinatorClient
from ottla.clients.producer.transactions.transaction_errors import (
    FATAL_FOR_BATCHES,
    UNAUTHORIZED,
    FatalTransactionError,
    TransactionAbortedError,
    TransactionFailedError,
    TransactionStateError,
    abortable,
    fatal,
    is_abortable,
)
from ottla.clients.producer.transactions.transaction_requests import (
    ADDING_BY_WRITING,
    NO_PRODUCER,
    GroupMetadata,
    Initiation,
    OffsetCommit,
    OffsetToCommit,
    ProducerName,
    add_offsets,
    add_partitions,
    end,
    init_producer,
)
from ottla.clients.producer.transactions.transaction_state import (
    COMPLETING,
    LEFT_OPEN,
    SENDING,
    PreparedTxnState,
    State,
    is_move,
    refusal,
)
from ottla.clients.threads.loop_thread import is_for_a_thread
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

PRODUCE_VERSION_BEFORE_ADDING: Final = 11
"""The last version of Produce that does not add its partitions to the transaction itself."""
T = TypeVar("T")


class Records(Protocol):
    """The producer's pending records."""

    def refuse(self, reason: Exception | None) -> None:
        """Refuse new records with this error; None accepts them again."""

    async def flush(self) -> None:
        """Return when all pending records are delivered or have failed."""

    async def drop(self, reason: Exception) -> None:
        """Fail all records that are not in flight, and wait for the records in flight."""


class Transactions:
    """The transactions of one producer, one at a time."""

    def __init__(
        self, coordinator: CoordinatorClient, settings: ProducerSettings, records: Records
    ) -> None:
        self.transactional_id = coordinator.transactional_id
        self.is_transactional = True
        self._coordinator = coordinator
        self._settings = settings
        self._records = records
        self._become(NO_PRODUCER)
        self._version = 0
        self._failure: TransactionFailedError | None = None
        self._prepared: PreparedTxnState | None = None
        self._added: set[TopicPartition] = set()
        self._is_closed = True  # whether batches are refused
        self._must_renew = False  # whether a new epoch is needed: sequence numbers may have gaps
        self.is_commit_unreported = False
        """Whether a thread was interrupted before it had the result of a successful commit."""
        self._call = asyncio.Lock()
        self._adding = asyncio.Lock()
        self._enter(State.UNINITIALIZED)

    # -- for the sender -------------------------------------------------------------------------

    def _become(self, who: ProducerName) -> None:
        """Adopt an id and epoch, without an open transaction. A new epoch restarts sequences at 0.

        It makes no call, so that a signal handler cannot raise between the assignments.
        """
        self._who = who
        self.producer_id, self.producer_epoch = who
        self._is_started = False  # whether the coordinator may know of the transaction

    @property
    def produce_version_max(self) -> int | None:
        """The highest usable Produce version; higher versions add partitions themselves."""
        is_old = self._version < ADDING_BY_WRITING
        return PRODUCE_VERSION_BEFORE_ADDING if is_old else None

    def sends_at_once(self) -> bool:
        """Return whether batches may go now; mark the transaction as started if they may."""
        if self._version < ADDING_BY_WRITING or self._is_closed or self.state not in SENDING:
            return False
        self._is_started = True
        return True

    async def before_send(self, partitions: Collection[TopicPartition]) -> None:
        """Add the partitions to the transaction, or raise the error of the batches."""
        self._check_failure()
        if self._is_closed or self.state not in SENDING:
            raise TransactionStateError("the transaction of these records has ended without them")
        if self.sends_at_once():
            return
        async with self._adding:
            missing = [name for name in partitions if name not in self._added]
            if not missing:
                return
            async with self._limited("adding partitions to the transaction"):
                await self._asked(lambda: add_partitions(self._coordinator, self._who, missing))
            self._added.update(missing)
            self._is_started = True

    def batch_failed(self, partition: TopicPartition, error: Exception) -> None:
        """Handle refused records: the transaction can no longer be committed."""
        code, why = ErrorCode.TRANSACTION_ABORTABLE, f"partition {partition}: {error}"
        if isinstance(error, ApiError):
            code, why = error.code, error.detail
        self._must_renew = True
        if code in FATAL_FOR_BATCHES:
            self._fail(fatal(code, f"records were refused: {why}"))
        elif self.state in SENDING:
            self._fail(abortable(code, f"records are not delivered: {why}"))

    # -- for the application --------------------------------------------------------------------

    @property
    def prepared_transaction_state(self) -> PreparedTxnState | None:
        """The prepared transaction that awaits completion, if there is one."""
        return self._prepared if self.state is State.PREPARED else None

    async def init(self, *, keep_prepared_txn: bool = False) -> None:
        """Register the producer, fence its predecessor, and abort or keep the open transaction."""
        async with self._call:
            self._check_failure()
            if keep_prepared_txn:
                self._check_two_phases()
            self._move(State.INITIALIZING, "init_transactions")
            try:
                async with self._limited("init_transactions"):
                    await self._init(keep_prepared_txn=keep_prepared_txn)
            finally:
                if self.state is State.INITIALIZING:
                    self._enter(State.UNINITIALIZED)

    async def begin(self) -> None:
        """Begin a transaction; records can be sent from now on."""
        async with self._call:
            self._check_failure()
            self._move(State.IN_TRANSACTION, "begin_transaction")
            self._is_closed = False

    def begins_at_once(self) -> bool:
        """Begin in the calling thread, if the producer is READY; return whether it did.

        Only `begin` leaves READY, and no other call is completing while the lock is free. So the
        event loop need not be asked; two threads must not call this at the same time.
        """
        if self.state is not State.READY or self._call.locked():
            return False
        self._is_closed = False  # first: another thread may send as soon as records are accepted
        self._move(State.IN_TRANSACTION, "begin_transaction")
        return True

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetToCommit], group: GroupMetadata
    ) -> None:
        """Commit a group's offsets with the transaction."""
        async with self._call:
            self._check_failure()
            if self.state is not State.IN_TRANSACTION:
                self._refuse("send_offsets_to_transaction")
            if not offsets:
                return
            commit = OffsetCommit(self._coordinator, self._who, group, dict(offsets), self._version)
            try:
                async with self._limited("send_offsets_to_transaction"):
                    await self._commit_offsets(commit)
            except asyncio.CancelledError:
                detail = "send_offsets_to_transaction was cancelled: its outcome is unknown"
                self._must_renew = True
                self._fail(abortable(ErrorCode.TRANSACTION_ABORTABLE, detail))
                raise

    async def prepare(self, *, can_time_out: bool = False) -> PreparedTxnState:
        """Send all records, and leave the end of the transaction to `complete` (KIP-939)."""
        async with self._call:
            if not can_time_out:
                self._check_two_phases()
            self._check_failure()
            if self.state is not State.IN_TRANSACTION:
                self._refuse("prepare_transaction")
            self._records.refuse(TransactionStateError(refusal("send", State.PREPARED)))
            try:
                async with self._limited("prepare_transaction"):
                    await self._records.flush()
            finally:
                self._enter(self.state)
            self._check_failure()
            self._move(State.PREPARED, "prepare_transaction")
            self._is_closed = True
            self._prepared = PreparedTxnState(*self._who)
            return self._prepared

    async def complete(self, prepared: PreparedTxnState) -> bool:
        """Commit if this is the prepared transaction, else abort; return True after a commit."""
        if self.state not in COMPLETING:
            self._check_failure()
            self._refuse("complete_transaction")
        is_it = prepared == self._prepared
        await (self.commit() if is_it else self.abort())
        return is_it

    async def commit(self) -> None:
        """Send all records and commit; the module docstring explains the errors."""
        async with self._call:
            if self.is_commit_unreported and self.state is State.READY:
                return  # an interrupted caller asks again
            await self._commit()
            # Ctrl-C may come between this line and the waiting thread.
            self.is_commit_unreported = is_for_a_thread()

    async def _commit(self) -> None:
        self._check_failure()
        if self.state is not State.COMMITTING:
            self._move(State.COMMITTING, "commit_transaction")
        async with self._limited("commit_transaction"):
            await self._records.flush()
            self._check_failure()
            await self._end(committed=True)

    async def abort(self) -> None:
        """Drop the pending records, and abort the transaction."""
        async with self._call:
            await self._abort()

    async def _abort(self) -> None:
        if self.state is not State.ABORTABLE_ERROR:
            self._check_failure()
        if self.state is not State.ABORTING:
            self._move(State.ABORTING, "abort_transaction")
        self._is_closed = True
        self._failure = None
        async with self._limited("abort_transaction"):
            await self._records.drop(TransactionAbortedError("the transaction was aborted"))
            self._check_failure()
            await self._end(committed=False)

    async def leave(self, timeout: float | None) -> None:
        """Abort the open transaction, or finish its commit, within the timeout.

        A prepared transaction stays prepared.
        """
        with suppress(TransactionFailedError, OSError):
            async with asyncio.timeout(timeout), self._call:
                if self.state in LEFT_OPEN:
                    await self._abort()
                elif self.state is State.COMMITTING:
                    await self._commit()

    # -- inside ---------------------------------------------------------------------------------

    async def _commit_offsets(self, commit: OffsetCommit) -> None:
        if self._version < ADDING_BY_WRITING:
            await self._asked(
                lambda: add_offsets(self._coordinator, self._who, commit.group.group_id)
            )
        self._is_started = True
        await self._asked(commit.ask, commit.forget_coordinator)

    async def _init(
        self, *, former: ProducerName = NO_PRODUCER, keep_prepared_txn: bool = False
    ) -> None:
        initiation = Initiation(
            self._settings.transaction_timeout_ms,
            former,
            self._settings.transaction_two_phase_commit_enable,
            keep_prepared_txn,
        )

        async def ask() -> tuple[ProducerName, ProducerName]:
            told = await init_producer(self._coordinator, initiation)
            self._version = await self._coordinator.transaction_version()
            return told

        try:
            who, ongoing = await self._coordinator.until_answered(ask)
        except ApiError as error:
            if error.code in UNAUTHORIZED:
                raise
            self._raise_failed(error)
        self._become(who)
        is_kept = ongoing != NO_PRODUCER
        self._reset(State.PREPARED if is_kept else State.READY)
        self._is_started = is_kept
        self._prepared = PreparedTxnState(*ongoing) if is_kept else None

    async def _end(self, *, committed: bool) -> None:
        """Send EndTxn if the transaction was started; obtain a new epoch where needed."""
        self._is_closed = True
        if self._is_started:
            ask = self._coordinator
            told = await self._asked(
                lambda: end(ask, self._who, committed=committed, version=self._version)
            )
            self._become(told)
        if self._version < ADDING_BY_WRITING:
            is_new = await self._asked(self._coordinator.transaction_version) >= ADDING_BY_WRITING
            if self._must_renew or is_new:
                await self._init(former=self._who)
                return
        self._reset(State.READY)

    def _enter(self, state: State) -> None:
        """Enter a state; only IN_TRANSACTION accepts records."""
        self.state = state
        if state is State.IN_TRANSACTION:
            self._records.refuse(None)
        elif self._failure is not None:
            self._records.refuse(self._failure.again())
        else:
            self._records.refuse(TransactionStateError(refusal("send", state)))

    def _reset(self, state: State) -> None:
        self._failure = None
        self._must_renew = False
        self._is_closed = True
        self._is_started = False
        self._prepared = None
        self._added.clear()
        self._enter(state)

    async def _asked(
        self, attempt: Callable[[], Awaitable[T]], forget: Callable[[], None] | None = None
    ) -> T:
        try:
            return await self._coordinator.until_answered(attempt, forget)
        except ApiError as error:
            self._raise_failed(error)

    def _raise_failed(self, error: ApiError) -> NoReturn:
        """Record a coordinator's refusal, and raise the resulting error."""
        is_new = self._version >= ADDING_BY_WRITING
        is_spoiled = self.state is State.ABORTABLE_ERROR or self.state in SENDING
        if is_spoiled and is_abortable(error.code, is_new=is_new):
            self._must_renew = True
            failure: TransactionFailedError = abortable(error.code, error.detail)
        else:
            failure = fatal(error.code, error.detail)
        self._fail(failure)
        raise failure

    def _fail(self, failure: TransactionFailedError) -> None:
        """Keep the first failure, unless the new failure is fatal."""
        if self.state is State.FATAL_ERROR:
            return
        is_fatal = isinstance(failure, FatalTransactionError)
        target = State.FATAL_ERROR if is_fatal else State.ABORTABLE_ERROR
        if is_move(self.state, target):
            self._failure = failure
            self._enter(target)

    @asynccontextmanager
    async def _limited(self, call: str) -> AsyncIterator[None]:
        """Limit a call to max.block.ms. After a timeout call again, or abort the transaction."""
        seconds = self._settings.max_block_ms / 1000
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            if isinstance(error, NoResponseError):
                raise
            last = self._coordinator.last_failure
            detail = f"{call} took more than {seconds:g} s" + (f"; last: {last}" if last else "")
            if self.state is State.IN_TRANSACTION:
                failure = abortable(ErrorCode.REQUEST_TIMED_OUT, detail)
                self._must_renew = True
                self._fail(failure)
                raise failure from None
            raise NoResponseError(f"{detail}: call it again, or close the producer") from None

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.again() from self._failure

    def _check_two_phases(self) -> None:
        if not self._settings.transaction_two_phase_commit_enable:
            raise TransactionStateError("needs transaction.two.phase.commit.enable=true")

    def _move(self, target: State, call: str) -> None:
        if not is_move(self.state, target):
            self._refuse(call)
        self.is_commit_unreported = False
        self._enter(target)

    def _refuse(self, call: str) -> NoReturn:
        raise TransactionStateError(refusal(call, self.state))
