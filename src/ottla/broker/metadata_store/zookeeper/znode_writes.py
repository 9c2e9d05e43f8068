"""Turns a decision into ZooKeeper operations, so that a part of them never does harm.

A commit of ZooKeeper is atomic, but limited in size. So a long decision takes several. Operations
that belong together stay together: a partition's replicas and its ISR, a new topic and its
settings. And after each commit a successor can continue: a topic with a deletion mark is deleted, a
partition without a state gets one.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from ottla.broker.metadata_store.zookeeper.migration_nodes import seen_in_quorum
from ottla.broker.metadata_store.zookeeper.znodes import (
    DELETED_TOPICS,
    FEATURES,
    PRODUCER_IDS,
    config_data,
    config_path,
    features_data,
    partition_path,
    producer_ids_data,
    seen_epoch_path,
    state_data,
    state_path,
    topic_data,
    topic_path,
)
from ottla.environment.zookeeper import Create, Delete, Operation, Write
from ottla.machines.controller.lifecycle import UNFENCED
from ottla.metadata.image import (
    ClusterImage,
    ConfigResource,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId

OPERATIONS_PER_COMMIT_MAX: Final = 500
BYTES_PER_COMMIT_MAX: Final = 500_000
NODE_BYTES_MAX: Final = 700_000
"""ZooKeeper refuses packets of a megabyte (jute.maxbuffer)."""
NEVER_HANDLED: Final = -1
"""The epoch of a broker's registration before the controller has handled any."""
_PARTITIONS_TOGETHER: Final = 200
_OPERATION_BYTES: Final = 100

Unit = list[Operation]
"""Operations that are done together."""


def commits_for(
    before: ClusterImage,
    after: ClusterImage,
    records: Sequence[MetadataRecord],
    controller_epoch: int,
    *,
    is_migrating: bool = False,
) -> list[Unit]:
    """Return the commits, in order, that lead from one image to the next.

    Of brokers only the handled registration epoch is written: live brokers own the rest. During a
    migration, some brokers are registered with the quorum. ApiError POLICY_VIOLATION for data that
    no node can hold.
    """
    changes = _Changes(before, after, records, controller_epoch, is_migrating=is_migrating)
    units = [*changes.deletions(), *changes.new_brokers(), *changes.single_units()]
    # A broker counts as handled last, when its leaderships are written.
    units += [*changes.topic_units(), *changes.handled_brokers()]
    return list(in_commits(units))


def in_commits(units: Iterable[Unit]) -> Iterator[Unit]:
    """Put as many units into a commit as ZooKeeper takes."""
    commit: Unit = []
    commit_bytes = 0
    for unit in units:
        unit_bytes = sum(map(_size_bytes, unit))
        is_full = len(commit) + len(unit) > OPERATIONS_PER_COMMIT_MAX
        if commit and (is_full or commit_bytes + unit_bytes > BYTES_PER_COMMIT_MAX):
            yield commit
            commit, commit_bytes = [], 0
        commit += unit
        commit_bytes += unit_bytes
    if commit:
        yield commit


def first_state(topic: TopicImage, number: int, controller_epoch: int) -> Create:
    """Return the operation that writes the first state of a partition."""
    data = state_data(topic.partitions[number], controller_epoch)
    return Create(state_path(topic.name, number), data)


class _Changes:
    """The differences between two images that the records name."""

    def __init__(
        self,
        before: ClusterImage,
        after: ClusterImage,
        records: Sequence[MetadataRecord],
        controller_epoch: int,
        *,
        is_migrating: bool,
    ) -> None:
        self._before = before
        self._after = after
        self._records = records
        self._controller_epoch = controller_epoch
        self._is_migrating = is_migrating

    # -- topics that go -------------------------------------------------------------------------

    def deletions(self) -> Iterator[Unit]:
        for record in self._records:
            if isinstance(record, RemoveTopicRecord):
                yield from self._deletion(self._before.topics_by_id[record.topic_id])

    def _deletion(self, topic: TopicImage) -> Iterator[Unit]:
        """Write the deletion mark first, so that a successor completes the deletion."""
        mark = f"{DELETED_TOPICS}/{topic.name}"
        yield [Create(mark)]
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        if resource in self._before.configs:
            yield [Delete(config_path(resource))]
        for number in range(len(topic.partitions)):
            yield [Delete(state_path(topic.name, number))]
            yield [Delete(partition_path(topic.name, number))]
        yield [Delete(f"{topic_path(topic.name)}/partitions")]
        yield [Delete(topic_path(topic.name)), Delete(mark)]

    # -- topics that come or change -------------------------------------------------------------

    def topic_units(self) -> Iterator[Unit]:
        numbers_by_topic: dict[bytes, set[int]] = {}
        for record in self._records:
            if isinstance(record, TopicRecord):
                numbers_by_topic.setdefault(record.topic_id, set())
            elif isinstance(record, PartitionRecord | PartitionChangeRecord):
                numbers_by_topic.setdefault(record.topic_id, set()).add(record.partition_id)
        for topic_id, numbers in numbers_by_topic.items():
            topic = self._after.topics_by_id.get(topic_id)
            known = self._before.topics_by_id.get(topic_id)
            if topic is not None and known is None:
                yield from self._new_topic(topic)
            elif topic is not None and known is not None:
                yield from self._changed_topic(known, topic, sorted(numbers))

    def _new_topic(self, topic: TopicImage) -> Iterator[Unit]:
        resource = ConfigResource(ResourceType.TOPIC, topic.name)
        path = topic_path(topic.name)
        yield [
            *self._config(resource),
            Create(path, _checked(topic, topic_data(topic))),
            Create(f"{path}/partitions"),
        ]
        for number in range(len(topic.partitions)):
            yield self._new_partition(topic, number)

    def _changed_topic(
        self, known: TopicImage, topic: TopicImage, numbers: list[int]
    ) -> Iterator[Unit]:
        """Write replicas together with the ISR, some partitions at a time."""
        count = len(known.partitions)
        partitions = [*known.partitions, *topic.partitions[count:]]
        written = topic_data(known)
        for first in range(0, len(numbers), _PARTITIONS_TOGETHER):
            some = numbers[first : first + _PARTITIONS_TOGETHER]
            for number in some:
                partitions[number] = topic.partitions[number]
            data = topic_data(replace(topic, partitions=tuple(partitions)))
            unit: Unit = []
            if data != written:
                unit.append(Write(topic_path(topic.name), _checked(topic, data)))
                written = data
            for number in some:
                if number < count:
                    old = known.partitions[number]
                    unit += self._changed_state(topic, number, old)
                else:
                    unit += self._new_partition(topic, number)
            yield unit

    def _new_partition(self, topic: TopicImage, number: int) -> Unit:
        state = first_state(topic, number, self._controller_epoch)
        return [Create(partition_path(topic.name, number)), state]

    def _changed_state(self, topic: TopicImage, number: int, old: PartitionImage) -> Unit:
        partition = topic.partitions[number]
        data = state_data(partition, self._controller_epoch)
        # One write for each step of the epoch: the version of the node is the epoch.
        epochs = range(old.partition_epoch, partition.partition_epoch)
        return [Write(state_path(topic.name, number), data, epoch) for epoch in epochs]

    # -- everything else ------------------------------------------------------------------------

    def new_brokers(self) -> Iterator[Unit]:
        known = dict.fromkeys(self._before.brokers)
        for record in self._records:
            if isinstance(record, RegisterBrokerRecord):
                yield from self._registration(record, is_new=record.broker_id not in known)
            elif isinstance(record, UnregisterBrokerRecord):
                yield [Delete(seen_epoch_path(record.broker_id))]

    def _registration(self, record: RegisterBrokerRecord, *, is_new: bool) -> Iterator[Unit]:
        path = seen_epoch_path(record.broker_id)
        is_in_quorum = self._is_in_quorum(record.broker_id)
        epoch = seen_in_quorum(record.broker_epoch) if is_in_quorum else NEVER_HANDLED
        if is_new:
            yield [Create(path, b"%d" % epoch)]
        elif is_in_quorum:
            yield [Write(path, b"%d" % epoch)]

    def _is_in_quorum(self, broker_id: BrokerId) -> bool:
        broker = self._after.brokers.get(broker_id)
        return self._is_migrating and broker is not None and not broker.is_in_zookeeper

    def handled_brokers(self) -> Iterator[Unit]:
        for record in self._records:
            if not isinstance(record, BrokerRegistrationChangeRecord):
                continue
            if record.fenced == UNFENCED and not self._is_in_quorum(record.broker_id):
                yield [Write(seen_epoch_path(record.broker_id), b"%d" % record.broker_epoch)]

    def single_units(self) -> Iterator[Unit]:
        """Yield the nodes that stand for themselves: each once, as it is in the end."""
        resources: dict[ConfigResource, None] = {}
        producer_ids: ProducerIdsRecord | None = None
        for record in self._records:
            if isinstance(record, ConfigRecord):
                kind = ResourceType(record.resource_type)
                resources[ConfigResource(kind, record.resource_name)] = None
            elif isinstance(record, ProducerIdsRecord):
                producer_ids = record
        for resource in resources:
            if not self._goes_with_topic(resource):
                yield self._config(resource)
        if producer_ids is not None:
            yield [Write(PRODUCER_IDS, self._producer_ids(producer_ids))]
        if any(isinstance(record, FeatureLevelRecord) for record in self._records):
            yield [Write(FEATURES, features_data(self._after.level_by_feature))]

    def _goes_with_topic(self, resource: ConfigResource) -> bool:
        """Return whether settings are written, or removed, together with their topic."""
        was_there = resource.name in self._before.topics
        is_there = resource.name in self._after.topics
        return resource.kind == ResourceType.TOPIC and not (was_there and is_there)

    def _config(self, resource: ConfigResource) -> Unit:
        path = config_path(resource)
        was_there = resource in self._before.configs
        settings = self._after.configs.get(resource)
        if settings is None:
            return [Delete(path)] if was_there else []
        data = config_data(settings)
        if len(data) > NODE_BYTES_MAX:
            raise _too_large(f"the settings of {resource.name[:100]}", len(data))
        return [Write(path, data) if was_there else Create(path, data)]

    def _producer_ids(self, record: ProducerIdsRecord) -> bytes:
        size = record.next_producer_id - self._before.next_producer_id
        return producer_ids_data(record.broker_id, record.next_producer_id, size)


def _checked(topic: TopicImage, data: bytes) -> bytes:
    if len(data) > NODE_BYTES_MAX:
        raise _too_large(f"the replicas of topic {topic.name}", len(data))
    return data


def _too_large(what: str, size_bytes: int) -> ApiError:
    return ApiError(
        ErrorCode.POLICY_VIOLATION,
        f"{what} would take {size_bytes} bytes; ZooKeeper keeps up to {NODE_BYTES_MAX}",
    )


def _size_bytes(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | Write) else b""
    return _OPERATION_BYTES + len(operation.path) + len(data)
