"""The group leader's task: assign the partitions of all subscribed topics to the members."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ottla.clients.assignors.assignor import Assignor, MemberSubscription, RacksByTopic
from ottla.clients.assignors.group_bytes import decode_subscription, encode_assignment
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponseMember
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.messages.sync_group import SyncGroupRequestAssignment


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
            f"assignor {assignor.name!r} gave partitions to {sorted(unknown)}, who are no members",
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
    answer = await view.ask_any(request, MetadataResponse)
    rack_by_broker = {broker.node_id: broker.rack for broker in answer.brokers}
    found: dict[str, list[frozenset[str]]] = {name: [] for name in topics or ()}
    for topic in answer.topics:
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
