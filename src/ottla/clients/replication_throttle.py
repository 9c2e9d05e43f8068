"""A limit to what moves of partitions may take of the network, by Kafka's settings.

Brokers have a rate, topics the replicas that it holds for: while a partition moves, its old
replicas as those who send and its new ones as those who receive.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.clients.admin_configs import ConfigAdmin, ConfigOperation, ResourceType
from ottla.clients.reassignment_plan import Assignment, Plan
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SENDERS: Final = "leader.replication.throttled.replicas"
RECEIVERS: Final = "follower.replication.throttled.replicas"
Changes = dict[str, tuple[ConfigOperation, str | None]]


def throttled_replicas(current: Assignment, plan: Plan) -> dict[str, dict[str, str]]:
    """Return the two lists of each topic whose data moves."""
    lists: dict[str, dict[str, list[str]]] = {}
    for name, replicas in sorted(plan.items()):
        if added := [one for one in replicas if one not in current[name]]:
            of_topic = lists.setdefault(name.topic, {SENDERS: [], RECEIVERS: []})
            of_topic[SENDERS] += [f"{name.partition}:{one}" for one in current[name]]
            of_topic[RECEIVERS] += [f"{name.partition}:{one}" for one in added]
    return {
        topic: {key: ",".join(words) for key, words in of_topic.items()}
        for topic, of_topic in lists.items()
    }


async def set_throttle(
    configs: ConfigAdmin,
    bytes_per_second: int,
    brokers: Iterable[int],
    replicas_by_topic: Mapping[str, Mapping[str, str]],
) -> None:
    """Let moves of these replicas take so much of each broker, in and out."""
    rates: Changes = {key: (ConfigOperation.SET, str(bytes_per_second)) for key in RATES}
    for topic, lists in replicas_by_topic.items():
        changes: Changes = {key: (ConfigOperation.SET, words) for key, words in lists.items()}
        await configs.alter(ResourceType.TOPIC, topic, changes)
    for broker_id in brokers:
        await configs.alter(ResourceType.BROKER, str(broker_id), rates)


async def remove_throttle(
    configs: ConfigAdmin, brokers: Collection[int], topics: Collection[str]
) -> None:
    """Take the limit off these brokers and topics; nothing happens where there is none."""
    for broker_id in brokers:
        await configs.alter(ResourceType.BROKER, str(broker_id), _deleted(*RATES))
    for topic in topics:
        try:
            await configs.alter(ResourceType.TOPIC, topic, _deleted(SENDERS, RECEIVERS))
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise  # one that was deleted meanwhile needs no limit


def _deleted(*keys: str) -> Changes:
    return dict.fromkeys(keys, (ConfigOperation.DELETE, None))
