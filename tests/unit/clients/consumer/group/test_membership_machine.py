"""The states of a member: every move of the table, and the steps of a poll in each state."""

import re
from collections.abc import Callable

import pytest

from ottla.clients.config.settings import ClientSettings
from ottla.clients.consumer.group import membership_machine
from ottla.clients.consumer.group.group_errors import FencedInstanceIdError
from ottla.clients.consumer.group.membership_machine import (
    WAKING_SECONDS,
    Act,
    Generation,
    MembershipMachine,
    MemberState,
    Request,
    Step,
)
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import RebalanceListener, SubscriptionState
from ottla.clients.errors import ClientClosedError, UnreachableError
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition

A, B, C = (TopicPartition("letters", number) for number in range(3))
PARCEL = TopicPartition("parcels", 0)
CLIENT = ClientSettings((Address("broker", 1),), retry_backoff_ms=100, retry_backoff_max_ms=1_000)
SETTINGS = ConsumerSettings(
    group_id="readers", heartbeat_interval_ms=3_000, max_poll_interval_ms=10_000
)
REMOVED = [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION]
S = MemberState


class Member:
    """A machine whose steps take effect at once, as with a driver that never waits."""

    def __init__(self, *, is_cooperative: bool = False) -> None:
        self.subscription = SubscriptionState()
        self.subscribe("letters")
        self.machine = MembershipMachine(
            self.subscription, SETTINGS, CLIENT, is_cooperative=is_cooperative
        )
        self.now = 0.0
        self.commits_end = True
        """Whether the commit before a revocation ends at once."""

    def subscribe(self, *topics: str) -> None:
        self.subscription.subscribe(topics, RebalanceListener())

    @property
    def state(self) -> MemberState:
        return self.machine.state

    @property
    def assigned(self) -> list[TopicPartition]:
        return list(self.subscription.assigned)

    def poll(self) -> list[Step]:
        """Execute all steps that are due, and return them."""
        self.machine.on_poll(self.now)
        steps = []
        while (step := self.machine.next_step()) is not None:
            steps.append(step)
            self.execute(step)
        assert not self.machine.is_due()
        return steps

    def execute(self, step: Step) -> None:
        act, names = step
        if act is Act.COMMIT and self.commits_end:
            self.machine.on_last_commit(names)
        elif act in {Act.REVOKE, Act.LOSE}:
            self.subscription.set_assignment([one for one in self.assigned if one not in names])
        elif act is Act.ASSIGN:
            self.subscription.set_assignment(names)

    def respond(self, generation_id: int, *names: TopicPartition) -> None:
        """Receive the responses to JoinGroup and SyncGroup."""
        assert self.machine.next_request(self.now) is Request.JOIN
        self.machine.begin_join(self.subscription.pattern, self.subscription.topics)
        self.machine.on_join(Generation(generation_id, "me"))
        self.machine.on_sync(names, self.now)

    def join(self, generation_id: int, *names: TopicPartition) -> list[Step]:
        """Join, and execute the steps that follow."""
        self.poll()
        self.respond(generation_id, *names)
        return self.poll()

    def heartbeat(self, code: ErrorCode) -> None:
        self.machine.on_heartbeat(self.machine.generation, ApiError(code), self.now)


def stable(*, is_cooperative: bool = False) -> Member:
    member = Member(is_cooperative=is_cooperative)
    member.join(1, A, B)
    return member


def in_state(state: MemberState) -> Member:
    """Return a cooperative member with partitions, if the state allows it, in this state."""
    member = Member(is_cooperative=True)
    if state is S.UNJOINED:
        return member
    member = stable(is_cooperative=True)
    machine = member.machine
    if state is S.REVOKING:
        member.subscribe("parcels")
        member.commits_end = False
        member.poll()
    elif state in {S.JOINING, S.SYNCING, S.RECONCILING}:
        machine.request_rejoin("test")
        member.poll()
        if state is not S.JOINING:
            machine.on_join(Generation(2, "me"))
        if state is S.RECONCILING:
            machine.on_sync((A,), member.now)
    elif state is S.FENCED:
        member.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    elif state is S.LEAVING:
        machine.on_leave()
    elif state is S.FATAL:
        machine.fail(LookupError())
    assert member.state is state
    return member


# -- the table -------------------------------------------------------------------------------------


def fail_to_join(member: Member, code: ErrorCode) -> None:
    member.machine.on_join_error(ApiError(code), member.now)


def end_commit(member: Member) -> None:
    member.machine.on_last_commit((A, B))
    member.poll()


def be_fenced(member: Member) -> None:
    error = FencedInstanceIdError("readers", "window")
    member.machine.on_commit_error(member.machine.generation, error)


def leave(member: Member) -> None:
    member.machine.on_leave()
    member.subscription.set_assignment(())
    member.machine.on_left()


EVENTS: list[tuple[MemberState, Callable[[Member], object], MemberState]] = [
    (S.UNJOINED, Member.poll, S.JOINING),
    (S.REVOKING, end_commit, S.JOINING),
    (S.REVOKING, lambda one: one.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID), S.FENCED),
    (S.JOINING, lambda one: one.machine.on_join(Generation(2, "me")), S.SYNCING),
    (S.JOINING, lambda one: fail_to_join(one, ErrorCode.NOT_COORDINATOR), S.JOINING),
    (S.JOINING, lambda one: fail_to_join(one, ErrorCode.GROUP_AUTHORIZATION_FAILED), S.UNJOINED),
    (S.JOINING, lambda one: fail_to_join(one, ErrorCode.UNKNOWN_MEMBER_ID), S.FENCED),
    (S.SYNCING, lambda one: one.machine.on_sync((A,), 0.0), S.RECONCILING),
    (S.SYNCING, lambda one: fail_to_join(one, ErrorCode.NOT_COORDINATOR), S.JOINING),
    (S.SYNCING, lambda one: fail_to_join(one, ErrorCode.REBALANCE_IN_PROGRESS), S.UNJOINED),
    (S.SYNCING, lambda one: fail_to_join(one, ErrorCode.ILLEGAL_GENERATION), S.FENCED),
    (S.RECONCILING, lambda one: one.heartbeat(ErrorCode.ILLEGAL_GENERATION), S.FENCED),
    (S.RECONCILING, lambda one: one.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), S.RECONCILING),
    (S.STABLE, lambda one: one.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS), S.STABLE),
    (S.STABLE, lambda one: one.heartbeat(ErrorCode.NOT_COORDINATOR), S.STABLE),
    (S.STABLE, lambda one: one.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID), S.FENCED),
    (S.STABLE, lambda one: one.heartbeat(ErrorCode.FENCED_INSTANCE_ID), S.FATAL),
    (S.STABLE, be_fenced, S.FATAL),
    (S.JOINING, be_fenced, S.FATAL),
    (S.FENCED, Member.poll, S.JOINING),
    (S.LEAVING, lambda one: one.machine.on_leave_interrupted(), S.REVOKING),
    *((state, leave, S.UNJOINED) for state in S),
    *((state, lambda one: one.machine.on_closed(ClientClosedError()), S.FATAL) for state in S),
]


@pytest.mark.parametrize(("state", "event", "after"), EVENTS)
def test_an_event_moves_a_member_as_the_table_says(
    state: MemberState, event: Callable[[Member], object], after: MemberState
) -> None:
    member = in_state(state)
    event(member)
    assert member.state is after


@pytest.mark.parametrize("state", S)
def test_the_docstring_has_a_row_for_every_state(state: MemberState) -> None:
    rows = re.findall(r"^    ([A-Z]+)  ", membership_machine.__doc__ or "", re.MULTILINE)
    assert rows.count(state.name) == 1


def test_the_moves_of_the_docstring_are_allowed() -> None:
    header, *lines = (membership_machine.__doc__ or "").split("    state  ")[1].splitlines()
    column = header.index("next state") + len("    state  ")
    state, listed = S.UNJOINED, []
    for line in lines[: lines.index("")]:
        if row := re.match(r"    ([A-Z]+)  ", line):
            state = S[row[1]]
        if move := re.match(r"[A-Z]{2,}", line[column:]):
            listed.append((state, S[move[0]]))
    always = set(membership_machine._REMOVAL)
    allowed = {(one, to) for one, after in membership_machine._MOVES.items() for to in after}
    assert set(listed) <= allowed
    assert {(one, to) for one, to in allowed if to not in always} <= set(listed)


def test_a_move_that_the_table_lacks_is_a_bug() -> None:
    member = in_state(S.STABLE)
    with pytest.raises(AssertionError, match="no move from STABLE to SYNCING"):
        member.machine._move(S.SYNCING)


# -- polls -----------------------------------------------------------------------------------------


def test_an_eager_member_commits_and_revokes_everything_before_it_joins() -> None:
    member = stable()
    member.machine.request_rejoin("test")
    assert member.poll() == [
        Step(Act.COMMIT, (A, B)),
        Step(Act.REVOKE, (A, B)),
        Step(Act.JOIN),
    ]
    assert member.join(2, B, C) == [Step(Act.ASSIGN, (B, C))]
    assert member.machine.rebalance_count == 2


def test_a_cooperative_member_revokes_only_what_its_new_assignment_lacks_and_joins_again() -> None:
    member = stable(is_cooperative=True)
    member.machine.request_rejoin("test")
    assert member.poll() == [Step(Act.JOIN)]
    assert member.assigned == [A, B]
    member.respond(2, B, C)
    assert member.poll() == [
        Step(Act.COMMIT, (A,)),
        Step(Act.REVOKE, (A,)),
        Step(Act.ASSIGN, (B, C)),
        Step(Act.JOIN),
    ]
    assert "can be given to others" in member.machine.join_reason


def test_a_cooperative_member_revokes_partitions_of_unsubscribed_topics_before_it_joins() -> None:
    member = Member(is_cooperative=True)
    member.subscribe("letters", "parcels")
    member.join(1, A, PARCEL)
    member.subscribe("letters")
    assert member.poll() == [
        Step(Act.COMMIT, (PARCEL,)),
        Step(Act.REVOKE, (PARCEL,)),
        Step(Act.JOIN),
    ]
    assert member.machine.join_reason == "the subscription has changed"


def test_a_new_pattern_revokes_nothing_before_the_join_finds_its_topics() -> None:
    member = stable(is_cooperative=True)
    member.machine.on_leave()
    member.machine.on_leave_interrupted()
    member.subscription.unsubscribe()
    member.subscription.subscribe_pattern(re.compile("par.*"), RebalanceListener())
    member.subscription.set_assignment([A])
    assert member.poll() == [Step(Act.JOIN)]


def test_partitions_outside_the_subscription_are_not_assigned() -> None:
    member = Member()
    assert member.join(1, A, PARCEL) == [Step(Act.ASSIGN, (A,))]


def test_no_step_is_due_while_the_last_commit_runs() -> None:
    member = stable()
    member.commits_end = False
    member.machine.request_rejoin("test")
    assert member.poll() == [Step(Act.COMMIT, (A, B))]
    assert member.poll() == []
    member.machine.on_last_commit((A, B))
    assert member.machine.is_due()
    assert member.poll() == [Step(Act.REVOKE, (A, B)), Step(Act.JOIN)]


def test_partitions_that_are_wanted_again_during_the_last_commit_stay() -> None:
    member = in_state(S.REVOKING)
    member.subscribe("letters")
    member.machine.on_last_commit((A, B))
    assert member.poll() == [Step(Act.JOIN)]
    assert member.assigned == [A, B]


def test_an_interrupted_step_is_returned_again() -> None:
    member = stable()
    member.machine.request_rejoin("test")
    member.execute(member.machine.next_step() or pytest.fail("no commit"))
    assert member.machine.next_step() == member.machine.next_step() == Step(Act.REVOKE, (A, B))


def test_a_member_that_was_removed_during_the_last_commit_loses_its_partitions() -> None:
    member = in_state(S.REVOKING)
    member.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.poll() == [Step(Act.LOSE, (A, B)), Step(Act.JOIN)]


@pytest.mark.parametrize("code", REMOVED)
def test_a_removed_member_keeps_its_id_only_if_the_coordinator_knows_it(code: ErrorCode) -> None:
    member = stable()
    member.heartbeat(code)
    is_known = code is ErrorCode.ILLEGAL_GENERATION
    assert member.machine.generation == Generation(member_id="me" if is_known else "")
    assert member.machine.assignment_generation == Generation(1, "me")
    assert member.poll() == [Step(Act.LOSE, (A, B)), Step(Act.JOIN)]


def test_nothing_is_due_without_a_subscription() -> None:
    member = Member()
    member.subscription.unsubscribe()
    assert member.poll() == []
    member.subscription.assign_by_hand([A])
    assert member.poll() == []


# -- joining ---------------------------------------------------------------------------------------


def test_a_join_is_retried_after_a_growing_backoff_without_a_poll() -> None:
    member = in_state(S.JOINING)
    machine, waited = member.machine, []
    for _ in range(6):
        assert machine.next_request(member.now) is Request.JOIN
        machine.on_join_error(UnreachableError("away"), member.now)
        again = machine.next_request(member.now)
        assert isinstance(again, float)
        waited.append(round(again - member.now, 3))
        member.now = again
    assert waited == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    assert not machine.is_due()


def test_the_next_poll_raises_the_error_of_a_refused_join_once_and_joins_again() -> None:
    member = in_state(S.JOINING)
    fail_to_join(member, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(ApiError, match="GROUP_AUTHORIZATION_FAILED"):
        member.poll()
    assert member.poll() == [Step(Act.JOIN)]
    assert member.machine.next_request(member.now) == pytest.approx(0.1)


def test_a_join_asks_with_the_reserved_member_id() -> None:
    member = Member()
    member.poll()
    member.machine.on_member_id("me")
    assert member.machine.generation == Generation(member_id="me")
    assert member.machine.next_request(member.now) is Request.JOIN


def test_a_reserved_member_id_does_not_replace_a_generation() -> None:
    member = stable()
    member.machine.on_member_id("me")
    assert member.machine.generation == Generation(1, "me")


def test_late_responses_to_a_join_change_nothing() -> None:
    member = in_state(S.JOINING)
    be_fenced(member)
    member.machine.on_join(Generation(2, "me"))
    member.machine.on_sync((A,), member.now)
    fail_to_join(member, ErrorCode.NOT_COORDINATOR)
    assert member.state is S.FATAL
    assert member.machine.generation == Generation()


def test_a_rejoin_is_not_requested_while_a_join_is_in_flight() -> None:
    member = in_state(S.JOINING)
    member.machine.request_rejoin("test")
    member.machine.on_join(Generation(2, "me"))
    member.machine.on_sync((A, B), member.now)
    assert member.poll() == [Step(Act.ASSIGN, (A, B))]


def test_a_rebalance_that_begins_before_the_assignment_is_applied_follows_it() -> None:
    member = in_state(S.RECONCILING)
    member.machine.on_sync((), member.now)  # a late response
    member.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    acts = [act for act, _ in member.poll()]
    assert acts == [Act.COMMIT, Act.REVOKE, Act.ASSIGN, Act.JOIN]


def test_the_generation_of_the_assignment_changes_with_the_assignment() -> None:
    member = stable(is_cooperative=True)
    member.machine.request_rejoin("test")
    member.poll()
    member.respond(2, A, B)
    assert member.machine.assignment_generation == Generation(1, "me")
    member.poll()
    assert member.machine.assignment_generation == Generation(2, "me")


# -- heartbeats ------------------------------------------------------------------------------------


def test_heartbeats_follow_the_interval_and_after_a_failure_the_backoff() -> None:
    member = stable()
    machine = member.machine
    assert machine.next_request(0.0) == 3.0
    assert machine.next_request(3.0) is Request.HEARTBEAT
    machine.on_heartbeat(machine.generation, TimeoutError(), 4.0)
    assert machine.next_request(4.0) == pytest.approx(4.1)
    machine.on_heartbeat(machine.generation, None, 5.0)
    assert machine.next_request(5.0) == 8.0


def test_a_member_whose_application_does_not_poll_leaves() -> None:
    member = stable()
    machine = member.machine
    machine.on_heartbeat(machine.generation, None, 9.0)
    assert machine.next_request(9.0) == 10.0
    assert machine.next_request(10.0) == 10.0 + WAKING_SECONDS
    assert machine.next_request(10.0 + WAKING_SECONDS) is Request.LEAVE
    assert machine.next_request(10.0 + WAKING_SECONDS) is None
    assert member.state is S.FENCED


def test_a_waiting_poll_that_reports_itself_in_time_keeps_the_member() -> None:
    member = stable()
    assert member.machine.next_request(10.0) == 10.0 + WAKING_SECONDS
    member.machine.on_poll(10.0)
    assert member.machine.next_request(10.0 + WAKING_SECONDS) is Request.HEARTBEAT


def test_the_heartbeat_of_an_earlier_generation_changes_nothing() -> None:
    member = stable()
    member.machine.on_heartbeat(
        Generation(0, "me"), ApiError(ErrorCode.UNKNOWN_MEMBER_ID), member.now
    )
    assert member.state is S.STABLE


@pytest.mark.parametrize("state", [S.UNJOINED, S.SYNCING, S.FENCED, S.FATAL])
def test_there_are_no_heartbeats_without_a_generation_or_during_a_join(state: MemberState) -> None:
    assert in_state(state).machine.next_request(1.0) is None


@pytest.mark.parametrize("state", [S.REVOKING, S.RECONCILING, S.STABLE, S.LEAVING])
def test_heartbeats_go_on_while_listeners_are_called(state: MemberState) -> None:
    assert in_state(state).machine.next_request(4.0) is Request.HEARTBEAT


# -- commits ---------------------------------------------------------------------------------------


def test_a_refused_commit_of_the_current_generation_is_news() -> None:
    member = stable()
    machine = member.machine
    machine.on_commit_error(Generation(0, "me"), ApiError(ErrorCode.UNKNOWN_MEMBER_ID))
    assert not machine.is_due()
    machine.on_commit_error(machine.generation, ApiError(ErrorCode.REBALANCE_IN_PROGRESS))
    assert machine.is_due()
    machine.on_commit_error(machine.generation, ApiError(ErrorCode.UNKNOWN_MEMBER_ID))
    assert member.state is S.FENCED


@pytest.mark.parametrize("state", [S.JOINING, S.SYNCING, S.RECONCILING])
def test_a_refused_commit_during_a_rebalance_does_not_bring_about_another(
    state: MemberState,
) -> None:
    member = in_state(state)
    machine = member.machine
    for code in (ErrorCode.REBALANCE_IN_PROGRESS, *REMOVED):
        machine.on_commit_error(machine.generation, ApiError(code))
    assert member.state is state
    assert machine.rejoin_reason is None


@pytest.mark.parametrize("state", S)
def test_automatic_commits_rest_during_a_rebalance(state: MemberState) -> None:
    assert in_state(state).machine.may_auto_commit is (state in {S.UNJOINED, S.STABLE})


# -- the end ---------------------------------------------------------------------------------------


def test_a_fatal_error_is_raised_by_every_poll_until_the_member_has_left() -> None:
    member = stable()
    be_fenced(member)
    for _ in range(2):
        with pytest.raises(FencedInstanceIdError):
            member.poll()
    assert member.machine.has_lost
    leave(member)
    assert member.poll() == [Step(Act.JOIN)]


def test_a_member_that_fails_while_it_leaves_and_is_interrupted_stays_fatal() -> None:
    member = in_state(S.LEAVING)
    member.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert member.state is S.LEAVING
    member.machine.on_leave_interrupted()
    assert member.state is S.FATAL


def test_a_member_that_is_removed_while_it_leaves_loses_its_partitions() -> None:
    member = in_state(S.LEAVING)
    member.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.machine.has_lost
    member.machine.on_leave_interrupted()
    assert member.poll()[0] == Step(Act.LOSE, (A, B))


def test_a_closed_consumer_stays_closed_though_an_outer_call_leaves() -> None:
    member = in_state(S.LEAVING)
    member.machine.on_closed(ClientClosedError("closed by a listener"))
    member.machine.on_left()
    with pytest.raises(ClientClosedError):
        member.poll()
