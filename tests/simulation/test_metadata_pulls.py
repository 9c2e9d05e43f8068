"""Brokers pull the controller's decisions as soon as they are made, and from no other broker."""

import asyncio

import pytest

from ottla.broker.controller import metadata_log_client
from ottla.broker.controller.metadata_log_server import METADATA_TOPIC_ID
from ottla.broker.handlers import fetch_snapshot as snapshot_handler
from ottla.broker.metadata_store import metadata_history
from ottla.broker.metadata_store.metadata_history import Batches, Snapshot, image_of
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from ottla.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotRequestPartitionSnapshot,
    FetchSnapshotRequestTopicSnapshot,
    SnapshotId,
)
from ottla.wire.protocol_error import ProtocolError
from tests.simulation.speaking_brokers import Speakers, tell

NO_PRODUCER = 99


def fetch(replica_id: int, epoch: int, offset: int, **fields: int) -> FetchRequest:
    partition = FetchPartition(
        fetch_offset=offset, last_fetched_epoch=epoch, partition_max_bytes=1 << 20, **fields
    )
    return FetchRequest(
        replica_state=ReplicaState(replica_id=replica_id),
        max_wait_ms=500,
        topics=[FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )


def fetch_snapshot(
    replica_id: int, epoch: int, end_offset: int, position: int = 0, topic: str | None = None
) -> FetchSnapshotRequest:
    partition = FetchSnapshotRequestPartitionSnapshot(
        snapshot_id=SnapshotId(end_offset=end_offset, epoch=epoch), position=position
    )
    name = topic or "__cluster_metadata"
    topics = [FetchSnapshotRequestTopicSnapshot(name=name, partitions=[partition])]
    return FetchSnapshotRequest(replica_id=replica_id, topics=topics)


def test_a_decision_reaches_all_brokers_at_once() -> None:
    async def story(speakers: Speakers) -> None:
        await speakers.world.elapse(10)
        assert await speakers.create(speakers.controller, "t") == ErrorCode.NONE
        await speakers.until_settled()
        began = speakers.world.loop.time()
        assert await speakers.create(speakers.controller, "u") == ErrorCode.NONE
        await speakers.until(lambda: all("u" in speakers.image(one).topics for one in (0, 1, 2)))
        assert speakers.world.loop.time() - began < 0.1

    tell(story)


def test_idle_brokers_leave_nothing_behind_at_the_controller() -> None:
    async def story(speakers: Speakers) -> None:
        term = speakers.by_id[speakers.controller].store.term
        assert term is not None
        await speakers.world.elapse(300)
        assert len(term.feed._listeners) <= 1
        assert term.feed is speakers.by_id[speakers.controller].cluster.feed()

    tell(story)


def test_a_newcomer_takes_a_snapshot_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_handler, "PIECE_BYTES_MAX", 100)
    monkeypatch.setattr(metadata_history, "RECORDS_PER_BATCH_MAX", 7)

    async def story(speakers: Speakers) -> None:
        away = speakers.others[0]
        speakers.kill(away)
        await speakers.create(speakers.controller, "t", partitions=50)
        speakers.start(away)
        await speakers.until_settled()
        assert len(speakers.image(away).topics["t"].partitions) == 50
        assert speakers.image(away) == speakers.image(speakers.controller)

    tell(story)


def test_simultaneous_pulls_share_one_snapshot() -> None:
    async def story(speakers: Speakers) -> None:
        cluster = speakers.by_id[speakers.controller].cluster
        feed = cluster.feed()
        assert feed is not None
        of = cluster.snapshots.of
        asking = [speakers.within(speakers.controller, of(feed)) for _ in range(3)]
        first, *others = await asyncio.gather(*asking)
        assert all(one is first for one in others)
        await speakers.create(speakers.controller, "t")
        later = await speakers.within(speakers.controller, of(feed))
        assert later.end_offset == feed.end_offset > first.end_offset
        assert cluster.snapshots.find(first.epoch, first.end_offset) is first

    tell(story)


def test_a_broker_that_comes_back_is_not_told_of_earlier_times() -> None:
    async def story(speakers: Speakers) -> None:
        away = speakers.others[0]
        for name in ("t", "u"):
            await speakers.create(speakers.controller, name)
            await speakers.until_settled()
            speakers.kill(away)
            speakers.start(away)
            await speakers.until_settled()
            assert all(name in image.topics for image in speakers.by_id[away].images)

    tell(story)


def test_metadata_is_for_brokers_that_are_registered_and_of_the_controller() -> None:
    async def story(speakers: Speakers) -> None:
        controller, broker_id = speakers.controller, speakers.others[0]
        epoch = speakers.by_id[controller].store.controller_epoch
        offset = speakers.image(controller).end_offset

        async def code(asked: int, request: FetchRequest) -> ErrorCode:
            return ErrorCode((await speakers.ask(asked, 17, request)).error_code)

        right = fetch(broker_id, epoch, offset, current_leader_epoch=epoch)
        assert await code(controller, right) is ErrorCode.NONE
        assert await code(broker_id, right) is ErrorCode.NOT_CONTROLLER
        stranger = fetch(NO_PRODUCER, epoch, offset)
        assert await code(controller, stranger) is ErrorCode.BROKER_ID_NOT_REGISTERED
        consumer = fetch(-1, epoch, offset)
        assert await code(controller, consumer) is ErrorCode.BROKER_ID_NOT_REGISTERED
        earlier = fetch(broker_id, epoch, offset, current_leader_epoch=epoch - 1)
        assert await code(controller, earlier) is ErrorCode.FENCED_LEADER_EPOCH
        for later in (
            fetch(broker_id, epoch + 1, offset),
            fetch(broker_id, epoch, offset, current_leader_epoch=epoch + 1),
        ):
            assert await code(controller, later) is ErrorCode.UNKNOWN_LEADER_EPOCH
        other = fetch(broker_id, epoch, offset)
        other.topics[0].partitions[0].partition = 1
        assert await code(controller, other) is ErrorCode.INVALID_REQUEST

    tell(story)


def test_snapshots_are_for_brokers_and_only_those_that_are_kept() -> None:
    async def story(speakers: Speakers) -> None:
        controller, broker_id = speakers.controller, speakers.others[0]
        answer = await speakers.ask(controller, 17, fetch(broker_id, -1, 0))
        told = answer.responses[0].partitions[0].snapshot_id
        known = (told.epoch, told.end_offset)

        async def ask(request: FetchSnapshotRequest, asked: int = controller) -> list[int]:
            response = await speakers.ask(asked, 1, request)
            inner = [part.error_code for topic in response.topics for part in topic.partitions]
            return [response.error_code, *inner]

        assert await ask(fetch_snapshot(broker_id, *known)) == [0, 0]
        assert await ask(fetch_snapshot(broker_id, *known), broker_id) == [ErrorCode.NOT_CONTROLLER]
        stranger = fetch_snapshot(NO_PRODUCER, *known)
        assert await ask(stranger) == [ErrorCode.BROKER_ID_NOT_REGISTERED]
        foreign = fetch_snapshot(broker_id, *known)
        foreign.cluster_id = "another"
        assert await ask(foreign) == [ErrorCode.INCONSISTENT_CLUSTER_ID]
        unknown = fetch_snapshot(broker_id, told.epoch, told.end_offset + 1)
        assert await ask(unknown) == [0, ErrorCode.SNAPSHOT_NOT_FOUND]
        for position in (-1, 1 << 40):
            beyond = fetch_snapshot(broker_id, *known, position)
            assert await ask(beyond) == [0, ErrorCode.POSITION_OUT_OF_RANGE]
        data = fetch_snapshot(broker_id, *known, topic="t")
        assert await ask(data) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    tell(story)


def test_a_pull_returns_what_comes_next_or_everything() -> None:
    async def story(speakers: Speakers) -> None:
        controller, broker_id = speakers.controller, speakers.others[0]
        image = speakers.image(controller)
        source = metadata_log_client.ControllerMetadata(
            broker_id, lambda: 1, "PLAINTEXT", speakers.machine(broker_id).network
        )
        epoch = speakers.by_id[controller].store.controller_epoch
        pull = source.pull
        other = image.brokers[controller]
        everything = await speakers.within(broker_id, pull(other, -1, 0))
        assert isinstance(everything, Snapshot)
        assert image_of(image.cluster_id, everything) == image
        nothing = await speakers.within(broker_id, pull(other, epoch, image.end_offset))
        assert nothing == Batches(epoch, b"")
        assert source.endpoint == other.endpoints[0]
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            await speakers.within(broker_id, pull(image.brokers[broker_id], epoch, 0))
        source.close()
        assert source.endpoint is None

    tell(story)


def test_what_is_no_snapshot_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(speakers: Speakers) -> None:
        controller, broker_id = speakers.controller, speakers.others[0]
        source = metadata_log_client.ControllerMetadata(
            broker_id, lambda: 1, "PLAINTEXT", speakers.machine(broker_id).network
        )
        other = speakers.image(controller).brokers[controller]
        monkeypatch.setattr(metadata_log_client, "SNAPSHOT_BYTES_MAX", 10)
        with pytest.raises(ProtocolError, match="a snapshot of"):
            await speakers.within(broker_id, source.pull(other, -1, 0))
        monkeypatch.setattr(snapshot_handler, "PIECE_BYTES_MAX", 0)
        monkeypatch.setattr(metadata_log_client, "SNAPSHOT_BYTES_MAX", 1 << 20)
        with pytest.raises(ProtocolError, match="0 of them at 0, 0 are here"):
            await speakers.within(broker_id, source.pull(other, -1, 0))

    tell(story)


def test_waiters_for_a_term_are_told_its_end() -> None:
    async def story(speakers: Speakers) -> None:
        controller, broker_id = speakers.controller, speakers.others[0]
        epoch = speakers.by_id[controller].store.controller_epoch
        request = fetch(broker_id, epoch, speakers.image(controller).end_offset)
        request.max_wait_ms = 30_000
        waiting = asyncio.ensure_future(speakers.ask(controller, 17, request))
        await speakers.world.elapse(0.1)
        assert not waiting.done()
        term = speakers.by_id[controller].store.term
        assert term is not None
        term.end("for a test")
        assert (await waiting).error_code == ErrorCode.NOT_CONTROLLER

    tell(story)


def test_an_abandoned_pull_reports_no_controller() -> None:
    async def story(speakers: Speakers) -> None:
        controller, broker_id = speakers.controller, speakers.others[0]
        image = speakers.image(controller)
        epoch = speakers.by_id[controller].store.controller_epoch
        source = metadata_log_client.ControllerMetadata(
            broker_id, lambda: 1, "PLAINTEXT", speakers.machine(broker_id).network
        )
        told = []
        source.on_controller(lambda: told.append(source.controller))
        pulling = asyncio.ensure_future(
            speakers.within(
                broker_id, source.pull(image.brokers[controller], epoch, image.end_offset)
            )
        )
        await speakers.world.elapse(0.1)
        assert told == [image.brokers[controller]]
        pulling.cancel()
        await asyncio.wait([pulling])
        assert told == [image.brokers[controller], None]

    tell(story)
