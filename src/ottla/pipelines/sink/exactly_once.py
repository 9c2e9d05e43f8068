"""Exactly once from Spark, in two phases: tasks write in transactions, the driver decides.

In a task, with a Producer's settings:

    name = AttemptName(query, run, task, attempt)   # unique
    producer = open_producer(settings, name)        # a transaction is begun
    producer.send_arrow(topic, table)
    opened = prepare(producer)                      # flushed and closed, the transaction is open

If nothing was sent there is nothing to prepare: `producer.close()` aborts.

In the driver, with the results of the tasks:

    with Decisions(settings, query) as decisions:   # may be kept for many batches
        decisions.last_batch_id()                   # NO_BATCH if there is none yet
        decisions.commit(batch_id, opened)          # decide, and then end
        decisions.abort(opened)                     # if the batch has failed

When `commit` returns, the transactions of exactly one attempt of this batch are committed. This
holds for any crash of a process, and for several drivers at once. Until a decision is written,
consumers of committed records see none of the batch; afterwards they eventually see all of it.

- A decision is a load and a conditional store. The driver takes the transactional id
  `<query>.decisions`, reads the last decision, and writes the next in a transaction of that id.
  Another driver that has taken the id meanwhile has fenced this driver.
- Decisions are kept in a compacted topic, so they do not expire while a query is stopped.
- Each attempt has a transactional id of its own, so that no InitProducerId aborts a transaction
  that a decision commits.
- Before it decides, the driver checks that all transactions are still open: brokers without
  two-phase commit abort old transactions.
- Open transactions of earlier attempts and runs are aborted. They are a part of the decision, so
  that a late driver cannot abort a transaction that another has decided to commit.
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import ClientSettings
from ottla.clients.errors import ClientClosedError
from ottla.clients.producer.producer import Producer
from ottla.clients.producer.state.settings import read_producer_settings
from ottla.clients.threads.loop_thread import LoopThread
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.pipelines.sink.commit_decision import (
    NO_BATCH,
    AttemptName,
    DecisionError,
    OpenTransaction,
)
from ottla.pipelines.sink.commit_driver import CommitDriver, Settings
from ottla.runtime.randomness import SystemRandomness

__all__ = [
    "NO_BATCH",
    "AttemptName",
    "DecisionError",
    "Decisions",
    "OpenTransaction",
    "open_producer",
    "prepare",
]

TIMEOUTS_MS: Final = (900_000, 300_000, 60_000)
"""The transaction timeouts for brokers without two-phase commit, in order of preference. The first
is Kafka's default maximum, transaction.max.timeout.ms."""
_TWO_PHASES: Final = "transaction.two.phase.commit.enable"
_TIMEOUT: Final = "transaction.timeout.ms"
_REFUSALS: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)
"""The error codes of brokers that do not support or allow a timeout."""
_terms_by_servers: Final[dict[Any, Settings]] = {}
"""The last accepted timeouts by brokers, so that each task does not repeat refused requests."""


# -- tasks ----------------------------------------------------------------------------------------


def open_producer(settings: Settings, name: AttemptName) -> Producer:
    """Return a producer in a transaction, with the longest timeout that the broker accepts."""
    refusal: ApiError | None = None
    for terms in _terms(settings):
        own = {**settings, **terms, "transactional.id": str(name)}
        producer = Producer(own)
        try:
            producer.init_transactions()
            producer.begin_transaction()
        except ApiError as error:
            producer.close()
            if error.code not in _REFUSALS:
                raise
            refusal = error
        except BaseException:
            producer.close()
            raise
        else:
            _terms_by_servers[settings.get("bootstrap.servers")] = terms
            return producer
    assert refusal is not None
    raise refusal


def prepare(producer: Producer) -> OpenTransaction:
    """Flush and close the producer, but leave its transaction open."""
    try:
        prepared = producer.prepare_transaction(can_time_out=True)
    finally:
        producer.close()
    name = producer.settings.transactional_id or ""
    return OpenTransaction(name, prepared.producer_id, prepared.epoch)


def _terms(settings: Settings) -> Sequence[Settings]:
    """Return the timeouts to try, the best first: none, then the longest."""
    if _TIMEOUT in settings or _TWO_PHASES in settings:
        return ({},)
    known = _terms_by_servers.get(settings.get("bootstrap.servers"))
    every = [{_TWO_PHASES: "true"}, *({_TIMEOUT: str(time_ms)} for time_ms in TIMEOUTS_MS)]
    return every if known is None else [known, *every]


# -- the driver -----------------------------------------------------------------------------------


class Decisions:
    """The driver's side of one query, in `with` or until it is closed; not thread-safe."""

    def __init__(self, settings: Settings, query: str) -> None:
        without_terms = {
            name: value for name, value in settings.items() if name not in {_TIMEOUT, _TWO_PHASES}
        }
        client, producer_settings = read_producer_settings(without_terms, {})
        self._thread = LoopThread(f"decisions of {query}")
        view = self._thread.run(_make_view(client))
        self._thread.call_at_end(view.close)
        self._deciding = CommitDriver(view, without_terms, producer_settings, query)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def last_batch_id(self) -> int:
        """Return the last visibly decided batch; a newer decision may be in flight."""
        return self._thread.run(self._deciding.last_seen()).batch_id

    def commit(
        self, batch_id: int, opened: Iterable[OpenTransaction], *, has_lost: bool = False
    ) -> bool:
        """Decide that the batch consists of these transactions, and end them.

        Returns whether these transactions were committed. If the batch was decided before with
        other transactions, these are aborted and the decided ones are committed. `has_lost` says
        that attempts have failed and may have left transactions open. DecisionError means that
        nothing was decided, because a later batch was, or that a decided commit is no longer
        possible. After any other error, the same call continues from there, also in another
        process.
        """
        return self._thread.run(self._deciding.commit(batch_id, tuple(opened), has_lost=has_lost))

    def commit_once(self, opened: Iterable[OpenTransaction]) -> None:
        """Commit the only batch of a query, and delete its decision."""
        self._thread.run(self._deciding.commit_once(tuple(opened)))

    def abort(self, opened: Iterable[OpenTransaction]) -> None:
        """Abort these and other open transactions; complete the last decision."""
        self._thread.run(self._deciding.abort(tuple(opened)))

    def close(self) -> None:
        """Close all connections."""
        with suppress(ClientClosedError):
            self._thread.close()


async def _make_view(client: ClientSettings) -> ClusterView:  # noqa: RUF029 - in the thread of its loop
    return ClusterView(client, randomness=SystemRandomness())
