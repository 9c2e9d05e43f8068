"""The operations of the REST proxy, as one table of routes."""

from typing import Final

from ottla.rest import (
    topic_records,
    v2_consumers,
    v2_topics,
    v3_groups,
    v3_records,
    v3_resources,
)
from ottla.rest.call import V2_TYPES, Operation, Route
from ottla.rest.v2_topics import TYPE_BY_CONTENT_TYPE

_PRODUCED_TYPES: Final = tuple(TYPE_BY_CONTENT_TYPE)
_V2_BODIES: Final = (*V2_TYPES, "application/octet-stream")
_CONSUMED_TYPES: Final = (*V2_TYPES, *_PRODUCED_TYPES)
_INSTANCE: Final = "/consumers/{group}/instances/{instance}"
_CLUSTER: Final = "/v3/clusters/{cluster}"
_TOPIC: Final = f"{_CLUSTER}/topics/{{topic}}"
_GROUP: Final = f"{_CLUSTER}/consumer-groups/{{group}}"
_READ: Final = ("timeout", "max_bytes")


def _v2(method: str, path: str, run: object, operation: Operation, **more: object) -> Route:
    given = {"answer_types": V2_TYPES, "body_types": _V2_BODIES, **more}
    return Route(method, path, run, operation, **given)  # type: ignore[arg-type]


def _topic(method: str, path: str, run: object, operation: Operation, **more: object) -> Route:
    return _v2(method, f"/topics/{{topic}}{path}", run, operation, kind="topic", **more)


def _instance(method: str, path: str, run: object, **more: object) -> Route:
    return _v2(method, f"{_INSTANCE}{path}", run, Operation.READ, kind="group", **more)


def _produce(path: str) -> Route:
    return _topic(
        "POST",
        path,
        v2_topics.produce,
        Operation.WRITE,
        body=v2_topics.V2Produce,
        body_types=_PRODUCED_TYPES,
    )


def _read(path: str, run: object, operation: Operation, kind: str = "cluster") -> Route:
    return Route("GET", path, run, operation, kind)  # type: ignore[arg-type]


_V2: Final = (
    _v2("GET", "/topics", v2_topics.list_topics, Operation.DESCRIBE),
    _topic("GET", "", v2_topics.get_topic, Operation.DESCRIBE),
    _produce(""),
    _topic("GET", "/partitions", v2_topics.list_partitions, Operation.DESCRIBE),
    _topic("GET", "/partitions/{partition}", v2_topics.get_partition, Operation.DESCRIBE),
    _produce("/partitions/{partition}"),
    _topic("GET", "/partitions/{partition}/offsets", v2_topics.get_offsets, Operation.DESCRIBE),
    _topic(
        "GET",
        "/partitions/{partition}/records",
        v2_topics.partition_records,
        Operation.READ,
        query=("offset", *_READ),
        answer_types=_CONSUMED_TYPES,
    ),
    _v2("GET", "/brokers", v2_topics.list_brokers, Operation.DESCRIBE),
    _v2(
        "POST",
        "/consumers/{group}",
        v2_consumers.create_instance,
        Operation.READ,
        kind="group",
        body=dict,
        is_body_optional=True,
    ),
    _instance("DELETE", "", v2_consumers.delete_instance),
    _instance("GET", "/subscription", v2_consumers.get_subscription),
    _instance("POST", "/subscription", v2_consumers.subscribe, body=v2_consumers.V2Subscription),
    _instance("DELETE", "/subscription", v2_consumers.unsubscribe),
    _instance("GET", "/assignments", v2_consumers.get_assignment),
    _instance("POST", "/assignments", v2_consumers.assign, body=v2_consumers.V2Partitions),
    _instance("POST", "/positions", v2_consumers.seek, body=v2_consumers.V2Offsets),
    _instance(
        "POST",
        "/positions/beginning",
        v2_consumers.seek_to_beginning,
        body=v2_consumers.V2Partitions,
    ),
    _instance("POST", "/positions/end", v2_consumers.seek_to_end, body=v2_consumers.V2Partitions),
    _instance("GET", "/records", v2_consumers.records, query=_READ, answer_types=_CONSUMED_TYPES),
    _instance(
        "POST",
        "/offsets",
        v2_consumers.commit,
        body=v2_consumers.V2Offsets,
        is_body_optional=True,
    ),
    # Confluent's interface has a body in this GET.
    _instance("GET", "/offsets", v2_consumers.committed, body=v2_consumers.V2Partitions),
)
_V3: Final = (
    _read("/v3/clusters", v3_resources.list_clusters, Operation.DESCRIBE),
    _read(_CLUSTER, v3_resources.get_cluster, Operation.DESCRIBE),
    _read(f"{_CLUSTER}/brokers", v3_resources.list_brokers, Operation.DESCRIBE),
    _read(f"{_CLUSTER}/brokers/{{broker}}", v3_resources.get_broker, Operation.DESCRIBE),
    _read(
        f"{_CLUSTER}/brokers/{{broker}}/configs",
        v3_resources.list_broker_configs,
        Operation.DESCRIBE_CONFIGS,
    ),
    _read(
        f"{_CLUSTER}/brokers/{{broker}}/configs/{{name}}",
        v3_resources.get_broker_config,
        Operation.DESCRIBE_CONFIGS,
    ),
    _read(
        f"{_CLUSTER}/brokers/{{broker}}/partition-replicas",
        v3_resources.list_broker_replicas,
        Operation.DESCRIBE,
    ),
    _read(
        f"{_CLUSTER}/broker-configs",
        v3_resources.list_cluster_configs,
        Operation.DESCRIBE_CONFIGS,
    ),
    _read(
        f"{_CLUSTER}/broker-configs/{{name}}",
        v3_resources.get_cluster_config,
        Operation.DESCRIBE_CONFIGS,
    ),
    _read(f"{_CLUSTER}/topics", v3_resources.list_topics, Operation.DESCRIBE),
    Route(
        "POST",
        f"{_CLUSTER}/topics",
        v3_resources.create_topic,
        Operation.CREATE,
        body=v3_resources.V3NewTopic,
    ),
    _read(_TOPIC, v3_resources.get_topic, Operation.DESCRIBE, "topic"),
    Route(
        "PATCH",
        _TOPIC,
        v3_resources.update_topic,
        Operation.ALTER,
        "topic",
        body=v3_resources.V3Partitions,
    ),
    Route("DELETE", _TOPIC, v3_resources.delete_topic, Operation.DELETE, "topic"),
    _read(
        f"{_TOPIC}/configs", v3_resources.list_topic_configs, Operation.DESCRIBE_CONFIGS, "topic"
    ),
    _read(
        f"{_TOPIC}/configs/{{name}}",
        v3_resources.get_topic_config,
        Operation.DESCRIBE_CONFIGS,
        "topic",
    ),
    _read(f"{_TOPIC}/partitions", v3_resources.list_partitions, Operation.DESCRIBE, "topic"),
    _read(
        f"{_TOPIC}/partitions/{{partition}}",
        v3_resources.get_partition,
        Operation.DESCRIBE,
        "topic",
    ),
    _read(
        f"{_TOPIC}/partitions/{{partition}}/replicas",
        v3_resources.list_replicas,
        Operation.DESCRIBE,
        "topic",
    ),
    _read(
        f"{_TOPIC}/partitions/{{partition}}/replicas/{{broker}}",
        v3_resources.get_replica,
        Operation.DESCRIBE,
        "topic",
    ),
    Route(
        "POST",
        f"{_TOPIC}/records",
        v3_records.produce,
        Operation.WRITE,
        "topic",
        streams_body=True,
    ),
    Route(
        "POST",
        f"{_TOPIC}/records:batch",
        v3_records.produce_batch,
        Operation.WRITE,
        "topic",
        body=v3_records.V3Batch,
    ),
    _read(f"{_CLUSTER}/consumer-groups", v3_groups.list_groups, Operation.DESCRIBE),
    _read(_GROUP, v3_groups.get_group, Operation.DESCRIBE, "group"),
    _read(f"{_GROUP}/consumers", v3_groups.list_members, Operation.DESCRIBE, "group"),
    _read(f"{_GROUP}/consumers/{{member}}", v3_groups.get_member, Operation.DESCRIBE, "group"),
    _read(
        f"{_GROUP}/consumers/{{member}}/assignments",
        v3_groups.list_assignments,
        Operation.DESCRIBE,
        "group",
    ),
    _read(f"{_GROUP}/lags", v3_groups.list_lags, Operation.DESCRIBE, "group"),
    _read(
        f"{_GROUP}/lags/{{topic}}/partitions/{{partition}}",
        v3_groups.get_lag,
        Operation.DESCRIBE,
        "group",
    ),
    _read(f"{_GROUP}/lag-summary", v3_groups.get_lag_summary, Operation.DESCRIBE, "group"),
)
_OWN: Final = (
    Route(
        "GET",
        "/v1/topics/{topic}/records",
        topic_records.records,
        Operation.READ,
        "topic",
        query=("from", "to", "follow", "partition", "filter", "limit"),
        answer_types=(
            topic_records.LINES_TYPE,
            topic_records.EVENTS_TYPE,
            topic_records.ARROW_TYPE,
        ),
    ),
)
ROUTES: Final = (*_V2, *_V3, *_OWN)
