"""Expires offsets, and removes groups without members and offsets.

An offset expires `offsets.retention.minutes` after its commit, and no sooner than as long after the
group became empty. Offsets of a group with members stay, unless no member subscribes to their topic
any more. An empty group is removed with its last offset.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import Final

from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_records import (
    NEVER,
    CommittedOffset,
    GroupRecord,
    group_tombstone,
    offset_tombstone,
)
from ottla.machines.groups.group_store import GroupStore
from ottla.machines.groups.pending_offsets import Place
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.groups.soft_state import Due, Phase, SoftState
from ottla.machines.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from ottla.machines.moment import Moment
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

LOOKS_MAX: Final = 5_000
"""The number of offsets checked in one run."""
TOMBSTONES_MAX: Final = 200
"""How many tombstones one decision has, unless a group is deleted."""


class Retention:
    """Decides which offsets and groups are forgotten."""

    def __init__(self, settings: GroupSettings, store: GroupStore, soft_state: SoftState) -> None:
        self._settings = settings
        self._store = store
        self._soft_state = soft_state
        self._unseen: list[str] = []

    def schedule(self, now: Moment) -> None:
        """Run after the interval, or at once if the last run was not finished."""
        interval_ms = self._settings.offsets_retention_check_interval_ms
        delay_ms = 0 if self._unseen else interval_ms
        self._soft_state.deadlines.set(Due(Phase.RETENTION), now, delay_ms)

    def look(self, now: Moment) -> tuple[GroupRecord, ...]:
        """Delete expired offsets, in as many groups as one time slice allows."""
        if not self._unseen:
            self._unseen = self._store.group_ids()
        looks = 0
        records: list[GroupRecord] = []
        while self._unseen and looks < LOOKS_MAX and len(records) < TOMBSTONES_MAX:
            group = self._store.get(self._unseen.pop())
            if group is not None:
                looks += 1 + self._store.offsets.count(group.group_id)
                expired = self._expired(group, now.wall_ms)
                records += expired
                if len(expired) >= TOMBSTONES_MAX:
                    self._unseen.append(group.group_id)
        self.schedule(now)
        return tuple(records)

    def delete_group(self, group_id: str) -> tuple[GroupRecord, ...]:
        """Forget a group with all its offsets; raise if it has members or is not there."""
        group = self._store.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        if group.state is not GroupState.EMPTY:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, group_id)
        offsets = self._store.offsets.of_group(group_id)
        tombstones = [
            offset_tombstone(group_id, topic, partition) for topic, partition, _ in offsets
        ]
        tombstones += [
            offset_tombstone(*place)
            for place in self._store.pending.of_group(group_id)
            if self._store.offsets.get(*place) is None
        ]
        return (*tombstones, group_tombstone(group_id))

    def forget_topic(self, topic: str, alive_id: bytes | None) -> tuple[GroupRecord, ...]:
        """Delete the offsets of a deleted topic, in portions.

        Offsets for the topic of this id stay: it has the name now.
        """
        committed = (
            offset_tombstone(group_id, topic, partition)
            for group_id, partition, committed in self._store.offsets.of_topic(topic)
            if committed.topic_id != alive_id
        )
        pending = (
            offset_tombstone(*place)
            for place, committed in self._store.pending.of_topic(topic)
            if committed.topic_id != alive_id
        )
        return tuple(islice(chain(committed, pending), TOMBSTONES_MAX))

    def _expired(self, group: ClassicGroup, now_ms: int) -> list[GroupRecord]:
        offsets = self._store.offsets
        expired = list(islice(self._expired_offsets(group, now_ms), TOMBSTONES_MAX))
        records = [offset_tombstone(group.group_id, *place) for place in expired]
        has_all_expired = len(expired) == offsets.count(group.group_id)
        is_unused = (
            group.state is GroupState.EMPTY
            and not group.attendance.pending
            and not self._store.pending.has_group(group.group_id)
        )
        if has_all_expired and is_unused and group.stored_ms is not None:
            records.append(group_tombstone(group.group_id))
        return records

    def _expired_offsets(self, group: ClassicGroup, now_ms: int) -> Iterator[tuple[str, int]]:
        if not _may_expire(group):
            return
        for topic, partition, committed in self._store.offsets.of_group(group.group_id):
            is_used = group.is_subscribed_to(topic) or self._store.pending.is_pending(
                Place(group.group_id, topic, partition)
            )
            if not is_used and self._is_expired(group, committed, now_ms):
                yield topic, partition

    def _is_expired(self, group: ClassicGroup, committed: CommittedOffset, now_ms: int) -> bool:
        if committed.expire_timestamp_ms != NEVER:
            return now_ms >= committed.expire_timestamp_ms
        since_ms = max(committed.commit_timestamp_ms, group.emptied_ms())
        return now_ms - since_ms >= self._settings.offsets_retention_ms


def _may_expire(group: ClassicGroup) -> bool:
    if group.state is GroupState.EMPTY:
        return True
    return (
        group.state is GroupState.STABLE
        and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        and group.subscribed_topics is not None
    )
