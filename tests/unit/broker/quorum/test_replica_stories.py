"""Replicas in trouble: full disks, pauses, lost links, old logs, and changes of the voters."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from ottla.broker.quorum.quorum_log import LogSettings
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import Offset
from ottla.raft.snapshots import SnapshotId, SnapshotStart, snapshot_bytes
from ottla.simulation.world.disk_nodes import OperationKind
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest
from ottla.wire.messages.add_raft_voter import Listener as AddListener
from ottla.wire.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochRequestPartition,
    BeginQuorumEpochRequestTopic,
)
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from ottla.wire.messages.vote import VoteRequest, VoteRequestPartition, VoteRequestTopic
from ottla.wire.schema import Message
from tests.metadata_building import uuid_of
from tests.quorum_nodes import CLUSTER, QuorumNode, batch_of, voter
from tests.unit.broker.quorum.simulated_quorum import PORT, Quorum, commit

CHECKPOINT = "/meta/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


# -- snapshots -------------------------------------------------------------------------------------


async def fill(node: QuorumNode, count: int) -> int:
    for number in range(count):
        offset = await commit(node, b"%d" % number)
    return offset


def test_a_snapshot_replaces_the_records_that_a_late_replica_lacks() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.log_settings = LogSettings(segment_bytes=200, retention_bytes=0)

    async def story() -> None:
        await quorum.start(1)
        await quorum.start(2)
        leader = await quorum.leader()
        end_offset = Offset(await fill(leader, 20) + 1)
        saved = await leader.save_snapshot(end_offset, batch_of(b"image"))
        assert saved == SnapshotId(end_offset, leader.replica.epoch)
        with pytest.raises(LookupError):
            leader.replica.read(Offset(0), end_offset)
        offset = await commit(leader, b"after")
        late = await quorum.start(3)
        await late.committed(offset)
        assert late.watcher.snapshots in ([saved], [])
        assert late.values() == [b"image", b"after"]
        quorum.kill(3)
        late = await quorum.start(3)
        await late.committed(offset)
        assert late.values() == [b"image", b"after"]

    quorum.run(story())


def test_a_log_stays_while_it_is_small_and_young() -> None:
    quorum = Quorum(1)

    async def story() -> None:
        leader = await quorum.start(1)
        await quorum.leader()
        end_offset = Offset(await fill(leader, 20) + 1)
        await leader.save_snapshot(end_offset, batch_of(b"image"))
        assert leader.replica.read(Offset(0), end_offset)

    quorum.run(story())


def test_an_old_log_goes_with_the_next_snapshot() -> None:
    quorum = Quorum(1)
    quorum.log_settings = LogSettings(retention_ms=60_000)

    async def story() -> None:
        leader = await quorum.start(1)
        await quorum.leader()
        first = Offset(await fill(leader, 5) + 1)
        await leader.save_snapshot(first, batch_of(b"image 1"))
        await quorum.elapse(61)
        second = Offset(await fill(leader, 5) + 1)
        await leader.save_snapshot(second, batch_of(b"image 2"))
        with pytest.raises(LookupError):
            leader.replica.read(Offset(0), first)

    quorum.run(story())


def test_a_damaged_snapshot_is_not_installed() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.log_settings = LogSettings(segment_bytes=200, retention_bytes=0)

    async def story() -> None:
        await quorum.start(1)
        await quorum.start(2)
        leader = await quorum.leader()
        end_offset = Offset(await fill(leader, 20) + 1)
        saved = await leader.save_snapshot(end_offset, batch_of(b"image"))
        disk = quorum.machine(quorum.number_of(leader)).disk
        path = f"/meta/__cluster_metadata-0/{saved.file_name}"
        disk.flip_bit(path, 200, 1)
        late = await quorum.start(3)
        await quorum.elapse(10)
        assert late.watcher.snapshots == []
        assert late.failures == []
        disk.flip_bit(path, 200, 1)
        await late.committed(end_offset - 1)
        assert late.values() == [b"image"]

    quorum.run(story())


# -- disks -----------------------------------------------------------------------------------------


def test_a_leader_on_a_full_disk_gives_way_and_comes_back() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        await commit(leader, b"before")
        number = quorum.number_of(leader)
        disk = quorum.machine(number).disk
        full_at = quorum.world.loop.time()
        disk.capacity_bytes = 1
        with pytest.raises(ApiError) as raised:
            leader.propose(b"refused")
        assert raised.value.code is ErrorCode.NOT_CONTROLLER
        others = [one for one in quorum.own if one != number]
        successor = await quorum.leader(*others)
        assert quorum.world.loop.time() - full_at < 0.5
        offset = await commit(successor, b"after")
        await quorum.elapse(5)
        assert not leader.failures
        disk.capacity_bytes = None
        await leader.committed(offset)
        assert leader.values() == [b"before", b"after"]

    quorum.run(story())


def test_a_follower_on_a_full_disk_stops_no_other_partition_and_comes_back() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        follower = quorum.others(leader)[0]
        disk = quorum.machine(quorum.number_of(follower)).disk
        disk.capacity_bytes = 1
        offset = await fill(leader, 50)
        assert follower.replica.high_watermark <= offset
        await quorum.elapse(5)
        assert leader.replica.is_leader
        disk.capacity_bytes = None
        await follower.committed(offset)
        assert follower.values() == [b"%d" % one for one in range(50)]

    quorum.run(story())


def test_a_disk_that_is_full_again_is_asked_again() -> None:
    quorum = Quorum(1)

    async def story() -> None:
        node = await quorum.start(1)
        await quorum.leader()
        await commit(node, b"before")
        faults = quorum.machine(1).disk.faults
        faults.fail_on(OperationKind.WRITE, error=errno.ENOSPC)  # Although it reports free bytes.
        with pytest.raises(ApiError):
            node.propose(b"refused")
        await quorum.elapse(5)
        assert node.failures == []
        assert not node.replica.is_leader
        faults.heal()
        await quorum.leader()
        await commit(node, b"after")
        assert node.values() == [b"before", b"after"]

    quorum.run(story())


def test_a_replica_that_is_closed_on_a_full_disk_begins_no_other_life(
    caplog: pytest.LogCaptureFixture,
) -> None:
    quorum = Quorum(1)

    async def story() -> None:
        node = await quorum.start(1)
        await quorum.leader()
        faults = quorum.machine(1).disk.faults
        faults.fail_on(OperationKind.WRITE, error=errno.ENOSPC)  # Although it reports free bytes.
        with pytest.raises(ApiError):
            node.propose(b"refused")
        faults.heal()
        state = "/meta/__cluster_metadata-0/quorum-state.tmp"
        faults.fail_on(OperationKind.WRITE, under=state, error=errno.ENOSPC)
        await quorum.elapse(1.5)  # The second life has ended with the write of its vote.
        assert "takes part again" not in caplog.text
        await node.replica.close()
        faults.heal()
        await quorum.elapse(5)
        assert not node.replica.is_leader

    quorum.run(story())


def test_a_failed_disk_ends_the_replica_and_hands_over() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        number = quorum.number_of(leader)
        quorum.machine(number).disk.faults.fail_on(under="/meta")
        with pytest.raises(ApiError):
            leader.propose(b"lost")
        assert len(leader.failures) == 1
        failed_at = quorum.world.loop.time()
        successor = await quorum.leader(*(one for one in quorum.own if one != number))
        assert quorum.world.loop.time() - failed_at < 0.5
        await commit(successor, b"after")
        assert leader.watcher.leaders[-1][1] is None
        with pytest.raises(ApiError) as raised:
            leader.propose(b"lost")
        assert raised.value.code is ErrorCode.NOT_CONTROLLER

    quorum.run(story())


# -- time and links --------------------------------------------------------------------------------


def test_a_paused_leader_is_replaced_and_follows_when_it_wakes() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        await commit(leader, b"before")
        number = quorum.number_of(leader)
        quorum.machine(number).pause()
        paused_at = quorum.world.loop.time()
        successor = await quorum.leader(*(one for one in quorum.own if one != number))
        assert quorum.world.loop.time() - paused_at < 5
        offset = await commit(successor, b"after")
        epoch = successor.replica.epoch
        quorum.machine(number).resume()
        await leader.committed(offset)
        await quorum.elapse(5)
        assert successor.replica.is_leader
        assert successor.replica.epoch == epoch
        assert leader.values() == [b"before", b"after"]

    quorum.run(story())


def test_a_paused_follower_disturbs_no_leader_when_it_wakes() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        epoch = leader.replica.epoch
        votes = leader.asked["VoteRequest"]
        follower = quorum.others(leader)[0]
        for seconds in (0.3, 3, 30):
            quorum.machine(quorum.number_of(follower)).pause()
            await quorum.elapse(seconds)
            offset = await commit(leader, b"x")
            quorum.machine(quorum.number_of(follower)).resume()
            await follower.committed(offset)
            await quorum.elapse(1)
        assert leader.replica.is_leader
        assert leader.replica.epoch == epoch
        assert leader.asked["VoteRequest"] == votes

    quorum.run(story())


def test_a_leader_without_links_gives_way() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        number = quorum.number_of(leader)
        others = [one for one in quorum.own if one != number]
        quorum.cut(number)
        uncommitted = leader.propose(b"uncommitted")
        successor = await quorum.leader(*others)
        offset = await commit(successor, b"committed")
        while leader.replica.is_leader:
            await quorum.elapse(0.1)
        assert leader.replica.high_watermark <= uncommitted
        quorum.mend(number)
        await leader.committed(offset)
        assert leader.values() == [b"committed"]

    quorum.run(story())


def ask_for_vote(candidate: int, epoch: int) -> VoteRequest:
    partition = VoteRequestPartition(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=candidate,
        replica_directory_id=uuid_of(candidate),
        last_offset=0,
    )
    topic = VoteRequestTopic(topic_name="__cluster_metadata", partitions=[partition])
    return VoteRequest(cluster_id=CLUSTER, voter_id=1, topics=[topic])


def test_a_vote_that_was_told_is_never_given_twice() -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        granted = []
        for candidate in (2, 3):
            node = await quorum.start(1)
            response = await node.handle(ask_for_vote(candidate, 5))
            granted.append(response.topics[0].partitions[0].vote_granted)
            quorum.machine(1).cut_power("lose_all")
        assert granted == [True, False]

    quorum.run(story())


def announce_leader(leader_id: int, epoch: int) -> BeginQuorumEpochRequest:
    partition = BeginQuorumEpochRequestPartition(
        partition_index=0, leader_id=leader_id, leader_epoch=epoch
    )
    topic = BeginQuorumEpochRequestTopic(topic_name="__cluster_metadata", partitions=[partition])
    return BeginQuorumEpochRequest(cluster_id=CLUSTER, voter_id=1, topics=[topic])


@pytest.mark.parametrize("ask", [ask_for_vote, announce_leader])
def test_a_request_with_the_last_epoch_does_not_end_the_elections(
    ask: Callable[[int, int], Message],
) -> None:
    quorum = Quorum(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        await commit(leader, b"before")
        for node in list(quorum.nodes.values()):
            response = await node.handle(ask(2, (1 << 31) - 1))
            assert response.topics[0].partitions[0].error_code == ErrorCode.INVALID_REQUEST
            assert node.replica.epoch < 1 << 20
        await commit(await quorum.leader(), b"after")

    quorum.run(story())


# -- voters ----------------------------------------------------------------------------------------


def format_dynamic(quorum: Quorum, *numbers: int) -> None:
    """Write the snapshot of offset 0 for these nodes; the others know bootstrap servers alone."""
    start = SnapshotStart(0, 1, quorum.voters)
    content = bytes(snapshot_bytes(SnapshotId(0, 0), start, []))
    for number in numbers:
        disk = quorum.machine(number).disk
        disk.make_directory("/meta/__cluster_metadata-0")
        disk.create_file(CHECKPOINT).write_at(0, content)
    quorum.voters = type(quorum.voters)()
    quorum.bootstrap = tuple(Address(f"n{one}", PORT) for one in quorum.own)


async def add_voter(leader: QuorumNode, quorum: Quorum, number: int) -> Any:
    request = AddRaftVoterRequest(
        cluster_id=CLUSTER,
        timeout_ms=10_000,
        voter_id=number,
        voter_directory_id=uuid_of(number),
        listeners=[AddListener(name="CONTROLLER", host=f"n{number}", port=PORT)],
    )
    return await leader.handle(request)


def test_a_fourth_voter_is_added_to_voters_of_the_log() -> None:
    quorum = Quorum(1, 2, 3)
    format_dynamic(quorum, 1, 2, 3)
    quorum.own[4] = voter(4, "n4", PORT, uuid_of(4))
    quorum.bootstrap = tuple(Address(f"n{one}", PORT) for one in quorum.own)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader(1, 2, 3)
        offset = await commit(leader, b"x")
        await quorum.nodes[4].committed(offset)
        response = await add_voter(leader, quorum, 4)
        assert response.error_code == ErrorCode.NONE, response.error_message
        assert [key.id for key in leader.replica.voters.keys] == [1, 2, 3, 4]
        offset = await commit(leader, b"y")
        await quorum.nodes[4].committed(offset)
        assert [key.id for key in quorum.nodes[4].replica.voters.keys] == [1, 2, 3, 4]
        quorum.kill(4)
        node = await quorum.start(4)
        await node.committed(offset)
        assert [key.id for key in node.replica.voters.keys] == [1, 2, 3, 4]

    quorum.run(story())


def test_a_broker_follows_and_is_no_voter() -> None:
    quorum = Quorum(1, 2, 3, observers=[100])
    quorum.bootstrap = tuple(Address(f"n{one}", PORT) for one in (1, 2, 3))

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader(1, 2, 3)
        observer = quorum.nodes[100]
        offset = await commit(leader, b"x")
        await observer.committed(offset)
        assert observer.values() == [b"x"]
        assert await observer.knows_leader() == quorum.number_of(leader)
        fetched = leader.replica.fetched()
        assert set(fetched) == {100, 1, 2, 3} - {quorum.number_of(leader)}
        while leader.replica.fetched()[100].high_watermark <= offset:
            await quorum.elapse(0.05)
        assert leader.replica.fetched()[100].offset == offset + 1
        assert not observer.replica.is_leader

    quorum.run(story())


def test_the_leader_describes_the_quorum() -> None:
    quorum = Quorum(1, 2, 3)
    partition = DescribeQuorumRequestPartition(partition_index=0)
    topic = DescribeQuorumRequestTopic(topic_name="__cluster_metadata", partitions=[partition])

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        for version in range(3):
            request = DescribeQuorumRequest(topics=[topic])
            response: Any = await leader.handle(request, version)
            (described,) = response.topics[0].partitions
            assert described.leader_id == quorum.number_of(leader)
            assert [one.replica_id for one in described.current_voters] == [1, 2, 3]
            assert bool(response.nodes) == (version >= 2)

    quorum.run(story())
