"""Version 3: clusters, brokers, topics, partitions, replicas and settings."""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct

from ottla.clients.admin.admin_configs import ConfigEntry, ConfigResource
from ottla.clients.admin.admin_topics import TopicDescription, TopicPartitionState
from ottla.rest.call import Answer, Call
from ottla.rest.rest_errors import RestError, partition_not_found, short
from ottla.rest.v2_topics import find_partition, find_topic

CREATED: Final = 201


class V3Config(Struct):
    """A setting of a new topic."""

    name: str
    value: str | None = None


class V3Assignment(Struct):
    """The replicas of a partition of a new topic."""

    partition_id: int
    broker_ids: list[int]


class V3NewTopic(Struct):
    """The body that creates a topic."""

    topic_name: str
    partitions_count: int | None = None
    replication_factor: int | None = None
    configs: list[V3Config] = []
    replicas_assignments: list[V3Assignment] = []
    validate_only: bool = False


class V3Partitions(Struct):
    """The body that adds partitions to a topic."""

    partitions_count: int


class Links:
    """URLs and resource names below one cluster."""

    def __init__(self, call: Call, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        self._url = f"{call.base_url}/v3/clusters/{quote(cluster_id, safe='')}"
        self._name = f"crn:///kafka={cluster_id}"

    def url(self, *path: object) -> str:
        """Return the URL of a path."""
        return "/".join((self._url, *(quote(str(word), safe="-:") for word in path)))

    def related(self, *path: object) -> dict[str, str]:
        """Return a link to a path."""
        return {"related": self.url(*path)}

    def resource(
        self, kind: str, path: Iterable[object], named: Mapping[str, object], **fields: Any
    ) -> dict[str, Any]:
        """Return a resource with its metadata."""
        crn = "/".join((self._name, *(f"{key}={value}" for key, value in named.items())))
        metadata = {"self": self.url(*path), "resource_name": crn}
        return {"kind": kind, "metadata": metadata, "cluster_id": self.cluster_id, **fields}

    def listed(
        self, kind: str, path: Iterable[object], rows: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """Return a list of resources. It is complete: there is no next page."""
        return {
            "kind": kind,
            "metadata": {"self": self.url(*path), "next": None},
            "data": rows,
        }


async def links_of(call: Call) -> Links:
    """Return the links of the path's cluster; RestError 404 if it is another cluster."""
    cluster = await call.services.admin.cluster.describe()
    asked = call.path["cluster"]
    if asked != cluster.cluster_id:
        raise RestError(404, f"Cluster {short(asked)} cannot be found.")
    return Links(call, cluster.cluster_id)


# -- clusters and brokers -------------------------------------------------------------------------


async def list_clusters(call: Call) -> dict[str, Any]:
    """Return the cluster, in a list."""
    cluster = await call.services.admin.cluster.describe()
    links = Links(call, cluster.cluster_id)
    return {
        "kind": "KafkaClusterList",
        "metadata": {"self": f"{call.base_url}/v3/clusters", "next": None},
        "data": [_cluster(links, cluster.controller_id)],
    }


async def get_cluster(call: Call) -> dict[str, Any]:
    """Return the cluster."""
    links = await links_of(call)
    cluster = await call.services.admin.cluster.describe()
    return _cluster(links, cluster.controller_id)


def _cluster(links: Links, controller_id: int) -> dict[str, Any]:
    return links.resource(
        "KafkaCluster",
        (),
        {},
        controller=links.related("brokers", controller_id),
        acls=links.related("acls"),
        brokers=links.related("brokers"),
        broker_configs=links.related("broker-configs"),
        consumer_groups=links.related("consumer-groups"),
        topics=links.related("topics"),
        partition_reassignments=links.related("topics", "-", "partitions", "-", "reassignment"),
    )


async def list_brokers(call: Call) -> dict[str, Any]:
    """Return the brokers."""
    links = await links_of(call)
    cluster = await call.services.admin.cluster.describe()
    rows = sorted(cluster.brokers, key=lambda row: row.broker_id)
    return links.listed("KafkaBrokerList", ("brokers",), [_broker(links, row) for row in rows])


async def get_broker(call: Call) -> dict[str, Any]:
    """Return one broker."""
    links = await links_of(call)
    return _broker(links, await _find_broker(call))


async def _find_broker(call: Call) -> Any:
    broker_id = call.path_number("broker")
    cluster = await call.services.admin.cluster.describe()
    for row in cluster.brokers:
        if row.broker_id == broker_id:
            return row
    raise RestError(404, f"Broker {broker_id} cannot be found.")


def _broker(links: Links, row: Any) -> dict[str, Any]:
    path = ("brokers", row.broker_id)
    return links.resource(
        "KafkaBroker",
        path,
        {"broker": row.broker_id},
        broker_id=row.broker_id,
        host=row.host,
        port=row.port,
        rack=row.rack,
        configs=links.related(*path, "configs"),
        partition_replicas=links.related(*path, "partition-replicas"),
    )


# -- topics ---------------------------------------------------------------------------------------


async def list_topics(call: Call) -> dict[str, Any]:
    """Return the topics."""
    links = await links_of(call)
    topics = sorted(await call.services.admin.topics.list(), key=lambda row: row.name)
    return links.listed("KafkaTopicList", ("topics",), [_topic(links, row) for row in topics])


async def get_topic(call: Call) -> dict[str, Any]:
    """Return one topic."""
    links = await links_of(call)
    return _topic(links, await find_topic(call))


def _topic(links: Links, topic: TopicDescription) -> dict[str, Any]:
    path = ("topics", topic.name)
    return links.resource(
        "KafkaTopic",
        path,
        {"topic": topic.name},
        topic_name=topic.name,
        is_internal=topic.is_internal,
        replication_factor=topic.replication_factor,
        partitions_count=len(topic.partitions),
        partitions=links.related(*path, "partitions"),
        configs=links.related(*path, "configs"),
        partition_reassignments=links.related(*path, "partitions", "-", "reassignment"),
        authorized_operations=[],
    )


async def create_topic(call: Call) -> Answer:
    """Create a topic; 200 in place of 201 if it is only validated."""
    body: V3NewTopic = call.body
    links = await links_of(call)
    counts = {"partitions": body.partitions_count, "replication_factor": body.replication_factor}
    assignments = {row.partition_id: row.broker_ids for row in body.replicas_assignments}
    created = await call.services.admin.topics.create(
        body.topic_name,
        **{name: count for name, count in counts.items() if count is not None and not assignments},
        assignments=assignments or None,
        configs={row.name: row.value for row in body.configs if row.value is not None},
        validate_only=body.validate_only,
    )
    found = created[body.topic_name]
    path = ("topics", body.topic_name)
    resource = links.resource(
        "KafkaTopic",
        path,
        {"topic": body.topic_name},
        topic_name=body.topic_name,
        is_internal=False,
        replication_factor=found.replication_factor,
        partitions_count=found.partitions,
        partitions=links.related(*path, "partitions"),
        configs=links.related(*path, "configs"),
        partition_reassignments=links.related(*path, "partitions", "-", "reassignment"),
        authorized_operations=[],
    )
    return Answer(resource, 200 if body.validate_only else CREATED)


async def update_topic(call: Call) -> dict[str, Any]:
    """Add partitions to a topic."""
    body: V3Partitions = call.body
    links = await links_of(call)
    topic = await find_topic(call)
    if body.partitions_count != len(topic.partitions):
        await call.services.admin.topics.create_partitions({topic.name: body.partitions_count})
    return _topic(links, await find_topic(call))


async def delete_topic(call: Call) -> None:
    """Delete a topic with its records."""
    await links_of(call)
    await find_topic(call)
    await call.services.admin.topics.delete(call.topic)
    call.services.view.forget([call.topic])


# -- partitions and replicas ----------------------------------------------------------------------


async def list_partitions(call: Call) -> dict[str, Any]:
    """Return a topic's partitions."""
    links = await links_of(call)
    topic = await find_topic(call)
    rows = [_partition(links, call.topic, row) for row in topic.partitions]
    return links.listed("KafkaPartitionList", ("topics", call.topic, "partitions"), rows)


async def get_partition(call: Call) -> dict[str, Any]:
    """Return one partition."""
    links = await links_of(call)
    return _partition(links, call.topic, await find_partition(call))


def _partition(links: Links, topic: str, row: TopicPartitionState) -> dict[str, Any]:
    path = ("topics", topic, "partitions", row.partition)
    leader = None if row.leader < 0 else links.related(*path, "replicas", row.leader)
    return links.resource(
        "KafkaPartition",
        path,
        {"topic": topic, "partition": row.partition},
        topic_name=topic,
        partition_id=row.partition,
        leader=leader,
        replicas=links.related(*path, "replicas"),
        reassignment=links.related(*path, "reassignment"),
    )


async def list_replicas(call: Call) -> dict[str, Any]:
    """Return a partition's replicas."""
    links = await links_of(call)
    row = await find_partition(call)
    path = ("topics", call.topic, "partitions", row.partition, "replicas")
    rows = [_replica(links, call.topic, row, broker_id) for broker_id in row.replicas]
    return links.listed("KafkaReplicaList", path, rows)


async def get_replica(call: Call) -> dict[str, Any]:
    """Return one replica."""
    links = await links_of(call)
    row = await find_partition(call)
    broker_id = call.path_number("broker")
    if broker_id not in row.replicas:
        raise RestError(
            404, f"{partition_not_found(call.topic, row.partition).message} on {broker_id}"
        )
    return _replica(links, call.topic, row, broker_id)


async def list_broker_replicas(call: Call) -> dict[str, Any]:
    """Return the replicas of one broker."""
    links = await links_of(call)
    broker_id = (await _find_broker(call)).broker_id
    topics = sorted(await call.services.admin.topics.list(), key=lambda row: row.name)
    rows = [
        _replica(links, topic.name, row, broker_id)
        for topic in topics
        for row in topic.partitions
        if broker_id in row.replicas
    ]
    return links.listed("KafkaReplicaList", ("brokers", broker_id, "partition-replicas"), rows)


def _replica(links: Links, topic: str, row: TopicPartitionState, broker_id: int) -> dict[str, Any]:
    return links.resource(
        "KafkaReplica",
        ("topics", topic, "partitions", row.partition, "replicas", broker_id),
        {"topic": topic, "partition": row.partition, "replica": broker_id},
        topic_name=topic,
        partition_id=row.partition,
        broker_id=broker_id,
        is_leader=broker_id == row.leader,
        is_in_sync=broker_id in row.in_sync_replicas,
        broker=links.related("brokers", broker_id),
    )


# -- settings -------------------------------------------------------------------------------------


async def list_topic_configs(call: Call) -> dict[str, Any]:
    """Return a topic's settings."""
    await find_topic(call)
    return await _listed_configs(call, ConfigResource.topic(call.topic))


async def get_topic_config(call: Call) -> dict[str, Any]:
    """Return one setting of a topic."""
    await find_topic(call)
    return await _one_config(call, ConfigResource.topic(call.topic))


async def list_broker_configs(call: Call) -> dict[str, Any]:
    """Return a broker's settings."""
    broker = await _find_broker(call)
    return await _listed_configs(call, ConfigResource.broker(broker.broker_id))


async def get_broker_config(call: Call) -> dict[str, Any]:
    """Return one setting of a broker."""
    broker = await _find_broker(call)
    return await _one_config(call, ConfigResource.broker(broker.broker_id))


async def list_cluster_configs(call: Call) -> dict[str, Any]:
    """Return the settings that were changed for every broker."""
    return await _listed_configs(call, ConfigResource.every_broker())


async def get_cluster_config(call: Call) -> dict[str, Any]:
    """Return one setting that was changed for every broker."""
    return await _one_config(call, ConfigResource.every_broker())


def _config_place(call: Call) -> tuple[str, tuple[object, ...], dict[str, object]]:
    """Return the kind, the path and the fields of the settings in a path."""
    if "topic" in call.path:
        return (
            "KafkaTopicConfig",
            ("topics", call.topic, "configs"),
            {"topic_name": call.topic},
        )
    if "broker" in call.path:
        broker_id = call.path_number("broker")
        return "KafkaBrokerConfig", ("brokers", broker_id, "configs"), {"broker_id": broker_id}
    return "KafkaClusterConfig", ("broker-configs",), {"config_type": "BROKER"}


async def _configs(call: Call, resource: ConfigResource) -> Mapping[str, ConfigEntry]:
    found = await call.services.admin.configs.describe(resource, with_synonyms=True)
    return found[resource]


async def _listed_configs(call: Call, resource: ConfigResource) -> dict[str, Any]:
    links = await links_of(call)
    kind, path, _ = _config_place(call)
    rows = sorted((await _configs(call, resource)).items())
    return links.listed(f"{kind}List", path, [_config(call, links, row) for _, row in rows])


async def _one_config(call: Call, resource: ConfigResource) -> dict[str, Any]:
    links = await links_of(call)
    entry = (await _configs(call, resource)).get(call.path["name"])
    if entry is None:
        raise RestError(404, f"Config {short(call.path['name'])} cannot be found.")
    return _config(call, links, entry)


def _config(call: Call, links: Links, entry: ConfigEntry) -> dict[str, Any]:
    kind, path, fields = _config_place(call)
    return links.resource(
        kind,
        (*path, entry.name),
        {**{key.partition("_")[0]: value for key, value in fields.items()}, "config": entry.name},
        **fields,
        name=entry.name,
        value=entry.value,
        is_default=entry.is_default,
        is_read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
        source=entry.source.name,
        synonyms=[
            {"name": row.name, "value": row.value, "source": row.source.name}
            for row in entry.synonyms
        ],
    )
