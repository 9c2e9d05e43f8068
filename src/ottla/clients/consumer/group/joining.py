"""One attempt to join the next generation: JoinGroup, then SyncGroup."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ottla.clients.admin.group_descriptions import assigned_partitions
from ottla.clients.assignors.assignor import (
    Assignor,
    MemberSubscription,
    PreviousAssignment,
    RacksByTopic,
)
from ottla.clients.assignors.group_bytes import encode_subscription
from ottla.clients.consumer.group.group_leader import share_out
from ottla.clients.consumer.group.group_requests import Generation, GroupRequests
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.join_group import JoinGroupResponse

NAMING_SECONDS_MAX: Final = 1.0
"""How long a cancelled first JoinGroup waits for its member id, which LeaveGroup needs."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A member's generation and assignment."""

    generation: Generation
    partitions: tuple[TopicPartition, ...]
    shared_out: RacksByTopic | None
    """The topics that the leader's assignment is based on; None in other members."""


@dataclass(frozen=True, slots=True)
class JoinAttempt:
    """Joins. `on_generation` is called with each member id and generation from the coordinator."""

    requests: GroupRequests
    assignors: Sequence[Assignor]
    on_generation: Callable[[Generation], None]

    async def attempt(
        self,
        member_id: str,
        subscription: MemberSubscription,
        previous: PreviousAssignment,
        reason: str,
    ) -> Joined:
        """Join once; ApiError if another rebalance has begun, or the coordinator refuses."""
        metadata_by_assignor = {
            assignor.name: encode_subscription(
                replace(subscription, user_data=assignor.user_data(previous))
            )
            for assignor in self.assignors
        }
        answer = await self._named(member_id, metadata_by_assignor, reason)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.on_generation(Generation(member_id=answer.member_id))
            answer = await self.requests.join(answer.member_id, metadata_by_assignor, reason)
            self.requests.check(answer.error_code)
        self.on_generation(Generation(answer.generation_id, answer.member_id))
        return await self._sync(answer)

    async def _named(
        self, member_id: str, metadata_by_assignor: Mapping[str, bytes], reason: str
    ) -> JoinGroupResponse:
        """Send JoinGroup. A cancelled call without a member id still waits for it, and reports it.

        The coordinator reserves a place for every member id that it issues. The group waits for
        that member until its session times out or it leaves, and leaving requires the id.
        """
        joining = asyncio.ensure_future(self.requests.join(member_id, metadata_by_assignor, reason))
        try:
            return await asyncio.shield(joining)
        except asyncio.CancelledError:
            if not member_id and self.requests.instance_id is None:
                await asyncio.wait([joining], timeout=NAMING_SECONDS_MAX)
            if not joining.cancel() and joining.exception() is None:
                self.on_generation(Generation(member_id=joining.result().member_id))
            raise

    async def _sync(self, answer: JoinGroupResponse) -> Joined:
        generation = Generation(answer.generation_id, answer.member_id)
        assignor = self._chosen(answer.protocol_name)
        shared = None
        if answer.leader == answer.member_id:
            shared = await self.requests.view.retried(
                lambda: share_out(
                    self.requests.view,
                    assignor,
                    answer.members,
                    is_skipped=answer.skip_assignment,
                )
            )
        assignment = await self.requests.sync(
            generation, answer.protocol_name, shared.assignments if shared else ()
        )
        racks_by_topic = shared.racks_by_topic if shared else None
        return Joined(generation, assigned_partitions(assignment), racks_by_topic)

    def _chosen(self, name: str | None) -> Assignor:
        for assignor in self.assignors:
            if assignor.name == name:
                return assignor
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the coordinator chose assignor {name!r}, which this consumer does not have",
        )
