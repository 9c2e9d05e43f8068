"""Background commits: automatic commits and `commit_async`."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from logging import getLogger
from typing import Final

from ottla.clients.consumer.state.offsets import OffsetAndMetadata, to_commit
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import SubscriptionState
from ottla.clients.errors import NoResponseError, UnreachableError
from ottla.clients.threads.loop_thread import call_in_caller, create_background_task
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
OnCommit = Callable[[Offsets, Exception | None], object]
COMMITS_MAX: Final = 1_000
"""The limit of unfinished background commits; each is small, but the queue must be bounded."""
COMMIT_AGAIN_SECONDS: Final = 3600
"""After this time unchanged offsets are committed again, before offsets.retention expires them."""
COMMIT_FAILURES: Final = (ApiError, UnreachableError, NoResponseError)
_log = getLogger(__name__)


class BackgroundCommits:
    """Starts commits, in order, and queues their callbacks until the next poll."""

    def __init__(self, commit: Callable[[Offsets], Awaitable[None]]) -> None:
        self._commit = commit
        self._running: dict[asyncio.Task[None], None] = {}
        self._finished: deque[tuple[OnCommit, Offsets, Exception | None]] = deque()

    @property
    def has_news(self) -> bool:
        """Whether a callback is queued."""
        return bool(self._finished)

    def start(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        """Start a commit. `tell` calls the callback; without a callback a failure is logged."""
        if len(self._running) >= COMMITS_MAX:
            error = NoResponseError(f"{COMMITS_MAX} commits have not been answered yet")
            self._finish(offsets, on_commit, error)
            return
        task = create_background_task(self._run(offsets, on_commit))
        self._running[task] = None
        task.add_done_callback(self._running.pop)

    async def tell(self) -> None:
        """Call the queued callbacks, in the calling thread."""
        while self._finished:
            on_commit, offsets, error = self._finished.popleft()
            await call_in_caller(on_commit, offsets, error)

    async def drain(self) -> None:
        """Wait until all started commits are done."""
        if self._running:
            await asyncio.wait(self._running)

    def cancel(self) -> None:
        """Cancel all running commits."""
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
    """Commits the consumed positions every auto.commit.interval.ms, if auto-commit is on."""

    def __init__(self, state: SubscriptionState, settings: ConsumerSettings) -> None:
        self._state = state
        self._interval = settings.auto_commit_interval_ms / 1000
        self._last: dict[TopicPartition, OffsetAndMetadata] = {}
        self.is_wanted = settings.enable_auto_commit
        self._due_at: float | None = None
        self._all_due_at: float | None = None

    def is_due(self, now: float) -> bool:
        """Return whether the commit interval has passed."""
        if not self.is_wanted:
            return False
        if self._due_at is None:
            self._due_at = now + self._interval
        return now >= self._due_at

    def take(
        self, now: float, names: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit now, of all partitions or of these."""
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
        """Remember the committed offsets. A failure is only logged: the next commit follows."""
        if error is None:
            self._last.update(offsets)
        else:
            _log.warning("automatic commit failed, and is tried again: %s", error)

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Forget the committed offsets of partitions that other members may commit from now on."""
        for name in names:
            self._last.pop(name, None)
