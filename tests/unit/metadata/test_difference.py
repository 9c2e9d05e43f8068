"""The records between any two images turn the first image into the second."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.difference import records_between
from ottla.metadata.image import ClusterImage
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
)
from ottla.metadata.replay import UnreplayableRecordError, replay
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
