"""The two clusters of a mirror: clients and cluster ids."""

from collections.abc import Iterable
from time import monotonic
from typing import Final, Self

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import NoResponseError, UnreachableError
from ottla.concurrency.sleep import pause
from ottla.model.error_code import ErrorCode
from ottla.pipelines.mirror.offset_syncs import MirroredTopic, ident_of
from ottla.pipelines.mirror.options import MirrorError, MirrorOptions, notes_topic
from ottla.runtime.randomness import SystemRandomness

PATIENCE_SECONDS: Final = 30.0
"""How long tasks and plans wait for an unreachable cluster."""
_PAUSE_MS: Final = 500


class Clusters:
    """Views of both clusters, in one event loop. Use it in `async with`."""

    def __init__(self, options: MirrorOptions, patience_seconds: float = 0.0) -> None:
        """Create the views; `patience_seconds` is how long to retry an unreachable cluster."""
        self._patience_seconds = patience_seconds
        self.source = ClusterView(options.source_settings, randomness=SystemRandomness())
        self.target = ClusterView(options.target_settings, randomness=SystemRandomness())
        self.source_id = ""
        self.target_id = ""

    async def __aenter__(self) -> Self:
        try:
            await self.meet()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def meet(self) -> None:
        """Request both cluster ids; MirrorError if they are equal or missing."""
        until = monotonic() + self._patience_seconds
        for view in (self.source, self.target):
            while not await self._is_met(view, until):
                await pause(_PAUSE_MS)
        if self.source.cluster_id is None or self.target.cluster_id is None:
            raise MirrorError("a cluster without an id cannot be mirrored")
        if self.source.cluster_id == self.target.cluster_id:
            raise MirrorError("both addresses lead to the same cluster")
        self.source_id = self.source.cluster_id
        self.target_id = self.target.cluster_id

    @staticmethod
    async def _is_met(view: ClusterView, until: float) -> bool:
        try:
            await view.refresh([])
        except (UnreachableError, NoResponseError):
            if monotonic() >= until:
                raise
            return False
        return True

    @property
    def notes_topic(self) -> str:
        """The target's topic with the notes about this source."""
        return notes_topic(self.source_id)

    async def alive(self, copies: Iterable[MirroredTopic]) -> list[MirroredTopic]:
        """Return the copies with both topics present and with their recorded ids."""
        noted = list(copies)
        source = await _idents(self.source, {copy.source_name for copy in noted})
        target = await _idents(self.target, {copy.name for copy in noted})
        return [
            copy
            for copy in noted
            if source.get(copy.source_name) == copy.source_id
            and target.get(copy.name) == copy.ident
        ]

    def close(self) -> None:
        """Close every connection."""
        self.source.close()
        self.target.close()


async def _idents(view: ClusterView, topics: set[str]) -> dict[str, str]:
    rows = await view.retried(lambda: view.refresh(sorted(topics))) if topics else []
    return {
        row.name: ident_of(row.topic_id, row.name)
        for row in rows
        if row.name is not None and row.error_code == ErrorCode.NONE
    }
