"""Calls about several items, with a result for each item.

The rule of the admin client: if every item succeeded, the results are returned, by item. If any
item failed, ItemsFailedError is raised with both the results and the failures.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, Final, Generic, TypeVar

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import RETRIABLE, NoResponseError, UnreachableError, error_code
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

NEWS_MS_MAX: Final = 1_000
"""How long an unknown item may be new: brokers learn of a topic at different times."""
_PERHAPS_NEW: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")


class ItemsFailedError(ApiError):
    """Some items of a call failed. It has the code and message of the first failure."""

    def __init__(self, done: Mapping[Any, Any], failed: Mapping[Any, ApiError]) -> None:
        first = next(iter(failed.values()))
        others = len(failed) - 1
        more = f" (and {others} more failed)" if others else ""
        super().__init__(first.code, f"{first.detail}{more}")
        self.done = dict(done)
        """The results of the other items."""
        self.failed = dict(failed)


class _Outcomes(Generic[K, V]):
    """The items of one call, by their state."""

    def __init__(self, items: Iterable[K], final: Collection[ErrorCode]) -> None:
        self.waiting: dict[K, ApiError | None] = dict.fromkeys(items)
        """The items to ask about (again), with their last failure."""
        self.done: dict[K, V] = {}
        self.failed: dict[K, ApiError] = {}
        self._order = list(self.waiting)
        self._final = final

    def begin(self) -> list[K]:
        """Return the items to ask about now, and clear their last failures."""
        self.waiting = dict.fromkeys(self.waiting)
        return list(self.waiting)

    def take(self, found: Mapping[K, V | ApiError], *, is_old: bool) -> None:
        """Record results; items with retriable failures remain."""
        for item in list(self.waiting):
            outcome = found[item] if item in found else _unanswered(item)
            if not isinstance(outcome, ApiError):
                self.done[item] = outcome
            elif self._may_pass(outcome.code, is_old=is_old):
                self.waiting[item] = outcome
                continue
            else:
                self.failed[item] = outcome
            del self.waiting[item]

    def give_up(self, reason: ApiError) -> None:
        """End the retries: the remaining items have failed."""
        self.failed |= {item: error or reason for item, error in self.waiting.items()}
        self.waiting.clear()

    def result(self) -> dict[K, V]:
        """Return the results, in the order of the call, or raise the failures."""
        done = {item: self.done[item] for item in self._order if item in self.done}
        if self.failed:
            in_order = {item: self.failed[item] for item in self._order if item in self.failed}
            raise ItemsFailedError(done, in_order)
        return done

    def _may_pass(self, code: ErrorCode, *, is_old: bool) -> bool:
        is_final = code in self._final or (is_old and code in _PERHAPS_NEW)
        return code in RETRIABLE and not is_final


async def in_time(
    view: ClusterView,
    attempt: Callable[[], Awaitable[T]],
    *,
    final: Collection[ErrorCode] = (),
    timeout_ms: int | None = None,
) -> T:
    """Retry like the view, but enforce the time limit of the call even during a request."""
    failed: list[Exception] = []
    earlier: list[Exception] = []
    seconds = (timeout_ms or view.settings.timeout_ms) / 1000

    async def noted() -> T:
        earlier[:], failed[:] = failed, []
        try:
            return await attempt()
        except (ApiError, UnreachableError, NoResponseError) as error:
            failed.append(error)
            raise

    try:
        async with asyncio.timeout(seconds):
            return await view.retried(noted, final=final, timeout_ms=timeout_ms)
    except NoResponseError:
        raise
    except TimeoutError:
        for error in failed:  # before the pause that was too long
            raise error from None
        why = f"; the attempt before: {earlier[0]}" if earlier else ""
        raise NoResponseError(f"the call was not over within {seconds:g} s{why}") from None


async def for_each(
    view: ClusterView,
    items: Iterable[K],
    ask: Callable[[list[K]], Awaitable[Mapping[K, V | ApiError]]],
    *,
    final: Collection[ErrorCode] = (),
    timeout_ms: int | None = None,
) -> dict[K, V]:
    """Ask about items, and again about items with retriable failures; return all results.

    An exception of `ask` itself is raised if no item has a result yet: then all have failed, for
    one reason. Codes in `final` are not retried.
    """
    outcomes: _Outcomes[K, V] = _Outcomes(items, final)
    loop = asyncio.get_running_loop()
    old_at = loop.time() + NEWS_MS_MAX / 1000

    async def attempt() -> None:
        found = await ask(outcomes.begin())
        outcomes.take(found, is_old=loop.time() > old_at)
        for error in outcomes.waiting.values():
            assert error is not None, "a waiting item has failed"
            if error.code is ErrorCode.NOT_CONTROLLER:
                view.controller_id = -1  # looked for before the next attempt
            raise error

    if not outcomes.waiting:
        return {}
    try:
        await in_time(view, attempt, timeout_ms=timeout_ms)
    except (ApiError, UnreachableError, NoResponseError) as error:
        if not outcomes.done and not outcomes.failed and not any(outcomes.waiting.values()):
            raise
        outcomes.give_up(as_api_error(error))
    return outcomes.result()


async def ask_each(
    items_by_broker: Mapping[int, list[K]],
    ask: Callable[[int, list[K]], Awaitable[Mapping[K, V | ApiError]]],
) -> dict[K, V | ApiError]:
    """Ask several brokers at once; a failing broker fails its own items only."""

    async def asked(broker_id: int, items: list[K]) -> Mapping[K, V | ApiError]:
        try:
            return await ask(broker_id, items)
        except (ApiError, UnreachableError, NoResponseError) as error:
            return dict.fromkeys(items, as_api_error(error))

    answers = await asyncio.gather(*(asked(*row) for row in items_by_broker.items()))
    return {item: outcome for answer in answers for item, outcome in answer.items()}


async def ask_leaders(
    view: ClusterView,
    names: list[TopicPartition],
    ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | ApiError]]],
) -> dict[TopicPartition, V | ApiError]:
    """Ask the leader of each partition; partitions without a leader fail alone."""
    topics = {name.topic for name in names}
    if len(topics) > 1:
        await view.refresh(topics)  # in a single request for all topics
    by_leader: dict[int, list[TopicPartition]] = {}
    leaderless: dict[TopicPartition, ApiError] = {}
    for name in names:
        try:
            leader_id = (await view.partition(name)).leader_id
        except ApiError as error:
            leaderless[name] = error
        else:
            by_leader.setdefault(leader_id, []).append(name)
    return {**leaderless, **await ask_each(by_leader, ask)}


def outcome_of(code: int, detail: str | None, fine: V) -> V | ApiError:
    """Return the result of one item: this value if its code is NONE, else an error."""
    found = error_code(code)
    return fine if found is ErrorCode.NONE else ApiError(found, detail or "")


def as_api_error(error: ApiError | OSError) -> ApiError:
    """Convert a network failure to an ApiError, with the code that Kafka's clients use."""
    if isinstance(error, ApiError):
        return error
    is_late = isinstance(error, NoResponseError)
    code = ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NETWORK_EXCEPTION
    return ApiError(code, str(error))


def one_or_several(names: "str | Iterable[str]") -> list[str]:
    """Return a list of distinct names: callers may pass a single name."""
    return [names] if isinstance(names, str) else list(dict.fromkeys(names))


def _unanswered(item: object) -> ApiError:
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker answered nothing about {item}")
