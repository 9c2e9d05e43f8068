"""Translates committed offsets of groups, and commits them on the target for inactive groups.

A group with members on the target is not changed. A group without members, but with commits on the
target that are not this mirror's, is only moved forward: it was active there, and its commits
count. If nothing is copied yet, a group is set to the start of the copy; otherwise it would apply
its auto.offset.reset and might skip records.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from ottla.clients.admin.admin_groups import CommittedOffset
from ottla.clients.admin.admin_offsets import OffsetSpec
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.mirror.clusters import Clusters
from ottla.pipelines.mirror.offset_syncs import MirroredTopic, OffsetMaps
from ottla.pipelines.mirror.options import MirrorOptions

GROUPS_AT_ONCE_MAX: Final = 16
_TYPES: Final = frozenset({"", "classic", "consumer"})
_ACTIVE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""A coordinator's codes for commits to a group that has members."""
_ABSENT: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
Offsets = dict[TopicPartition, CommittedOffset]


@dataclass(slots=True)
class GroupFollower:
    """Translates the commits of groups; `follow` is called repeatedly."""

    options: MirrorOptions
    clusters: Clusters
    maps: OffsetMaps
    _written: dict[tuple[str, TopicPartition], int] = field(default_factory=dict)
    """This mirror's last commits."""

    async def follow(self, copies: list[MirroredTopic]) -> int:
        """Commit changed offsets; return their number."""
        copy_by_source = {copy.source_name: copy for copy in copies}
        if not copy_by_source or not self.options.groups:
            return 0
        listed = await AsyncAdmin.over(self.clusters.source).groups.list()
        group_ids = [
            row.group_id
            for row in listed
            if row.group_type.lower() in _TYPES and self.options.is_wanted_group(row.group_id)
        ]
        starts = await self._starts(copies)
        turn = asyncio.Semaphore(GROUPS_AT_ONCE_MAX)

        async def one(group_id: str) -> int:
            async with turn:
                return await self._follow_one(group_id, copy_by_source, starts)

        return sum(await asyncio.gather(*map(one, group_ids)))

    async def _starts(self, copies: list[MirroredTopic]) -> dict[TopicPartition, int]:
        """Return the copies' start offsets, for groups at deleted offsets."""
        names = [
            TopicPartition(copy.name, number)
            for copy in copies
            for number in range(copy.partition_count)
        ]
        admin = AsyncAdmin.over(self.clusters.target)
        found = await admin.offsets.find(dict.fromkeys(names, OffsetSpec.EARLIEST))
        return {name: row.offset for name, row in found.items()}

    async def _follow_one(
        self,
        group_id: str,
        copy_by_source: dict[str, MirroredTopic],
        starts: dict[TopicPartition, int],
    ) -> int:
        target = AsyncAdmin.over(self.clusters.target)
        try:
            committed = await AsyncAdmin.over(self.clusters.source).groups.committed(group_id)
            translated = self._translated(committed, copy_by_source, starts)
            if not translated:
                return 0
            there = await self._committed_there(target, group_id)
            changes = {
                name: offset
                for name, offset in translated.items()
                if self._is_to_move(group_id, name, offset.offset, there.get(name))
            }
            if changes:
                await target.groups.commit(group_id, changes)
        except ApiError as error:
            if error.code in _ACTIVE | _ABSENT:
                return 0
            raise
        for name, offset in changes.items():
            self._written[group_id, name] = offset.offset
        return len(changes)

    def _translated(
        self,
        committed: Offsets,
        copy_by_source: dict[str, MirroredTopic],
        starts: dict[TopicPartition, int],
    ) -> Offsets:
        translated = {}
        for name, offset in committed.items():
            copy = copy_by_source.get(name.topic)
            if copy is None:
                continue
            found = self.maps.of(copy.ident, name.partition).translate(offset.offset)
            there = TopicPartition(copy.name, name.partition)
            if there in starts:
                start = starts[there] if found is None else max(found, starts[there])
                translated[there] = CommittedOffset(start, metadata=offset.metadata)
        return translated

    @staticmethod
    async def _committed_there(target: AsyncAdmin, group_id: str) -> Offsets:
        try:
            return await target.groups.committed(group_id)
        except ApiError as error:
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return {}
            raise

    def _is_to_move(
        self, group_id: str, name: TopicPartition, offset: int, there: CommittedOffset | None
    ) -> bool:
        if there is None:
            return True
        if there.offset == offset:
            return False
        is_ours = self._written.get((group_id, name)) == there.offset
        return is_ours or offset > there.offset
