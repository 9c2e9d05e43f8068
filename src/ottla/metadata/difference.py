"""The records that lead from one image to another; from an empty image, they are a snapshot.

A follower of the metadata that receives a whole snapshot learns in this way which changes it
missed.
"""

from collections.abc import Iterator, Mapping

from ottla.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    PartitionImage,
    ResourceType,
    TopicImage,
)
from ottla.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.model.identifiers import BrokerId


def records_between(before: ClusterImage, after: ClusterImage) -> list[MetadataRecord]:
    """Return records that lead from one image to the other, but for its end offset."""
    return [
        *_features(before.level_by_feature, after.level_by_feature),
        *_brokers(before.brokers, after.brokers),
        *_topics(before, after),
        *_configs(before, after),
        *_producer_ids(before, after),
    ]


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
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=[
            BrokerEndpoint(
                name=one.name,
                host=one.host,
                port=one.port,
                security_protocol=one.security_protocol,
            )
            for one in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=first, max_supported_version=last)
            for name, (first, last) in broker.levels_by_feature.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_shutting_down,
        log_dirs=list(broker.log_dirs),
    )


def _features(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[MetadataRecord]:
    for name in before:
        if name not in after:
            yield FeatureLevelRecord(name=name, feature_level=0)
    for name, level in after.items():
        if before.get(name) != level:
            yield FeatureLevelRecord(name=name, feature_level=level)


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
