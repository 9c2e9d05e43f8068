"""A client's cluster metadata never goes back to an older state."""

from ottla.clients.cluster.cluster_metadata import ClusterMetadata
from ottla.model.address import Address
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

NAME = TopicPartition("letters", 0)
FIRST, SECOND = b"1" * 16, b"2" * 16


def told(
    leader_id: int,
    epoch: int,
    *,
    topic_id: bytes = FIRST,
    topic: str = "letters",
    error: ErrorCode = ErrorCode.NONE,
) -> MetadataResponse:
    partition = MetadataResponsePartition(
        partition_index=0, leader_id=leader_id, leader_epoch=epoch
    )
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=n, host=f"b{n}", port=9092) for n in (1, 2)],
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=topic, topic_id=topic_id, error_code=error, partitions=[partition]
            )
        ],
    )


def knowing(answer: MetadataResponse, now: float = 0.0) -> ClusterMetadata:
    known = ClusterMetadata()
    known.take(answer, now, is_whole=False)
    return known


def test_a_leader_of_an_earlier_epoch_is_not_believed() -> None:
    known = knowing(told(1, 5))
    known.take(told(2, 4), 1.0, is_whole=False)
    assert known.leader(NAME) == 1
    known.take(told(2, 6), 2.0, is_whole=False)
    assert known.leader(NAME) == 2


def test_epochs_are_remembered_of_topics_that_are_forgotten() -> None:
    known = knowing(told(1, 5))
    known.forget(["letters", "others"])
    assert known.leader(NAME) is None
    assert known.topic("letters") is None
    known.take(told(2, 4), 1.0, is_whole=False)
    assert known.leader(NAME) == 1


def test_a_topic_that_was_made_again_begins_anew() -> None:
    known = knowing(told(1, 5))
    known.take(told(2, 0, topic_id=SECOND), 1.0, is_whole=False)
    assert known.leader(NAME) == 2


def test_an_old_broker_that_tells_no_epochs_is_believed() -> None:
    known = knowing(told(1, 5))
    known.take(told(2, -1), 1.0, is_whole=False)
    assert known.leader(NAME) == 2


def test_a_hint_is_taken_if_it_is_news() -> None:
    known = knowing(told(1, 5))
    assert not known.learn_leader(NAME, 2, 5, None)
    assert not known.learn_leader(NAME, 3, 6, None), "the address of broker 3 is unknown"
    assert not known.learn_leader(NAME, -1, 7, None)
    assert known.learn_leader(NAME, 3, 6, Address("b3", 9092))
    assert known.leader(NAME) == 3
    assert known.address_by_broker[3] == Address("b3", 9092)
    known.take(told(1, 5), 1.0, is_whole=False)
    assert known.leader(NAME) == 3


def test_a_partition_without_a_leader_has_none() -> None:
    known = knowing(told(-1, 5))
    assert known.leader(NAME) is None
    assert known.partition(NAME) is not None
    assert known.partition(TopicPartition("letters", 1)) is None


def test_a_topic_with_an_error_is_not_known() -> None:
    known = knowing(told(1, 5, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert known.topic("letters") is None


def test_what_is_not_in_a_whole_answer_is_gone() -> None:
    known = knowing(told(1, 5))
    known.take(told(1, 0, topic="others"), 1.0, is_whole=True)
    assert known.topic("letters") is None
    assert known.topic("others") is not None


def test_after_a_failure_nothing_that_was_seen_before_is_certain() -> None:
    known = knowing(told(1, 5), now=10.0)
    assert known.undoubted_topic("letters", seen_since=10.0) is not None
    assert known.undoubted_topic("letters", seen_since=10.1) is None
    known.doubt(10.0)
    assert known.undoubted_topic("letters", seen_since=0.0) is None
    assert known.topic("letters") is not None
    known.take(told(1, 5), 10.5, is_whole=False)
    assert known.undoubted_topic("letters", seen_since=0.0) is not None


def test_the_oldest_is_what_was_seen_longest_ago() -> None:
    known = knowing(told(1, 5), now=3.0)
    known.take(told(1, 5, topic="others"), 7.0, is_whole=False)
    assert known.oldest(["letters", "others"]) == 3.0
    assert known.oldest(["others"]) == 7.0
    assert known.oldest(["others", "unseen"]) == float("-inf")
    assert known.oldest([]) == float("inf")
