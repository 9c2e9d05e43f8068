"""Everything that a cluster keeps in ZooKeeper, as the records that lead to it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from ottla.broker.metadata_store.zookeeper.znodes import (
    BROKER_IDS,
    CONFIGS,
    DELETED_TOPICS,
    FEATURES,
    PRODUCER_IDS,
    SEEN_EPOCHS,
    TOPICS,
    LiveBroker,
    UnreadableZnodeError,
    config_path,
    config_resource,
    read_broker,
    read_config,
    read_features,
    read_number,
    read_producer_ids,
    read_topic,
    state_path,
    topic_path,
)
from ottla.environment.zookeeper import Node, NoNodeError, Watch, ZooKeeperSession
from ottla.metadata.difference import topic_records
from ottla.metadata.image import (
    ClusterImage,
    ConfigResource,
    ResourceType,
    TopicImage,
)
from ottla.metadata.records import (
    NO_LEADER,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    ProducerIdsRecord,
)
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.model.identifiers import FIRST_OFFSET, BrokerId, ProducerId

READS_AT_ONCE_MAX: Final = 100
"""How many reads are on their way together: one after the other takes a round trip each."""
T = TypeVar("T")


class Loaded(NamedTuple):
    """The content of ZooKeeper."""

    records: list[MetadataRecord]
    """Of topics, settings, features, producer ids: all but the brokers."""
    stateless: list[tuple[TopicImage, int]]
    """Partitions without a state node: they never had a leader."""
    rubbish: list[str]
    """Nodes to be removed, in this order: of topics that are marked for deletion, the marks, and
    settings that are empty or of no topic."""
    seen_epochs: dict[BrokerId, int]
    """The registration of each broker that the controller has handled."""
    unseen: list[BrokerId]
    """Unregistered brokers that lead or are in sync."""


async def load(session: ZooKeeperSession) -> Loaded:
    """Read everything. The reader must be the only writer: the controller.

    UnreadableZnodeError for a node that Kafka would not have written.
    """
    marked = await session.children(DELETED_TOPICS)
    names = [name for name in await session.children(TOPICS) if name not in marked]
    topics, stateless = await _topics(session, names)
    rubbish = []
    for name in marked:
        rubbish += [*await nodes_below(session, topic_path(name)), f"{DELETED_TOPICS}/{name}"]
    configs, useless = await _configs(session, topics)
    records = [record for topic in topics.values() for record in topic_records(topic)]
    records += [*configs, *await _features(session), *await _producer_ids(session)]
    seen_epochs = await _seen_epochs(session)
    trusted = {
        broker_id
        for topic in topics.values()
        for partition in topic.partitions
        for broker_id in (*partition.isr, partition.leader)
    }
    unseen = sorted(trusted - seen_epochs.keys() - {NO_LEADER})
    # The deletion marks go last: they name the other nodes to delete.
    return Loaded(records, stateless, [*useless, *rubbish], seen_epochs, unseen)


async def load_topics(session: ZooKeeperSession, cluster_id: str) -> ClusterImage:
    """Read the topics, their replicas and their settings; not the leaders.

    Everything committed before the session began is included: a session begins with a commit.
    Changes during the read may be included or not. Raises UnreadableZnodeError for an invalid node.
    """
    names = await session.children(TOPICS)
    nodes = await _get_all(session, [topic_path(name) for name in names])
    records: list[MetadataRecord] = []
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            records += topic_records(read_topic(name, node.data, {}))
    paths = [config_path(ConfigResource(ResourceType.TOPIC, name)) for name in names]
    for name, path, node in zip(names, paths, await _get_all(session, paths), strict=True):
        if node is not None:
            settings = read_config(path, node.data)
            records += _config_records(ResourceType.TOPIC, name, settings)
    try:
        return replay(ClusterImage(cluster_id), records, FIRST_OFFSET)
    except UnreplayableRecordError as error:
        raise UnreadableZnodeError(f"the nodes of topics: {error}") from error


async def live_brokers(
    session: ZooKeeperSession, watch: Watch | None = None
) -> dict[BrokerId, LiveBroker]:
    """Return the registered brokers; a watch notifies of additions and removals."""
    found = {}
    names = await session.children(BROKER_IDS, watch)
    nodes = await _get_all(session, [f"{BROKER_IDS}/{name}" for name in names])
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            broker_id = BrokerId(read_number(BROKER_IDS, name.encode()))
            found[broker_id] = read_broker(broker_id, node.data, node.stat.created_zxid)
    return found


async def nodes_below(session: ZooKeeperSession, path: str) -> list[str]:
    """Return a node and everything below it, children first; nothing if it is not there."""
    try:
        names = await session.children(path)
    except NoNodeError:
        return []
    found = []
    for name in names:
        found += await nodes_below(session, f"{path}/{name}")
    return [*found, path]


async def get_or_none(
    session: ZooKeeperSession, path: str, watch: Watch | None = None
) -> Node | None:
    """Read a node that need not be there."""
    try:
        return await session.get(path, watch)
    except NoNodeError:
        return None


async def _get_all(session: ZooKeeperSession, paths: Sequence[str]) -> list[Node | None]:
    return await _together([partial(get_or_none, session, path) for path in paths])


async def _get_each(session: ZooKeeperSession, paths: Sequence[str]) -> list[Node]:
    """Read nodes that must be there. NoNodeError."""
    return await _together([partial(session.get, path) for path in paths])


async def _together(reads: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    found: list[T] = []
    for first in range(0, len(reads), READS_AT_ONCE_MAX):
        some = reads[first : first + READS_AT_ONCE_MAX]
        found += await asyncio.gather(*[read() for read in some])
    return found


async def _topics(
    session: ZooKeeperSession, names: Sequence[str]
) -> tuple[dict[str, TopicImage], list[tuple[TopicImage, int]]]:
    """Return the topics by their names, and the partitions that have no state."""
    nodes = await _get_each(session, [topic_path(name) for name in names])
    data = {name: node.data for name, node in zip(names, nodes, strict=True)}
    places = [
        (name, number)
        for name in names
        for number in range(len(read_topic(name, data[name], {}).partitions))
    ]
    found = await _get_all(session, [state_path(*place) for place in places])
    states: dict[str, dict[int, tuple[bytes, int]]] = {name: {} for name in names}
    for (name, number), node in zip(places, found, strict=True):
        if node is not None:
            states[name][number] = (node.data, node.stat.version)
    topics = {name: read_topic(name, data[name], states[name]) for name in names}
    missing = [(topics[name], number) for name, number in places if number not in states[name]]
    return topics, missing


async def _configs(
    session: ZooKeeperSession, topics: dict[str, TopicImage]
) -> tuple[list[MetadataRecord], list[str]]:
    """Return the settings, and the nodes of unknown resources."""
    records: list[MetadataRecord] = []
    useless = []
    for kind, folder in CONFIGS.items():
        names = await session.children(folder)
        paths = [f"{folder}/{name}" for name in names]
        for name, path, node in zip(names, paths, await _get_each(session, paths), strict=True):
            settings = read_config(path, node.data)
            resource = config_resource(kind, name)
            is_orphan = kind == ResourceType.TOPIC and resource.name not in topics
            if is_orphan or not settings:
                useless.append(path)
                continue
            records += _config_records(kind, resource.name, settings)
    return records, useless


def _config_records(
    kind: ResourceType, name: str, settings: Mapping[str, str]
) -> Iterator[MetadataRecord]:
    for key, value in settings.items():
        yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)


async def _features(session: ZooKeeperSession) -> list[MetadataRecord]:
    levels = read_features((await session.get(FEATURES)).data)
    return [FeatureLevelRecord(name=name, feature_level=level) for name, level in levels.items()]


async def _producer_ids(session: ZooKeeperSession) -> list[MetadataRecord]:
    next_producer_id = read_producer_ids((await session.get(PRODUCER_IDS)).data)
    if not next_producer_id:
        return []
    return [
        ProducerIdsRecord(broker_id=BrokerId(-1), next_producer_id=ProducerId(next_producer_id))
    ]


async def _seen_epochs(session: ZooKeeperSession) -> dict[BrokerId, int]:
    found = {}
    for name in await session.children(SEEN_EPOCHS):
        path = f"{SEEN_EPOCHS}/{name}"
        broker_id = BrokerId(read_number(path, name.encode()))
        found[broker_id] = read_number(path, (await session.get(path)).data)
    return found
