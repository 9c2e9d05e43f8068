"""Every checker finds its violation, and accepts a correct history."""

from collections.abc import Sequence

import pytest

from ottla.clients.errors import NoResponseError, UnreachableError
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checks.checkers import check_history, lost_commits
from ottla.simulation.checks.history import History, Outcome, Read, Sent, outcome_of

P = TopicPartition("letters", 0)
Q = TopicPartition("letters", 1)
GROUP = "readers"


class Told(History):
    """A history in a short notation: a letter is a value."""

    def send(
        self, values: str, offset: int | None = 0, outcome: Outcome = Outcome.OK, client: str = "w"
    ) -> None:
        sent = [
            Sent(P, value, None if offset is None else offset + at)
            for at, value in enumerate(values)
        ]
        self.end(self.begin(client, sent), outcome)

    def read_values(
        self,
        values: str,
        offsets: Sequence[int] | None = None,
        client: str = "r",
        moved: Sequence[TopicPartition] = (),
    ) -> None:
        operation = self.begin(client, moved=moved)
        operation.read = [
            Read(P, value, at)
            for at, value in zip(offsets or range(len(values)), values, strict=True)
        ]
        self.end(operation, Outcome.OK)


@pytest.fixture
def history() -> Told:
    return Told()


def found(history: History, **expected: bool) -> list[str]:
    return [violation.invariant for violation in check_history(history, **expected)]


def test_a_history_in_which_all_is_well(history: Told) -> None:
    history.send("abc", 0)
    history.send("d", None, Outcome.UNKNOWN)
    history.send("x", None, Outcome.FAILED)
    history.send("e", 7)
    history.read_values("ab", [0, 1])
    history.read_values("cde", [2, 5, 7])
    history.read_values("abcde", [0, 1, 2, 5, 7], client="another")
    assert found(history) == []


def test_j1_two_values_at_one_offset(history: Told) -> None:
    history.read_values("ab")
    history.read_values("ac", client="another")
    assert found(history) == ["J1 inconsistent-offsets"]


def test_j1_an_acknowledged_value_was_replaced(history: Told) -> None:
    history.send("a", 0)
    history.read_values("b")
    assert found(history, is_read_to_the_end=False) == ["J1 inconsistent-offsets", "J3 lost-write"]


def test_j2_a_value_is_there_twice(history: Told) -> None:
    history.send("a", None)
    history.read_values("aba")
    assert found(history) == ["J2 duplicate"]
    assert found(history, is_idempotent=False) == []


def test_j3_a_value_in_the_middle_was_never_read(history: Told) -> None:
    history.send("abc", 0)
    history.read_values("ac", [0, 2])
    assert "J3 lost-write" in found(history, is_read_to_the_end=False)


def test_j4_of_a_batch_of_unknown_end_all_is_there_or_nothing(history: Told) -> None:
    history.send("ab", None, Outcome.UNKNOWN)
    history.send("c", 2)
    history.read_values("bc", [1, 2])
    assert found(history) == ["J4 unseen"]
    history.read_values("a", [0], client="another")
    assert found(history) == []


def test_j3_says_nothing_about_what_comes_after_all_that_was_read(history: Told) -> None:
    history.send("ab", 0)
    history.read_values("a")
    assert found(history, is_read_to_the_end=False) == []


def test_j4_the_last_acknowledged_value_is_not_there_in_the_end(history: Told) -> None:
    history.send("ab", 0)
    history.send("c", None)
    history.read_values("a")
    assert found(history) == ["J4 unseen", "J4 unseen"]


def test_j4_does_not_miss_what_was_never_acknowledged(history: Told) -> None:
    history.send("a", None, Outcome.UNKNOWN)
    history.send("b", None, Outcome.FAILED)
    assert found(history) == []


def test_j5_what_failed_was_read(history: Told) -> None:
    history.send("a", None, Outcome.FAILED)
    history.read_values("a")
    assert found(history) == ["J5 aborted-read"]


def test_j6_a_transaction_read_what_it_had_written(history: Told) -> None:
    operation = history.begin("t", [Sent(P, "a")])
    operation.read = [Read(P, "a", 0)]
    history.end(operation, Outcome.OK)
    assert found(history) == ["J6 precommitted-read"]


def test_j7_one_poll_leaves_something_out_or_goes_back(history: Told) -> None:
    history.read_values("abc", client="another")
    history.read_values("ac", [0, 2])
    history.read_values("cb", [2, 1], client="third")
    assert found(history) == ["J7 int-poll-skip", "J7 int-nonmonotonic-poll"]


def test_j8_the_next_poll_leaves_something_out_or_goes_back(history: Told) -> None:
    history.read_values("abcd", client="another")
    history.read_values("a", [0])
    history.read_values("c", [2])
    history.read_values("c", [2])
    assert found(history) == ["J8 poll-skip", "J8 nonmonotonic-poll"]


def test_j7_and_j8_let_a_reader_jump_where_it_was_moved(history: Told) -> None:
    history.read_values("abcd", client="another")
    history.read_values("a", [0])
    history.read_values("da", [3, 0], moved=[P])
    assert found(history) == []


def test_j9_a_client_s_values_are_in_another_order(history: Told) -> None:
    history.send("a", 1)
    history.send("b", 0)
    history.read_values("ba")
    assert found(history) == ["J9 nonmonotonic-send"]


def test_j9_within_one_batch_too(history: Told) -> None:
    history.send("ab", None, Outcome.UNKNOWN)
    history.read_values("ba")
    assert found(history) == ["J9 nonmonotonic-send"]


def test_j9_says_nothing_about_the_values_of_two_clients(history: Told) -> None:
    history.send("a", 1)
    history.send("b", 0, client="another")
    history.read_values("ba")
    assert found(history) == []


def commit(history: History, offset: int, outcome: Outcome) -> None:
    history.begin_commit("c", GROUP, P, offset).outcome = outcome


@pytest.mark.parametrize(
    ("committed", "is_fine"), [(5, True), (7, True), (3, True), (1, False), (9, False)]
)
def test_g2_a_group_is_where_it_committed_last(committed: int, is_fine: bool) -> None:
    history = History()
    commit(history, 1, Outcome.OK)
    commit(history, 3, Outcome.UNKNOWN)
    commit(history, 5, Outcome.OK)
    commit(history, 7, Outcome.UNKNOWN)
    commit(history, 9, Outcome.FAILED)
    assert (lost_commits(history.commits, {(GROUP, P): committed}) == []) is is_fine


def test_g2_an_acknowledged_commit_is_not_there_at_all() -> None:
    history = History()
    commit(history, 1, Outcome.OK)
    (violation,) = lost_commits(history.commits, {(GROUP, Q): 1})
    assert violation.invariant == "G2 lost-commit"


@pytest.mark.parametrize(
    ("error", "once", "in_the_end"),
    [
        (NoResponseError(), Outcome.UNKNOWN, Outcome.UNKNOWN),
        (UnreachableError(), Outcome.UNKNOWN, Outcome.UNKNOWN),
        (ApiError(ErrorCode.REQUEST_TIMED_OUT), Outcome.UNKNOWN, Outcome.UNKNOWN),
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), Outcome.UNKNOWN, Outcome.UNKNOWN),
        (ApiError(ErrorCode.UNKNOWN_SERVER_ERROR), Outcome.UNKNOWN, Outcome.UNKNOWN),
        (ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER), Outcome.FAILED, Outcome.UNKNOWN),
        (ApiError(ErrorCode.NOT_ENOUGH_REPLICAS), Outcome.FAILED, Outcome.UNKNOWN),
        (ApiError(ErrorCode.MESSAGE_TOO_LARGE), Outcome.FAILED, Outcome.FAILED),
    ],
)
def test_what_a_failure_says_depends_on_how_often_it_was_tried(
    error: ApiError | OSError, once: Outcome, in_the_end: Outcome
) -> None:
    assert outcome_of(error, is_only_attempt=True) is once
    assert outcome_of(error) is in_the_end
