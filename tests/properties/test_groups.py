"""Random histories of a group: members join, leave, die and return, coordinators fail over.

After every step: assignments belong to the current generation in the log (G1), commits are accepted
from the current generation only (G2), a waiting member that was not notified has no response due,
and a machine that replays the log has the same state. At the end a group of correct members becomes
stable in bounded time (G5). If all members fall silent, no request is left waiting.
"""

from copy import deepcopy
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.machines.groups.classic_group import ClassicGroup, GroupState
from ottla.machines.groups.machine import GroupMachine
from ottla.machines.groups.request_types import NotYet
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.join_group import JoinGroupResponse
from ottla.wire.messages.sync_group import SyncGroupResponse
from tests.examples import examples
from tests.unit.machines.groups.host import GROUP, Host

SESSION_MS = 6_000
REBALANCE_MS = 20_000
INITIAL_DELAY_MS = 3_000
NEW_MEMBER_MS = 15_000
STABLE_WITHIN_MS = 3 * (REBALANCE_MS + SESSION_MS) + NEW_MEMBER_MS
SILENT_AFTER_MS = 3 * (REBALANCE_MS + SESSION_MS + NEW_MEMBER_MS)
PREFERENCES = [("range", "sticky"), ("sticky", "range"), ("range", "sticky", "other")]
CLIENTS = 4


@dataclass
class Client:
    """One consumer, as the coordinator sees it."""

    name: str
    instance: str | None
    version: int
    preference: int = 0
    member_id: str = ""
    generation: int = -1
    members: list[str] | None = None
    """The members to assign work to, if this client leads and has not done so."""
    assignment: bytes | None = None
    join_wait: NotYet | None = None
    sync_wait: NotYet | None = None
    past: list[tuple[str, int]] = field(default_factory=list)

    def restart(self) -> None:
        self.past.append((self.member_id, self.generation))
        self.member_id = ""
        self.join_wait = self.sync_wait = None
        self.lose_generation()

    def lose_generation(self) -> None:
        self.past.append((self.member_id, self.generation))
        self.generation = -1
        self.assignment = self.members = None

    @property
    def waits(self) -> bool:
        return self.join_wait is not None or self.sync_wait is not None

    @property
    def is_working(self) -> bool:
        return self.assignment is not None and not self.waits


class World:
    """The clients, the coordinator, and the invariants between them."""

    def __init__(self) -> None:
        self.host = Host(
            group_initial_rebalance_delay_ms=INITIAL_DELAY_MS,
            new_member_join_timeout_ms=NEW_MEMBER_MS,
            offsets_retention_check_interval_ms=10**12,
        )
        self.clients = [
            Client(f"c{n}", f"static{n}" if n % 2 else None, 3 if n == 2 else 9)
            for n in range(CLIENTS)
        ]
        self.assigned = 0
        self.nonce_by_generation: dict[int, bytes] = {}
        self.committed = -1
        self.is_sluggish = False
        """Whether waiting clients react late to notifications, so that more happens in between."""

    def step(self, client: Client) -> None:
        """Take a consumer's next step."""
        if client.waits:
            return
        if client.generation < 0:
            self.join(client)
        elif client.assignment is None:
            self.sync(client)
        else:
            self.beat(client)
        self.notify()

    def join(self, client: Client) -> None:
        answer = self.host.join(
            client.member_id,
            instance=client.instance,
            protocols=PREFERENCES[client.preference],
            version=client.version,
            client=client.name,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        if isinstance(answer, NotYet):
            client.join_wait = answer
        else:
            self.joined(client, answer)

    def joined(self, client: Client, answer: JoinGroupResponse) -> None:
        client.join_wait = None
        code = answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            client.restart()
        elif code == ErrorCode.NONE:
            client.member_id = answer.member_id
            client.generation = answer.generation_id
            is_leader = answer.leader == answer.member_id and not answer.skip_assignment
            client.members = [m.member_id for m in answer.members] if is_leader else []
        else:
            assert code == ErrorCode.REBALANCE_IN_PROGRESS

    def sync(self, client: Client) -> None:
        work = self.new_work(client.members or [])
        answer = self.host.sync(client.member_id, client.generation, work, instance=client.instance)
        if isinstance(answer, NotYet):
            client.sync_wait = answer
        else:
            self.synced(client, client.generation, answer)

    def ghostly_sync(self, member_id: str, generation: int, instance: str | None) -> None:
        """Sync, and lose the response; the group may still use it as the leader's assignment."""
        group = self.host.machine.group(GROUP)
        work = self.new_work(list(group.members) if group else [])
        answer = self.host.sync(member_id, generation, work, instance=instance)
        if isinstance(answer, SyncGroupResponse) and answer.error_code == ErrorCode.NONE:
            self.check_work(member_id, generation, answer.assignment)
        self.notify()

    def new_work(self, members: list[str]) -> dict[str, bytes]:
        self.assigned += 1
        return {m: b"%d:%s" % (self.assigned, self.owner(m)) for m in members}

    def owner(self, member_id: str) -> bytes:
        """Static members keep their work under a new member id, so the instance id is the owner."""
        return member_id.rsplit("-", 5)[0].encode() if "static" in member_id else member_id.encode()

    def synced(self, client: Client, generation: int, answer: SyncGroupResponse) -> None:
        client.sync_wait = None
        if answer.error_code == ErrorCode.NONE:
            self.check_work(client.member_id, generation, answer.assignment)
            client.assignment = answer.assignment
        elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            client.restart()
        else:
            client.lose_generation()

    def check_work(self, member_id: str, generation: int, assignment: bytes) -> None:
        """G1: the work is this member's, of this generation, and in the log."""
        group = self.host.group
        assert group.state is GroupState.STABLE
        logged = self.host.loaded().group(GROUP)
        assert logged is not None
        assert logged.generation == group.generation == generation
        assert logged.members[member_id].assignment == assignment
        nonce, owner = assignment.split(b":")
        assert owner == self.owner(member_id)
        assert self.nonce_by_generation.setdefault(generation, nonce) == nonce

    def beat(self, client: Client) -> None:
        code = self.host.beat(client.member_id, client.generation, client.instance)
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}:
            client.restart()
        elif code != ErrorCode.NONE:
            client.lose_generation()

    def commit(self, member_id: str, generation: int, offset: int) -> None:
        """G2, by a rule that is written independently of the machine."""
        group = self.host.machine.group(GROUP)
        if group is None or group.state is GroupState.EMPTY:
            is_allowed = generation < 0
        else:
            is_current = generation == group.generation and member_id in group.members
            is_allowed = is_current and group.state is not GroupState.COMPLETING_REBALANCE
        code = self.host.commit(offset, member_id, generation)
        assert (code == ErrorCode.NONE) == is_allowed
        if is_allowed:
            self.committed = offset
        self.notify()

    def notify(self) -> None:
        """Let the waiting clients of a notified group ask again, until no notification is left."""
        while self.host.notified and not self.is_sluggish:
            self.host.notified.clear()
            for client in self.clients:
                self.ask_again(client)

    def ask_again(self, client: Client) -> None:
        if client.join_wait is not None:
            join = self.host.run(self.host.machine.ask_join_again(client.join_wait))
            if isinstance(join, JoinGroupResponse):
                self.joined(client, join)
        if client.sync_wait is not None:
            wait = client.sync_wait
            sync = self.host.run(self.host.machine.ask_sync_again(wait))
            if isinstance(sync, SyncGroupResponse):
                self.synced(client, wait.number, sync)

    def pass_ms(self, duration_ms: int) -> None:
        self.host.pass_ms(duration_ms)
        self.notify()

    def check_waiting(self) -> None:
        if self.host.notified:
            return
        for client in self.clients:
            if client.join_wait is not None:
                wait = client.join_wait
                assert self.host.machine.ask_join_again(wait).response == wait
            if client.sync_wait is not None:
                wait = client.sync_wait
                assert self.host.machine.ask_sync_again(wait).response == wait

    def check_replay(self) -> None:
        for compacted in (False, True):
            twin = self.host.loaded(compacted=compacted)
            assert known(twin) == known(self.host.machine)
            check_stable_group(self.host.machine.group(GROUP), twin.group(GROUP))

    def all_work(self) -> bool:
        return all(client.is_working for client in self.clients)


def known(machine: GroupMachine) -> tuple[object, object]:
    """Return the time of the group's record in the log, and its committed offset."""
    group = machine.group(GROUP)
    return group and group.stored_ms, machine.committed(GROUP, "events", 0)


def check_stable_group(group: ClassicGroup | None, loaded: ClassicGroup | None) -> None:
    """A stable group is the one that is loaded from the log."""
    if group is None or group.stored_ms is None or group.state is not GroupState.STABLE:
        return
    assert loaded is not None
    assert loaded.state is GroupState.STABLE
    assert (loaded.generation, loaded.protocol, loaded.leader) == (
        group.generation,
        group.protocol,
        group.leader,
    )
    assignments = {name: member.assignment for name, member in group.members.items()}
    assert {name: member.assignment for name, member in loaded.members.items()} == assignments
    assert list(loaded.members) == list(group.members)


def check_group(group: ClassicGroup) -> None:
    attendance = group.attendance
    assert set(attendance.joining) <= set(group.members)
    assert set(attendance.join_answers) <= set(group.members)
    assert attendance.new | attendance.unsynced | attendance.syncing <= set(group.members)
    assert not set(attendance.pending) & set(group.members)
    assert (group.leader in group.members) == bool(group.members)
    if not group.members and group.state is not GroupState.EMPTY:
        assert group.state is GroupState.PREPARING_REBALANCE
        assert attendance.pending
    if group.state is GroupState.STABLE or attendance.syncing:
        assert not attendance.joining


class GroupLife(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.world = World()

    def client(self, number: int) -> Client:
        return self.world.clients[number]

    @rule(numbers=st.lists(st.integers(0, CLIENTS - 1), min_size=1, max_size=12))
    def clients_go_on(self, numbers: list[int]) -> None:
        for number in numbers:
            self.world.step(self.client(number))

    @rule(duration_ms=st.sampled_from([1, 1_000, INITIAL_DELAY_MS, SESSION_MS, REBALANCE_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.world.pass_ms(duration_ms)

    @rule()
    def all_settle(self) -> None:
        for _ in range(8):
            for client in self.world.clients:
                self.world.step(client)
            self.world.pass_ms(1_000)

    @rule(jump_ms=st.sampled_from([-(10**10), -1_000, 1_000, 10**10]))
    def the_wall_clock_jumps(self, jump_ms: int) -> None:
        self.world.host.wall_ms += jump_ms

    @rule(number=st.integers(0, CLIENTS - 1))
    def a_client_restarts(self, number: int) -> None:
        self.client(number).restart()

    @rule(number=st.integers(0, CLIENTS - 1))
    def a_client_gives_up_waiting_and_joins_again(self, number: int) -> None:
        client = self.client(number)
        client.join_wait = client.sync_wait = None
        client.lose_generation()
        self.world.join(client)
        self.world.notify()

    @rule(number=st.integers(0, CLIENTS - 1), preference=st.integers(0, len(PREFERENCES) - 1))
    def a_client_changes_its_mind(self, number: int, preference: int) -> None:
        client = self.client(number)
        client.preference = preference
        if client.is_working:
            client.lose_generation()
            self.world.join(client)
            self.world.notify()

    @rule(number=st.integers(0, CLIENTS - 1))
    def a_client_leaves(self, number: int) -> None:
        client = self.client(number)
        if client.member_id:
            self.world.host.leave(client.member_id)
            self.world.notify()
            client.restart()

    @rule(number=st.integers(0, CLIENTS - 1))
    def an_operator_removes_a_member(self, number: int) -> None:
        self.world.host.leave(self.client(number).member_id)
        self.world.notify()

    @rule(is_sluggish=st.booleans())
    def notifier_are_heard_late_or_at_once(self, is_sluggish: bool) -> None:
        self.world.is_sluggish = is_sluggish
        self.world.notify()

    @rule(number=st.integers(0, CLIENTS - 1), offset=st.integers(0, 1_000))
    def a_client_commits(self, number: int, offset: int) -> None:
        client = self.client(number)
        self.world.commit(client.member_id, client.generation, offset)

    @precondition(lambda self: any(client.past for client in self.world.clients))
    @rule(data=st.data(), offset=st.integers(2_000, 3_000))
    def a_ghost_of_a_client_comes_back(self, data: st.DataObject, offset: int) -> None:
        past = [(c, *then) for c in self.world.clients for then in c.past]
        client, member_id, generation = data.draw(st.sampled_from(past))
        self.world.commit(member_id, generation, offset)
        self.world.host.beat(member_id, generation, client.instance)
        self.world.ghostly_sync(member_id, generation, client.instance)

    @rule(compacted=st.booleans())
    def the_coordinator_fails_over(self, compacted: bool) -> None:
        self.world.host.reload(compacted=compacted)
        self.world.host.notified.add(GROUP)
        self.world.notify()

    @invariant()
    def nobody_waits_for_nothing(self) -> None:
        if hasattr(self, "world"):
            self.world.check_waiting()

    @invariant()
    def the_log_tells_all(self) -> None:
        if hasattr(self, "world"):
            self.world.check_replay()
            group = self.world.host.machine.group(GROUP)
            if group is not None:
                check_group(group)
            assert self.world.host.fetch() == self.world.committed

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.is_sluggish = False
            self.world.notify()
            check_that_silence_answers_all(deepcopy(self.world))
            check_that_the_group_becomes_stable(self.world)


def check_that_silence_answers_all(world: World) -> None:
    world.pass_ms(SILENT_AFTER_MS)
    assert not any(client.waits for client in world.clients)
    group = world.host.machine.group(GROUP)
    assert group is None or (group.state is GroupState.EMPTY and not group.attendance.pending)


def check_that_the_group_becomes_stable(world: World) -> None:
    end_ms = world.host.monotonic_ms + STABLE_WITHIN_MS
    while not (world.all_work() and world.host.group.state is GroupState.STABLE):
        assert world.host.monotonic_ms < end_ms, "not stable in time"
        for client in world.clients:
            world.step(client)
        world.pass_ms(1_000)
        world.check_waiting()
    generations = {client.generation for client in world.clients}
    assert generations == {world.host.group.generation} or not world.all_work()


GroupLife.TestCase.settings = settings(
    max_examples=examples(150), stateful_step_count=30, deadline=None
)
TestGroupLife = GroupLife.TestCase
