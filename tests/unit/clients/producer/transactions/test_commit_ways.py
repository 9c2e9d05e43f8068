"""The choice between the short and the long commit path, by the duration of recent commits."""

from collections.abc import Callable

from ottla.clients.producer.transactions.commit_ways import KEPT, TRIED, CommitWays

SOON_MS = 1.0
HELD_MS = 21.0


def commit(ways: CommitWays, count: int, took_ms: Callable[[int], float]) -> int:
    """Commit `count` times; return the number of commits on the long path."""
    long_count = 0
    for number in range(count):
        long_count += not ways.is_short
        ways.took(took_ms(number))
    return long_count


def test_as_long_as_nothing_is_late_all_commits_go_the_short_way() -> None:
    assert commit(CommitWays(), 10 * KEPT, lambda _: SOON_MS) == 0


def test_a_broker_that_lets_one_batch_in_five_wait_is_left_to_the_long_way() -> None:
    ways = CommitWays()

    def took_ms(number: int) -> float:
        return HELD_MS if ways.is_short and number % 5 == 0 else 2.5

    commit(ways, 3 * TRIED, took_ms)
    assert not ways.is_short
    count = 10 * (KEPT + TRIED)
    assert commit(ways, count, took_ms) >= 0.9 * count


def test_a_broker_that_is_late_either_way_is_asked_the_short_way() -> None:
    ways = CommitWays()
    count = 10 * (KEPT + TRIED)
    long_count = commit(ways, count, lambda number: 10.0 + number % 11)
    assert 0 < long_count <= 0.1 * count


def test_a_broker_that_lets_nothing_wait_any_more_is_asked_the_short_way_again() -> None:
    ways = CommitWays()
    commit(ways, 3 * TRIED, lambda _: HELD_MS if ways.is_short else SOON_MS)
    assert not ways.is_short
    commit(ways, KEPT + TRIED, lambda _: SOON_MS)
    assert ways.is_short
    assert commit(ways, 10 * KEPT, lambda _: SOON_MS) == 0


def test_one_late_commit_costs_one_trial_of_the_long_way() -> None:
    ways = CommitWays()
    commit(ways, 2 * TRIED, lambda _: SOON_MS)
    ways.took(HELD_MS)
    assert commit(ways, 10 * KEPT, lambda _: SOON_MS) == TRIED
