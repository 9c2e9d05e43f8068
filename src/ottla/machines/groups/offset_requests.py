"""OffsetCommit, OffsetFetch and OffsetDelete.

Topics come with their names: for requests with topic ids (since version 10) the caller has looked
up the names, and has responded for unknown or forbidden topics.
"""

from typing import Final

from ottla.machines.decision import Decision
from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_memory import text_bytes
from ottla.machines.groups.group_records import (
    NEVER,
    CommittedOffset,
    GroupRecord,
    offset_record,
    offset_tombstone,
)
from ottla.machines.groups.group_store import GroupStore
from ottla.machines.groups.pending_offsets import Place
from ottla.machines.groups.rebalance import Rebalance
from ottla.machines.groups.request_types import answer_only
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.groups.subscriptions import CONSUMER_PROTOCOL_TYPE
from ottla.machines.moment import Moment
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, LeaderEpoch, Offset
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

GROUP_ID_NOT_FOUND_SINCE: Final = 9
NO_OFFSET: Final = CommittedOffset(Offset(-1), LeaderEpoch(-1), "", -1)
_TIMESTAMP_MS_MAX: Final = (1 << 63) - 1


class OffsetRequests:
    """Decides about committed offsets."""

    def __init__(self, settings: GroupSettings, store: GroupStore, rebalance: Rebalance) -> None:
        self._settings = settings
        self._store = store
        self._rebalance = rebalance

    def commit(
        self, request: OffsetCommitRequest, api_version: int, now: Moment
    ) -> Decision[GroupRecord, OffsetCommitResponse]:
        """Remember positions, of a member of this generation or for a group without members."""
        refused_with = ErrorCode.NONE
        try:
            self._check_commit(request, api_version, now)
        except ApiError as error:
            refused_with = error.code
        records: list[GroupRecord] = []
        response = OffsetCommitResponse()
        for topic in request.topics:
            answers = []
            for partition in topic.partitions:
                code = refused_with or self._settings.check_metadata(partition.committed_metadata)
                if not code:
                    committed = _committed(partition, topic.topic_id, request, now)
                    records.append(
                        offset_record(
                            request.group_id, topic.name, partition.partition_index, committed
                        )
                    )
                answers.append(
                    OffsetCommitResponsePartition(
                        partition_index=partition.partition_index, error_code=code
                    )
                )
            response.topics.append(
                OffsetCommitResponseTopic(
                    name=topic.name, topic_id=topic.topic_id, partitions=answers
                )
            )
        return Decision(tuple(records), response)

    def fetch(
        self, request: OffsetFetchRequestGroup, *, is_stable_only: bool = False
    ) -> Decision[GroupRecord, OffsetFetchResponseGroup]:
        """Return the committed offsets of a group, of some topics or of all.

        With require_stable, a partition with a pending transactional offset is an error.
        """
        topics = self._all_topics(request.group_id) if request.topics is None else request.topics
        answers = [
            self._fetch_topic(request.group_id, topic, is_stable_only=is_stable_only)
            for topic in topics
        ]
        return answer_only(OffsetFetchResponseGroup(group_id=request.group_id, topics=answers))

    def delete(self, request: OffsetDeleteRequest) -> Decision[GroupRecord, OffsetDeleteResponse]:
        """Forget positions, but for topics that the group is subscribed to."""
        try:
            group = self._deletable_from(request.group_id)
        except ApiError as error:
            return answer_only(OffsetDeleteResponse(error_code=error.code))
        records: list[GroupRecord] = []
        answers = []
        for topic in request.topics:
            is_subscribed = group.is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
            answers.append(_delete_answer(topic, code))
            if not is_subscribed:
                records += self._tombstones(request.group_id, topic)
        return Decision(tuple(records), OffsetDeleteResponse(topics=answers))

    def _check_commit(self, request: OffsetCommitRequest, api_version: int, now: Moment) -> None:
        generation = request.generation_id_or_member_epoch
        group = self._store.get(request.group_id)
        if group is None:
            self._check_new_group(generation, api_version)
            self._store.check_memory(text_bytes(request.group_id))
            return
        if generation < 0 and group.state is GroupState.EMPTY:
            # A client without membership, or an operator that resets offsets.
            return
        is_nobody = generation < 0 and not request.member_id and request.group_instance_id is None
        if is_nobody:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members")
        group.check_member(request.member_id, request.group_instance_id)
        group.check_generation(generation)
        if group.state is GroupState.COMPLETING_REBALANCE:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, "work is yet to be assigned")
        self._rebalance.renew_session(group, request.member_id, now)

    def _check_new_group(self, generation: int, api_version: int) -> None:
        if generation >= 0:
            is_known = api_version >= GROUP_ID_NOT_FOUND_SINCE
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND if is_known else ErrorCode.ILLEGAL_GENERATION
            )
        if len(self._store) >= self._settings.groups_max:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "no room for another group")

    def _all_topics(self, group_id: str) -> list[OffsetFetchRequestTopics]:
        return [
            OffsetFetchRequestTopics(name=topic, partition_indexes=partitions)
            for topic, partitions in self._store.offsets.partitions_by_topic(group_id).items()
        ]

    def _fetch_topic(
        self, group_id: str, topic: OffsetFetchRequestTopics, *, is_stable_only: bool
    ) -> OffsetFetchResponseTopics:
        answers = []
        for partition in topic.partition_indexes:
            place = Place(group_id, topic.name, partition)
            if is_stable_only and self._store.pending.is_pending(place):
                answers.append(_unstable(partition))
                continue
            committed = self._store.offsets.get(group_id, topic.name, partition) or NO_OFFSET
            if _is_of_another_topic(committed.topic_id, topic.topic_id):
                committed = NO_OFFSET
            answers.append(
                OffsetFetchResponsePartitions(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )
            )
        return OffsetFetchResponseTopics(
            name=topic.name, topic_id=topic.topic_id, partitions=answers
        )

    def _deletable_from(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the id is empty")
        group = self._store.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, group_id)
        if group.state is not GroupState.EMPTY and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            # Only the subscriptions of consumers can be read.
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, group_id)
        return group

    def _tombstones(self, group_id: str, topic: OffsetDeleteRequestTopic) -> list[GroupRecord]:
        named = dict.fromkeys(partition.partition_index for partition in topic.partitions)
        return [
            offset_tombstone(group_id, topic.name, partition)
            for partition in named
            if self._store.offsets.get(group_id, topic.name, partition) is not None
            or self._store.pending.is_pending(Place(group_id, topic.name, partition))
        ]


def _committed(
    partition: OffsetCommitRequestPartition,
    topic_id: bytes,
    request: OffsetCommitRequest,
    now: Moment,
) -> CommittedOffset:
    plain = CommittedOffset(
        offset=Offset(partition.committed_offset),
        leader_epoch=LeaderEpoch(partition.committed_leader_epoch),
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now.wall_ms,
        topic_id=topic_id,
    )
    if request.retention_time_ms == NEVER:
        return plain
    # Clients that can set a retention time know neither leader epochs nor topic ids.
    expire_timestamp_ms = min(now.wall_ms + request.retention_time_ms, _TIMESTAMP_MS_MAX)
    return plain._replace(
        expire_timestamp_ms=expire_timestamp_ms, leader_epoch=LeaderEpoch(-1), topic_id=ZERO_UUID
    )


def _unstable(partition: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=partition,
        committed_offset=NO_OFFSET.offset,
        metadata=NO_OFFSET.metadata,
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )


def _is_of_another_topic(committed_for: bytes, asked_for: bytes) -> bool:
    return ZERO_UUID not in {committed_for, asked_for} and committed_for != asked_for


def _delete_answer(topic: OffsetDeleteRequestTopic, code: ErrorCode) -> OffsetDeleteResponseTopic:
    answers = [
        OffsetDeleteResponsePartition(partition_index=partition.partition_index, error_code=code)
        for partition in topic.partitions
    ]
    return OffsetDeleteResponseTopic(name=topic.name, partitions=answers)
