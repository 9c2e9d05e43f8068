"""Commits that nobody waits for: automatic ones, and those of `commit_async`."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from logging import getLogger
from typing import Final

from ottla.clients.consumer.group.group_protocol import OffsetAndMetadata, to_commit
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import SubscriptionState
from ottla.clients.errors import NoAnswerError, UnreachableError
from ottla.clients.threads.loop_thread import call_in_caller, create_background_task
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, Exception | None], object]
COMMITS_MAX: Final = 1_000
"""How many commits may be under way at once; each is small, but there must be an end."""
COMMIT_AGAIN_SECONDS: Final = 3600
"""After so long also what is committed is, once more: brokers forget what is not for long."""
COMMIT_FAILURES: Final = (ApiError, UnreachableError, NoAnswerError)
_log = getLogger(__name__)


class BackgroundCommits:
    """Starts commits, in order, and keeps what has to be told about them until the next poll."""

    def __init__(self, commit: Callable[[Offsets], Awaitable[None]]) -> None:
        self._commit = commit
        self._running: dict[asyncio.Task[None], None] = {}
        self._finished: deque[tuple[OnCommit, Offsets, Exception | None]] = deque()

    @property
    def has_news(self) -> bool:
        """Whether a callback waits to be called."""
        return bool(self._finished)

    def start(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        """Commit soon; the callback is called by `tell`, and without one a failure is logged."""
        if len(self._running) >= COMMITS_MAX:
            error = NoAnswerError(f"{COMMITS_MAX} commits have not been answered yet")
            self._finish(offsets, on_commit, error)
            return
        task = create_background_task(self._run(offsets, on_commit))
        self._running[task] = None
        task.add_done_callback(self._running.pop)

    async def tell(self) -> None:
        """Call the callbacks of what is done, in the thread of the caller."""
        while self._finished:
            on_commit, offsets, error = self._finished.popleft()
            await call_in_caller(on_commit, offsets, error)

    async def drain(self) -> None:
        """Wait until everything that was started is done."""
        if self._running:
            await asyncio.wait(self._running)

    def cancel(self) -> None:
        """Wait for nothing any more."""
        for task in self._running:
            task.cancel()

    async def _run(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        error: Exception | None = None
        try:
            await self._commit(offsets)
        except COMMIT_FAILURES as failure:
            error = failure
        self._finish(offsets, on_commit, error)

    def _finish(
        self, offsets: Offsets, on_commit: OnCommit | None, error: Exception | None
    ) -> None:
        if on_commit is not None:
            self._finished.append((on_commit, offsets, error))
        elif error is not None:
            _log.warning("commit failed: %s", error)


class AutoCommits:
    """Commits what earlier polls have returned, every few seconds, if that is wanted."""

    def __init__(self, state: SubscriptionState, settings: ConsumerSettings) -> None:
        self._state = state
        self._interval = settings.auto_commit_interval_ms / 1000
        self._last: dict[TopicPartition, OffsetAndMetadata] = {}
        self.is_wanted = settings.enable_auto_commit
        self._due_at: float | None = None
        self._all_due_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Return whether it is time again."""
        if not self.is_wanted:
            return False
        if self._due_at is None:
            self._due_at = now + self._interval
        return now >= self._due_at

    def take(
        self, now: float, names: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what has to be committed now, of all partitions or of some."""
        self._due_at = now + self._interval
        if not self.is_wanted:
            return {}
        if self._all_due_at is None or now >= self._all_due_at:
            self._all_due_at = now + COMMIT_AGAIN_SECONDS
            self._last.clear()
        return {
            name: offset
            for name, offset in to_commit(self._state.consumed()).items()
            if (names is None or name in names) and self._last.get(name) != offset
        }

    def on_commit(self, offsets: Offsets, error: Exception | None) -> None:
        """Remember what is committed; a failure is no more than a line, as the next one follows."""
        if error is None:
            self._last.update(offsets)
        else:
            _log.warning("automatic commit failed, and is tried again: %s", error)

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Know nothing of partitions that others may commit from now on."""
        for name in names:
            self._last.pop(name, None)
