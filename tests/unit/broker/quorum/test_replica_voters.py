"""Voters of every kind: of the log, of the settings, of an embedded broker, of older releases."""

import pytest

from ottla.broker.metadata_store.embedded.metadata_log import MetadataLog
from ottla.metadata.record_frames import decode_record
from ottla.metadata.records import FeatureLevelRecord
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.raft.settings import QuorumSettings
from ottla.raft.snapshots import SnapshotId, SnapshotStart, snapshot_bytes
from ottla.raft.voters import VoterSet
from tests.metadata_building import uuid_of
from tests.quorum_nodes import QuorumNode, voter
from tests.unit.broker.quorum.simulated_quorum import PORT, Quorum, commit

CHECKPOINT = "/meta/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
ANOTHER_DISK = 70


def formatted(*ids: int, joining: int | None = None) -> Quorum:
    """Return nodes with the first voters in their folders, and a node that joins by itself."""
    quorum = Quorum(*ids)
    content = bytes(snapshot_bytes(SnapshotId(0, 0), SnapshotStart(0, 1, quorum.voters), []))
    for number in ids:
        disk = quorum.machine(number).disk
        disk.make_directory("/meta/__cluster_metadata-0")
        disk.create_file(CHECKPOINT).write_at(0, content)
    if joining is not None:
        quorum.own[joining] = voter(joining, f"n{joining}", PORT, uuid_of(joining))
    quorum.voters = VoterSet()
    quorum.bootstrap = tuple(Address(f"n{one}", PORT) for one in quorum.own)
    quorum.settings = QuorumSettings(has_auto_join=True)
    return quorum


async def has_voters(quorum: Quorum, node: QuorumNode, *ids: int) -> None:
    while [key.id for key in node.replica.voters.keys] != list(ids):
        await quorum.elapse(0.1)


def test_a_controller_joins_by_itself() -> None:
    quorum = formatted(1, 2, 3, joining=4)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader(1, 2, 3)
        await commit(leader, b"x")
        await has_voters(quorum, leader, 1, 2, 3, 4)
        offset = await commit(leader, b"y")
        await quorum.nodes[4].committed(offset)
        quorum.kill(quorum.number_of(leader))
        successor = await quorum.leader()
        assert successor.values() == [b"x", b"y"]

    quorum.run(story())


def test_a_voter_with_another_disk_takes_its_own_place_again() -> None:
    quorum = formatted(1, 2, 3)

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        await commit(leader, b"x")
        lost = next(one for one in quorum.own if quorum.nodes[one] is not leader)
        quorum.kill(lost)
        disk = quorum.machine(lost).disk
        for name in disk.list_directory("/meta/__cluster_metadata-0"):
            disk.remove(f"/meta/__cluster_metadata-0/{name}")
        quorum.own[lost] = voter(lost, f"n{lost}", PORT, uuid_of(ANOTHER_DISK))
        node = await quorum.start(lost)
        while quorum.own[lost].key not in leader.replica.voters.keys:
            await quorum.elapse(0.1)
        offset = await commit(leader, b"y")
        await node.committed(offset)
        assert node.values() == [b"x", b"y"]
        assert [key.id for key in node.replica.voters.keys] == [1, 2, 3]

    quorum.run(story())


def test_the_folder_of_an_embedded_broker_becomes_a_quorum_of_one_voter() -> None:
    quorum = Quorum(1)
    quorum.kraft_version = 1
    disk = quorum.machine(1).disk
    log = MetadataLog(disk, "/meta", 0)
    for level in range(3):
        log.append([FeatureLevelRecord(name="metadata.version", feature_level=level)], 0)
    log.flush(0)
    log.close(0)

    async def story() -> None:
        await quorum.start(1)
        node = await quorum.leader()
        assert node.replica.epoch == 1
        await commit(node, b"next")
        quorum.kill(1)
        # From now on the log has the voters.
        quorum.voters, quorum.kraft_version = VoterSet(), 0
        await quorum.start(1)
        node = await quorum.leader()
        *old, new = node.values()
        levels = [decode_record(value) for value in old]
        assert [one.feature_level for one in levels] == [0, 1, 2]  # type: ignore[union-attr]
        assert new == b"next"
        assert node.replica.voters.keys == (quorum.own[1].key,)

    quorum.run(story())


def test_voters_of_the_settings_have_no_directories() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.voters = VoterSet(
        tuple(voter(number, f"n{number}", PORT, bytes(16)) for number in quorum.own)
    )

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        offset = await commit(leader, b"x")
        quorum.kill(quorum.number_of(leader))
        successor = await quorum.leader()
        assert successor.replica.high_watermark > offset
        assert successor.values() == [b"x"]

    quorum.run(story())


def test_voters_of_the_settings_move_into_the_log() -> None:
    quorum = Quorum(1, 2, 3)
    own = quorum.voters
    quorum.voters = VoterSet(
        tuple(voter(number, f"n{number}", PORT, bytes(16)) for number in quorum.own)
    )

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        follower = quorum.others(leader)[0]
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            follower.upgrade_kraft_version(1)
        await quorum.elapse(5)  # The voters tell the leader their directory ids.
        with pytest.raises(ApiError, match="INVALID_UPDATE_VERSION"):
            leader.upgrade_kraft_version(2)
        offset = leader.upgrade_kraft_version(1)
        assert offset is not None
        await follower.committed(offset)
        assert follower.replica.kraft_version == 1
        assert follower.replica.voters == own
        assert leader.upgrade_kraft_version(1) is None

    quorum.run(story())


def test_voters_that_know_no_pre_vote_elect_a_leader() -> None:
    quorum = Quorum(1, 2, 3)
    quorum.vote_version_max = 1

    async def story() -> None:
        await quorum.start_all()
        leader = await quorum.leader()
        await commit(leader, b"x")
        quorum.kill(quorum.number_of(leader))
        successor = await quorum.leader()
        assert successor.values() == [b"x"]

    quorum.run(story())
