"""Random histories of a group member: polls, responses, refusals, silence, leaving.

After every step: a member without a generation has no partitions except those that it is about to
drop; an eager member has none while it joins; a revocation follows its commit; a step is due
exactly if `is_due` says so. The machine asserts each move against its table. At the end a member
of a healthy coordinator has its assignment after a bounded number of polls.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.clients.config.settings import ClientSettings
from ottla.clients.consumer.group.membership_machine import (
    Act,
    Generation,
    MembershipMachine,
    MemberState,
    Request,
    Step,
)
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import RebalanceListener, SubscriptionState
from ottla.clients.errors import UnreachableError
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from tests.examples import examples

TOPICS = ("letters", "parcels")
PARTITIONS = [TopicPartition(topic, number) for topic in TOPICS for number in range(3)]
CODES = [
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
]
WITHOUT_GENERATION = {MemberState.FENCED, MemberState.LEAVING, MemberState.FATAL}
SETTLED_WITHIN = 10
"""Rounds of a poll and a response."""

errors = st.sampled_from([*map(ApiError, CODES), UnreachableError("away")])
outcomes = st.sampled_from([None, None, None]) | errors
subscriptions = st.sampled_from([TOPICS, TOPICS[:1], TOPICS[1:]])
assignments = st.sampled_from([PARTITIONS, PARTITIONS[:3], PARTITIONS[2:4], PARTITIONS[4:], []])


def is_in(*states: MemberState) -> Callable[[Any], bool]:
    return lambda history: history.machine.state in states


class MemberHistory(RuleBasedStateMachine):
    """One member and an arbitrary coordinator; steps may be interrupted."""

    @initialize(is_cooperative=st.booleans(), is_stable=st.booleans())
    def begin(self, is_cooperative: bool, is_stable: bool) -> None:
        self.now = 0.0
        self.generation_id = 0
        self.subscription = SubscriptionState()
        self.subscription.subscribe(["letters"], RebalanceListener())
        client = ClientSettings((Address("broker", 1),))
        self.machine = MembershipMachine(
            self.subscription, ConsumerSettings(), client, is_cooperative=is_cooperative
        )
        self.committing: list[tuple[TopicPartition, ...]] = []
        self.committed: set[tuple[TopicPartition, ...]] = set()
        if is_stable:
            self.poll(steps=10)
            self.answer_join(None)
            self.answer_sync(None, PARTITIONS)
            self.poll(steps=10)

    # -- the application --------------------------------------------------------------------------

    @rule(topics=subscriptions)
    def subscribe(self, topics: Sequence[str]) -> None:
        self.subscription.subscribe(topics, RebalanceListener())

    @rule(steps=st.sampled_from([0, 1, 2, 10, 10, 10]))
    def poll(self, steps: int) -> None:
        """Execute some of the steps that are due; the next one is interrupted."""
        self.machine.on_poll(self.now)
        for _ in range(steps):
            if (step := self.next_step()) is None:
                return
            self.execute(step)
        if (step := self.next_step()) is not None and step.act is Act.COMMIT:
            self.execute(step)  # a commit starts without a suspension

    def next_step(self) -> Step | None:
        is_due, state = self.machine.is_due(), self.machine.state
        try:
            step = self.machine.next_step()
        except (ApiError, UnreachableError):
            return None
        assert is_due or (step is None and self.machine.state is state)
        if is_due and state is not MemberState.FATAL:
            assert step is not None
        return step

    def execute(self, step: Step) -> None:
        act, names = step
        assigned = self.subscription.assigned
        if act is Act.COMMIT:
            assert set(names) <= assigned.keys()
            self.committing.append(names)
        elif act is Act.REVOKE:
            assert names in self.committed
            self.drop(names)
        elif act is Act.LOSE:
            assert not self.machine.generation.is_member
            self.drop(names)
        elif act is Act.ASSIGN:
            assert {name.topic for name in names} <= self.subscription.topics
            self.subscription.set_assignment(names)

    def drop(self, names: Sequence[TopicPartition]) -> None:
        kept = [name for name in self.subscription.assigned if name not in names]
        self.subscription.set_assignment(kept)

    @precondition(lambda self: self.committing)
    @rule()
    def end_commit(self) -> None:
        names = self.committing.pop(0)
        self.committed.add(names)
        self.machine.on_last_commit(names)

    @precondition(lambda self: self.machine.generation.is_member)
    @rule(code=st.sampled_from(CODES), is_late=st.booleans())
    def refuse_commit(self, code: ErrorCode, is_late: bool) -> None:
        generation = Generation(self.generation_id - 1, "me") if is_late else None
        self.machine.on_commit_error(generation or self.machine.generation, ApiError(code))

    @rule()
    def enforce_rebalance(self) -> None:
        self.machine.request_rejoin("enforced")

    @precondition(lambda self: self.machine.state is not MemberState.LEAVING)
    @rule()
    def begin_to_leave(self) -> None:
        self.machine.on_leave()

    @precondition(is_in(MemberState.LEAVING))
    @rule(is_interrupted=st.booleans())
    def leave(self, is_interrupted: bool) -> None:
        if is_interrupted:
            self.machine.on_leave_interrupted()
        else:
            self.subscription.set_assignment(())
            self.machine.on_left()

    # -- the coordinator --------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 400.0]))
    def pass_time(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def send(self) -> None:
        """Let the background task ask: only a member sends heartbeats, only a JOINING one joins."""
        state, generation = self.machine.state, self.machine.generation
        request = self.machine.next_request(self.now)
        if isinstance(request, float):
            assert request > self.now
        elif request is not None:
            assert generation.is_member or request is Request.JOIN
            assert (state is MemberState.JOINING) == (request is Request.JOIN)
        assert self.machine.next_request(self.now) in {request, None}

    @precondition(is_in(MemberState.JOINING))
    @rule(error=outcomes)
    def answer_join(self, error: Exception | None) -> None:
        self.machine.begin_join(self.subscription.pattern, self.subscription.topics)
        if error is not None:
            self.machine.on_join_error(error, self.now)
            return
        self.generation_id += 1
        self.machine.on_join(Generation(self.generation_id, "me"))

    @precondition(is_in(MemberState.SYNCING))
    @rule(error=outcomes, names=assignments)
    def answer_sync(self, error: Exception | None, names: Sequence[TopicPartition]) -> None:
        if error is None:
            self.machine.on_sync(tuple(names), self.now)
        else:
            self.machine.on_join_error(error, self.now)

    @precondition(lambda self: self.machine.generation.is_member and not self.machine.is_joining)
    @rule(error=outcomes)
    def answer_heartbeat(self, error: Exception | None) -> None:
        self.machine.on_heartbeat(self.machine.generation, error, self.now)

    @rule(error=outcomes)
    def answer_late_heartbeat(self, error: Exception | None) -> None:
        state = self.machine.state
        self.machine.on_heartbeat(Generation(self.generation_id - 1, "me"), error, self.now)
        assert self.machine.state is state

    # -- properties -------------------------------------------------------------------------------

    @invariant()
    def a_member_without_a_generation_has_no_partitions(self) -> None:
        if self.subscription.assigned and not self.machine.generation.is_member:
            assert self.machine.state in WITHOUT_GENERATION
            assert self.machine.has_lost

    @invariant()
    def an_eager_member_has_no_partitions_while_it_joins(self) -> None:
        if self.machine.is_joining and not self.machine.is_cooperative:
            assert not self.subscription.assigned

    def teardown(self) -> None:
        """Answer everything: the member gets its assignment."""
        if not hasattr(self, "machine"):
            return
        if self.machine.fatal is not None:
            self.begin_to_leave()
        if self.machine.state is MemberState.LEAVING:
            self.leave(is_interrupted=False)
        self.enforce_rebalance()
        for _ in range(SETTLED_WITHIN):
            while self.committing:
                self.end_commit()
            self.poll(steps=10)
            if self.machine.state is MemberState.JOINING:
                self.answer_join(None)
            if self.machine.state is MemberState.SYNCING:
                self.answer_sync(None, PARTITIONS)
            if self.machine.state is MemberState.STABLE and not self.machine.is_due():
                break
        else:
            raise AssertionError(f"still {self.machine.state.name}")
        wanted = {name for name in PARTITIONS if name.topic in self.subscription.topics}
        assert self.subscription.assigned.keys() == wanted


TestMemberHistory = MemberHistory.TestCase
TestMemberHistory.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
