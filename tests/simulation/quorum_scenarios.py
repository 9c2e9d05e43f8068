"""Scenarios of a quorum, each for one mutant. Each raises AssertionError if something is wrong."""

from collections.abc import Callable

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID
from ottla.raft.actions import Append
from ottla.raft.election_state import ElectionState, quorum_state_bytes
from ottla.raft.messages import fetch_request, fetch_response, vote_request
from ottla.raft.quorum_machine import QuorumMachine
from ottla.raft.settings import Identity, QuorumSettings
from ottla.raft.snapshots import SnapshotId
from ottla.raft.states import PROSPECTIVE, UNATTACHED, Follower
from ottla.raft.voters import Endpoint, ReplicaKey
from ottla.simulation.quorum.replica import CLUSTER, LISTENER, PORT, Replica
from ottla.simulation.quorum.story import remove_request
from ottla.simulation.quorum.world import QuorumWorld, directory_id
from ottla.wire.messages import fetch, update_raft_voter
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from ottla.wire.messages.vote import VoteRequest, VoteResponse
from ottla.wire.records.batch import batch_at
from ottla.wire.records.builder import BatchBuilder, build_batch
from ottla.wire.records.control import ControlType
from ottla.wire.records.record import Record

LEADER_MS = 10_000


def led_world(voters: int, observers: int = 0, seed: int = 1) -> tuple[QuorumWorld, Replica]:
    """Run a world until a leader has committed a first record."""
    world = QuorumWorld(seed)
    world.form(voters, observers)
    world.start()
    assert world.run(LEADER_MS, until=lambda: world.checks.truth_end > 0)
    leader = world.leader
    assert leader is not None
    leader.propose("first")
    assert world.run(world.now_ms + 2000, until=lambda: "first" in world.acknowledged)
    world.run(world.now_ms + 1000)
    return world, leader


def has_leader(world: QuorumWorld) -> bool:
    return world.leader is not None and world.leader.machine.high_watermark > 0


def a_one_way_link_replaces_no_leader() -> None:
    """A follower that hears nothing of the leader asks for PreVotes in vain."""
    world, leader = led_world(3)
    epoch = leader.machine.epoch
    deaf = next(one for one in world.replicas.values() if one is not leader)
    world.network.cut = {(leader.number, deaf.number), (deaf.number, leader.number)}
    world.run(world.now_ms + 15_000)
    assert leader.leads, "the leader was replaced although a majority reaches it"
    assert leader.machine.epoch == epoch


def restarted_followers_elect_a_leader() -> None:
    """All remember the dead leader; none has fetched from it since the restart."""
    world, leader = led_world(4)
    others = [one for one in world.replicas.values() if one is not leader]
    for replica in world.replicas.values():
        replica.kill()
    # Its machine is gone, not only its process: nothing refuses a connection.
    world.network.cut = {(one.number, leader.number) for one in others}
    for replica in others:
        replica.start()
        world.run(world.now_ms + 650)
    assert world.run(world.now_ms + 8_000, until=lambda: world.leader is not None)


def a_leader_that_left_alone_is_not_needed_for_ever() -> None:
    """The removal is in the leader's log alone; without its vote no replica could be elected."""
    world, leader = led_world(2)
    other = next(one for one in world.replicas.values() if one is not leader)
    links = {(leader.number, other.number), (other.number, leader.number)}
    world.network.cut = set(links)
    world.ask(leader, remove_request(leader.key))
    world.run(world.now_ms + 6000)
    assert not leader.leads
    world.network.cut = set()
    assert world.run(world.now_ms + 15_000, until=lambda: other.leads)
    assert world.run(
        world.now_ms + 5000, until=lambda: world.checks.committed_voters.keys == (other.key,)
    )


def a_leader_that_left_does_not_hear_itself() -> None:
    """Two voters remain. A dead voter does not fetch, so the leader must resign."""
    world, leader = led_world(3)
    dead = next(one for one in world.replicas.values() if one is not leader)
    dead.kill()
    world.ask(leader, remove_request(leader.key))
    world.run(world.now_ms + 6000)
    assert not leader.leads, "a leader without a majority leads on"


def followers_learn_the_high_watermark_at_once() -> None:
    world, leader = led_world(3)
    offset = leader.machine.core.outline.end_offset
    leader.propose("last")
    followers = [one for one in world.replicas.values() if one is not leader]
    assert world.run(
        world.now_ms + 200,
        until=lambda: all(one.machine.high_watermark > offset for one in followers),
    )


def a_diverging_follower_is_told_at_once() -> None:
    """Its log is longer than the leader's."""
    world, leader = led_world(3)
    epoch, end_offset = leader.machine.core.outline.end
    stranger = Identity(ReplicaKey(9, directory_id(9, 0)), CLUSTER, ())
    request = fetch_request(
        stranger,
        epoch=epoch,
        log_end=(epoch, end_offset + 5),
        log_start_offset=0,
        high_watermark=end_offset,
        wait_ms=500,
        bytes_max=1000,
    )
    answer = world.admin_answers[world.ask(leader, request)]
    assert answer is not None, "the answer waits"
    diverging = answer.responses[0].partitions[0].diverging_epoch
    assert (diverging.epoch, diverging.end_offset) == (epoch, end_offset)


def an_address_of_another_node_is_refused() -> None:
    """A voter advertises an address at which another voter answers."""
    world, leader = led_world(3)
    voter, other = (one for one in world.replicas.values() if one is not leader)
    request = UpdateRaftVoterRequest(
        cluster_id=CLUSTER,
        current_leader_epoch=leader.machine.epoch,
        voter_id=voter.number,
        voter_directory_id=voter.disk.directory_id,
        listeners=[update_raft_voter.Listener(name=LISTENER, host=str(other.number), port=PORT)],
        k_raft_version_feature=update_raft_voter.KRaftVersionFeature(max_supported_version=1),
    )
    before = leader.machine.core.voters
    number = world.ask(leader, request)
    assert world.run(world.now_ms + 3000, until=lambda: world.admin_answers[number] is not None)
    assert world.admin_answers[number].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert leader.machine.core.voters == before


def a_first_election_comes_soon() -> None:
    """Three replicas with empty logs elect a leader within the least election timeout."""
    world = QuorumWorld(1)
    world.form(3)
    world.start()
    assert world.run(500, until=lambda: has_leader(world))


def losers_do_not_try_again_in_step() -> None:
    """All replicas start at once, and all messages take the same time."""
    world = QuorumWorld(1)
    world.network.delay_ms = (1, 1)
    world.form(3)
    world.start()
    assert world.run(20_000, until=lambda: world.leader is not None)


# -- one machine -----------------------------------------------------------------------------------


class _Fixed:
    """The least of all random numbers."""

    def uuid(self) -> bytes:
        return ZERO_UUID

    def below(self, limit: int) -> int:
        return 0


def machine_of(election: ElectionState, *, knows_address: bool = True) -> QuorumMachine:
    """Return a started voter of three, with an empty log."""
    world = QuorumWorld(0)
    world.form(3)
    disk = world.replicas[1].disk
    disk.quorum_state = quorum_state_bytes(election, 1)
    outline, history = disk.open()
    if not knows_address:
        voters = history.voters
        for voter in voters.voters[1:]:
            object.__setattr__(voter, "endpoints", ())
    endpoint = Endpoint("CONTROLLER", "1", PORT)
    identity = Identity(ReplicaKey(1, directory_id(1, 0)), CLUSTER, (endpoint,))
    settings = QuorumSettings()
    machine = QuorumMachine(identity, settings, _Fixed(), disk.election, outline, history)
    machine.start(0)
    return machine


def _vote_of(
    machine: QuorumMachine,
    nominee: int,
    *,
    epoch: int,
    log_end: tuple[int, int] = (0, 0),
    now_ms: int = 0,
) -> bool:
    key = ReplicaKey(nominee, directory_id(nominee, 0))
    identity = Identity(key, CLUSTER, ())
    request = vote_request(
        identity, machine.core.key, epoch=epoch, log_end=log_end, is_pre_vote=False
    )
    actions = machine.on_request("token", request, now_ms)
    (response,) = (
        one.response for one in actions if isinstance(getattr(one, "response", None), VoteResponse)
    )
    return bool(response.topics[0].partitions[0].vote_granted)


def a_lost_pre_vote_keeps_the_vote() -> None:
    machine = machine_of(ElectionState())
    assert _vote_of(machine, 2, epoch=1, now_ms=0)
    actions = machine.on_time(1000)
    assert machine.state.role is PROSPECTIVE
    asked = [one for one in actions if isinstance(getattr(one, "request", None), VoteRequest)]
    for one in asked:
        refusal = machine_of(ElectionState(1))
        refusal.core.outline.end_offset = 9
        response = next(
            answer.response
            for answer in refusal.on_request("token", one.request, 0)
            if isinstance(getattr(answer, "response", None), VoteResponse)
        )
        response.topics[0].partitions[0].vote_granted = False
        response.topics[0].partitions[0].error_code = 0
        machine.on_response(one.correlation_id, response, 1001)
    assert machine.state.role is UNATTACHED
    assert not _vote_of(machine, 3, epoch=1, now_ms=1002)


def a_known_leader_gets_no_rival() -> None:
    machine = machine_of(ElectionState(1, leader_id=2), knows_address=False)
    assert machine.state.role is UNATTACHED
    assert not _vote_of(machine, 3, epoch=1, now_ms=1)


def a_longer_log_of_an_earlier_epoch_gets_no_vote() -> None:
    """Its last records were never committed; the voter's records of epoch 2 may be."""
    machine = machine_of(ElectionState(2))
    machine.core.append(batch_at(build_batch([Record(0, 0, None, b"newer")], leader_epoch=2)))
    assert not _vote_of(machine, 2, epoch=3, log_end=(1, 9))
    assert _vote_of(machine, 3, epoch=3, log_end=(2, 1))


def a_record_of_a_later_epoch_is_not_appended() -> None:
    machine = machine_of(ElectionState(1, leader_id=2))
    assert isinstance(machine.state, Follower)
    (correlation_id,) = machine.core.requests
    batch = build_batch([Record(0, 0, None, b"later")], leader_epoch=2)
    partition = fetch.PartitionData(high_watermark=0, records=bytes(batch))
    leader = machine.state.leader
    response = fetch_response(machine.core.identity, partition, epoch=1, leader=leader, leader_id=2)
    machine.on_response(correlation_id, response, 5)
    assert machine.core.outline.end == (0, 0)
    assert machine.core.outline.compare(0, 0).snapshot_id != SnapshotId(0, 0)


def refuse_malformed_control_records() -> None:
    """A follower neither appends such a batch nor counts it."""
    machine = machine_of(ElectionState(1, leader_id=2))
    assert isinstance(machine.state, Follower)
    (correlation_id,) = machine.core.requests
    builder = BatchBuilder(is_control=True, leader_epoch=1)
    builder.append(0, bytes((0, 0, 0, ControlType.KRAFT_VOTERS)), b"\0\0\x7f")
    partition = fetch.PartitionData(high_watermark=1, records=bytes(builder.build()))
    leader = machine.state.leader
    response = fetch_response(machine.core.identity, partition, epoch=1, leader=leader, leader_id=2)
    actions = machine.on_response(correlation_id, response, 5)
    assert machine.core.outline.end == (0, 0)
    assert not any(isinstance(action, Append) for action in actions)


SCENARIOS: dict[str, tuple[str, Callable[[], None]]] = {
    scenario.__name__: (mutant, scenario)
    for mutant, scenario in (
        ("granting_pre_votes_to_all", a_one_way_link_replaces_no_leader),
        ("never_granting_pre_votes_as_follower", restarted_followers_elect_a_leader),
        ("waiting_for_the_other_voters", a_leader_that_left_alone_is_not_needed_for_ever),
        ("hearing_a_leader_that_has_left", a_leader_that_left_does_not_hear_itself),
        ("telling_high_watermarks_with_records", followers_learn_the_high_watermark_at_once),
        ("losing_in_step", losers_do_not_try_again_in_step),
        ("forgetting_the_vote", a_lost_pre_vote_keeps_the_vote),
        ("voting_although_a_leader_is_known", a_known_leader_gets_no_rival),
        ("leading_with_shorter_logs", a_longer_log_of_an_earlier_epoch_gets_no_vote),
        ("letting_diverging_fetches_wait", a_diverging_follower_is_told_at_once),
        ("believing_addresses_at_once", an_address_of_another_node_is_refused),
        ("waiting_for_the_whole_timeout", a_first_election_comes_soon),
        ("appending_records_of_later_epochs", a_record_of_a_later_epoch_is_not_appended),
    )
}
