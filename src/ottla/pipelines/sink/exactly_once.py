"""Exactly once from Spark, in two phases: tasks write in transactions, the driver decides.

In a task, with settings by Kafka's names as a Producer takes them:

    name = AttemptName(query, run, task, attempt)   # nobody else ever has this name
    producer = open_producer(settings, name)        # a transaction is begun
    producer.send_arrow(topic, table)
    opened = prepare(producer)                      # flushed and closed, the transaction is open

If nothing was sent there is nothing to prepare: `producer.close()` aborts.

In the driver, with what the tasks returned:

    with Decisions(settings, query) as decisions:   # may be kept for many batches
        decisions.last_batch_id()                   # NO_BATCH if there is none yet
        decisions.commit(batch_id, opened)          # decide, and then end
        decisions.abort(opened)                     # if the batch has failed

What is promised: `commit` returned means that the transactions of exactly one attempt of this
batch are committed, whoever died when, and however many drivers think that they are the one. Until
a decision is written nothing is visible to readers of committed records; from then on it will be.

- The decision is a load and a conditional store: the driver takes the transactional id
  `<query>.decisions`, then reads the last decision, then writes the next one in a transaction of
  that id. Whoever else has taken the id meanwhile has fenced it.
- Decisions are kept in a compacted topic, so they do not expire, however long a query rests.
- Attempts have names of their own, so that nobody's InitProducerId aborts what was decided.
- Before it decides, the driver looks whether all transactions are still open: those of brokers
  without two-phase commit can be aborted for their age.
- Transactions that earlier attempts and runs have left open are aborted, and that is a part of
  the decision, too: a driver that comes late cannot abort what another has decided to commit.
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
from ottla.pipelines.sink.commit_driver import Deciding, Settings
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
"""How long transactions may stay open where brokers have no two-phase commit: the first of these
that is taken. The first is Kafka's own default for the longest, transaction.max.timeout.ms."""
_TWO_PHASES: Final = "transaction.two.phase.commit.enable"
_TIMEOUT: Final = "transaction.timeout.ms"
_REFUSALS: Final = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)
"""What brokers say to terms that they do not take."""
_terms_by_servers: Final[dict[Any, Settings]] = {}
"""What brokers took the last time, so that they are not asked in vain for every task."""


# -- tasks ----------------------------------------------------------------------------------------


def open_producer(settings: Settings, name: AttemptName) -> Producer:
    """Return a producer that has begun a transaction, on the best terms that the broker takes."""
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
    """Send everything that waits, and close the producer, but leave its transaction open."""
    try:
        prepared = producer.prepare_transaction(can_time_out=True)
    finally:
        producer.close()
    name = producer.settings.transactional_id or ""
    return OpenTransaction(name, prepared.producer_id, prepared.epoch)


def _terms(settings: Settings) -> Sequence[Settings]:
    """Return what to ask brokers for, the best first: never to time out, then to do so late."""
    if _TIMEOUT in settings or _TWO_PHASES in settings:
        return ({},)
    known = _terms_by_servers.get(settings.get("bootstrap.servers"))
    every = [{_TWO_PHASES: "true"}, *({_TIMEOUT: str(time_ms)} for time_ms in TIMEOUTS_MS)]
    return every if known is None else [known, *every]


# -- the driver -----------------------------------------------------------------------------------


class Decisions:
    """The driver's side of one query, in `with` or until it is closed; for one thread at a time."""

    def __init__(self, settings: Settings, query: str) -> None:
        without_terms = {
            name: value for name, value in settings.items() if name not in {_TIMEOUT, _TWO_PHASES}
        }
        client, producer_settings = read_producer_settings(without_terms, {})
        self._thread = LoopThread(f"decisions of {query}")
        view = self._thread.run(_make_view(client))
        self._thread.call_at_end(view.close)
        self._deciding = Deciding(view, without_terms, producer_settings, query)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def last_batch_id(self) -> int:
        """Return the last batch that was decided on, as far as anybody can see; it may be older."""
        return self._thread.run(self._deciding.last_seen()).batch_id

    def commit(
        self, batch_id: int, opened: Iterable[OpenTransaction], *, has_lost: bool = False
    ) -> bool:
        """Decide that these transactions are the batch, and end them; return whether it was so.

        It was not if the batch had been decided on before: then these transactions are aborted,
        and those of that decision are ended. `has_lost` says that attempts have failed and may
        have left transactions open. DecisionError: nothing was decided, as when a later batch was
        before, or what was can no more be done. After any other error the same call, by anybody,
        goes on where this one ended.
        """
        return self._thread.run(self._deciding.commit(batch_id, tuple(opened), has_lost=has_lost))

    def commit_once(self, opened: Iterable[OpenTransaction]) -> None:
        """Do as `commit` does for a query that has one batch, and leave nothing behind."""
        self._thread.run(self._deciding.commit_once(tuple(opened)))

    def abort(self, opened: Iterable[OpenTransaction]) -> None:
        """Abort these transactions and others that were left open; do what was decided on."""
        self._thread.run(self._deciding.abort(tuple(opened)))

    def close(self) -> None:
        """Close all connections."""
        with suppress(ClientClosedError):
            self._thread.close()


async def _make_view(client: ClientSettings) -> ClusterView:  # noqa: RUF029 - in the thread of its loop
    return ClusterView(client, randomness=SystemRandomness())
