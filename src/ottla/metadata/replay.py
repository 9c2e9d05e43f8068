"""An image and records make the next image.

Each mapping that a record changes is copied once for all records together, and each topic that
gets partitions is put together once: a change of one topic among 10,000 costs the copies of two
dicts, and reading a log of 10,000 topics from its start costs nothing but its records.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Generic, TypeVar

from ottla.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ControllerImage,
    Endpoint,
    KeptKey,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from ottla.metadata.kept_records import key_of, removed_key_of
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE, NEWEST_METADATA_VERSION
from ottla.metadata.records import (
    LEADER_UNCHANGED,
    RECOVERY_STATE_UNCHANGED,
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnknownRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.model.identifiers import BrokerId, Offset, uuid_to_text
from ottla.model.topic_names import folded

K = TypeVar("K")
V = TypeVar("V")


class UnreplayableRecordError(Exception):
    """A record refers to something that does not exist: records are missing before it."""


def replay(
    image: ClusterImage, records: Iterable[MetadataRecord], end_offset: Offset
) -> ClusterImage:
    """Return the image of the log up to end_offset, which these records lead to.

    Raises UnreplayableRecordError where they do not follow from the image; then there is no next.
    """
    assert end_offset >= image.end_offset, (end_offset, image.end_offset)
    delta = _Delta(image)
    for record in records:
        delta.apply(record)
    return delta.next_image(end_offset)


class _Changing(Generic[K, V]):
    """A mapping that is copied when it is first changed."""

    __slots__ = ("_copy", "original")

    def __init__(self, original: Mapping[K, V]) -> None:
        self.original = original
        self._copy: dict[K, V] | None = None

    @property
    def current(self) -> Mapping[K, V]:
        return self.original if self._copy is None else self._copy

    @property
    def changed(self) -> dict[K, V]:
        """The copy, to be changed."""
        if self._copy is None:
            self._copy = dict(self.original)
        return self._copy


class _Delta:
    """Everything that is different in the next image."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._topics = _Changing(image.topics)
        self._topics_by_id = _Changing(image.topics_by_id)
        self._names_by_folded = _Changing(image.topic_name_by_folded)
        self._configs = _Changing(image.configs)
        self._brokers = _Changing(image.brokers)
        self._levels = _Changing(image.level_by_feature)
        self._controllers = _Changing(image.controllers)
        self._kept: _Changing[KeptKey, MetadataRecord] = _Changing(image.kept_records)
        self._partition_count = image.partition_count
        self._next_producer_id = image.next_producer_id
        self._zk_migration_state = image.zk_migration_state
        # The topics and settings that change, copied on first write.
        self._partitions_by_topic: dict[bytes, list[PartitionImage]] = {}
        self._settings_by_resource: dict[ConfigResource, dict[str, str]] = {}
        self._shared: dict[Any, Any] = {}
        self._step_by_record = self._steps()

    def apply(self, record: MetadataRecord) -> None:
        self._step_by_record[type(record)](record)

    def _steps(self) -> dict[type, Callable[[Any], None]]:
        """Return the method for each kind of record."""
        return {
            PartitionRecord: self._set_partition,
            PartitionChangeRecord: self._change_partition,
            TopicRecord: self._add_topic,
            RemoveTopicRecord: self._remove_topic,
            ClearElrRecord: self._clear_elr,
            ConfigRecord: self._set_config,
            FeatureLevelRecord: self._set_level,
            ProducerIdsRecord: self._set_next_producer_id,
            RegisterBrokerRecord: self._register_broker,
            UnregisterBrokerRecord: self._unregister_broker,
            BrokerRegistrationChangeRecord: self._change_broker,
            FenceBrokerRecord: self._fence,
            UnfenceBrokerRecord: self._unfence,
            RegisterControllerRecord: self._register_controller,
            NoOpRecord: self._ignore,
            ZkMigrationStateRecord: self._set_migration_state,
            BeginTransactionRecord: self._refuse,
            EndTransactionRecord: self._refuse,
            AbortTransactionRecord: self._refuse,
            ClientQuotaRecord: self._keep,
            AccessControlEntryRecord: self._keep,
            RemoveAccessControlEntryRecord: self._keep,
            UserScramCredentialRecord: self._keep,
            RemoveUserScramCredentialRecord: self._keep,
            DelegationTokenRecord: self._keep,
            RemoveDelegationTokenRecord: self._keep,
            UnknownRecord: self._skip,
        }

    def next_image(self, end_offset: Offset) -> ClusterImage:
        for topic_id, partitions in self._partitions_by_topic.items():
            topic = replace(self._topics_by_id.current[topic_id], partitions=tuple(partitions))
            self._topics.changed[topic.name] = self._topics_by_id.changed[topic_id] = topic
        for resource, settings in self._settings_by_resource.items():
            if settings:
                self._configs.changed[resource] = settings
            elif resource in self._configs.current:
                del self._configs.changed[resource]
        return ClusterImage(
            cluster_id=self._image.cluster_id,
            end_offset=end_offset,
            topics=self._topics.current,
            topics_by_id=self._topics_by_id.current,
            topic_name_by_folded=self._names_by_folded.current,
            partition_count=self._partition_count,
            configs=self._configs.current,
            brokers=self._brokers.current,
            level_by_feature=self._levels.current,
            next_producer_id=self._next_producer_id,
            controllers=self._controllers.current,
            kept_records=self._kept.current,
            zk_migration_state=self._zk_migration_state,
        )

    # -- brokers and controllers ----------------------------------------------------------------

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        self._brokers.changed[record.broker_id] = _broker(record)

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._registered(record.broker_id, record.broker_epoch)
        del self._brokers.changed[record.broker_id]

    def _change_broker(self, record: BrokerRegistrationChangeRecord) -> None:
        known = self._registered(record.broker_id, record.broker_epoch)
        self._brokers.changed[record.broker_id] = _changed_broker(known, record)

    def _fence(self, record: FenceBrokerRecord) -> None:
        known = self._registered(record.id, record.epoch)
        self._brokers.changed[record.id] = replace(known, is_fenced=True)

    def _unfence(self, record: UnfenceBrokerRecord) -> None:
        known = self._registered(record.id, record.epoch)
        self._brokers.changed[record.id] = replace(known, is_fenced=False)

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers.changed[record.controller_id] = _controller(record)

    def _registered(self, broker_id: BrokerId, broker_epoch: int) -> BrokerImage:
        known = self._brokers.current.get(broker_id)
        if known is None or known.broker_epoch != broker_epoch:
            raise UnreplayableRecordError(
                f"broker {broker_id} is not registered at epoch {broker_epoch}"
            )
        return known

    # -- topics ---------------------------------------------------------------------------------

    def _add_topic(self, record: TopicRecord) -> None:
        if record.name in self._topics.current or record.topic_id in self._topics_by_id.current:
            raise UnreplayableRecordError(f"{_topic(record)}: the name or the id exists already")
        topic = TopicImage(record.name, record.topic_id)
        self._topics.changed[topic.name] = self._topics_by_id.changed[topic.topic_id] = topic
        if (key := folded(topic.name)) is not None:
            self._names_by_folded.changed[key] = topic.name

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._existing(record.topic_id)
        self._partition_count -= len(self._partitions_of(topic))
        del self._partitions_by_topic[topic.topic_id]
        del self._topics.changed[topic.name]
        del self._topics_by_id.changed[topic.topic_id]
        self._settings_by_resource[ConfigResource(ResourceType.TOPIC, topic.name)] = {}
        key = folded(topic.name)
        if key is not None and self._names_by_folded.current.get(key) == topic.name:
            del self._names_by_folded.changed[key]

    def _existing(self, topic_id: bytes) -> TopicImage:
        topic = self._topics_by_id.current.get(topic_id)
        if topic is None:
            raise UnreplayableRecordError(f"no topic has the id {uuid_to_text(topic_id)}")
        return topic

    def _partitions_of(self, topic: TopicImage) -> list[PartitionImage]:
        partitions = self._partitions_by_topic.get(topic.topic_id)
        if partitions is None:
            partitions = self._partitions_by_topic[topic.topic_id] = list(topic.partitions)
        return partitions

    # -- partitions -----------------------------------------------------------------------------

    def _set_partition(self, record: PartitionRecord) -> None:
        topic = self._existing(record.topic_id)
        partitions = self._partitions_of(topic)
        if record.partition_id == len(partitions):
            partitions.append(_partition(record, self._shared))
            self._partition_count += 1
        elif 0 <= record.partition_id < len(partitions):
            partitions[record.partition_id] = _partition(record, self._shared)
        else:
            raise _no_partition(topic, record.partition_id, len(partitions))

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        topic = self._existing(record.topic_id)
        partitions = self._partitions_of(topic)
        if not 0 <= record.partition_id < len(partitions):
            raise _no_partition(topic, record.partition_id, len(partitions))
        partitions[record.partition_id] = merged(partitions[record.partition_id], record)

    def _clear_elr(self, record: ClearElrRecord) -> None:
        topics = [self._topics.current.get(record.topic_name)]
        if not record.topic_name:
            topics = list(self._topics.current.values())
        for topic in topics:
            if topic is None:
                raise UnreplayableRecordError(f"there is no topic {record.topic_name}")
            known = self._partitions_by_topic.get(topic.topic_id, topic.partitions)
            for number, partition in enumerate(known):
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self._partitions_of(topic)[number] = replace(
                        partition,
                        eligible_leader_replicas=(),
                        last_known_elr=(),
                        partition_epoch=partition.partition_epoch + 1,
                    )

    # -- everything else ------------------------------------------------------------------------

    def _set_config(self, record: ConfigRecord) -> None:
        try:
            resource = ConfigResource(ResourceType(record.resource_type), record.resource_name)
        except ValueError as error:
            raise UnreplayableRecordError(f"{record.name}: {error}") from None
        settings = self._settings_by_resource.get(resource)
        if settings is None:
            settings = dict(self._configs.current.get(resource, {}))
            self._settings_by_resource[resource] = settings
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value

    def _set_level(self, record: FeatureLevelRecord) -> None:
        if record.feature_level:
            self._levels.changed[record.name] = record.feature_level
        else:
            self._levels.changed.pop(record.name, None)

    def _set_next_producer_id(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _set_migration_state(self, record: ZkMigrationStateRecord) -> None:
        self._zk_migration_state = record.zk_migration_state

    def _ignore(self, record: NoOpRecord) -> None:
        """Do nothing: the record changes no metadata."""

    def _refuse(self, record: MetadataRecord) -> None:
        raise UnreplayableRecordError(f"{record!r} is for replicas of the quorum alone")

    def _skip(self, record: UnknownRecord) -> None:
        """Leave out records of newer levels; all kinds of the claimed levels are known."""
        level = self._levels.current.get(METADATA_VERSION_FEATURE, 0)
        if level <= NEWEST_METADATA_VERSION:
            raise UnreplayableRecordError(
                f"a metadata record of unknown kind {record.kind} at metadata.version {level}"
            )

    def _keep(self, record: MetadataRecord) -> None:
        removed = removed_key_of(record)
        if removed is None:
            self._kept.changed[key_of(record)] = record
        else:
            self._kept.changed.pop(removed, None)


def _partition(record: PartitionRecord, shared: dict[Any, Any]) -> PartitionImage:
    """Return a new partition; equal lists of replicas and log dirs are kept once for all."""
    replicas = tuple(record.replicas)
    replicas = shared.setdefault(replicas, replicas)
    directories = tuple(record.directories)
    return PartitionImage(
        replicas=replicas,
        isr=replicas if record.isr == record.replicas else tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        adding_replicas=tuple(record.adding_replicas),
        removing_replicas=tuple(record.removing_replicas),
        directories=shared.setdefault(directories, directories),
        leader_recovery_state=record.leader_recovery_state,
        eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
        last_known_elr=tuple(record.last_known_elr or ()),
    )


_LISTS = (
    "replicas",
    "isr",
    "adding_replicas",
    "removing_replicas",
    "directories",
    "eligible_leader_replicas",
    "last_known_elr",
)


def merged(partition: PartitionImage, record: PartitionChangeRecord) -> PartitionImage:
    """Return a partition as it is after a change; its epoch rises by one."""
    changes: dict[str, Any] = {
        name: tuple(value) for name in _LISTS if (value := getattr(record, name)) is not None
    }
    if record.leader != LEADER_UNCHANGED:
        changes |= {"leader": record.leader, "leader_epoch": partition.leader_epoch + 1}
    if record.leader_recovery_state != RECOVERY_STATE_UNCHANGED:
        changes["leader_recovery_state"] = record.leader_recovery_state
    return replace(partition, partition_epoch=partition.partition_epoch + 1, **changes)


def _broker(record: RegisterBrokerRecord) -> BrokerImage:
    return BrokerImage(
        broker_id=record.broker_id,
        broker_epoch=record.broker_epoch,
        incarnation_id=record.incarnation_id,
        endpoints=_endpoints(record.end_points),
        rack=record.rack,
        is_fenced=record.fenced,
        is_shutting_down=record.in_controlled_shutdown,
        log_dirs=tuple(record.log_dirs),
        levels_by_feature=_levels(record.features),
        cordoned_log_dirs=tuple(record.cordoned_log_dirs or ()),
        is_in_zookeeper=record.is_migrating_zk_broker,
    )


def _controller(record: RegisterControllerRecord) -> ControllerImage:
    return ControllerImage(
        controller_id=record.controller_id,
        incarnation_id=record.incarnation_id,
        endpoints=_endpoints(record.end_points),
        levels_by_feature=_levels(record.features),
        is_zk_migration_ready=record.zk_migration_ready,
    )


def _endpoints(listed: Iterable[BrokerEndpoint]) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(one.name, one.host, one.port, one.security_protocol) for one in listed)


def _levels(listed: Iterable[BrokerFeature]) -> dict[str, tuple[int, int]]:
    return {one.name: (one.min_supported_version, one.max_supported_version) for one in listed}


def _changed_broker(broker: BrokerImage, record: BrokerRegistrationChangeRecord) -> BrokerImage:
    return replace(
        broker,
        is_fenced=record.fenced > 0 if record.fenced else broker.is_fenced,
        is_shutting_down=broker.is_shutting_down or record.in_controlled_shutdown > 0,
        log_dirs=tuple(record.log_dirs) or broker.log_dirs,
        cordoned_log_dirs=(
            broker.cordoned_log_dirs
            if record.cordoned_log_dirs is None
            else tuple(record.cordoned_log_dirs)
        ),
    )


def _topic(record: TopicRecord) -> str:
    return f"topic {record.name} with the id {uuid_to_text(record.topic_id)}"


def _no_partition(topic: TopicImage, number: int, count: int) -> UnreplayableRecordError:
    return UnreplayableRecordError(f"partition {number} of {topic.name}, which has {count}")
