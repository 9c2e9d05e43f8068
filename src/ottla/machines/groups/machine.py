"""The classic consumer groups of one partition of `__consumer_offsets`.

    decide_…(request, now) -> Decision(records, response)     may change soft state, never the log's
    replay(key, value)                                         the only writer of the log's state
    take_notified() -> groups with requests to retry; call it after replaying
    next_deadline_ms(), expire(now)                            timers

Records of a decision are appended and replayed before the next decision. If the append fails, a
retry of the client or a later deadline repairs the soft state. The order of the records matters,
but they need not be in one batch.

JoinGroup and SyncGroup may return `NotYet`: then the caller waits for a notification of the group,
and retries with the returned token, any number of times. It may stop without notice.
"""

from collections.abc import Iterator
from typing import Final

from ottla.machines.decision import Decision
from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.group_memory import GroupMemory
from ottla.machines.groups.group_records import CommittedOffset, GroupRecord
from ottla.machines.groups.group_store import GroupStore
from ottla.machines.groups.join_group import JoinDecision, JoinGroupRequests
from ottla.machines.groups.member import Member
from ottla.machines.groups.member_requests import MemberRequests, SyncDecision
from ottla.machines.groups.offset_requests import OffsetRequests
from ottla.machines.groups.rebalance import Rebalance
from ottla.machines.groups.request_types import Caller, NotYet, answer_only
from ottla.machines.groups.retention import Retention
from ottla.machines.groups.settings import GroupSettings
from ottla.machines.groups.soft_state import Phase, SoftState
from ottla.machines.groups.transactional_offsets import TransactionalOffsets
from ottla.machines.moment import Moment
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ProducerId
from ottla.wire.messages.delete_groups import DeletableGroupResult
from ottla.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import JoinGroupRequest
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsRequest
from ottla.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ottla.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from ottla.wire.messages.sync_group import SyncGroupRequest
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.wire.records.batch import NO_PRODUCER_ID
from ottla.wire.schema import Message

CLASSIC_TYPE: Final = "classic"
GROUP_ID_NOT_FOUND_SINCE: Final = 6


class GroupMachine:
    """Groups and offsets, after all records of the partition were replayed and `start` called."""

    def __init__(self, settings: GroupSettings, memory: GroupMemory) -> None:
        self._settings = settings
        self._memory = memory
        self._soft_state = SoftState()
        self._store = GroupStore(self._soft_state)
        self._rebalance = Rebalance(settings, self._soft_state)
        self._join_group = JoinGroupRequests(
            settings, self._store, self._soft_state, self._rebalance
        )
        self._member_requests = MemberRequests(
            settings, self._store, self._soft_state, self._rebalance
        )
        self._offset_requests = OffsetRequests(settings, self._store, self._rebalance)
        self._transactional = TransactionalOffsets(settings, self._store)
        self._retention = Retention(settings, self._store, self._soft_state)

    def replay(
        self, key: Message, value: Message | None, producer_id: ProducerId = NO_PRODUCER_ID
    ) -> None:
        """Apply one record, from the log or from a decision; None is a tombstone.

        Records of other kinds of groups are skipped. Offsets written in a transaction count once
        `end_transaction` is called.
        """
        self._store.replay(key, value, producer_id)

    def end_transaction(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Apply the marker that ends the transaction of a producer, if it has one here."""
        self._store.end_transaction(producer_id, is_commit=is_commit)

    def start(self, now: Moment) -> None:
        """Grant a session to every member that was loaded, and begin to watch time.

        A group that is larger than it may be has to rebalance, and will lose some of its members.
        """
        self._store.share(self._memory)
        for group in self._store.groups():
            for member_id in group.members:
                self._rebalance.renew_session(group, member_id, now)
            if len(group.members) > self._settings.group_max_size:
                self._rebalance.prepare(group, now)
        self._retention.schedule(now)

    def stop(self) -> None:
        """Release its share of memory; the machine is not used any more."""
        self._store.unshare()

    def next_deadline_ms(self) -> int | None:
        """Return when `expire` has something to do, on the monotonic clock; None before `start`."""
        return self._soft_state.deadlines.next_ms()

    def expire(self, now: Moment) -> Decision[GroupRecord, None]:
        """Act on the earliest deadline that has passed, if any; call again for the next."""
        due = self._soft_state.deadlines.take_due(now)
        if due is None:
            return answer_only(None)
        if due.phase is Phase.RETENTION:
            return Decision(self._retention.look(now), None)
        group = self._store.get(due.group_id)
        assert group is not None, f"a deadline of a group that is not there: {due}"
        if due.phase is Phase.JOIN:
            return Decision(self._rebalance.expire_join(group, now), None)
        if due.phase is Phase.SYNC:
            return Decision(self._rebalance.expire_sync(group, now), None)
        records = self._rebalance.expire_session(group, due.member_id, now)
        self._store.drop_if_void(group)
        return Decision(records, None)

    def take_notified(self) -> tuple[str, ...]:
        """Return the groups notified since the last call, each once."""
        return self._soft_state.take_notified()

    def decide_join(
        self, request: JoinGroupRequest, caller: Caller, fresh_uuid: bytes, now: Moment
    ) -> JoinDecision:
        """Decide about JoinGroup. A new member is called after sixteen bytes that are unique."""
        return self._join_group.join(request, caller, fresh_uuid, now)

    def ask_join_again(self, wait: NotYet) -> JoinDecision:
        """Decide about a waiting JoinGroup."""
        return self._join_group.ask_again(wait)

    def decide_sync(self, request: SyncGroupRequest, now: Moment) -> SyncDecision:
        """Decide about SyncGroup."""
        return self._member_requests.sync(request, now)

    def ask_sync_again(self, wait: NotYet) -> SyncDecision:
        """Decide about a waiting SyncGroup."""
        return self._member_requests.ask_again(wait)

    def decide_heartbeat(
        self, request: HeartbeatRequest, now: Moment
    ) -> Decision[GroupRecord, HeartbeatResponse]:
        """Decide about Heartbeat."""
        return self._member_requests.heartbeat(request, now)

    def decide_leave(
        self, request: LeaveGroupRequest, api_version: int, now: Moment
    ) -> Decision[GroupRecord, LeaveGroupResponse]:
        """Decide about LeaveGroup."""
        return self._member_requests.leave(request, api_version, now)

    def decide_commit(
        self, request: OffsetCommitRequest, api_version: int, now: Moment
    ) -> Decision[GroupRecord, OffsetCommitResponse]:
        """Decide about OffsetCommit. Every topic has its name, and every partition exists."""
        return self._offset_requests.commit(request, api_version, now)

    def decide_transactional_commit(
        self, request: TxnOffsetCommitRequest, topic_ids: dict[str, bytes], now: Moment
    ) -> Decision[GroupRecord, TxnOffsetCommitResponse]:
        """Decide about TxnOffsetCommit. Every partition exists, and every topic has its id.

        The records are to be written, and replayed, as the producer's.
        """
        return self._transactional.commit(request, topic_ids, now)

    def decide_fetch(
        self, request: OffsetFetchRequestGroup, *, is_stable_only: bool = False
    ) -> Decision[GroupRecord, OffsetFetchResponseGroup]:
        """Decide about one group of OffsetFetch. Every topic has its name.

        Answers to "all topics" have names only, no topic ids.
        """
        return self._offset_requests.fetch(request, is_stable_only=is_stable_only)

    def decide_offset_delete(
        self, request: OffsetDeleteRequest
    ) -> Decision[GroupRecord, OffsetDeleteResponse]:
        """Decide about OffsetDelete. Every topic exists."""
        return self._offset_requests.delete(request)

    def decide_describe(
        self, group_id: str, api_version: int
    ) -> Decision[GroupRecord, DescribedGroup]:
        """Decide about one group of DescribeGroups."""
        return answer_only(_describe(self._store, group_id, api_version))

    def decide_list(self, request: ListGroupsRequest) -> Decision[GroupRecord, list[ListedGroup]]:
        """Decide about ListGroups, for the groups that are kept here."""
        return answer_only(_list_groups(self._store, request))

    def decide_delete(self, group_id: str) -> Decision[GroupRecord, DeletableGroupResult]:
        """Decide about one group of DeleteGroups."""
        try:
            records = self._retention.delete_group(group_id)
        except ApiError as error:
            return answer_only(DeletableGroupResult(group_id=group_id, error_code=error.code))
        return Decision(records, DeletableGroupResult(group_id=group_id))

    def decide_forget(self, topic: str, alive_id: bytes | None) -> Decision[GroupRecord, bool]:
        """Delete the offsets of a deleted topic; repeat while the response is True.

        Offsets for the topic of this id stay: it has the name now.
        """
        records = self._retention.forget_topic(topic, alive_id)
        return Decision(records, bool(records))

    def group_ids(self) -> list[str]:
        """Return the ids of all groups."""
        return self._store.group_ids()

    def topics(self) -> list[str]:
        """Return the topics for which something is committed."""
        return self._store.offsets.topics()

    def offsets_of(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        """Iterate over a group's committed offsets: topic, partition, offset."""
        return self._store.offsets.of_group(group_id)

    def group(self, group_id: str) -> ClassicGroup | None:
        """Return a group, read-only."""
        return self._store.get(group_id)

    def committed(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        """Return a group's committed offset for a partition."""
        return self._store.offsets.get(group_id, topic, partition)


def _describe(store: GroupStore, group_id: str, api_version: int) -> DescribedGroup:
    """Describe a group and its members; an unknown group is Dead, or an error in new versions."""
    group = store.get(group_id)
    if group is None:
        missing = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= GROUP_ID_NOT_FOUND_SINCE:
            missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            missing.error_message = f"There is no group {group_id}."
        return missing
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_described(member, protocol) for member in group.members.values()],
    )


def _list_groups(store: GroupStore, request: ListGroupsRequest) -> list[ListedGroup]:
    """Show the groups in these states and of these types, or all; letter case is no matter."""
    states = {state.strip().lower() for state in request.states_filter}
    types = {group_type.strip().lower() for group_type in request.types_filter}
    if types and CLASSIC_TYPE not in types:
        return []
    return [
        _listed(group)
        for group in store.groups()
        if not states or group.state.value.lower() in states
    ]


def _described(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata_by_protocol[protocol],
        member_assignment=member.assignment,
    )


def _listed(group: ClassicGroup) -> ListedGroup:
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state.value,
        group_type=CLASSIC_TYPE,
    )
