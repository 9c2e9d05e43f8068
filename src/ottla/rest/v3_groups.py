"""Version 3: consumer groups, their members, and how far they are behind."""

from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.admin.group_descriptions import GroupDescription, GroupMember
from ottla.model.identifiers import TopicPartition
from ottla.rest.call import Call
from ottla.rest.rest_errors import RestError, short
from ottla.rest.v3_resources import Links, links_of

_STATE_BY_NAME: Final = {
    "PreparingRebalance": "PREPARING_REBALANCE",
    "CompletingRebalance": "COMPLETING_REBALANCE",
    "Stable": "STABLE",
    "Empty": "EMPTY",
    "Dead": "DEAD",
    "Assigning": "ASSIGNING",
    "Reconciling": "RECONCILING",
}


@dataclass(frozen=True, slots=True)
class _Lag:
    name: TopicPartition
    current_offset: int
    end_offset: int
    member: GroupMember | None

    @property
    def lag(self) -> int:
        return max(self.end_offset - self.current_offset, 0)


def not_found(group: str) -> RestError:
    """Return 404 for a group."""
    return RestError(404, f"Consumer group {short(group)} cannot be found.")


async def list_groups(call: Call) -> dict[str, Any]:
    """Return the groups of consumers."""
    links = await links_of(call)
    groups = call.services.admin.groups
    listed = [row for row in await groups.list() if row.protocol_type in {"consumer", ""}]
    coordinators = {row.group_id: row.coordinator_id for row in listed}
    described = await groups.describe([row.group_id for row in listed]) if listed else {}
    rows = [_group(links, row, coordinators[name]) for name, row in sorted(described.items())]
    return links.listed("KafkaConsumerGroupList", ("consumer-groups",), rows)


async def get_group(call: Call) -> dict[str, Any]:
    """Return one group."""
    links = await links_of(call)
    group = await _find_group(call)
    for row in await call.services.admin.groups.list():
        if row.group_id == group.group_id:
            return _group(links, group, row.coordinator_id)
    raise not_found(group.group_id)


async def _find_group(call: Call) -> GroupDescription:
    name = call.path["group"]
    return (await call.services.admin.groups.describe(name))[name]


def _group(links: Links, group: GroupDescription, coordinator_id: int) -> dict[str, Any]:
    path = ("consumer-groups", group.group_id)
    return links.resource(
        "KafkaConsumerGroup",
        path,
        {"consumer-group": group.group_id},
        consumer_group_id=group.group_id,
        is_simple=not group.protocol_type,
        partition_assignor=group.assignor,
        state=_STATE_BY_NAME.get(group.state, "UNKNOWN"),
        type=group.group_type.upper(),
        coordinator=links.related("brokers", coordinator_id),
        consumers=links.related(*path, "consumers"),
        lag_summary=links.related(*path, "lag-summary"),
    )


# -- members --------------------------------------------------------------------------------------


async def list_members(call: Call) -> dict[str, Any]:
    """Return a group's members."""
    links = await links_of(call)
    group = await _find_group(call)
    rows = [_member(links, group.group_id, row) for row in group.members]
    path = ("consumer-groups", group.group_id, "consumers")
    return links.listed("KafkaConsumerList", path, rows)


async def get_member(call: Call) -> dict[str, Any]:
    """Return one member."""
    links = await links_of(call)
    group = await _find_group(call)
    return _member(links, group.group_id, _find_member(call, group))


def _find_member(call: Call, group: GroupDescription) -> GroupMember:
    for row in group.members:
        if row.member_id == call.path["member"]:
            return row
    raise RestError(404, f"Consumer {short(call.path['member'])} cannot be found.")


def _member(links: Links, group_id: str, member: GroupMember) -> dict[str, Any]:
    path = ("consumer-groups", group_id, "consumers", member.member_id)
    return links.resource(
        "KafkaConsumer",
        path,
        {"consumer-group": group_id, "consumer": member.member_id},
        consumer_group_id=group_id,
        consumer_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=links.related(*path, "assignments"),
    )


async def list_assignments(call: Call) -> dict[str, Any]:
    """Return the partitions of a member."""
    links = await links_of(call)
    group = await _find_group(call)
    member = _find_member(call, group)
    path = ("consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
    rows = [
        links.resource(
            "KafkaConsumerAssignment",
            (*path, name.topic, "partitions", name.partition),
            {
                "consumer-group": group.group_id,
                "consumer": member.member_id,
                "assignment": f"{name.topic}/{name.partition}",
            },
            consumer_group_id=group.group_id,
            consumer_id=member.member_id,
            topic_name=name.topic,
            partition_id=name.partition,
            partition=links.related("topics", name.topic, "partitions", name.partition),
            lag=links.related(
                "consumer-groups", group.group_id, "lags", name.topic, "partitions", name.partition
            ),
        )
        for name in sorted(member.partitions)
    ]
    return links.listed("KafkaConsumerAssignmentList", path, rows)


# -- lags -----------------------------------------------------------------------------------------


async def list_lags(call: Call) -> dict[str, Any]:
    """Return how far a group is behind, in each partition with a committed offset."""
    links = await links_of(call)
    group = await _find_group(call)
    rows = [_lag(links, group.group_id, row) for row in await _lags(call, group)]
    path = ("consumer-groups", group.group_id, "lags")
    return links.listed("KafkaConsumerLagList", path, rows)


async def get_lag(call: Call) -> dict[str, Any]:
    """Return how far a group is behind in one partition."""
    links = await links_of(call)
    group = await _find_group(call)
    name = TopicPartition(call.topic, call.path_number("partition"))
    for row in await _lags(call, group):
        if row.name == name:
            return _lag(links, group.group_id, row)
    raise RestError(404, f"Consumer group {short(group.group_id)} has no offset in {name}.")


async def _lags(call: Call, group: GroupDescription) -> list[_Lag]:
    admin = call.services.admin
    committed = await admin.groups.committed(group.group_id)
    known = {row.name for row in await admin.topics.list()}
    names = [name for name in sorted(committed) if name.topic in known]
    ends = await admin.offsets.ends(names)
    member_by_name = {name: row for row in group.members for name in row.partitions}
    return [
        _Lag(name, committed[name].offset, ends[name][1], member_by_name.get(name))
        for name in names
    ]


def _lag(links: Links, group_id: str, row: _Lag) -> dict[str, Any]:
    topic, partition = row.name
    return links.resource(
        "KafkaConsumerLag",
        ("consumer-groups", group_id, "lags", topic, "partitions", partition),
        {"consumer-group": group_id, "lag": f"{topic}/{partition}"},
        consumer_group_id=group_id,
        topic_name=topic,
        partition_id=partition,
        current_offset=row.current_offset,
        log_end_offset=row.end_offset,
        lag=row.lag,
        consumer_id="" if row.member is None else row.member.member_id,
        instance_id=None if row.member is None else row.member.instance_id,
        client_id="" if row.member is None else row.member.client_id,
    )


async def get_lag_summary(call: Call) -> dict[str, Any]:
    """Return the sum of a group's lags, and the partition with the largest."""
    links = await links_of(call)
    group = await _find_group(call)
    lags = await _lags(call, group)
    if not lags:
        raise RestError(404, f"Consumer group {short(group.group_id)} has no committed offsets.")
    worst = max(lags, key=lambda row: row.lag)
    member, (topic, partition) = worst.member, worst.name
    path = ("consumer-groups", group.group_id)
    consumer = None
    if member is not None:
        consumer = links.related(*path, "consumers", member.member_id)
    return links.resource(
        "KafkaConsumerGroupLagSummary",
        (*path, "lag-summary"),
        {"consumer-group": group.group_id, "lag-summary": ""},
        consumer_group_id=group.group_id,
        max_lag_consumer_id="" if member is None else member.member_id,
        max_lag_instance_id=None if member is None else member.instance_id,
        max_lag_client_id="" if member is None else member.client_id,
        max_lag_topic_name=topic,
        max_lag_partition_id=partition,
        max_lag=worst.lag,
        total_lag=sum(row.lag for row in lags),
        max_lag_consumer=consumer,
        max_lag_partition=links.related("topics", topic, "partitions", partition),
    )
