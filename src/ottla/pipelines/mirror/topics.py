"""The copies of topics: created with the source's shape and settings, and kept in step with it.

The ids of both topics are recorded, to detect a topic that was deleted and created again. The
clusters through which its records came are recorded, to prevent cycles.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from ottla.clients.admin.admin_configs import ConfigChange, ConfigResource, ConfigSource
from ottla.clients.admin.admin_topics import TopicDescription
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.pipelines.mirror.clusters import Clusters
from ottla.pipelines.mirror.offset_syncs import (
    KnownCopies,
    MirroredTopic,
    OffsetSyncsReader,
    ident_of,
    topic_note,
)
from ottla.pipelines.mirror.options import MirrorError, MirrorOptions, is_notes_topic
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader

NOT_FOLLOWED: Final = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "local.retention.bytes",
        "local.retention.ms",
        "message.downconversion.enable",
        "message.format.version",
        "message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.timestamp.type",
        "remote.copy.disable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    }
)
"""Settings about the source's brokers, or that would refuse or change old timestamps."""
AFTER_MAX: Final = "message.timestamp.after.max.ms"
"""The limit of late timestamps. The mirror only raises it: a larger value on the copy stays."""
_MIN_IN_SYNC: Final = "min.insync.replicas"
_NOTES_REPLICAS: Final = 3
_log = logging.getLogger(__name__)


class TopicFollower:
    """Keeps the target's topics like the source's; `follow` is called repeatedly."""

    def __init__(
        self, options: MirrorOptions, clusters: Clusters, notes: OffsetSyncsReader
    ) -> None:
        self._options = options
        self._clusters = clusters
        self._source = AsyncAdmin.over(clusters.source)
        self._target = AsyncAdmin.over(clusters.target)
        self._notes = notes
        self._origins: dict[str, OffsetSyncsReader] = {}
        """The state of mirrors into the source, by their topics."""
        self._warned: set[str] = set()

    async def prepare(self) -> None:
        """Create the topic for the notes, and check that every named topic exists."""
        names = {topic.name for topic in await self._source.topics.list()}
        for name in self._options.plain_names:
            if name not in names:
                raise MirrorError(f"there is no topic {name!r} to mirror")
        brokers = len((await self._target.cluster.describe()).brokers)
        try:
            await self._target.topics.create(
                self._notes.log.topic,
                partitions=1,
                replication_factor=min(_NOTES_REPLICAS, brokers),
                configs={"cleanup.policy": "compact"},
            )
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise

    async def follow(self) -> list[MirroredTopic]:
        """Create missing copies and update different ones; return the copies to feed.

        MirrorError for a topic that cannot be a copy.
        """
        known = await self._notes.read_on(self._clusters.target)
        listed = await self._source.topics.list()
        wanted = [topic for topic in listed if self._options.is_wanted(topic.name)]
        paths = await self._paths(listed)
        there = {topic.name: topic for topic in await self._target.topics.list()}
        copies = []
        for topic in wanted:
            path = (*paths.get(topic.name, ()), self._clusters.source_id)
            if self._clusters.target_id in path:
                self._warn_once(f"{topic.name!r} came from the target: it is not mirrored back")
                continue
            name = self._options.target_topic(topic.name)
            copies.append(await self._follow_one(topic, path, there.get(name), known))
        await self._follow_configs(copies)
        return copies

    async def _follow_one(
        self,
        topic: TopicDescription,
        path: tuple[str, ...],
        there: TopicDescription | None,
        known: KnownCopies,
    ) -> MirroredTopic:
        name = self._options.target_topic(topic.name)
        note = known.topics.get(name)
        source_id = ident_of(topic.topic_id, topic.name)
        count = len(topic.partitions)
        if note is None or there is None or ident_of(there.topic_id, name) != note.ident:
            there = await self._new_copy(topic, name, there)
            ident = ident_of(there.topic_id, name)
            note = MirroredTopic(name, ident, topic.name, source_id, path, count)
            await self._write_note(note)
        elif note.source_name != topic.name or note.source_id != source_id:
            raise MirrorError(
                f"{name!r} is a copy of an earlier topic {topic.name!r}, which was deleted "
                f"and made again; delete {name!r} on the target to copy it anew"
            )
        elif len(there.partitions) < count:
            await self._target.topics.create_partitions({name: count})
        if note.partition_count != count:
            note = replace(note, partition_count=count)
            await self._write_note(note)
        return note

    async def _new_copy(
        self, topic: TopicDescription, name: str, there: TopicDescription | None
    ) -> TopicDescription:
        """Create a topic, or use an existing one if it has the right shape and no records."""
        count = len(topic.partitions)
        if there is None:
            brokers = len((await self._target.cluster.describe()).brokers)
            factor = self._options.replication_factor or min(topic.replication_factor, brokers)
            configs = await self._wanted_configs([topic.name])
            await self._target.topics.create(
                name,
                partitions=count,
                replication_factor=factor,
                configs=_fitting(configs[topic.name], factor),
            )
            self._clusters.target.forget([name])
            return (await self._target.topics.describe(name))[name]
        if len(there.partitions) != count:
            raise MirrorError(
                f"topic {name!r} is on the target with {len(there.partitions)} partitions, on the "
                f"source {topic.name!r} has {count}: delete it there, or use --prefix"
            )
        partitions = [TopicPartition(name, row.partition) for row in there.partitions]
        ends = await self._target.offsets.ends(partitions)
        if any(end for _, end in ends.values()):
            raise MirrorError(
                f"topic {name!r} is on the target with records that this mirror has not written: "
                "delete it there, or use --prefix"
            )
        return there

    async def _follow_configs(self, copies: Iterable[MirroredTopic]) -> None:
        source_by_name = {copy.name: copy.source_name for copy in copies}
        if not source_by_name:
            return
        wanted = await self._wanted_configs(source_by_name.values())
        resources = [ConfigResource.topic(name) for name in source_by_name]
        there = await self._target.configs.describe(resources)
        topics = await self._target.topics.describe(source_by_name)
        changes: dict[ConfigResource, Mapping[str, ConfigChange]] = {}
        for resource, entries in there.items():
            own = {
                entry.name: entry.value
                for entry in entries.values()
                if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
            }
            factor = topics[resource.name].replication_factor
            fitting = _fitting(wanted[source_by_name[resource.name]], factor)
            if different := _different(own, fitting):
                changes[resource] = different
        if changes:
            await self._target.configs.alter(changes)

    async def _wanted_configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the non-default settings of the source's topics."""
        described = await self._source.configs.describe(
            [ConfigResource.topic(name) for name in topics]
        )
        return {
            resource.name: {
                entry.name: entry.value
                for entry in entries.values()
                if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG
                and entry.value is not None
                and entry.name not in NOT_FOLLOWED
            }
            for resource, entries in described.items()
        }

    async def _paths(self, listed: Iterable[TopicDescription]) -> dict[str, tuple[str, ...]]:
        """Return the clusters that topics passed through, from mirrors' notes on the source."""
        ident_by_name = {topic.name: ident_of(topic.topic_id, topic.name) for topic in listed}
        paths = {}
        for name in filter(is_notes_topic, ident_by_name):
            reader = self._origins.setdefault(name, OffsetSyncsReader(CommittedTopicReader(name)))
            for copy in (await reader.read_on(self._clusters.source)).topics.values():
                if ident_by_name.get(copy.name) == copy.ident:
                    paths[copy.name] = copy.path
        return paths

    async def _write_note(self, note: MirroredTopic) -> None:
        key, value = topic_note(note)
        async with AsyncProducer(self._options.target, acks="all") as producer:
            await (await producer.send(self._notes.log.topic, value, key=key, partition=0))
        await self._notes.read_on(self._clusters.target)

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            _log.warning("%s", sentence)


def _fitting(configs: Mapping[str, str], replication_factor: int) -> dict[str, str]:
    """Return settings that allow writes to a topic with this number of replicas."""
    fitting = dict(configs)
    if _MIN_IN_SYNC in fitting:
        fitting[_MIN_IN_SYNC] = str(min(int(fitting[_MIN_IN_SYNC]), replication_factor))
    return fitting


def _different(own: Mapping[str, str | None], wanted: Mapping[str, str]) -> dict[str, ConfigChange]:
    if int(own.get(AFTER_MAX) or 0) > int(wanted.get(AFTER_MAX) or 0):
        wanted = {**wanted, AFTER_MAX: own[AFTER_MAX] or ""}
    changes: dict[str, ConfigChange] = {
        key: value for key, value in wanted.items() if own.get(key) != value
    }
    gone = own.keys() - wanted.keys() - NOT_FOLLOWED
    return changes | dict.fromkeys(gone)
