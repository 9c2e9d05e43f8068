"""CreateTopics and DeleteTopics."""

import pytest

from ottla.machines.controller import limits
from ottla.machines.controller.effective_configs import ConfigSource
from ottla.machines.controller.machine import Controller
from ottla.metadata.image import PartitionImage
from ottla.metadata.records import (
    UNASSIGNED_DIRECTORY,
    ConfigRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID
from ottla.model.settings.topic_config import TopicConfig
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicState
from ottla.wire.writing import encode
from tests.metadata_building import (
    add_topics,
    broker_record,
    controller_of,
    image_of,
    new_topic,
    one_broker,
    run,
    uuid_of,
)


def create(
    controller: Controller, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    """Create topics with the ids 101, 102 and so on."""
    ids = [uuid_of(101 + number) for number in range(len(topics))]
    decision = controller.create_topics(topics, topic_ids=ids, start=0, validate_only=validate_only)
    return run(controller, decision)


def refusal(controller: Controller, topic: CreatableTopic) -> tuple[ErrorCode, str]:
    """Try to create an invalid topic; return the error."""
    before = controller.image
    (result,) = create(controller, topic)
    assert result.name == topic.name
    assert controller.image == before
    return ErrorCode(result.error_code), result.error_message or ""


def assigned(*brokers_by_number: tuple[int, list[int]]) -> CreatableTopic:
    return CreatableTopic(
        name="manual",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=ids)
            for number, ids in brokers_by_number
        ],
    )


# -- creating -------------------------------------------------------------------------------------


def test_a_new_topic_is_written_with_its_settings_and_partitions() -> None:
    controller = controller_of(one_broker())
    decision = controller.create_topics(
        [new_topic("orders", 2, retention_ms="5000")], topic_ids=[uuid_of(7)], start=0
    )
    partitions = [
        PartitionRecord(
            partition_id=number,
            topic_id=uuid_of(7),
            replicas=[0],
            isr=[0],
            leader=0,
            leader_epoch=0,
            partition_epoch=0,
            directories=[UNASSIGNED_DIRECTORY],
        )
        for number in (0, 1)
    ]
    assert decision.records == (
        TopicRecord(name="orders", topic_id=uuid_of(7)),
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5000"),
        *partitions,
    )
    (result,) = decision.response
    assert (result.name, result.topic_id, result.error_code) == ("orders", uuid_of(7), 0)
    assert (result.num_partitions, result.replication_factor) == (2, 1)


def test_deciding_changes_nothing() -> None:
    controller = controller_of(one_broker())
    before = controller.image
    controller.create_topics([new_topic("a")], topic_ids=[uuid_of(1)], start=0)
    assert controller.image is before


def test_all_settings_of_the_new_topic_come_back_with_their_source() -> None:
    defaults = TopicConfig(retention_ms=77)
    controller = controller_of(
        image_of(
            broker_record(0),
            ConfigRecord(
                resource_type=4, resource_name="", name="log.segment.bytes", value="2000000"
            ),
            ConfigRecord(
                resource_type=4, resource_name="0", name="message.max.bytes", value="3000"
            ),
        ),
        topic_defaults=defaults,
    )
    (result,) = create(controller, new_topic("a", compression_type="zstd"))
    told = {
        one.name: (one.value, one.config_source)
        for one in result.configs or []
        if not one.read_only
    }
    assert list(told) == sorted(TopicConfig().as_strings())
    assert told["compression.type"] == ("zstd", ConfigSource.TOPIC)
    assert told["max.message.bytes"] == ("3000", ConfigSource.BROKER)
    assert told["segment.bytes"] == ("2000000", ConfigSource.EVERY_BROKER)
    assert told["retention.ms"] == ("77", ConfigSource.FILE)
    assert told["preallocate"] == ("false", ConfigSource.DEFAULT)


def test_counts_of_minus_one_are_the_brokers_defaults() -> None:
    image = image_of(broker_record(0), broker_record(1))
    controller = controller_of(image, num_partitions=4, default_replication_factor=2)
    (result,) = create(controller, new_topic("a", -1, -1))
    assert (result.num_partitions, result.replication_factor) == (4, 2)


def test_placing_begins_where_the_dice_say() -> None:
    controller = controller_of(image_of(*(broker_record(number) for number in range(3))))
    decision = controller.create_topics([new_topic("a", 2, 2)], topic_ids=[uuid_of(1)], start=2)
    run(controller, decision)
    assert [one.replicas for one in controller.image.topics["a"].partitions] == [(2, 0), (0, 1)]


def test_a_fenced_replica_is_not_in_sync() -> None:
    controller = controller_of(image_of(broker_record(0, fenced=True), broker_record(1)))
    create(controller, new_topic("a", 1, 2))
    (partition,) = controller.image.topics["a"].partitions
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 0), (1,), 1)


def test_the_only_folder_of_a_broker_is_where_a_replica_will_be() -> None:
    two = [uuid_of(5), uuid_of(6)]
    image = image_of(broker_record(0, log_dirs=[uuid_of(4)]), broker_record(1, log_dirs=two))
    controller = controller_of(image)
    create(controller, new_topic("a", 1, 2))
    (partition,) = controller.image.topics["a"].partitions
    assert partition.directories == (uuid_of(4), UNASSIGNED_DIRECTORY)


@pytest.mark.parametrize(
    ("topic", "code", "complaint"),
    [
        (new_topic("no/slash"), ErrorCode.INVALID_TOPIC_EXCEPTION, "has a character"),
        (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "needs a name"),
        (new_topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST, "kept by the controllers"),
        (new_topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS, "topic there exists already"),
        (new_topic("dot_ted"), ErrorCode.INVALID_TOPIC_EXCEPTION, "the topic dot.ted differ only"),
        (new_topic("a", 0), ErrorCode.INVALID_PARTITIONS, "0 partitions; at least 1 is needed"),
        (new_topic("a", -2), ErrorCode.INVALID_PARTITIONS, "-2 partitions"),
        (new_topic("a", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "2 replicas, and 1 brokers"),
        (new_topic("a", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "0 replicas"),
        (new_topic("a", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR, "-2 replicas"),
        (new_topic("a", 10_001), ErrorCode.POLICY_VIOLATION, "more than 10000 new partitions"),
        (new_topic("a", 2**31 - 1), ErrorCode.POLICY_VIOLATION, "more than 10000"),
        (new_topic("a", retention="1"), ErrorCode.INVALID_CONFIG, "retention"),
        (new_topic("a", retention_ms="x"), ErrorCode.INVALID_CONFIG, "retention.ms cannot be 'x'"),
        (new_topic("a", retention_ms=None), ErrorCode.INVALID_CONFIG, "'retention.ms' needs a"),
        (new_topic("a", segment_ms="1" * 32_768), ErrorCode.INVALID_CONFIG, "more than 32767"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_a_reason(
    topic: CreatableTopic, code: ErrorCode, complaint: str
) -> None:
    controller = controller_of(one_broker())
    add_topics(controller, new_topic("there"), new_topic("dot.ted"))
    found, detail = refusal(controller, topic)
    assert found is code
    assert complaint in detail


def test_a_reason_is_short_enough_to_be_sent_however_long_the_name_is() -> None:
    controller = controller_of(one_broker())
    long = "x" * 32_767
    topics = [new_topic("y" * 32_767)]
    for name, value in (("a", "1"), ("b", None), ("c", "1" * 32_768)):
        topic = new_topic(name)
        topic.configs = [CreatableTopicConfig(name=long, value=value)]
        topics.append(topic)
    results = create(controller, *topics)
    assert all(len(result.error_message or "") < 1000 for result in results)
    encode(CreateTopicsResponse(topics=results), 7)


def test_each_topic_succeeds_or_fails_by_itself() -> None:
    controller = controller_of(one_broker())
    results = create(controller, new_topic("a"), new_topic("b", 0), new_topic("c"))
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_PARTITIONS, 0]
    assert set(controller.image.topics) == {"a", "c"}


def test_a_name_that_comes_twice_is_refused_once() -> None:
    controller = controller_of(one_broker())
    results = create(controller, new_topic("a"), new_topic("b"), new_topic("a"))
    assert [(result.name, result.error_code) for result in results] == [
        ("a", ErrorCode.INVALID_REQUEST),
        ("b", 0),
    ]
    assert set(controller.image.topics) == {"b"}


def test_names_that_clash_with_each_other_in_one_request_are_found() -> None:
    controller = controller_of(one_broker())
    results = create(controller, new_topic("a.b"), new_topic("a_b"))
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_TOPIC_EXCEPTION]


def test_partitions_of_one_request_are_counted_together() -> None:
    controller = controller_of(one_broker())
    results = create(controller, new_topic("a", 6000), new_topic("b", 6000), new_topic("c", 4000))
    assert [result.error_code for result in results] == [0, ErrorCode.POLICY_VIOLATION, 0]


def test_a_cluster_does_not_take_partitions_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = controller_of(one_broker())
    monkeypatch.setattr(limits, "PARTITIONS_MAX", 5)
    add_topics(controller, new_topic("a", 3))
    assert refusal(controller, new_topic("b", 3))[0] is ErrorCode.POLICY_VIOLATION
    add_topics(controller, new_topic("c", 2), first_id=5)


def test_validate_only_describes_the_result_and_writes_nothing() -> None:
    controller = controller_of(one_broker())
    decision = controller.create_topics(
        [new_topic("a", 3), new_topic("b", 0)],
        topic_ids=[uuid_of(1), uuid_of(2)],
        start=0,
        validate_only=True,
    )
    assert decision.records == ()
    fine, wrong = decision.response
    assert (fine.error_code, fine.num_partitions, fine.topic_id) == (0, 3, ZERO_UUID)
    assert wrong.error_code == ErrorCode.INVALID_PARTITIONS


# -- assignments ----------------------------------------------------------------------------------


def test_clients_may_choose_the_brokers() -> None:
    controller = controller_of(
        image_of(broker_record(0, fenced=True), broker_record(1), broker_record(2))
    )
    (result,) = create(controller, assigned((1, [0, 1]), (0, [2, 1])))
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 2, 2)
    first, second = controller.image.topics["manual"].partitions
    unassigned = (UNASSIGNED_DIRECTORY, UNASSIGNED_DIRECTORY)
    assert first == PartitionImage((2, 1), (2, 1), 2, directories=unassigned)
    assert second == PartitionImage((0, 1), (1,), 1, directories=unassigned)


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        (assigned((0, [])), "partition 0 has no replicas"),
        (assigned((0, [1]), (2, [1])), "must be 0, 1, 2"),
        (assigned((0, [1]), (0, [1])), "must be 0, 1, 2"),
        (assigned((-1, [1])), "must be 0, 1, 2"),
        (assigned((0, [1, 1])), "partition 0 has two replicas on one broker"),
        (assigned((0, [9])), "partition 0: no broker 9 is registered"),
        (assigned((0, [1, 2]), (1, [1])), "partition 1 has 1 replicas, others 2"),
        (assigned((0, [0])), "partition 0: none of its brokers is active"),
    ],
)
def test_brokers_that_cannot_be_chosen_are_refused(topic: CreatableTopic, complaint: str) -> None:
    controller = controller_of(
        image_of(broker_record(0, fenced=True), broker_record(1), broker_record(2))
    )
    code, detail = refusal(controller, topic)
    assert code is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert complaint in detail


@pytest.mark.parametrize(("partitions", "factor"), [(1, -1), (-1, 1)])
def test_brokers_and_counts_cannot_be_given_together(partitions: int, factor: int) -> None:
    topic = assigned((0, [0]))
    topic.num_partitions, topic.replication_factor = partitions, factor
    assert refusal(controller_of(one_broker()), topic)[0] is ErrorCode.INVALID_REQUEST


# -- deleting -------------------------------------------------------------------------------------


def delete(controller: Controller, *wanted: DeleteTopicState) -> list[DeletableTopicResult]:
    return run(controller, controller.delete_topics(wanted))


def by_name(name: str) -> DeleteTopicState:
    return DeleteTopicState(name=name)


def by_id(number: int) -> DeleteTopicState:
    return DeleteTopicState(topic_id=uuid_of(number))


def with_topics(*names: str) -> Controller:
    """Make topics with the ids 1, 2 and so on."""
    controller = controller_of(one_broker())
    add_topics(controller, *map(new_topic, names))
    return controller


def test_topics_are_deleted_by_name_or_by_id() -> None:
    controller = with_topics("a", "b", "c")
    decision = controller.delete_topics([by_id(2), by_name("a")])
    assert decision.records == (
        RemoveTopicRecord(topic_id=uuid_of(2)),
        RemoveTopicRecord(topic_id=uuid_of(1)),
    )
    assert decision.response == [
        DeletableTopicResult(name="b", topic_id=uuid_of(2)),
        DeletableTopicResult(name="a", topic_id=uuid_of(1)),
    ]
    run(controller, decision)
    assert set(controller.image.topics) == {"c"}


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (by_name("z"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (by_id(9), ErrorCode.UNKNOWN_TOPIC_ID),
        (DeleteTopicState(), ErrorCode.INVALID_REQUEST),
        (DeleteTopicState(name="a", topic_id=uuid_of(1)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_unknown_topic_cannot_be_deleted(wanted: DeleteTopicState, code: ErrorCode) -> None:
    controller = with_topics("a")
    (result,) = delete(controller, wanted)
    assert (result.name, result.topic_id) == (wanted.name, wanted.topic_id)
    assert result.error_code == code
    assert result.error_message
    assert set(controller.image.topics) == {"a"}


def test_a_topic_that_is_wanted_twice_is_refused_once_and_stays() -> None:
    controller = with_topics("a", "b")
    results = delete(controller, by_name("a"), by_id(2), by_name("a"), by_id(2))
    assert [result.error_code for result in results] == [ErrorCode.INVALID_REQUEST] * 2
    assert set(controller.image.topics) == {"a", "b"}


def test_a_topic_that_is_wanted_by_name_and_by_id_goes_once() -> None:
    controller = with_topics("a")
    results = delete(controller, by_name("a"), by_id(1))
    assert [result.error_code for result in results] == [0, ErrorCode.INVALID_REQUEST]
    assert not controller.image.topics
