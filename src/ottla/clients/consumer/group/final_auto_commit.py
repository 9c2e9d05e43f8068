"""The automatic commit before partitions are revoked."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from logging import getLogger

from ottla.clients.consumer.group.auto_commits import COMMIT_FAILURES, AutoCommits, Offsets
from ottla.clients.threads.loop_thread import create_background_task
from ottla.model.identifiers import TopicPartition

_log = getLogger(__name__)


class LastCommit:
    """Runs in a task, so that no poll blocks on it; `wake` is called when it ends."""

    def __init__(
        self,
        auto: AutoCommits,
        commit: Callable[[Offsets], Awaitable[None]],
        wake: Callable[[], None],
    ) -> None:
        self._auto = auto
        self._commit = commit
        self._wake = wake
        self._task: asyncio.Task[None] | None = None
        self._names: frozenset[TopicPartition] = frozenset()

    @property
    def is_begun(self) -> bool:
        """Whether a commit is running, or has ended and `go_on` has not reported it yet."""
        return self._task is not None

    @property
    def is_under_way(self) -> bool:
        """Whether a commit is running."""
        return self._task is not None and not self._task.done()

    def go_on(self, names: Collection[TopicPartition]) -> bool:
        """Start the commit if it does not run for these partitions; return whether it is over."""
        if self._task is None or self._names != frozenset(names):
            self.cancel()
            self._names = frozenset(names)
            offsets = self._auto.take(asyncio.get_running_loop().time(), self._names)
            if not offsets:
                return True
            self._task = create_background_task(self.make(offsets))
            self._task.add_done_callback(self._on_done)
        if not self._task.done():
            return False
        self._task = None
        return True

    def cancel(self) -> None:
        """Cancel the commit: the partitions stay assigned, or are lost already."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the last commit before partitions go has failed", exc_info=error)
        self._wake()

    async def make(self, offsets: Offsets) -> None:
        """Commit these offsets; a failure is logged."""
        try:
            await self._commit(offsets)
        except COMMIT_FAILURES as error:
            self._auto.on_commit(offsets, error)
