"""Rebalance listeners: the calls, their order, and the state during each call."""

import asyncio

import pytest

from ottla.clients.consumer.group.assignment_changes import AssignmentChanges
from ottla.clients.consumer.state.subscription import RebalanceListener, SubscriptionState
from ottla.model.identifiers import TopicPartition

A, B, C = (TopicPartition("letters", number) for number in range(3))


class Heard:
    """A consumer with listeners that record every call."""

    def __init__(self, *, has_on_lost: bool = True) -> None:
        self.state = SubscriptionState()
        self.changes = AssignmentChanges(self.state)
        self.events: list[tuple[str, list[TopicPartition], set[TopicPartition]]] = []
        listener = RebalanceListener(
            lambda names: self._hear("assigned", names),
            lambda names: self._hear("revoked", names),
            (lambda names: self._hear("lost", names)) if has_on_lost else None,
        )
        self.state.subscribe(["letters"], listener)

    def _hear(self, what: str, names: list[TopicPartition]) -> None:
        self.events.append((what, names, set(self.state.assigned)))


def test_listeners_are_called_while_the_partitions_are_assigned() -> None:
    heard = Heard()

    async def story() -> None:
        await heard.changes.assign([A, B])
        await heard.changes.assign([A, B, C])
        await heard.changes.revoke([B])
        await heard.changes.revoke([])

    asyncio.run(story())
    assert heard.events == [
        ("assigned", [A, B], {A, B}),
        ("assigned", [C], {A, B, C}),
        ("revoked", [B], {A, B, C}),
    ]
    assert set(heard.state.assigned) == {A, C}


def test_no_records_are_returned_from_a_partition_whose_listener_is_called() -> None:
    state = SubscriptionState()
    changes = AssignmentChanges(state)
    marks: list[list[bool]] = []

    def look(_names: list[TopicPartition]) -> None:
        marks.append([state.of(name).is_being_revoked for name in (A, B)])

    async def story() -> None:
        await changes.assign([A, B])
        await changes.revoke([B])

    state.subscribe(["letters"], RebalanceListener(on_revoked=look))
    asyncio.run(story())
    assert marks == [[False, True]]


@pytest.mark.parametrize(("has_on_lost", "what"), [(True, "lost"), (False, "revoked")])
def test_what_is_lost_is_not_committed(has_on_lost: bool, what: str) -> None:
    heard = Heard(has_on_lost=has_on_lost)

    async def story() -> None:
        await heard.changes.assign([A])
        await heard.changes.lose_all()
        await heard.changes.lose_all()

    asyncio.run(story())
    assert heard.events[1:] == [(what, [A], {A})]
    assert heard.state.assigned == {}


def test_a_listener_that_fails_does_not_stop_the_change() -> None:
    state = SubscriptionState()
    changes = AssignmentChanges(state)

    def fail(_names: list[TopicPartition]) -> None:
        raise LookupError("no place to put them")

    state.subscribe(["letters"], RebalanceListener(fail, fail, fail))
    asyncio.run(changes.assign([A]))
    assert set(state.assigned) == {A}
    with pytest.raises(LookupError):
        changes.raise_kept()
    changes.raise_kept()


@pytest.mark.parametrize("how", ["revoked", "lost"])
def test_a_listener_that_ends_everything_hears_of_each_partition_once(how: str) -> None:
    state = SubscriptionState()
    changes = AssignmentChanges(state)
    heard: list[list[TopicPartition]] = []

    async def end(names: list[TopicPartition]) -> None:
        heard.append(names)
        everything = list(state.assigned)
        await (changes.revoke(everything) if how == "revoked" else changes.lose_all())

    async def story() -> None:
        await changes.assign([A, B])
        await changes.revoke([A])
        assert state.assigned == {}
        await changes.assign([A])
        await changes.revoke([A])

    state.subscribe(["letters"], RebalanceListener(on_revoked=end))
    asyncio.run(story())
    assert heard == [[A], [B], [A]]


def test_another_task_waits_for_the_listener_and_does_not_call_it_again() -> None:
    state = SubscriptionState()
    changes = AssignmentChanges(state)
    heard: list[list[TopicPartition]] = []
    is_over = asyncio.Event()

    async def listen(names: list[TopicPartition]) -> None:
        heard.append(names)
        await is_over.wait()

    async def story() -> None:
        await changes.assign([A, B])
        first = asyncio.ensure_future(changes.revoke([A]))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(changes.revoke([A, B]))
        for _ in range(3):
            await asyncio.sleep(0)
        assert heard == [[A]]
        is_over.set()
        await asyncio.gather(first, second)
        assert state.assigned == {}

    state.subscribe(["letters"], RebalanceListener(on_revoked=listen))
    asyncio.run(story())
    assert heard == [[A], [B]]


def test_what_is_given_anew_while_a_listener_hears_of_it_stays() -> None:
    state = SubscriptionState()
    changes = AssignmentChanges(state)

    def go_on_by_hand(names: list[TopicPartition]) -> None:
        state.unsubscribe()
        state.assign_by_hand(names)

    async def story() -> None:
        await changes.assign([A])
        await changes.revoke([A])

    state.subscribe(["letters"], RebalanceListener(on_revoked=go_on_by_hand))
    asyncio.run(story())
    assert set(state.assigned) == {A}
