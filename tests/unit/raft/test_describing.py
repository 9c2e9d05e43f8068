"""DescribeQuorum in a simulated quorum of two voters and an observer."""

import pytest

from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import ZERO_UUID
from ottla.raft.messages import fit_response
from ottla.simulation.quorum.replica import Replica
from ottla.simulation.quorum.world import QuorumWorld
from ottla.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
    DescribeQuorumResponse,
    ReplicaState,
)
from ottla.wire.messages.vote import NodeEndpoint, VoteResponse
from ottla.wire.reading import decode
from ottla.wire.writing import encode
from tests.simulation.quorum_scenarios import led_world

WALL_OFFSET_MS = 1_000_000


def describe(world: QuorumWorld, replica: Replica, topic: str) -> DescribeQuorumResponse:
    replica.machine.core.wall_offset_ms = WALL_OFFSET_MS
    partition = DescribeQuorumRequestPartition(partition_index=0)
    wanted = DescribeQuorumRequestTopic(topic_name=topic, partitions=[partition])
    answer = world.admin_answers[world.ask(replica, DescribeQuorumRequest(topics=[wanted]))]
    assert isinstance(answer, DescribeQuorumResponse)
    return answer


def test_the_leader_describes_voters_and_observers() -> None:
    world, leader = led_world(2, 1)
    answer = describe(world, leader, "__cluster_metadata")
    (partition,) = answer.topics[0].partitions
    end_offset = leader.machine.core.outline.end_offset
    wall_ms = world.now_ms + WALL_OFFSET_MS
    assert (partition.leader_id, partition.leader_epoch) == (leader.number, leader.machine.epoch)
    assert partition.high_watermark == end_offset
    assert [one.replica_id for one in partition.current_voters] == [1, 2]
    assert [one.replica_id for one in partition.observers] == [3]
    for one in [*partition.current_voters, *partition.observers]:
        assert one.replica_directory_id == world.replicas[one.replica_id].disk.directory_id
        assert one.log_end_offset == end_offset
        if one.replica_id == leader.number:
            assert one.last_fetch_timestamp == one.last_caught_up_timestamp == wall_ms
        else:
            assert wall_ms - 600 < one.last_fetch_timestamp < wall_ms
            assert wall_ms - 600 < one.last_caught_up_timestamp < wall_ms
    assert [(one.node_id, one.listeners[0].host) for one in answer.nodes] == [(1, "1"), (2, "2")]


def test_a_replica_that_never_fetched_has_no_times() -> None:
    world, leader = led_world(3)
    dead = next(one for one in world.replicas.values() if one is not leader)
    dead.kill()
    leader.kill()
    leader.start()
    assert world.run(world.now_ms + 9000, until=lambda: world.leader is not None)
    assert world.leader is not None
    (partition,) = describe(world, world.leader, "__cluster_metadata").topics[0].partitions
    (absent,) = [one for one in partition.current_voters if one.replica_id == dead.number]
    assert absent == ReplicaState(
        replica_id=dead.number,
        replica_directory_id=dead.disk.directory_id,
        log_end_offset=-1,
        last_fetch_timestamp=-1,
        last_caught_up_timestamp=-1,
    )


def test_an_observer_that_is_gone_for_five_minutes_is_left_out() -> None:
    world, leader = led_world(1, 1)
    (observer,) = [one for one in world.replicas.values() if one is not leader]
    observer.kill()
    world.run(world.now_ms + 299_000)
    (partition,) = describe(world, leader, "__cluster_metadata").topics[0].partitions
    assert [one.replica_id for one in partition.observers] == [2]
    world.run(world.now_ms + 2000)
    (partition,) = describe(world, leader, "__cluster_metadata").topics[0].partitions
    assert not partition.observers


def test_a_follower_names_the_leader() -> None:
    world, leader = led_world(2)
    (follower,) = [one for one in world.replicas.values() if one is not leader]
    answer = describe(world, follower, "__cluster_metadata")
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (partition.leader_id, partition.leader_epoch) == (leader.number, leader.machine.epoch)
    assert [(one.node_id, one.listeners[0].port) for one in answer.nodes] == [
        (leader.number, leader.port)
    ]


def test_other_topics_have_no_quorum() -> None:
    world, leader = led_world(1)
    (partition,) = describe(world, leader, "letters").topics[0].partitions
    assert partition.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", range(3))
def test_a_description_fits_each_version(version: int) -> None:
    world, leader = led_world(2, 1)
    answer = describe(world, leader, "__cluster_metadata")
    fit_response(answer, version)
    read = decode(DescribeQuorumResponse, version, memoryview(encode(answer, version)))
    assert read == answer
    (partition,) = read.topics[0].partitions
    assert len(partition.current_voters) == 2
    has_keys = partition.current_voters[0].replica_directory_id != ZERO_UUID
    assert (has_keys, bool(read.nodes)) == (version >= 2, version >= 2)


def test_a_vote_of_version_0_has_no_endpoints() -> None:
    response = VoteResponse(node_endpoints=[NodeEndpoint(node_id=1, host="host", port=1)])
    fit_response(response, 0)
    assert encode(response, 0) == encode(VoteResponse(), 0)


def test_the_leader_knows_what_each_replica_has_fetched() -> None:
    world, leader = led_world(2, 1)
    end_offset = leader.machine.core.outline.end_offset
    others = {one.key for one in world.replicas.values() if one is not leader}
    assert set(leader.machine.progress) == others
    for progress in leader.machine.progress.values():
        assert progress.end_offset == progress.high_watermark == end_offset
        assert progress.fetched_at_ms is not None
        assert world.now_ms - 600 < progress.fetched_at_ms < world.now_ms
    (follower,) = [one for one in world.replicas.values() if one.key in others and one.number < 3]
    assert not follower.machine.progress
