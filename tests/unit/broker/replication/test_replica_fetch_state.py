"""A follower applies a response only if it still matches the follower's state."""

from ottla.broker.replication.replica_fetch_state import FetchPosition
from ottla.model.identifiers import TopicPartition
from ottla.replication.in_sync import Assignment
from ottla.replication.partition import Partition
from tests.log_building import NOW_MS, batch, new_log, stamped

LEADER, EPOCH = 1, 3


def asked() -> FetchPosition:
    """Return the position of a log with one batch, after a request for the next records."""
    partition = Partition(TopicPartition("a", 0), bytes(16), new_log(), lambda _: None)
    partition.follow(LEADER, EPOCH)
    partition.append_as_follower(stamped(batch(), 0, EPOCH), NOW_MS)
    position = FetchPosition(partition)
    position.ask(1_000)
    return position


def test_an_answer_to_what_was_asked_is_taken() -> None:
    assert asked().is_answered()


def test_an_answer_of_an_epoch_that_is_over_is_not_taken() -> None:
    position = asked()
    position.partition.follow(LEADER, EPOCH + 2)
    assert not position.is_answered()


def test_an_answer_behind_what_was_cut_meanwhile_is_not_taken() -> None:
    position = asked()
    position.partition.log.truncate_to(0)
    assert not position.is_answered()


def test_a_leader_takes_no_answers() -> None:
    position = asked()
    position.partition.lead(EPOCH, Assignment(0, (0, 1), (0, 1), 0))
    assert not position.is_answered()


def test_a_new_position_has_no_response() -> None:
    assert not FetchPosition(asked().partition).is_answered()


def test_a_refused_partition_is_tried_again_soon_at_first_and_then_after_the_back_off() -> None:
    position = asked()
    delays_ms = []
    for _ in range(5):
        position.refuse(1_000, 100)
        assert position.retry_ms is not None
        delays_ms.append(position.retry_ms - 1_000)
    assert delays_ms == [20, 40, 80, 100, 100]
