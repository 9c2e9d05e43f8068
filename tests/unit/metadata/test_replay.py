"""Replaying records into images."""

from dataclasses import replace

import pytest

from ottla.metadata.image import (
    BrokerImage,
    ClusterImage,
    ConfigResource,
    Endpoint,
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
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.metadata.replay import UnreplayableRecordError, replay
from tests.metadata_building import image_of, uuid_of

NO_TOPIC = uuid_of(99)


def topic(number: int, name: str) -> TopicRecord:
    return TopicRecord(name=name, topic_id=uuid_of(number))


def partition(topic_number: int, number: int, leader: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=uuid_of(topic_number),
        replicas=[leader],
        isr=[leader],
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
    )


def setting(resource: str, name: str, value: str | None, kind: int = 2) -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


def after(image: ClusterImage, *records: MetadataRecord) -> ClusterImage:
    return replay(image, records, image.end_offset + len(records))


# -- topics and partitions ------------------------------------------------------------------------


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = image_of(topic(1, "a"), partition(1, 0), partition(1, 1, leader=4))
    expected = TopicImage(
        "a", uuid_of(1), (PartitionImage((0,), (0,), 0), PartitionImage((4,), (4,), 4))
    )
    assert image.topics == {"a": expected}
    assert image.topics_by_id == {uuid_of(1): expected}
    assert (image.partition_count, image.end_offset) == (2, 3)


def test_everything_that_a_record_tells_of_a_partition_is_in_the_image() -> None:
    record = PartitionRecord(
        partition_id=0,
        topic_id=uuid_of(1),
        replicas=[1, 2],
        isr=[2],
        removing_replicas=[1],
        adding_replicas=[2],
        leader=2,
        leader_recovery_state=1,
        leader_epoch=3,
        partition_epoch=4,
        directories=[uuid_of(5), uuid_of(6)],
        eligible_leader_replicas=[7],
        last_known_elr=[8],
    )
    assert image_of(topic(1, "a"), record).topics["a"].partitions == (
        PartitionImage(
            replicas=(1, 2),
            isr=(2,),
            leader=2,
            leader_epoch=3,
            partition_epoch=4,
            adding_replicas=(2,),
            removing_replicas=(1,),
            directories=(uuid_of(5), uuid_of(6)),
            leader_recovery_state=1,
            eligible_leader_replicas=(7,),
            last_known_elr=(8,),
        ),
    )


def test_a_partition_that_is_written_anew_replaces_itself() -> None:
    image = image_of(topic(1, "a"), partition(1, 0), partition(1, 0, leader=5))
    assert [one.leader for one in image.topics["a"].partitions] == [5]
    assert image.partition_count == 1


def test_a_new_leader_gets_the_next_epoch() -> None:
    image = image_of(topic(1, "a"), partition(1, 0), partition(1, 1))
    changed = after(
        image,
        PartitionChangeRecord(partition_id=1, topic_id=uuid_of(1), leader=3, isr=[3, 4]),
    )
    first, second = changed.topics["a"].partitions
    assert first == PartitionImage((0,), (0,), 0)
    assert second == PartitionImage((0,), (3, 4), 3, leader_epoch=1, partition_epoch=1)


def test_without_a_new_leader_only_the_partition_gets_another_epoch() -> None:
    change = PartitionChangeRecord(
        partition_id=0,
        topic_id=uuid_of(1),
        replicas=[0, 1],
        adding_replicas=[1],
        removing_replicas=[0],
        leader_recovery_state=1,
        directories=[uuid_of(1), uuid_of(2)],
        eligible_leader_replicas=[1],
        last_known_elr=[2],
    )
    image = image_of(topic(1, "a"), partition(1, 0), change)
    assert image.topics["a"].partitions == (
        PartitionImage(
            replicas=(0, 1),
            isr=(0,),
            leader=0,
            leader_epoch=0,
            partition_epoch=1,
            adding_replicas=(1,),
            removing_replicas=(0,),
            directories=(uuid_of(1), uuid_of(2)),
            leader_recovery_state=1,
            eligible_leader_replicas=(1,),
            last_known_elr=(2,),
        ),
    )


def test_a_deleted_topic_takes_its_partitions_and_settings_along() -> None:
    image = image_of(
        topic(1, "a_b"), setting("a_b", "k", "v"), partition(1, 0), topic(2, "c"), partition(2, 0)
    )
    gone = after(image, RemoveTopicRecord(topic_id=uuid_of(1)))
    assert gone == replace(image_of(topic(2, "c"), partition(2, 0)), end_offset=6)


def test_a_topic_may_be_deleted_and_created_again_at_once() -> None:
    image = image_of(topic(1, "a"), setting("a", "k", "old"), partition(1, 0), partition(1, 1))
    again = after(
        image,
        RemoveTopicRecord(topic_id=uuid_of(1)),
        topic(2, "a"),
        setting("a", "other", "new"),
        partition(2, 0),
    )
    assert again.topics["a"].topic_id == uuid_of(2)
    assert again.topic_settings("a") == {"other": "new"}
    assert (again.partition_count, len(again.topics_by_id)) == (1, 1)


def test_a_topic_created_and_deleted_in_one_step_leaves_nothing() -> None:
    image = image_of(topic(1, "a"), partition(1, 0))
    records = [
        topic(2, "b_c"),
        setting("b_c", "k", "v"),
        partition(2, 0),
        PartitionChangeRecord(topic_id=uuid_of(2), partition_id=0, leader=1),
        RemoveTopicRecord(topic_id=uuid_of(2)),
    ]
    assert after(image, *records) == replace(image, end_offset=image.end_offset + len(records))


def test_equal_lists_of_partitions_are_kept_once() -> None:
    first, second = image_of(topic(1, "a"), partition(1, 0), partition(1, 1)).topics["a"].partitions
    assert first.replicas is second.replicas is first.isr


def test_names_that_can_clash_are_remembered_until_their_topic_goes() -> None:
    image = image_of(topic(1, "a.b"), topic(2, "plain"))
    assert image.topic_name_by_folded == {"a_b": "a.b"}
    assert after(image, RemoveTopicRecord(topic_id=uuid_of(1))).topic_name_by_folded == {}


def test_of_two_topics_that_clash_all_the_same_the_remaining_one_is_still_known() -> None:
    image = image_of(topic(1, "a.b"), topic(2, "a_b"), RemoveTopicRecord(topic_id=uuid_of(1)))
    assert image.topic_name_by_folded == {"a_b": "a_b"}


# -- settings, brokers and numbers ----------------------------------------------------------------


def test_a_setting_is_set_changed_and_taken_back() -> None:
    resource = ConfigResource(ResourceType.TOPIC, "a")
    image = image_of(setting("a", "k", "1"), setting("a", "l", "2"))
    assert image.configs == {resource: {"k": "1", "l": "2"}}
    image = after(image, setting("a", "k", "3"), setting("a", "l", None))
    assert image.configs == {resource: {"k": "3"}}
    assert after(image, setting("a", "k", None)).configs == {}


def test_settings_of_topics_and_brokers_with_the_same_name_are_different() -> None:
    image = image_of(setting("1", "k", "topic"), setting("1", "k", "broker", kind=4))
    assert image.configs == {
        ConfigResource(ResourceType.TOPIC, "1"): {"k": "topic"},
        ConfigResource(ResourceType.BROKER, "1"): {"k": "broker"},
    }


def test_a_broker_is_as_it_registered_last() -> None:
    record = RegisterBrokerRecord(
        broker_id=3,
        incarnation_id=uuid_of(7),
        broker_epoch=8,
        end_points=[BrokerEndpoint(name="P", host="h", port=9, security_protocol=2)],
        features=[BrokerFeature(name="f", min_supported_version=1, max_supported_version=2)],
        rack="r",
        fenced=True,
        in_controlled_shutdown=True,
        log_dirs=[uuid_of(4)],
    )
    image = image_of(RegisterBrokerRecord(broker_id=3, rack="old"), record)
    assert image.brokers == {
        3: BrokerImage(
            broker_id=3,
            broker_epoch=8,
            incarnation_id=uuid_of(7),
            endpoints=(Endpoint("P", "h", 9, 2),),
            rack="r",
            is_fenced=True,
            is_shutting_down=True,
            log_dirs=(uuid_of(4),),
            levels_by_feature={"f": (1, 2)},
        )
    }


def test_a_feature_at_level_zero_is_not_used() -> None:
    image = image_of(
        FeatureLevelRecord(name="a", feature_level=1), FeatureLevelRecord(name="b", feature_level=2)
    )
    assert image.level_by_feature == {"a": 1, "b": 2}
    assert after(image, FeatureLevelRecord(name="a")).level_by_feature == {"b": 2}


def test_the_next_producer_id_is_the_last_written_id() -> None:
    assert image_of(ProducerIdsRecord(next_producer_id=5000)).next_producer_id == 5000


# -- images are immutable -------------------------------------------------------------------------


def test_an_earlier_image_stays_as_it_was() -> None:
    before = image_of(topic(1, "a_b"), setting("a_b", "k", "v"), partition(1, 0))
    same = image_of(topic(1, "a_b"), setting("a_b", "k", "v"), partition(1, 0))
    after(
        before,
        PartitionChangeRecord(partition_id=0, topic_id=uuid_of(1), leader=9),
        partition(1, 1),
        setting("a_b", "k", "other"),
        topic(2, "c_d"),
        RegisterBrokerRecord(broker_id=1),
        FeatureLevelRecord(name="f", feature_level=1),
        RemoveTopicRecord(topic_id=uuid_of(1)),
    )
    assert before == same


def test_what_no_record_speaks_of_is_shared() -> None:
    before = image_of(topic(1, "a"), partition(1, 0), topic(2, "b"), setting("b", "k", "v"))
    changed = after(before, partition(1, 1))
    assert changed.topics["b"] is before.topics["b"]
    assert changed.configs is before.configs
    assert changed.brokers is before.brokers
    unchanged = after(before, ProducerIdsRecord(next_producer_id=1))
    assert unchanged.topics is before.topics


def test_one_by_one_comes_to_the_same_as_all_at_once() -> None:
    records: list[MetadataRecord] = [
        topic(1, "a"),
        partition(1, 0),
        setting("a", "k", "v"),
        topic(2, "b.c"),
        partition(2, 0),
        partition(2, 1),
        RemoveTopicRecord(topic_id=uuid_of(1)),
        topic(3, "a"),
        partition(3, 0),
        PartitionChangeRecord(partition_id=1, topic_id=uuid_of(2), leader=-1, isr=[]),
    ]
    image = image_of()
    for record in records:
        image = after(image, record)
    assert image == image_of(*records)


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (topic(1, "b"), "topic b with the id .*: the name or the id exists already"),
        (topic(2, "a"), "the name or the id exists already"),
        (RemoveTopicRecord(topic_id=NO_TOPIC), "no topic has the id AAAAAAAAAAAAAAAAAAAAYw"),
        (partition(99, 0), "no topic has the id"),
        (partition(1, 2), "partition 2 of a, which has 1"),
        (partition(1, -1), "partition -1 of a, which has 1"),
        (PartitionChangeRecord(partition_id=1, topic_id=uuid_of(1)), "partition 1 of a"),
        (PartitionChangeRecord(partition_id=0, topic_id=NO_TOPIC), "no topic has the id"),
        (setting("a", "k", "v", kind=3), "k: 3 is not a valid ResourceType"),
    ],
)
def test_a_record_about_what_is_not_there_cannot_be_replayed(
    record: MetadataRecord, complaint: str
) -> None:
    image = image_of(topic(1, "a"), partition(1, 0))
    with pytest.raises(UnreplayableRecordError, match=complaint):
        after(image, record)
