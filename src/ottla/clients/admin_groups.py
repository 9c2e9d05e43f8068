"""Groups: who is in them, what they have committed, and both taken away again."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.clients.admin_offsets import by_topic
from ottla.clients.cluster_view import ClusterView
from ottla.clients.errors import check, only
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.api_key import ApiKey
from ottla.wire.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import (
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import read

BY_NAME_VERSION_MAX: Final = 9
"""Later versions of OffsetCommit and OffsetFetch know topics by their ids alone."""
_GROUPS_IN_A_LIST_SINCE: Final = 8
_CONSUMER: Final = "consumer"
_DEAD: Final = "Dead"


class ListedGroup(NamedTuple):
    """A group, in brief."""

    group_id: str
    protocol_type: str
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class GroupMember:
    """One member, and the partitions that it has."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group's state and members."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    members: tuple[GroupMember, ...]


class CommittedOffset(NamedTuple):
    """What a group has committed for one partition."""

    offset: int
    leader_epoch: int
    metadata: str | None


class GroupAdmin:
    """Calls about groups. Each goes to the group's coordinator."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def list_all(self) -> list[ListedGroup]:
        """List the groups of every broker, by name."""

        async def ask() -> list[ListedGroup]:
            await self._view.refresh([])
            groups = []
            for broker_id in self._view.broker_ids:
                answer = await self._view.ask_broker(
                    broker_id, ListGroupsRequest(), ListGroupsResponse
                )
                check(answer.error_code, f"the groups of broker {broker_id}")
                groups += [
                    ListedGroup(row.group_id, row.protocol_type, row.group_state, broker_id)
                    for row in answer.groups
                ]
            return sorted(groups)

        return await self._view.retried(ask)

    async def describe(self, group_id: str) -> GroupDescription:
        """Describe a group of either protocol; GROUP_ID_NOT_FOUND if there is none."""
        try:
            return await self._view.retried(lambda: self._describe_classic(group_id))
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        connection = await self._view.coordinator_connection(group_id)
        if ApiKey.CONSUMER_GROUP_DESCRIBE not in connection.versions_by_api:
            raise _missing(group_id)
        return await self._view.retried(lambda: self._describe_consumer(group_id))

    async def committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return everything that a group has committed."""
        return await self._view.retried(lambda: self._committed(group_id))

    async def commit(
        self, group_id: str, offset_by_partition: Mapping[TopicPartition, int]
    ) -> None:
        """Commit in the name of a group that has no members now."""
        await commit_offsets(
            self._view, OffsetCommitRequest(group_id=group_id), offset_by_partition
        )

    async def delete(self, group_ids: Collection[str]) -> dict[str, ApiError | None]:
        """Delete groups; say of each what was wrong, if anything."""
        return {group_id: await self._delete(group_id) for group_id in group_ids}

    async def _delete(self, group_id: str) -> ApiError | None:
        async def ask() -> None:
            answer = await self._view.ask_coordinator(
                group_id, DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse
            )
            for row in answer.results:
                self._check(group_id, row.error_code)

        try:
            await self._view.retried(ask)
        except ApiError as error:
            return error
        return None

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        answer = await self._view.ask_coordinator(
            group_id, DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse
        )
        row = only(answer.groups, "a group")
        self._check(group_id, row.error_code)
        if row.group_state == _DEAD:
            raise _missing(group_id)
        members = tuple(_member(member, row.protocol_type) for member in row.members)
        return GroupDescription(
            group_id, row.group_state, row.protocol_type, row.protocol_data, members
        )

    async def _describe_consumer(self, group_id: str) -> GroupDescription:
        """Describe a group of Kafka 4's protocol, in which brokers share out partitions."""
        answer = await self._view.ask_coordinator(
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id]),
            ConsumerGroupDescribeResponse,
        )
        row = only(answer.groups, "a group")
        self._check(group_id, row.error_code)
        members = tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                tuple(
                    TopicPartition(topic.topic_name, partition)
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                ),
            )
            for member in row.members
        )
        return GroupDescription(group_id, row.group_state, _CONSUMER, row.assignor_name, members)

    async def _committed(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        connection = await self._view.coordinator_connection(group_id)
        is_list = (
            connection.version_for(OffsetFetchRequest, BY_NAME_VERSION_MAX)
            >= _GROUPS_IN_A_LIST_SINCE
        )
        request = OffsetFetchRequest(
            group_id="" if is_list else group_id,
            topics=[] if is_list else None,
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)] if is_list else [],
        )
        answer = await self._view.ask_coordinator(
            group_id, request, OffsetFetchResponse, version_max=BY_NAME_VERSION_MAX
        )
        found = only(answer.groups, "a group") if is_list else answer
        self._check(group_id, found.error_code)
        committed = {}
        for topic in found.topics:
            for row in topic.partitions:
                check(row.error_code, f"the offset of {topic.name}-{row.partition_index}")
                if row.committed_offset >= 0:
                    committed[TopicPartition(topic.name, row.partition_index)] = CommittedOffset(
                        row.committed_offset, row.committed_leader_epoch, row.metadata
                    )
        return committed

    def _check(self, group_id: str, number: int) -> None:
        try:
            check(number, f"group {group_id!r}")
        except ApiError as error:
            self._view.forget_coordinator(group_id)
            if error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                raise _missing(group_id) from None
            if error.code is ErrorCode.NON_EMPTY_GROUP:
                detail = f"group {group_id!r} has members: stop them first"
                raise ApiError(error.code, detail) from None
            raise


async def commit_offsets(
    view: ClusterView,
    request: OffsetCommitRequest,
    offset_by_partition: Mapping[TopicPartition, int],
) -> None:
    """Commit offsets in the name that the request gives: of a group, or of a member of it."""
    group_id = request.group_id
    request.topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=name.partition,
                    committed_offset=offset_by_partition[name],
                    committed_metadata="",
                )
                for name in names
            ],
        )
        for topic, names in by_topic(offset_by_partition).items()
    ]

    async def ask() -> None:
        answer = await view.ask_coordinator(
            group_id, request, OffsetCommitResponse, version_max=BY_NAME_VERSION_MAX
        )
        for topic in answer.topics:
            for row in topic.partitions:
                try:
                    check(row.error_code, f"the offset of {topic.name}-{row.partition_index}")
                except ApiError:
                    view.forget_coordinator(group_id)
                    raise

    await view.retried(ask, final=(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,))


def _missing(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")


def _member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    partitions: tuple[TopicPartition, ...] = ()
    if protocol_type == _CONSUMER:
        partitions = assigned_partitions(member.member_assignment)
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        partitions,
    )


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Read what a leader has given to a consumer; nothing, where it is no such assignment."""
    version = int.from_bytes(assignment[:2], "big", signed=True)
    first, last = ConsumerProtocolAssignment.versions
    if len(assignment) < 2 or version < first:
        return ()
    try:
        read_assignment, _ = read(
            ConsumerProtocolAssignment, min(version, last), memoryview(assignment), 2
        )
    except ProtocolError:
        return ()
    return tuple(
        TopicPartition(row.topic, partition)
        for row in read_assignment.assigned_partitions
        for partition in row.partitions
    )
