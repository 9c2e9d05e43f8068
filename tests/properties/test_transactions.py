"""Random histories of a transactional id that two clients share.

Requests arrive again late, responses are lost, coordinators fail over, and time passes. After every
step the coordinator's part of T2 to T7 holds. Requests with an old epoch are refused. A
transaction has the same end in all partitions, as reported to its client. A request of one
transaction never affects the next. The coordinator knows every open transaction and will end it.
The tests also detect coordinators and partitions with known flaws.
"""

from collections.abc import Callable, Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from ottla.machines.transactions import end_txn
from ottla.machines.transactions.init_producer_id import InitProducerIdRequests
from ottla.machines.transactions.markers import OwedMarkers
from ottla.machines.transactions.producer_ids import Producer
from ottla.machines.transactions.transaction import COMPLETED, State, Transaction
from ottla.machines.transactions.transaction_store import TransactionStore
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from tests.examples import examples
from tests.properties.transaction_world import PARTITIONS, Client, World
from tests.unit.machines.transactions.host import P0, P1

clients = st.integers(0, 1)
mostly = st.sampled_from([True, True, True, False])
seldom = st.sampled_from([False, False, False, True])


class Lives(RuleBasedStateMachine):
    """All operations, in any order."""

    level = 2

    @initialize()
    def begin(self) -> None:
        self.world = self.new_world()
        self.world.init(self.world.clients[0], knows=False, keeps=False, is_heard=True)

    def new_world(self) -> World:
        return World(self.level)

    @rule(who=clients, knows=st.booleans(), keeps=seldom, is_heard=mostly, is_sure=seldom)
    def init(self, who: int, knows: bool, keeps: bool, is_heard: bool, is_sure: bool) -> None:
        client = self.world.clients[who]
        if client.producer is not None and not is_sure:
            return
        self.world.init(client, knows=knows, keeps=keeps, is_heard=is_heard)

    @rule(who=clients, name=st.sampled_from(PARTITIONS))
    def produce(self, who: int, name: TopicPartition) -> None:
        self.world.produce(self.world.clients[who], name)

    @rule(who=clients, committed=mostly, is_heard=mostly)
    def end(self, who: int, committed: bool, is_heard: bool) -> None:
        self.world.end(self.world.clients[who], committed=committed, is_heard=is_heard)

    @rule(
        who=clients,
        names=st.sets(st.sampled_from(PARTITIONS)),
        committed=mostly,
        left=st.sampled_from([0, 0, 1, 2]),
    )
    def make_a_transaction(
        self, who: int, names: set[TopicPartition], committed: bool, left: int
    ) -> None:
        for name in sorted(names):
            self.produce(who, name)
        self.end(who, committed, is_heard=left == 0)
        self.world.owe()
        while len(self.world.markers) > left:
            self.world.mark(0, is_heard=True)

    @precondition(lambda self: self.world.requests)
    @rule(back=st.integers(0, 12))
    def come_again_late(self, back: int) -> None:
        requests = self.world.requests
        requests[-1 - back % len(requests)]()

    @rule()
    def owe(self) -> None:
        self.world.owe()

    @precondition(lambda self: self.world.markers)
    @rule(index=st.integers(0, 5), is_heard=mostly)
    def mark(self, index: int, is_heard: bool) -> None:
        self.world.mark(index, is_heard=is_heard)

    @rule()
    def mark_all(self) -> None:
        self.world.owe()
        while self.world.markers:
            self.world.mark(0, is_heard=True)

    @rule(kept=st.integers(0, 3), is_sure=seldom)
    def crash(self, kept: int, is_sure: bool) -> None:
        if is_sure:
            self.world.crash(kept)

    @rule(duration_ms=st.sampled_from([100, 100, 30_000, 75_000]))
    def pass_ms(self, duration_ms: int) -> None:
        self.world.host.pass_ms(duration_ms)

    @invariant()
    def nothing_is_torn(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        world.rest()
        world.check()
        world.host.init_response()
        world.rest()
        assert not any(partition.open for partition in world.partitions.values())
        assert world.host.init_error() is ErrorCode.NONE


class FirstVersionLives(Lives):
    """The same operations in a cluster at transaction version 1."""

    level = 1


Lives.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
FirstVersionLives.TestCase.settings = settings(
    max_examples=examples(75), stateful_step_count=40, deadline=None
)
TestLives = Lives.TestCase
TestFirstVersionLives = FirstVersionLives.TestCase


# -- flaws that must be found, each with the shortest history that shows it -----------------------


def mark_all(world: World) -> None:
    world.owe()
    while world.markers:
        world.mark(0, is_heard=True)


def begin(world: World, *names: TopicPartition) -> Client:
    client = world.clients[0]
    world.init(client, knows=False, keeps=False, is_heard=True)
    for name in names:
        world.produce(client, name)
    return client


def a_late_end(world: World) -> None:
    client = begin(world, P0)
    world.end(client, committed=True, is_heard=True)
    late = world.requests[-1]
    mark_all(world)
    world.produce(client, P1)
    late()
    mark_all(world)


def a_commit_that_comes_too_late(world: World) -> None:
    client = begin(world, P0)
    world.host.pass_ms(75_000)
    mark_all(world)
    world.end(client, committed=True, is_heard=True)


def a_commit(world: World) -> None:
    world.end(begin(world, P0, P1), committed=True, is_heard=True)
    mark_all(world)


def a_commit_with_a_marker_to_go(world: World) -> None:
    world.end(begin(world, P0, P1), committed=True, is_heard=True)
    world.owe()
    world.mark(0, is_heard=True)


def an_old_producer(world: World) -> None:
    old = begin(world)
    world.init(world.clients[1], knows=False, keeps=False, is_heard=True)
    world.init(old, knows=True, keeps=False, is_heard=True)


def a_crash_after_a_marker(world: World) -> None:
    world.end(begin(world, P0, P1), committed=True, is_heard=False)
    world.owe()
    world.mark(0, is_heard=True)
    world.crash(kept=0)
    world.host.pass_ms(75_000)
    mark_all(world)


def a_late_marker(world: World) -> None:
    client = begin(world, P0)
    world.end(client, committed=True, is_heard=True)
    mark_all(world)
    late = world.requests[-1]
    world.produce(client, P0)
    late()


Life = Callable[[World], None]
LIVES = [
    a_late_end,
    a_commit_that_comes_too_late,
    a_commit,
    a_commit_with_a_marker_to_go,
    an_old_producer,
    a_crash_after_a_marker,
    a_late_marker,
]


@pytest.mark.parametrize("life", LIVES)
def test_without_a_flaw_these_lives_are_in_order(life: Life) -> None:
    world = World()
    life(world)
    world.check()
    world.rest()
    world.check()


def is_found_out(life: Life, world: World, invariant: str) -> None:
    with pytest.raises(AssertionError, match=f"^{invariant}"):
        life_and_check(life, world)


def life_and_check(life: Life, world: World) -> None:
    life(world)
    world.check()


def test_a_late_end_that_joins_the_next_transaction_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = end_txn._is_answered

    def wrong(found: Transaction, asker: Producer, *, is_commit: bool) -> bool:
        if found.state is State.ONGOING and found.is_ended_by(asker):
            asker = found.holder
        return right(found, asker, is_commit=is_commit)

    monkeypatch.setattr(end_txn, "_is_answered", wrong)
    is_found_out(a_late_end, World(), "T6")


def test_a_commit_that_is_told_of_an_abort_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = end_txn._is_answered

    def wrong(found: Transaction, asker: Producer, *, is_commit: bool) -> bool:
        is_end = found.state in COMPLETED and found.is_ended_by(asker)
        return is_end or right(found, asker, is_commit=is_commit)

    monkeypatch.setattr(end_txn, "_is_answered", wrong)
    is_found_out(a_commit_that_comes_too_late, World(), "T4")


def test_an_end_without_a_new_epoch_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end_txn, "successor", lambda producer, fresh_id: producer)
    is_found_out(a_commit, World(), "T7")


def test_an_old_producer_that_is_let_in_again_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        InitProducerIdRequests, "_check_expected", lambda self, found, expected: None
    )
    is_found_out(an_old_producer, World(), "T3")


def test_a_transaction_that_is_complete_with_its_first_marker_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = TransactionStore.mark

    def wrong(
        self: TransactionStore, owed: OwedMarkers, written: Iterable[TopicPartition]
    ) -> Transaction | None:
        return right(self, owed, owed.partitions)

    monkeypatch.setattr(TransactionStore, "mark", wrong)
    is_found_out(a_commit_with_a_marker_to_go, World(), "T7")


def test_markers_that_do_not_wait_for_the_decision_to_be_committed_are_found() -> None:
    is_found_out(a_crash_after_a_marker, World(is_hasty=True), "T4")


def test_partitions_that_take_markers_of_an_equal_epoch_are_found() -> None:
    is_found_out(a_late_marker, World(takes_equal_epochs=True), "T6")
