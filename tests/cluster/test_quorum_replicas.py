"""Three replicas of the metadata log in processes: every acknowledged record survives."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import full_disk
from tests.cluster.quorum_processes import FOLDER, QuorumProcesses

KILLS = 4


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[QuorumProcesses]:
    processes = QuorumProcesses(tmp_path)
    yield processes
    processes.close()


def wait_for_acknowledged(quorum: QuorumProcesses, count: int) -> None:
    """Wait for so many more committed records."""
    for _ in range(count):
        quorum.wait_for("acked", after=quorum.mark())


def check(quorum: QuorumProcesses) -> None:
    """Every acknowledged record is in the log of each node, and each epoch has one leader."""
    wait_for_acknowledged(quorum, 1)
    leader = quorum.leader()
    acknowledged = quorum.acknowledged()
    kept = quorum.values(leader)
    values = [value for _, value in acknowledged]
    assert len(set(values)) == len(values)
    assert set(values) <= set(kept)
    ordered = [value for _, value in sorted(acknowledged)]
    place = {value: index for index, value in enumerate(kept)}
    assert [place[value] for value in ordered] == sorted(place[value] for value in ordered)
    assert all(len(leaders) == 1 for leaders in quorum.leaders_by_epoch().values())
    for node_id in quorum.running:
        other = quorum.values(node_id)
        shared = min(len(other), len(kept))
        assert other[:shared] == kept[:shared]


def test_a_killed_leader_takes_no_acknowledged_record_with_it(quorum: QuorumProcesses) -> None:
    quorum.start()
    quorum.leader()
    quorum.tell("propose 2")
    for _ in range(KILLS):
        wait_for_acknowledged(quorum, 20)
        leader, mark = quorum.leader(), quorum.mark()
        quorum.kill(leader)
        quorum.wait_for("acked", after=mark, nodes=tuple(quorum.running))
        quorum.start(leader)
        quorum.wait_for("ready", after=mark, nodes=(leader,))
        quorum.tell("propose 2", leader)
    check(quorum)


def test_a_stopped_leader_hands_over(quorum: QuorumProcesses) -> None:
    quorum.start()
    quorum.leader()
    quorum.tell("propose 2")
    wait_for_acknowledged(quorum, 20)
    leader, mark = quorum.leader(), quorum.mark()
    quorum.terminate(leader)
    quorum.wait_for("acked", after=mark, nodes=tuple(quorum.running))
    quorum.start(leader)
    check(quorum)


def test_a_paused_leader_is_replaced(quorum: QuorumProcesses) -> None:
    quorum.start()
    quorum.leader()
    quorum.tell("propose 2")
    wait_for_acknowledged(quorum, 20)
    leader, mark = quorum.leader(), quorum.mark()
    quorum.pause(leader)
    others = tuple(one for one in quorum.ids if one != leader)
    quorum.wait_for("acked", after=mark, nodes=others)
    quorum.resume(leader)
    quorum.wait_for("follower", after=mark, nodes=(leader,))
    check(quorum)


def test_a_wiped_follower_gets_the_log_again(quorum: QuorumProcesses) -> None:
    quorum.start()
    leader = quorum.leader()
    quorum.tell("propose 2")
    wait_for_acknowledged(quorum, 50)
    follower = next(one for one in quorum.ids if one != leader)
    quorum.kill(follower)
    quorum.wipe(follower)
    quorum.start(follower)
    check(quorum)
    quorum.kill(next(one for one in quorum.ids if one not in {leader, follower}))
    wait_for_acknowledged(quorum, 5)  # The wiped follower is half of the majority.
    check(quorum)


def test_a_replica_with_a_torn_vote_does_not_start(quorum: QuorumProcesses) -> None:
    quorum.start()
    leader = quorum.leader()
    quorum.tell("propose 2")
    wait_for_acknowledged(quorum, 5)
    follower = next(one for one in quorum.ids if one != leader)
    # Two of three commit: before this line, the third may not have written its quorum-state.
    quorum.wait_for("follower", nodes=(follower,))
    quorum.kill(follower)
    state = quorum.data(follower) / FOLDER / "quorum-state"
    whole = state.read_bytes()
    state.write_bytes(whole[:20])
    quorum.start(follower)
    assert quorum.ended(follower) != 0
    log = (quorum.folder / f"{follower}.log").read_text()
    assert "quorum-state is not JSON" in log
    state.write_bytes(whole)
    quorum.start(follower)
    check(quorum)


def test_a_leader_on_a_full_disk_gives_way_and_comes_back(tmp_path: Path) -> None:
    if missing := full_disk.why_not():
        pytest.skip(missing)
    folders = [tmp_path / str(node_id) for node_id in (1, 2, 3)]
    quorum = QuorumProcesses(tmp_path, full_disk.environ(tmp_path, folders))
    try:
        quorum.start()
        quorum.leader()
        quorum.tell("propose 2")
        wait_for_acknowledged(quorum, 20)
        leader, mark = quorum.leader(), quorum.mark()
        full_disk.fill(quorum.data(leader))
        others = tuple(one for one in quorum.ids if one != leader)
        quorum.wait_for("acked", after=mark, nodes=others)
        full_disk.free(quorum.data(leader))
        mark = quorum.mark()
        quorum.kill(quorum.leader())
        quorum.wait_for("acked", after=mark)  # The replica with room again is half of the majority.
        check(quorum)
        log = (quorum.folder / f"{leader}.log").read_text()
        assert log.count("waits until there is room") == 1
    finally:
        quorum.close()
