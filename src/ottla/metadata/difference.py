"""The records that lead from one image to another; from an empty image, they are a snapshot.

A follower of the metadata that receives a whole snapshot learns in this way which changes it
missed. The order is the order of Kafka's snapshots: metadata.version, which says how to read on, is
first.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ottla.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ControllerImage,
    Endpoint,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from ottla.metadata.kept_records import removal_of
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE
from ottla.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)
from ottla.model.identifiers import BrokerId

_BEFORE_PRODUCER_IDS: Final = (ClientQuotaRecord,)
_AFTER_PRODUCER_IDS: Final = (
    AccessControlEntryRecord,
    UserScramCredentialRecord,
    DelegationTokenRecord,
)


def records_between(before: ClusterImage, after: ClusterImage) -> list[MetadataRecord]:
    """Return records that lead from one image to the other, but for its end offset.

    A controller that is gone has no record: controllers are registered for good.
    """
    return list(_between(before, after))


def image_records(image: ClusterImage) -> Iterator[MetadataRecord]:
    """Yield the records of a snapshot of an image."""
    return _between(ClusterImage(image.cluster_id), image)


def _between(before: ClusterImage, after: ClusterImage) -> Iterator[MetadataRecord]:
    yield from _features(before.level_by_feature, after.level_by_feature)
    if before.zk_migration_state != after.zk_migration_state:
        yield ZkMigrationStateRecord(zk_migration_state=after.zk_migration_state)
    yield from _brokers(before.brokers, after.brokers)
    for controller_id, controller in after.controllers.items():
        if before.controllers.get(controller_id) != controller:
            yield controller_record(controller)
    yield from _topics(before, after)
    yield from _configs(before, after)
    yield from _kept(before, after, _BEFORE_PRODUCER_IDS)
    yield from _producer_ids(before, after)
    yield from _kept(before, after, _AFTER_PRODUCER_IDS)


def topic_records(topic: TopicImage) -> list[MetadataRecord]:
    """Return the records of a topic that is new."""
    partitions = [
        partition_record(topic.topic_id, number, one) for number, one in enumerate(topic.partitions)
    ]
    return [TopicRecord(name=topic.name, topic_id=topic.topic_id), *partitions]


def partition_record(topic_id: bytes, number: int, partition: PartitionImage) -> PartitionRecord:
    """Return the record of a partition as it is."""
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
        eligible_leader_replicas=list(partition.eligible_leader_replicas) or None,
        last_known_elr=list(partition.last_known_elr) or None,
    )


def registration_record(broker: BrokerImage) -> RegisterBrokerRecord:
    """Return the record of a broker as it is."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_in_zookeeper,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=_endpoints(broker.endpoints),
        features=_ranges(broker.levels_by_feature),
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_shutting_down,
        log_dirs=list(broker.log_dirs),
        cordoned_log_dirs=list(broker.cordoned_log_dirs) or None,
    )


def controller_record(controller: ControllerImage) -> RegisterControllerRecord:
    """Return the record of a controller as it is."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.is_zk_migration_ready,
        end_points=_endpoints(controller.endpoints),
        features=_ranges(controller.levels_by_feature),
    )


def _endpoints(endpoints: Iterable[Endpoint]) -> list[BrokerEndpoint]:
    return [
        BrokerEndpoint(
            name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
        )
        for one in endpoints
    ]


def _ranges(levels_by_feature: Mapping[str, tuple[int, int]]) -> list[BrokerFeature]:
    return [
        BrokerFeature(name=name, min_supported_version=first, max_supported_version=last)
        for name, (first, last) in levels_by_feature.items()
    ]


def _features(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[MetadataRecord]:
    for name in before:
        if name not in after:
            yield FeatureLevelRecord(name=name, feature_level=0)
    # sorted is stable: only metadata.version changes its place
    for name in sorted(after, key=lambda one: one != METADATA_VERSION_FEATURE):
        if before.get(name) != after[name]:
            yield FeatureLevelRecord(name=name, feature_level=after[name])


def _brokers(
    before: Mapping[BrokerId, BrokerImage], after: Mapping[BrokerId, BrokerImage]
) -> Iterator[MetadataRecord]:
    for broker_id, broker in before.items():
        if broker_id not in after:
            yield UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.broker_epoch)
    for broker_id, broker in after.items():
        if before.get(broker_id) != broker:
            yield registration_record(broker)


def _topics(before: ClusterImage, after: ClusterImage) -> Iterator[MetadataRecord]:
    for topic in _gone(before, after):
        yield RemoveTopicRecord(topic_id=topic.topic_id)
    for topic_id, topic in after.topics_by_id.items():
        old = before.topics_by_id.get(topic_id)
        if old is None or _is_another(old, topic):
            yield from topic_records(topic)
        elif old is not topic:
            yield from _changed_partitions(old, topic)


def _changed_partitions(old: TopicImage, topic: TopicImage) -> Iterator[MetadataRecord]:
    for number, partition in enumerate(topic.partitions):
        if number >= len(old.partitions) or old.partitions[number] != partition:
            yield partition_record(topic.topic_id, number, partition)


def _gone(before: ClusterImage, after: ClusterImage) -> list[TopicImage]:
    return [
        topic
        for topic_id, topic in before.topics_by_id.items()
        if (known := after.topics_by_id.get(topic_id)) is None or _is_another(topic, known)
    ]


def _is_another(old: TopicImage, new: TopicImage) -> bool:
    """Tell whether two topics of one id cannot be the same: none ever loses a partition."""
    return old.name != new.name or len(new.partitions) < len(old.partitions)


def _configs(before: ClusterImage, after: ClusterImage) -> Iterator[MetadataRecord]:
    # Settings go with their topic, and have to be said again of a topic of the same name.
    gone = {ConfigResource(ResourceType.TOPIC, topic.name) for topic in _gone(before, after)}
    present = {one: settings for one, settings in before.configs.items() if one not in gone}
    for resource, settings in present.items():
        kept = after.configs.get(resource, {})
        yield from (_config(resource, name, None) for name in settings if name not in kept)
    for resource, settings in after.configs.items():
        old = present.get(resource, {})
        yield from (
            _config(resource, name, value)
            for name, value in settings.items()
            if old.get(name) != value
        )


def _config(resource: ConfigResource, name: str, value: str | None) -> ConfigRecord:
    return ConfigRecord(
        resource_type=resource.kind, resource_name=resource.name, name=name, value=value
    )


def _producer_ids(before: ClusterImage, after: ClusterImage) -> Iterator[MetadataRecord]:
    if before.next_producer_id != after.next_producer_id:
        yield ProducerIdsRecord(broker_id=BrokerId(-1), next_producer_id=after.next_producer_id)


def _kept(
    before: ClusterImage, after: ClusterImage, kinds: tuple[type[MetadataRecord], ...]
) -> Iterator[MetadataRecord]:
    for key, record in before.kept_records.items():
        if isinstance(record, kinds) and key not in after.kept_records:
            yield removal_of(record)
    for kind in kinds:
        for key, record in after.kept_records.items():
            if isinstance(record, kind) and before.kept_records.get(key) != record:
                yield record
