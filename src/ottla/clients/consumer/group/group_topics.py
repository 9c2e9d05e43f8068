"""The topics of a group: the leader's assignment of their partitions, and the watch for changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.clients.assignors.assignor import Assignor, MemberSubscription, RacksByTopic
from ottla.clients.assignors.group_bytes import decode_subscription, encode_assignment
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.consumer.group.group_requests import GroupRequests
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import Choice, SubscriptionState
from ottla.clients.errors import NoResponseError, UnreachableError, check
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponseMember
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.sync_group import SyncGroupRequestAssignment

MISSING_TOPIC_MS: Final = 1_000
"""The refresh interval while a subscribed topic is missing."""
_HOPELESS: Final = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class SharedOut:
    """The assignment of every member, and the topics that it is based on."""

    assignments: tuple[SyncGroupRequestAssignment, ...]
    racks_by_topic: RacksByTopic


async def share_out(
    view: ClusterView,
    assignor: Assignor,
    members: Sequence[JoinGroupResponseMember],
    *,
    is_skipped: bool,
) -> SharedOut:
    """Look up the topics and assign; with skip_assignment (KIP-814) only look them up."""
    subscriptions = {
        member.member_id: decode_subscription(member.metadata, member.group_instance_id)
        for member in members
    }
    topics = sorted({topic for row in subscriptions.values() for topic in row.topics})
    racks_by_topic = await look_at_topics(view, topics)
    if is_skipped:
        return SharedOut((), racks_by_topic)
    present = {topic: racks for topic, racks in racks_by_topic.items() if racks}
    assignments = _assigned(assignor, present, subscriptions)
    return SharedOut(assignments, racks_by_topic)


def _assigned(
    assignor: Assignor,
    racks_by_topic: RacksByTopic,
    subscriptions: Mapping[str, MemberSubscription],
) -> tuple[SyncGroupRequestAssignment, ...]:
    assignment = assignor.assign(racks_by_topic, subscriptions)
    if unknown := assignment.keys() - subscriptions.keys():
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"assignor {assignor.name!r} gave partitions to {sorted(unknown)}, not members",
        )
    return tuple(
        SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(partitions))
        for member, partitions in assignment.items()
    )


async def look_at_topics(
    view: ClusterView, topics: Sequence[str] | None, *, allow_auto_creation: bool = False
) -> dict[str, list[frozenset[str]]]:
    """Return topics (None: all) with the racks of each partition; a missing topic has none."""
    asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
    request = MetadataRequest(topics=asked, allow_auto_topic_creation=allow_auto_creation)
    response = await view.ask_any(request, MetadataResponse)
    rack_by_broker = {broker.node_id: broker.rack for broker in response.brokers}
    found: dict[str, list[frozenset[str]]] = {name: [] for name in topics or ()}
    for topic in response.topics:
        if topic.name is None or topic.error_code != ErrorCode.NONE:
            continue
        racks_by_number = {
            row.partition_index: frozenset(
                rack for replica in row.replica_nodes if (rack := rack_by_broker.get(replica))
            )
            for row in topic.partitions
        }
        found[topic.name] = [racks_by_number[number] for number in sorted(racks_by_number)]
    return found


class TopicWatch:
    """Resolves the pattern; in the group leader, also detects changed topics.

    `shared_out` holds the topics of the leader's last assignment; None in other members.
    """

    def __init__(
        self, requests: GroupRequests, state: SubscriptionState, settings: ConsumerSettings
    ) -> None:
        self._requests = requests
        self._state = state
        self._settings = settings
        self.shared_out: RacksByTopic | None = None

    async def find_topics(self) -> frozenset[str]:
        """Return the topics to subscribe to: the matches of the pattern, or the named topics.

        The metadata request also creates missing topics, if allow.auto.create.topics permits it.
        ApiError for a topic whose error is final.
        """
        pattern = self._state.pattern
        if self._state.choice is not Choice.PATTERN or pattern is None:
            topics = self._state.topics
            allow_auto_creation = self._settings.allow_auto_create_topics
            rows = await self._requests.view.refresh(
                sorted(topics), allow_auto_creation=allow_auto_creation
            )
            for row in rows:
                if row.error_code in _HOPELESS:
                    check(row.error_code, f"topic {row.name!r}")
            return topics
        return frozenset(
            row.name
            for row in await self._requests.view.refresh(None)
            if row.name is not None
            and pattern.fullmatch(row.name)
            and not (row.is_internal and self._settings.exclude_internal_topics)
        )

    async def changed(self) -> str:
        """Wait until a rebalance is needed, and return the reason."""
        while True:
            await pause(self._interval_ms())
            try:
                reason = await self._look()
            except (ApiError, UnreachableError, NoResponseError):
                continue  # the fetcher reports the same error to the application
            if reason is not None:
                return reason

    def _interval_ms(self) -> int:
        interval_ms = self._requests.view.settings.metadata_max_age_ms
        if self.shared_out is not None and not all(self.shared_out.values()):
            return min(MISSING_TOPIC_MS, interval_ms)
        return interval_ms

    async def _look(self) -> str | None:
        if self._state.choice is Choice.PATTERN:
            pattern, topics = self._state.pattern, await self.find_topics()
            if topics != self._state.topics and pattern is self._state.pattern:
                return "the topics that the pattern matches have changed"
        seen = self.shared_out
        if seen is not None:
            found = await look_at_topics(self._requests.view, sorted(seen))
            if any(len(racks) != len(found[topic]) for topic, racks in seen.items()):
                return "the number of partitions has changed"
        return None
