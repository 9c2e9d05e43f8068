"""The records between any two images turn the first image into the second."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.difference import image_records, records_between
from ottla.metadata.image import ClusterImage
from ottla.metadata.record_frames import as_written, batches_of, metadata_records_of
from ottla.metadata.records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)
from ottla.metadata.replay import UnreplayableRecordError, replay
from ottla.metadata.security_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    QuotaEntity,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from ottla.wire.records.batch import batches
from tests.metadata_building import CLUSTER_ID, uuid_of

small = st.integers(0, 3)


def records() -> st.SearchStrategy[MetadataRecord]:
    ids = small.map(uuid_of)
    values = st.sampled_from([None, "1", "2"])
    return st.one_of(
        st.builds(lambda n, i: TopicRecord(name=f"t{n}", topic_id=i), small, ids),
        st.builds(
            lambda topic, number, leader: PartitionRecord(
                topic_id=topic,
                partition_id=number,
                replicas=[leader, leader + 1],
                isr=[leader],
                directories=[uuid_of(100), uuid_of(101)],
                eligible_leader_replicas=[leader + 1] if number else None,
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
            ),
            ids,
            small,
            small,
        ),
        st.builds(
            lambda topic, leader: PartitionChangeRecord(
                topic_id=topic, partition_id=0, leader=leader
            ),
            ids,
            small,
        ),
        st.builds(RemoveTopicRecord, topic_id=ids),
        st.builds(
            lambda n, name, value: ConfigRecord(
                resource_type=2, resource_name=f"t{n}", name=name, value=value
            ),
            small,
            st.sampled_from(["a", "b"]),
            values,
        ),
        st.builds(
            lambda name, value: ConfigRecord(
                resource_type=4, resource_name="", name=name, value=value
            ),
            st.sampled_from(["a", "b"]),
            values,
        ),
        st.builds(lambda n: FeatureLevelRecord(name="f", feature_level=n), small),
        st.builds(lambda n: ProducerIdsRecord(next_producer_id=n), small),
        st.builds(
            lambda n, fenced: RegisterBrokerRecord(
                broker_id=n, incarnation_id=uuid_of(9), broker_epoch=n, fenced=fenced
            ),
            small,
            st.booleans(),
        ),
        st.builds(
            lambda n, way: BrokerRegistrationChangeRecord(broker_id=n, broker_epoch=n, fenced=way),
            small,
            st.sampled_from([-1, 1]),
        ),
        st.builds(lambda n: UnregisterBrokerRecord(broker_id=n, broker_epoch=n), small),
        st.builds(lambda n: FenceBrokerRecord(id=n, epoch=n), small),
        st.builds(lambda n: ClearElrRecord(topic_name=f"t{n}" if n else ""), small),
        kept_records(),
    )


def kept_records() -> st.SearchStrategy[MetadataRecord]:
    ids = small.map(uuid_of)
    names = st.sampled_from(["a", "b"])
    return st.one_of(
        st.builds(
            lambda entity, key, value, remove: ClientQuotaRecord(
                entity=[QuotaEntity(entity_type=one, entity_name=None) for one in entity],
                key=key,
                value=float(value),
                remove=remove,
            ),
            st.sampled_from([["user", "ip"], ["ip", "user"], ["user"]]),
            names,
            small,
            st.booleans(),
        ),
        st.builds(AccessControlEntryRecord, id=ids, resource_name=names),
        st.builds(RemoveAccessControlEntryRecord, id=ids),
        st.builds(UserScramCredentialRecord, name=names, mechanism=small, iterations=small),
        st.builds(RemoveUserScramCredentialRecord, name=names, mechanism=small),
        st.builds(DelegationTokenRecord, token_id=names, max_timestamp=small),
        st.builds(RemoveDelegationTokenRecord, token_id=names),
    )


controllers = st.builds(
    RegisterControllerRecord,
    controller_id=small,
    incarnation_id=small.map(uuid_of),
    zk_migration_ready=st.booleans(),
)


def image_after(start: ClusterImage, steps: list[MetadataRecord]) -> ClusterImage:
    """Replay the steps; skip unreplayable records."""
    image = start
    for step in steps:
        try:
            image = replay(image, [step], image.end_offset + 1)
        except UnreplayableRecordError:
            continue
    # Drop settings of missing topics: the controller never writes such settings.
    configs = {
        resource: settings
        for resource, settings in image.configs.items()
        if resource.kind != 2 or resource.name in image.topics
    }
    return replace(image, configs=configs)


histories = st.lists(records(), max_size=25)


@given(histories, histories)
def test_the_records_between_two_images_lead_from_one_to_the_other(
    first: list[MetadataRecord], second: list[MetadataRecord]
) -> None:
    start = ClusterImage(CLUSTER_ID)
    before, after = image_after(start, first), image_after(start, second)
    between = records_between(before, after)
    reached = replay(before, between, max(before.end_offset, after.end_offset))
    assert replace(reached, end_offset=after.end_offset) == after


@given(histories)
def test_between_equal_images_there_is_nothing(steps: list[MetadataRecord]) -> None:
    image = image_after(ClusterImage(CLUSTER_ID), steps)
    assert records_between(image, image) == []


@given(st.lists(records() | controllers, max_size=40), st.sampled_from([None, 7, 16, 22, 29, 30]))
def test_the_snapshot_of_an_image_replays_to_the_equal_image(
    steps: list[MetadataRecord], level: int | None
) -> None:
    known = (
        [] if level is None else [FeatureLevelRecord(name="metadata.version", feature_level=level)]
    )
    # The image of a cluster holds only fields that records of its level have.
    image = image_after(ClusterImage(CLUSTER_ID), [*known, *as_written(steps, level or 30)])
    written = batches_of(image_records(image), image.metadata_version, 1)
    read = [
        record for raw in written for batch in batches(raw) for record in metadata_records_of(batch)
    ]
    assert replay(ClusterImage(CLUSTER_ID), read, image.end_offset) == image


def test_a_snapshot_has_kafkas_order() -> None:
    image = image_after(
        ClusterImage(CLUSTER_ID),
        [
            DelegationTokenRecord(token_id="i"),
            UserScramCredentialRecord(name="u"),
            AccessControlEntryRecord(id=uuid_of(1)),
            ProducerIdsRecord(next_producer_id=5),
            ClientQuotaRecord(key="k"),
            ConfigRecord(resource_type=4, resource_name="", name="a", value="1"),
            TopicRecord(name="t", topic_id=uuid_of(1)),
            PartitionRecord(topic_id=uuid_of(1), partition_id=0),
            RegisterControllerRecord(controller_id=3),
            RegisterBrokerRecord(broker_id=1),
            FeatureLevelRecord(name="a.version", feature_level=1),
            FeatureLevelRecord(name="metadata.version", feature_level=30),
        ],
    )
    found = list(image_records(image))
    assert [type(record) for record in found] == [
        FeatureLevelRecord,
        FeatureLevelRecord,
        RegisterBrokerRecord,
        RegisterControllerRecord,
        TopicRecord,
        PartitionRecord,
        ConfigRecord,
        ClientQuotaRecord,
        ProducerIdsRecord,
        AccessControlEntryRecord,
        UserScramCredentialRecord,
        DelegationTokenRecord,
    ]
    assert found[0] == FeatureLevelRecord(name="metadata.version", feature_level=30)
