"""The buffer between the fetcher and the application."""

from collections.abc import Callable, Collection, Iterator

from ottla.clients.consumer.fetching.fetch_buffer import FetchBuffer
from ottla.clients.consumer.fetching.fetched_batches import FetchedPartition
from ottla.clients.consumer.state.subscription import Phase, Position, SubscriptionState
from ottla.model.identifiers import TopicPartition
from ottla.wire.records.builder import build_batch
from ottla.wire.records.record import Record

NAME = TopicPartition("letters", 0)
COUNT = 3


class Columns(Collection[str]):
    """Column names with a side effect when they are read: in the middle of decoding."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def __iter__(self) -> Iterator[str]:
        self._act()
        return iter(("offset",))

    def __len__(self) -> int:
        return 1

    def __contains__(self, name: object) -> bool:
        return name == "offset"


def filled(state: SubscriptionState) -> FetchBuffer:
    state.assign_by_hand([NAME])
    partition = state.of(NAME)
    partition.place(Position(0), Phase.READING)
    raw = build_batch([Record(n, 0, None, b"x") for n in range(COUNT)])
    buffer = FetchBuffer(state, None, None)
    buffer.put(
        FetchedPartition(partition, memoryview(raw), (), check_crcs=True, is_committed_only=False)
    )
    return buffer


def rows(found: list[object]) -> int:
    return sum(batch.num_rows for batch in found)  # type: ignore[attr-defined]


def test_arrow_moves_the_position_and_empties_the_buffer() -> None:
    state = SubscriptionState()
    buffer = filled(state)
    assert rows(buffer.take_arrow(None)) == COUNT
    assert state.of(NAME).position == Position(COUNT)
    assert (state.of(NAME).buffered_bytes, buffer.counts.records) == (0, COUNT)
    assert buffer.take_arrow(None) == []


def test_rows_of_a_partition_that_goes_while_they_are_made_are_not_given_out() -> None:
    for act in (
        lambda state: state.set_assignment(()),
        lambda state: state.mark_revoking([NAME]),
        lambda state: state.seek(NAME, Position(0)),
    ):
        state = SubscriptionState()
        buffer = filled(state)
        partition = state.of(NAME)
        assert buffer.take_arrow(Columns(lambda state=state, act=act: act(state))) == []  # type: ignore[misc]
        assert partition.position == Position(0)
        assert buffer.counts.records == 0


def test_the_fetcher_is_told_of_room_only_while_it_waits_for_some() -> None:
    for take in (lambda one: one.take(COUNT + 1), lambda one: one.take_arrow(None)):
        for is_awaited in (False, True):
            told: list[int] = []
            state = SubscriptionState()
            buffer = filled(state)
            state.is_room_awaited = is_awaited
            state.on_change = lambda told=told: told.append(1)  # type: ignore[misc]
            take(buffer)
            take(buffer)
            assert (len(told), state.is_room_awaited) == (int(is_awaited), False)
