"""A member's requests to its group coordinator. Each function sends one request.

An error response raises ApiError. After NOT_COORDINATOR and the like, the next request looks up
the coordinator again. The view belongs to the group alone: a JoinGroup response may be delayed
by other members, and blocks all later responses on its connection.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.group.group_errors import FencedInstanceIdError
from ottla.clients.consumer.group.membership_machine import Generation
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.errors import check
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from ottla.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

PROTOCOL_TYPE: Final = "consumer"
_MEMBERS_IN_A_LIST_SINCE: Final = 3
_REASON_LENGTH_MAX: Final = 255
_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class GroupRequests:
    """The requests of one member."""

    def __init__(self, view: ClusterView, group_id: str, settings: ConsumerSettings) -> None:
        self.view = view
        self.group_id = group_id
        self.instance_id = settings.group_instance_id
        self._settings = settings

    async def join(
        self, member_id: str, metadata_by_assignor: Mapping[str, bytes], reason: str
    ) -> JoinGroupResponse:
        """Join the next generation; MEMBER_ID_REQUIRED is returned and not raised."""
        request = JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in metadata_by_assignor.items()
            ],
            reason=reason[:_REASON_LENGTH_MAX],
        )
        response = await self.view.ask_coordinator(
            self.group_id,
            request,
            JoinGroupResponse,
            wait_ms=self._settings.max_poll_interval_ms,
        )
        if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            self.check(response.error_code)
        return response

    async def sync(
        self,
        generation: Generation,
        protocol_name: str | None,
        assignments: Iterable[SyncGroupRequestAssignment],
    ) -> bytes:
        """Return this member's assignment; the leader's request holds all members' assignments."""
        request = SyncGroupRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=protocol_name,
            assignments=list(assignments),
        )
        response = await self.view.ask_coordinator(
            self.group_id,
            request,
            SyncGroupResponse,
            wait_ms=self._settings.max_poll_interval_ms,
        )
        self.check(response.error_code)
        return response.assignment

    async def beat(self, generation: Generation) -> None:
        """Send a heartbeat."""
        request = HeartbeatRequest(
            group_id=self.group_id,
            generation_id=generation.generation_id,
            member_id=generation.member_id,
            group_instance_id=self.instance_id,
        )
        response = await self.view.ask_coordinator(self.group_id, request, HeartbeatResponse)
        self.check(response.error_code)

    async def leave(self, generation: Generation, reason: str) -> None:
        """Leave, so that the rebalance need not wait for session.timeout.ms."""
        connection = await self.view.coordinator_connection(self.group_id)
        is_list = connection.version_for(LeaveGroupRequest) >= _MEMBERS_IN_A_LIST_SINCE
        member = MemberIdentity(
            member_id=generation.member_id,
            group_instance_id=self.instance_id,
            reason=reason[:_REASON_LENGTH_MAX],
        )
        request = LeaveGroupRequest(
            group_id=self.group_id,
            member_id="" if is_list else generation.member_id,
            members=[member] if is_list else [],
        )
        response = await self.view.ask_coordinator(self.group_id, request, LeaveGroupResponse)
        self.check(response.error_code)

    def reconnect(self) -> None:
        """Abandon all pending responses, and use new connections from now on."""
        self.view.close()
        self.view = self.view.sibling()

    def check(self, number: int, detail: str = "") -> None:
        """Raise the error of a code, if it is one."""
        try:
            check(number, detail or f"group {self.group_id!r}")
        except ApiError as error:
            if error.code in _MOVED:
                self.view.forget_coordinator(self.group_id)
            if error.code is ErrorCode.FENCED_INSTANCE_ID:
                raise FencedInstanceIdError(self.group_id, self.instance_id) from None
            raise
