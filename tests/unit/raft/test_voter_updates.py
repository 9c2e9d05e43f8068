"""Updates of voters' entries, and the upgrade of kraft.version, in a simulated quorum."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.raft.core import is_vote_for
from ottla.raft.election_state import ElectionState
from ottla.raft.voters import ReplicaKey
from ottla.simulation.quorum.replica import PORT, Replica
from ottla.simulation.quorum.story import WRONG_PORT, remove_request
from ottla.simulation.quorum.world import QuorumWorld, directory_id


def static_world() -> tuple[QuorumWorld, Replica]:
    """Run three voters of kraft.version 0 until a leader has committed a record."""
    world = QuorumWorld(2)
    world.form(3, 1, kraft_version=0)
    world.start()
    assert world.run(10_000, until=lambda: world.checks.truth_end > 0)
    assert world.leader is not None
    return world, world.leader


def upgrade(world: QuorumWorld, leader: Replica, version: int = 1) -> int | None:
    offset, actions = leader.machine.upgrade_kraft_version(
        version, is_validated_only=False, now_ms=world.now_ms
    )
    leader.handle(lambda: actions)
    return offset


def restart(world: QuorumWorld, replica: Replica, port: int) -> None:
    replica.kill()
    replica.port = port
    replica.start()


def test_an_upgrade_waits_until_each_voter_has_told_its_directory() -> None:
    world, leader = static_world()
    with pytest.raises(ApiError, match="have not told") as refused:
        upgrade(world, leader)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    world.run(world.now_ms + 3000)
    offset = upgrade(world, leader)
    assert offset is not None
    assert world.run(world.now_ms + 2000, until=lambda: world.checks.truth_end > offset)
    world.run(world.now_ms + 1000)
    keys = tuple(ReplicaKey(number, directory_id(number, 0)) for number in (1, 2, 3))
    for replica in world.replicas.values():
        assert replica.machine.kraft_version == 1
        assert replica.machine.core.voters.keys == keys


def test_a_level_never_goes_back() -> None:
    world, leader = static_world()
    world.run(world.now_ms + 3000)
    upgrade(world, leader)
    world.run(world.now_ms + 1000)
    assert upgrade(world, leader, 1) is None
    for version in (0, 2):
        with pytest.raises(ApiError, match=f"cannot change from 1 to {version}"):
            upgrade(world, leader, version)


def test_a_validation_changes_nothing() -> None:
    world, leader = static_world()
    world.run(world.now_ms + 3000)
    before = leader.machine.core.outline.end_offset
    offset, _ = leader.machine.upgrade_kraft_version(1, is_validated_only=True, now_ms=world.now_ms)
    assert (offset, leader.machine.core.outline.end_offset) == (None, before)


def test_fixed_voters_cannot_be_removed() -> None:
    world, leader = static_world()
    answer = world.admin_answers[world.ask(leader, remove_request(ReplicaKey(1)))]
    assert answer is not None
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]


def test_static_voters_survive_a_restart_of_all() -> None:
    world, _ = static_world()
    for replica in world.replicas.values():
        replica.kill()
    world.run(world.now_ms + 100)
    committed = world.checks.truth_end
    for replica in world.replicas.values():
        replica.start()
    assert world.run(world.now_ms + 5000, until=lambda: world.checks.truth_end > committed)


def test_a_new_address_is_committed_once_it_answers() -> None:
    world = QuorumWorld(3)
    world.form(3)
    world.start()
    world.run(3000)
    leader = world.leader
    assert leader is not None
    voter = next(one for one in world.replicas.values() if one is not leader)

    def committed_port() -> int:
        entry = world.checks.committed_voters.voter(voter.number)
        assert entry is not None
        return entry.endpoints[0].port

    restart(world, voter, WRONG_PORT)
    world.run(world.now_ms + 8000)
    assert committed_port() == PORT
    voter.ports.add(WRONG_PORT)
    assert world.run(world.now_ms + 4000, until=lambda: committed_port() == WRONG_PORT)


def test_a_leader_updates_its_own_entry() -> None:
    world = QuorumWorld(3)
    world.form(1)
    (replica,) = world.replicas.values()
    replica.ports.add(PORT + 1)
    replica.port = PORT + 1
    world.start()
    world.run(3000)
    assert world.checks.committed_voters.voters[0] == replica.machine.core.identity.voter


def test_a_vote_without_a_directory_is_for_each_directory() -> None:
    """The file of kraft.version 0 keeps the id alone."""
    key = ReplicaKey(2, directory_id(2, 0))
    assert is_vote_for(ElectionState(1, voted=ReplicaKey(2)), key)
    assert is_vote_for(ElectionState(1, voted=key), key)
    assert not is_vote_for(ElectionState(1, voted=ReplicaKey(2, directory_id(2, 1))), key)
    assert not is_vote_for(ElectionState(1, voted=ReplicaKey(3)), key)
    assert not is_vote_for(ElectionState(1), key)
