import pytest

from ottla.raft.voters import NO_DIRECTORY, Endpoint, ReplicaKey, Voter, VoterSet, voter_set_of


def voter(number: int, directory: int = 1) -> Voter:
    key = ReplicaKey(number, bytes([directory]) * 16)
    return Voter(key, (Endpoint("CONTROLLER", f"host-{number}", 9093),), 0, 1)


THREE = VoterSet((voter(1), voter(2), voter(3)))


def test_a_replica_with_another_directory_is_no_voter() -> None:
    assert THREE.has(voter(1).key)
    assert not THREE.has(voter(1, directory=2).key)
    assert not THREE.has(ReplicaKey(1))


def test_voters_without_directories_match_by_id() -> None:
    old = VoterSet((Voter(ReplicaKey(1, NO_DIRECTORY)),))
    assert old.match(voter(1, directory=9).key) == old.voters[0]


@pytest.mark.parametrize(("count", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(count: int, majority: int) -> None:
    assert VoterSet(tuple(voter(number) for number in range(count))).majority == majority


def test_a_change_is_one_voter_at_most() -> None:
    assert THREE.with_voter(voter(4)).is_one_change_from(THREE)
    assert THREE.without(voter(1).key).is_one_change_from(THREE)
    moved = Voter(voter(1).key, (Endpoint("CONTROLLER", "elsewhere", 1),))
    assert THREE.updated(moved).is_one_change_from(THREE)
    assert (
        not THREE.without(voter(1).key).with_voter(voter(1, directory=2)).is_one_change_from(THREE)
    )


def test_a_set_is_read_back_from_its_record() -> None:
    assert voter_set_of(THREE.record()) == THREE
    assert THREE.without(voter(2).key).with_voter(voter(2)) == THREE
