"""The counter of a load finds every kind of violation."""

from tests.cluster.load import Acknowledged, Counts, Place, count


def promised(*numbers: int) -> list[Acknowledged]:
    return [Acknowledged(7, number, 0, number, 0.0, 0.0) for number in numbers]


def read(*numbers: int) -> list[tuple[int, int, Place]]:
    return [(7, number, Place(0, offset)) for offset, number in enumerate(numbers)]


def counted(acknowledged: list[Acknowledged], found: list[tuple[int, int, Place]]) -> Counts:
    counts = count(acknowledged, found)
    assert not counts.is_perfect
    return counts


def test_what_is_there_as_it_was_promised_is_perfect() -> None:
    assert count(promised(0, 1, 2), read(0, 1, 2)).is_perfect
    assert count(promised(0, 1), read(0, 1, 2)).is_perfect  # the last was not acknowledged


def test_a_load_that_has_written_nothing_proves_nothing() -> None:
    assert not count([], []).is_perfect


def test_what_was_acknowledged_and_cannot_be_read_is_lost() -> None:
    assert counted(promised(0, 1, 2), read(0, 1)).lost == 1


def test_what_is_read_twice_is_duplicated() -> None:
    assert counted(promised(0, 1), read(0, 1, 1)).duplicated == 1


def test_what_is_read_after_its_successor_is_out_of_order() -> None:
    assert counted([], read(1, 0)).out_of_order == 1


def test_what_has_another_offset_than_was_told_is_elsewhere() -> None:
    assert counted(promised(0, 2), read(0, 2)).elsewhere == 1


def test_a_record_that_the_application_was_told_has_failed_is_not_perfect() -> None:
    assert not count(promised(0), read(0), failed=1).is_perfect
