"""Delays the controller's responses until the other brokers have applied its decision.

A client that learns of a new topic may ask any broker for it next. So the response waits for the
brokers, but not for long, and not for fenced, stopping or silent ones: they may be dead.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeAlias

from ottla.broker.controller.metadata_log_client import WAIT_MS
from ottla.broker.controller.metadata_log_server import METADATA_FETCHED, MetadataFetch
from ottla.broker.metadata_store.metadata_history import MetadataFeed
from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset

SPREAD_MS_MAX: Final = 1_000
SILENT_MS: Final = WAIT_MS + 500
"""A broker that fetches the metadata sends requests more often than this."""
Spread: TypeAlias = Callable[[Iterable[int], int], Awaitable[None]]
"""Waits until other brokers have applied a decision, if one of these error codes reports success;
at most for so many milliseconds."""


async def nobody(_codes: Iterable[int], _timeout_ms: int) -> None:
    """Do not wait: there are no other brokers."""


class PropagationBarrier:
    """Tracks which brokers have applied a decision. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: int,
        feed: Callable[[], MetadataFeed | None],
        fetch: MetadataFetch,
        clock: Clock,
        notifier: Notifier,
    ) -> None:
        self._broker_id = broker_id
        self._feed = feed
        self._fetch = fetch
        self._clock = clock
        self._notifier = notifier

    async def spread(self, codes: Iterable[int], timeout_ms: int) -> None:
        """Return when all listening brokers have applied the present decisions, or time is over."""
        feed = self._feed()
        if feed is None or ErrorCode.NONE not in codes:
            return
        deadline_ms = self._clock.monotonic_ms() + min(timeout_ms, SPREAD_MS_MAX)
        end_offset = feed.end_offset
        while self._is_awaited(feed, end_offset) and await self._notifier.wait_any(
            [METADATA_FETCHED], deadline_ms
        ):
            pass

    def _is_awaited(self, feed: MetadataFeed, end_offset: Offset) -> bool:
        since_ms = self._clock.monotonic_ms() - SILENT_MS
        return not feed.is_closed and any(
            one.is_active
            and one.broker_id != self._broker_id
            and self._fetch.fetched.get(one.broker_id, 0) < end_offset
            and self._fetch.heard_ms.get(one.broker_id, 0) >= since_ms
            for one in feed.image.brokers.values()
        )
