"""A limit on the network traffic of reassignments, by Kafka's settings.

Brokers have a rate; topics list the throttled replicas: while a partition moves, its old replicas
as leaders and its new replicas as followers.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from ottla.clients.admin.admin_configs import ConfigAdmin, ConfigChange, ConfigResource
from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.clients.admin.reassignment_plan import Assignment, Plan
from ottla.model.error_code import ErrorCode

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
SENDERS: Final = "leader.replication.throttled.replicas"
RECEIVERS: Final = "follower.replication.throttled.replicas"
Changes = dict[ConfigResource, Mapping[str, ConfigChange]]


def throttled_replicas(current: Assignment, plan: Plan) -> dict[str, dict[str, str]]:
    """Return the two replica lists of each topic with data to move."""
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
    """Limit the traffic of these replicas to this rate per broker, in each direction."""
    rates = dict.fromkeys(RATES, str(bytes_per_second))
    changes: Changes = {
        ConfigResource.topic(topic): dict(lists) for topic, lists in replicas_by_topic.items()
    }
    await configs.alter(changes | {ConfigResource.broker(one): rates for one in brokers})


async def remove_throttle(
    configs: ConfigAdmin, brokers: Collection[int], topics: Collection[str]
) -> None:
    """Remove the limit from these brokers and topics; does nothing without a limit."""
    changes: Changes = {ConfigResource.broker(one): dict.fromkeys(RATES) for one in brokers}
    lists = dict.fromkeys((SENDERS, RECEIVERS))
    try:
        await configs.alter(changes | {ConfigResource.topic(topic): lists for topic in topics})
    except ItemsFailedError as error:
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # a deleted topic has no limit
        if any(failure.code is not gone for failure in error.failed.values()):
            raise
