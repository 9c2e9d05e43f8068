"""Commits of processed records besides automatic ones: before a revocation, and at the end."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from logging import getLogger
from typing import TYPE_CHECKING

from ottla.clients.consumer.core.core import ConsumerCore
from ottla.clients.consumer.group.auto_commits import COMMIT_FAILURES
from ottla.clients.consumer.group.group_errors import RebalanceInProgressError
from ottla.clients.consumer.state.offsets import to_commit

if TYPE_CHECKING:
    from ottla.model.identifiers import TopicPartition

_log = getLogger(__name__)


class DoneCommits:
    """Commits processed records. A failed commit is only logged: the records are read again."""

    def __init__(self, core: ConsumerCore) -> None:
        self._core = core

    async def commit(self, names: "Collection[TopicPartition]", seconds: float) -> None:
        """Commit the processed records of these partitions, within the time limit."""
        await self._try(names, asyncio.get_running_loop().time() + seconds)

    async def commit_all(self, seconds: float, poll: Callable[[], Awaitable[object]]) -> None:
        """Commit everything; during a rebalance, complete it first, by polling."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not await self._try(list(self._core.state.assigned), deadline):
            if loop.time() >= deadline:
                _log.warning("commit failed: the group has not ended its rebalance")
                return
            await poll()

    async def _try(self, names: "Collection[TopicPartition]", deadline: float) -> bool:
        """Commit; False during a rebalance."""
        if self._core.group is None:
            return True
        done = self._core.state.consumed()
        offsets = to_commit({name: done[name] for name in names if name in done})
        try:
            async with asyncio.timeout_at(deadline):
                await self._core.commit(offsets)
        except RebalanceInProgressError:
            return False
        except (*COMMIT_FAILURES, TimeoutError) as error:
            _log.warning("commit failed: %s", str(error) or "there was no answer in time")
        return True
