"""Reads as a member of a group: what it is given, from where the group was, and commits."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from ottla.clients.admin_groups import GroupAdmin
from ottla.clients.cluster_view import ClusterView, pause
from ottla.clients.errors import NoAnswerError, UnreachableError
from ottla.clients.fetcher import Fetched, Fetcher, FetcherSettings
from ottla.clients.group_member import GroupMember, GroupSettings
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition

COMMIT_INTERVAL_MS: Final = 5_000
IDLE_MS: Final = 200
"""How long to wait where there is nothing to read before looking whether that has changed."""
StartOffsets = Callable[[Sequence[TopicPartition]], Awaitable[dict[TopicPartition, int]]]


class GroupReader:
    """Reads topics together with the other members of a group.

    What was told by `mark` is committed every few seconds, before partitions go to somebody else,
    and by `close`: at least once, as consumers of Kafka's do it.
    """

    def __init__(
        self,
        view: ClusterView,
        member: GroupMember,
        group_id: str,
        start_offsets: StartOffsets,
        settings: FetcherSettings | None = None,
    ) -> None:
        self._view = view
        self._member = member
        self._group_id = group_id
        self._start_offsets = start_offsets
        self._settings = settings
        self._fetcher: Fetcher | None = None
        self._marked: dict[TopicPartition, int] = {}
        self._committed_at = asyncio.get_running_loop().time()

    @classmethod
    def of_group(
        cls,
        view: ClusterView,
        group_id: str,
        topics: Sequence[str],
        start_offsets: StartOffsets,
        settings: FetcherSettings | None = None,
        group_settings: GroupSettings | None = None,
    ) -> "GroupReader":
        """Make a reader; start_offsets is asked for partitions that nothing is committed for."""
        member = GroupMember(view, group_id, topics, group_settings)
        return cls(view, member, group_id, start_offsets, settings)

    @property
    def offset_by_partition(self) -> dict[TopicPartition, int]:
        """Where reading goes on, in every partition that is read now."""
        return dict(self._fetcher.offset_by_partition) if self._fetcher else {}

    @property
    def is_waiting_for_partitions(self) -> bool:
        """Whether the group has still to say what is to be read here."""
        return self._member.must_rejoin.is_set()

    async def poll(self) -> list[Fetched]:
        """Join again where that is needed, and return what comes next, which may be nothing."""
        if self._member.must_rejoin.is_set():
            await self._rejoin()
        elif asyncio.get_running_loop().time() - self._committed_at > COMMIT_INTERVAL_MS / 1000:
            await self._commit()
        if not self.offset_by_partition or self._fetcher is None:
            await pause(IDLE_MS)
            return []
        return await self._fetcher.poll()

    def mark(self, partition: TopicPartition, next_offset: int) -> None:
        """Tell that everything before this offset has been dealt with."""
        self._marked[partition] = next_offset

    def drop(self, partition: TopicPartition) -> None:
        """Read this partition no further."""
        if self._fetcher is not None:
            self._fetcher.drop(partition)

    async def close(self) -> None:
        """Commit, leave the group, and wait for no answer any more."""
        if self._fetcher is not None:
            await self._fetcher.close()
        with suppress(ApiError, UnreachableError, NoAnswerError):
            await self._commit()
        await self._member.leave()

    async def _rejoin(self) -> None:
        if self._fetcher is not None:
            await self._fetcher.close()
            with suppress(ApiError):  # the generation is over: somebody else reads it again
                await self._commit()
        partitions = await self._member.join()
        self._marked.clear()
        committed = await GroupAdmin(self._view).committed(self._group_id)
        unknown = [name for name in partitions if name not in committed]
        offsets = await self._start_offsets(unknown) if unknown else {}
        offsets |= {name: committed[name].offset for name in partitions if name in committed}
        self._fetcher = Fetcher(self._view, offsets, self._settings)

    async def _commit(self) -> None:
        self._committed_at = asyncio.get_running_loop().time()
        marked, self._marked = self._marked, {}
        if marked:
            await self._member.commit(marked)
