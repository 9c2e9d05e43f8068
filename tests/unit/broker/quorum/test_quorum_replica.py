"""Replicas on simulated machines: elections, commits, restarts."""

import pytest

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.wire.records.quorum_control import LeaderChangeMessage, control_records_of
from tests.unit.broker.quorum.simulated_quorum import Quorum, commit


def test_a_single_voter_leads_and_commits() -> None:
    quorum = Quorum(1)

    async def story() -> None:
        node = await quorum.start(1)
        await quorum.leader()
        await commit(node, b"one", b"two")
        assert node.values() == [b"one", b"two"]
        assert node.replica.epoch == 1

    quorum.run(story())


def test_a_term_begins_with_a_leader_change_that_kafka_reads_with_any_kraft_version() -> None:
    quorum = Quorum(1)
    quorum.kraft_version = 1

    async def story() -> None:
        await quorum.start(1)
        leader = await quorum.leader()
        (batch,) = leader.replica.read(Offset(0), leader.replica.end_offset)
        (_, change), *_ = control_records_of(batch)
        assert isinstance(change, LeaderChangeMessage)
        assert (change.version, change.leader_id) == (0, 1)
        assert [one.voter_id for one in change.voters] == [1]

    quorum.run(story())


def test_three_voters_have_the_same_records() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        for number in range(10):
            offset = await commit(leader, b"%d" % number)
        for node in quorum.nodes.values():
            await node.committed(offset)
            assert node.values() == [b"%d" % number for number in range(10)]

    quorum.run(story())


def test_a_follower_refuses_a_proposal() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        follower = quorum.others(leader)[0]
        end_offset = follower.replica.end_offset
        with pytest.raises(ApiError) as raised:
            follower.propose(b"x")
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        assert follower.replica.end_offset == end_offset

    quorum.run(story())


def test_acknowledged_records_survive_the_death_of_the_leader() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        await commit(leader, b"before")
        number = quorum.number_of(leader)
        quorum.kill(number)
        killed_at = quorum.world.loop.time()
        successor = await quorum.leader()
        # The broken connection is news: no voter waits for the fetch timeout of 2 s.
        assert quorum.world.loop.time() - killed_at < 1
        offset = await commit(successor, b"after")
        node = await quorum.start(number)
        await node.committed(offset)
        assert node.values() == [b"before", b"after"]

    quorum.run(story())


def test_a_closed_leader_hands_over_at_once() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        await commit(leader, b"before")
        number = quorum.number_of(leader)
        closed_at = quorum.world.loop.time()
        await leader.stop()
        del quorum.nodes[number]
        successor = await quorum.leader()
        assert quorum.world.loop.time() - closed_at < 0.2
        await commit(successor, b"after")
        assert successor.values() == [b"before", b"after"]

    quorum.run(story())


@pytest.mark.parametrize("seed", range(4))
def test_a_closed_leader_hands_its_last_records_over(seed: int) -> None:
    """The first preferred successor has the whole log, so no vote is refused."""
    quorum = Quorum(1, 2, 3, seed=seed)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        number = quorum.number_of(leader)
        last = [b"%d" % one for one in range(5)]
        for value in last:
            leader.propose(value)
        closed_at = quorum.world.loop.time()
        await leader.stop()
        del quorum.nodes[number]
        successor = await quorum.leader()
        assert quorum.world.loop.time() - closed_at < 0.2
        assert successor.values() == last

    quorum.run(story())


def test_proposals_of_one_moment_share_one_sync() -> None:
    quorum = Quorum(1)

    async def story() -> None:
        node = await quorum.start(1)
        await quorum.leader()
        disk = quorum.machine(1).disk
        before = len(disk.faults.operations)
        for number in range(20):
            offset = node.propose(b"%d" % number)
        await node.committed(offset)
        names = [str(one.kind) for one in disk.faults.operations[before:]]
        assert sum("SYNC" in name and "DIRECTORY" not in name for name in names) <= 2

    quorum.run(story())


def test_a_power_cut_of_all_voters_loses_nothing_acknowledged() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        offset = await commit(leader, b"kept")
        for number in quorum.own:
            quorum.machine(number).cut_power("lose_all")
        quorum.nodes.clear()
        await quorum.start_all()
        leader = await quorum.leader()
        assert leader.replica.high_watermark > offset
        assert leader.values() == [b"kept"]

    quorum.run(story())


def test_a_single_voter_leads_at_once_also_after_a_crash() -> None:
    quorum = Quorum(1)

    async def story() -> None:
        for life in range(1, 4):
            began_at = quorum.world.loop.time()
            node = await quorum.start(1)
            await quorum.leader()
            assert quorum.world.loop.time() - began_at < 0.5
            await commit(node, b"%d" % life)
            assert node.values() == [b"%d" % one for one in range(1, life + 1)]
            quorum.kill(1)

    quorum.run(story())


def test_a_listener_hears_of_leaders_and_commits_in_order() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        node = await quorum.leader()
        await commit(node, b"x")
        assert node.watcher.leaders[-1] == (1, node.replica.leader.node_id)
        assert node.watcher.committed == sorted(node.watcher.committed)
        assert node.watcher.committed[-1] == node.replica.end_offset
        assert node.replica.read(Offset(0), Offset(0)) == []

    quorum.run(story())
