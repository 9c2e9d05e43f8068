"""TxnOffsetCommit: offsets that count if a transaction commits (KIP-98, KIP-447).

A commit with member id and generation is checked against them, so that a zombie cannot commit for
partitions of another member. A commit without them is always accepted: its producer is fenced
instead.
"""

from ottla.machines.decision import Decision
from ottla.machines.groups.classic_group import GroupState
from ottla.machines.groups.group_memory import PENDING_OFFSET_BYTES, text_bytes
from ottla.machines.groups.group_records import CommittedOffset, GroupRecord, offset_record
from ottla.machines.groups.group_store import GroupStore
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.moment import Moment
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID, LeaderEpoch, Offset
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)


class TransactionalOffsets:
    """Decides about offsets of transactions."""

    def __init__(self, settings: GroupSettings, store: GroupStore) -> None:
        self._settings = settings
        self._store = store

    def commit(
        self, request: TxnOffsetCommitRequest, topic_ids: dict[str, bytes], now: Moment
    ) -> Decision[GroupRecord, TxnOffsetCommitResponse]:
        """Remember positions until the transaction ends. The records are the transaction's."""
        refused_with = ErrorCode.NONE
        try:
            self._check(request)
        except ApiError as error:
            refused_with = error.code
        records: list[GroupRecord] = []
        topics = []
        for topic in request.topics:
            codes = [
                refused_with or self._settings.check_metadata(each.committed_metadata)
                for each in topic.partitions
            ]
            topics.append(_answer(topic, codes))
            topic_id = topic_ids.get(topic.name, ZERO_UUID)
            records += [
                offset_record(
                    request.group_id,
                    topic.name,
                    each.partition_index,
                    _committed(each, topic_id, now),
                )
                for each, code in zip(topic.partitions, codes, strict=True)
                if not code
            ]
        return Decision(tuple(records), TxnOffsetCommitResponse(topics=topics))

    def _check(self, request: TxnOffsetCommitRequest) -> None:
        self._store.check_memory(
            text_bytes(request.group_id)
            + sum(
                PENDING_OFFSET_BYTES + text_bytes(each.committed_metadata)
                for topic in request.topics
                for each in topic.partitions
            )
        )
        self._check_member(request)

    def _check_member(self, request: TxnOffsetCommitRequest) -> None:
        if not request.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the id is empty")
        generation = request.generation_id
        group = self._store.get(request.group_id)
        if group is None:
            if generation >= 0:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION, "there is no such group")
            if len(self._store) >= self._settings.groups_max:
                raise ApiError(ErrorCode.POLICY_VIOLATION, "no room for another group")
            return
        if generation < 0 and group.state is GroupState.EMPTY:
            return
        is_somebody = request.member_id or request.group_instance_id is not None
        if generation >= 0 or is_somebody:
            group.check_member(request.member_id, request.group_instance_id)
            group.check_generation(generation)


def _committed(
    partition: TxnOffsetCommitRequestPartition, topic_id: bytes, now: Moment
) -> CommittedOffset:
    return CommittedOffset(
        offset=Offset(partition.committed_offset),
        leader_epoch=LeaderEpoch(partition.committed_leader_epoch),
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now.wall_ms,
        topic_id=topic_id,
    )


def _answer(
    topic: TxnOffsetCommitRequestTopic, codes: list[ErrorCode]
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each, code in zip(topic.partitions, codes, strict=True)
        ],
    )
