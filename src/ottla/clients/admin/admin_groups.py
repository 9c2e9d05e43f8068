"""Groups: their members and committed offsets, and the removal of both."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from ottla.clients.admin.group_descriptions import (
    GroupDescription,
    GroupMember,
    described_classic,
    described_consumer,
)
from ottla.clients.admin.per_item_results import (
    as_api_error,
    for_each,
    in_time,
    one_or_several,
    outcome_of,
)
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import NoResponseError, UnreachableError, check, only
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, partitions_by_topic
from ottla.wire.api_key import ApiKey
from ottla.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)

BY_NAME_VERSION_MAX: Final = 9
"""Later versions of OffsetCommit and OffsetFetch identify topics by id only."""
_GROUPS_IN_A_LIST_SINCE: Final = 8
_STABLE_SINCE: Final = 7
_STATES_SINCE: Final = 4
_TYPES_SINCE: Final = 5
_DEAD: Final = "Dead"
V = TypeVar("V")


class ListedGroup(NamedTuple):
    """A group in a listing."""

    group_id: str
    protocol_type: str
    state: str
    coordinator_id: int
    group_type: str = ""
    """`classic`, or `consumer` for Kafka 4's protocol; empty from old brokers."""


class CommittedOffset(NamedTuple):
    """The committed offset of a group for one partition."""

    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class GroupAdmin:
    """Group calls. Requests go to each group's coordinator."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def list(
        self, *, states: Collection[str] = (), types: Collection[str] = ()
    ) -> tuple[ListedGroup, ...]:
        """List the groups of all brokers, by name; optionally only these states or types.

        UNSUPPORTED_VERSION if a broker is too old to filter them.
        """

        async def ask() -> tuple[ListedGroup, ...]:
            await self._view.refresh([])
            found = await asyncio.gather(
                *(self._list_at(one, states, types) for one in self._view.broker_ids)
            )
            return tuple(sorted(row for rows in found for row in rows))

        return await in_time(self._view, ask)

    async def describe(self, group_ids: str | Iterable[str]) -> dict[str, GroupDescription]:
        """Describe groups of either protocol; GROUP_ID_NOT_FOUND for an unknown group."""
        return await self._each(group_ids, self._describe)

    async def delete(self, group_ids: str | Iterable[str]) -> None:
        """Delete groups and their offsets; NON_EMPTY_GROUP for a group with members."""

        async def ask(group_id: str) -> None:
            response = await self._view.ask_coordinator(
                group_id, DeleteGroupsRequest(groups_names=[group_id]), DeleteGroupsResponse
            )
            self._check(group_id, only(response.results, "a group").error_code)

        await self._each(group_ids, ask)

    async def remove_members(
        self, group_id: str, instance_ids: Collection[str] | None = None, *, reason: str = ""
    ) -> tuple[str, ...]:
        """Remove static members by their instance ids, or all members; return their ids.

        UNKNOWN_MEMBER_ID for an instance id that the group does not have.
        """
        if instance_ids is None:
            members = (await self.describe(group_id))[group_id].members
            identities = {row.member_id: _identity(row, reason) for row in members}
        else:
            identities = {
                one: MemberIdentity(group_instance_id=one, reason=reason or None)
                for one in instance_ids
            }

        async def ask(waiting: Sequence[str]) -> dict[str, str | ApiError]:
            request = LeaveGroupRequest(
                group_id=group_id, members=[identities[one] for one in waiting]
            )
            response = await self._view.ask_coordinator(group_id, request, LeaveGroupResponse)
            self._check(group_id, response.error_code)
            found: dict[str, str | ApiError] = {}
            for row in response.members:
                asked = row.group_instance_id if instance_ids is not None else row.member_id
                detail = f"group {group_id!r} has no member {asked!r}"
                found[asked or ""] = outcome_of(row.error_code, detail, row.member_id)
            return found

        return tuple((await for_each(self._view, identities, ask)).values())

    async def committed(
        self, group_id: str, *, is_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group.

        If the result must be stable, the call waits for pending transactional commits.
        """
        return await in_time(self._view, lambda: self._committed(group_id, is_stable=is_stable))

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, int | CommittedOffset]
    ) -> None:
        """Commit offsets for a group without members.

        UNKNOWN_MEMBER_ID if it has members.
        """
        await commit_offsets(self._view, OffsetCommitRequest(group_id=group_id), offsets)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete a group's committed offsets for partitions.

        GROUP_SUBSCRIBED_TO_TOPIC for partitions of a topic that its members subscribe to.
        """

        async def ask(waiting: Sequence[TopicPartition]) -> dict[TopicPartition, ApiError | None]:
            request = OffsetDeleteRequest(
                group_id=group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=topic,
                        partitions=[
                            OffsetDeleteRequestPartition(partition_index=name.partition)
                            for name in names
                        ],
                    )
                    for topic, names in partitions_by_topic(waiting).items()
                ],
            )
            response = await self._view.ask_coordinator(group_id, request, OffsetDeleteResponse)
            self._check(group_id, response.error_code)
            return {
                (name := TopicPartition(topic.name, row.partition_index)): outcome_of(
                    row.error_code, f"the offset of {name}", None
                )
                for topic in response.topics
                for row in topic.partitions
            }

        final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
        await for_each(self._view, partitions, ask, final=final)

    async def _each(
        self, group_ids: str | Iterable[str], ask: Callable[[str], Awaitable[V]]
    ) -> dict[str, V]:
        """Ask about groups concurrently, each at its coordinator."""

        async def asked(group_id: str) -> V | ApiError:
            try:
                return await ask(group_id)
            except (ApiError, UnreachableError, NoResponseError) as error:
                return as_api_error(error)

        async def ask_all(waiting: Sequence[str]) -> dict[str, V | ApiError]:
            found = await asyncio.gather(*map(asked, waiting))
            return dict(zip(waiting, found, strict=True))

        return await for_each(self._view, one_or_several(group_ids), ask_all)

    async def _list_at(
        self, broker_id: int, states: Collection[str], types: Collection[str]
    ) -> tuple[ListedGroup, ...]:
        connection = await self._view.connection_to(broker_id)
        version = connection.version_for(ListGroupsRequest)
        if (states and version < _STATES_SINCE) or (types and version < _TYPES_SINCE):
            detail = f"broker {broker_id} cannot look for such groups"
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, detail)
        request = ListGroupsRequest(states_filter=sorted(states), types_filter=sorted(types))
        response = await self._view.ask_broker(broker_id, request, ListGroupsResponse)
        check(response.error_code, f"the groups of broker {broker_id}")
        return tuple(
            ListedGroup(row.group_id, row.protocol_type, row.group_state, broker_id, row.group_type)
            for row in response.groups
        )

    async def _describe(self, group_id: str) -> GroupDescription:
        try:
            return await self._describe_classic(group_id)
        except ApiError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        connection = await self._view.coordinator_connection(group_id)
        if ApiKey.CONSUMER_GROUP_DESCRIBE not in connection.versions_by_api:
            raise _missing(group_id)
        return await self._describe_consumer(group_id)

    async def _describe_classic(self, group_id: str) -> GroupDescription:
        response = await self._view.ask_coordinator(
            group_id, DescribeGroupsRequest(groups=[group_id]), DescribeGroupsResponse
        )
        row = only(response.groups, "a group")
        self._check(group_id, row.error_code)
        if row.group_state == _DEAD:
            raise _missing(group_id)
        return described_classic(row)

    async def _describe_consumer(self, group_id: str) -> GroupDescription:
        response = await self._view.ask_coordinator(
            group_id,
            ConsumerGroupDescribeRequest(group_ids=[group_id]),
            ConsumerGroupDescribeResponse,
        )
        row = only(response.groups, "a group")
        self._check(group_id, row.error_code)
        return described_consumer(row)

    async def _committed(
        self, group_id: str, *, is_stable: bool
    ) -> dict[TopicPartition, CommittedOffset]:
        connection = await self._view.coordinator_connection(group_id)
        version = connection.version_for(OffsetFetchRequest, BY_NAME_VERSION_MAX)
        is_list = version >= _GROUPS_IN_A_LIST_SINCE
        request = OffsetFetchRequest(
            group_id="" if is_list else group_id,
            topics=[] if is_list else None,
            groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)] if is_list else [],
            require_stable=is_stable and version >= _STABLE_SINCE,
        )
        response = await self._view.ask_coordinator(
            group_id, request, OffsetFetchResponse, version_max=BY_NAME_VERSION_MAX
        )
        found = only(response.groups, "a group") if is_list else response
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
    offsets: Mapping[TopicPartition, int | CommittedOffset],
) -> None:
    """Commit offsets for the group, or the member, that the request names."""
    group_id = request.group_id

    async def ask(waiting: Sequence[TopicPartition]) -> dict[TopicPartition, ApiError | None]:
        request.topics = [
            OffsetCommitRequestTopic(
                name=topic, partitions=[_to_commit(name, offsets[name]) for name in names]
            )
            for topic, names in partitions_by_topic(waiting).items()
        ]
        response = await view.ask_coordinator(
            group_id, request, OffsetCommitResponse, version_max=BY_NAME_VERSION_MAX
        )
        found = {
            (name := TopicPartition(topic.name, row.partition_index)): outcome_of(
                row.error_code, f"the offset of {name}", None
            )
            for topic in response.topics
            for row in topic.partitions
        }
        if any(found.values()):
            view.forget_coordinator(group_id)
        return found

    await for_each(view, offsets, ask)


def _to_commit(name: TopicPartition, offset: int | CommittedOffset) -> OffsetCommitRequestPartition:
    wanted = CommittedOffset(offset) if isinstance(offset, int) else offset
    return OffsetCommitRequestPartition(
        partition_index=name.partition,
        committed_offset=wanted.offset,
        committed_leader_epoch=wanted.leader_epoch,
        committed_metadata=wanted.metadata,
    )


def _identity(member: GroupMember, reason: str) -> MemberIdentity:
    """Identify a member by its instance id if it has one, else by its member id."""
    return MemberIdentity(
        member_id=member.member_id, group_instance_id=member.instance_id, reason=reason or None
    )


def _missing(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
