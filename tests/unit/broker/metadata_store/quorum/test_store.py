"""The store on a quorum: following, taking the office, deciding, and losing the office."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.metadata_store.quorum import proposed_log
from ottla.broker.metadata_store.quorum.store import QuorumMetadataStore
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    NoOpRecord,
    TopicRecord,
)
from ottla.metadata.replay import UnreplayableRecordError
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.raft.voters import VoterSet
from ottla.simulation.world.world import World
from ottla.wire.protocol_error import ProtocolError
from tests.metadata_building import settle, uuid_of
from tests.replica_twin import ReplicaTwin, open_quorum_store

LEVELS = [FeatureLevelRecord(name="metadata.version", feature_level=30)]
IDLE_MS = 500
OTHER = 2
Story = Callable[["Node"], Awaitable[None]]


class Node:
    """A store over a replica in memory, in virtual time."""

    def __init__(self, world: World, **snapshots: Any) -> None:
        self.world = world
        self.replica = ReplicaTwin()
        self.published: list[int] = []
        self.store = self.open(**snapshots)
        self.running = asyncio.ensure_future(self.store.run())

    def open(self, **snapshots: Any) -> QuorumMetadataStore:
        clock = self.world.machine("node").clock
        store = open_quorum_store(self.replica, clock, idle_ms=IDLE_MS, **snapshots)
        store.subscribe(lambda image, _: self.published.append(image.end_offset))
        return store

    async def lead(self, epoch: int = 1) -> None:
        """Win the election, and commit everything."""
        self.replica.lead(epoch)
        self.replica.commit()
        await settle()
        self.replica.commit()
        await settle()

    def topics(self) -> list[str]:
        return sorted(self.store.image.topics)

    async def begin_topic(self, number: int) -> "asyncio.Task[None]":
        """Have a topic decided on; the task ends when it is committed."""
        task = asyncio.ensure_future(self.store.execute(lambda _: topic(number)))
        await settle()
        return task

    def names_by_kind(self) -> list[str]:
        return [type(one).__name__.removesuffix("Record") for one in self.replica.records()]


def topic(number: int) -> Decision[MetadataRecord, None]:
    return Decision((TopicRecord(name=f"t{number}", topic_id=uuid_of(number)),), None)


def tell(story: Story, **snapshots: Any) -> None:
    world = World(0)

    async def told() -> None:
        node = Node(world, **snapshots)
        await settle()
        await story(node)
        assert not node.running.done(), node.running
        node.running.cancel()
        await asyncio.wait([node.running])
        await node.store.close()

    world.run(told())


async def code_of(task: "asyncio.Task[None]") -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        await task
    return caught.value.code


# -- following ------------------------------------------------------------------------------------


def test_a_follower_publishes_committed_records_only() -> None:
    async def story(node: Node) -> None:
        node.replica.lose(1, OTHER)
        node.replica.receive(*LEVELS)
        node.replica.receive(TopicRecord(name="t1", topic_id=uuid_of(1)))
        node.replica.commit(1)
        await settle()
        assert node.topics() == []
        node.replica.commit(2)
        await settle()
        assert node.topics() == ["t1"]
        assert node.published == [1, 2]

    tell(story)


def test_a_metadata_transaction_is_published_at_its_end() -> None:
    async def story(node: Node) -> None:
        node.replica.lose(1, OTHER)
        node.replica.receive(*LEVELS)
        node.replica.receive(BeginTransactionRecord(name="large"))
        node.replica.receive(TopicRecord(name="t1", topic_id=uuid_of(1)))
        node.replica.commit()
        await settle()
        assert node.topics() == []
        node.replica.receive(EndTransactionRecord())
        node.replica.commit()
        await settle()
        assert node.topics() == ["t1"]

    tell(story)


def test_a_loaded_snapshot_removes_everything_that_it_lacks() -> None:
    async def story(node: Node) -> None:
        node.replica.lose(1, OTHER)
        node.replica.receive(
            *LEVELS,
            TopicRecord(name="t1", topic_id=uuid_of(1)),
            ConfigRecord(resource_type=4, resource_name="", name="log.cleaner.threads", value="2"),
        )
        node.replica.commit()
        await settle()
        assert ConfigResource(ResourceType.BROKER, "") in node.store.image.configs
        node.replica.install(100, *LEVELS, TopicRecord(name="t2", topic_id=uuid_of(2)))
        await node.world.elapse(1)
        assert node.topics() == ["t2"]
        assert not node.store.image.configs
        assert node.store.image.end_offset == 100
        node.replica.receive(TopicRecord(name="t3", topic_id=uuid_of(3)))
        node.replica.commit()
        await settle()
        assert node.topics() == ["t2", "t3"]

    tell(story)


def test_a_node_is_caught_up_once_it_has_replayed_what_the_quorum_had_committed() -> None:
    async def story(node: Node) -> None:
        waiting = asyncio.ensure_future(node.store.wait_until_caught_up())
        node.replica.lose(1, OTHER)
        node.replica.receive(*LEVELS)
        await settle()
        assert not waiting.done()
        node.replica.commit()
        await settle()
        assert waiting.done()

    tell(story)


def test_a_log_that_this_release_does_not_understand_ends_the_process() -> None:
    world = World(0)

    async def told() -> None:
        node = Node(world)
        node.replica.lose(1, OTHER)
        node.replica.receive(*LEVELS, EndTransactionRecord())
        node.replica.commit()
        with pytest.raises(UnreplayableRecordError, match="no metadata transaction is open"):
            await node.running

    world.run(told())


# -- the office -----------------------------------------------------------------------------------


def test_a_leader_is_active_once_everything_before_its_epoch_is_committed_and_applied() -> None:
    async def story(node: Node) -> None:
        node.replica.lose(1, OTHER)
        node.replica.receive(*LEVELS)
        node.replica.receive(TopicRecord(name="t1", topic_id=uuid_of(1)))
        node.replica.commit(1)
        await settle()
        node.replica.lead(2)
        await settle()
        assert not node.store.is_active
        assert await code_of(await node.begin_topic(2)) == ErrorCode.NOT_CONTROLLER
        node.replica.commit()
        await settle()
        assert node.store.is_active
        assert node.topics() == ["t1"]

    tell(story)


def test_on_an_empty_log_the_first_records_are_a_metadata_transaction() -> None:
    async def story(node: Node) -> None:
        await node.lead()
        kinds = node.names_by_kind()
        assert (kinds[0], kinds[-1]) == ("BeginTransaction", "EndTransaction")
        assert "FeatureLevel" in kinds
        assert node.store.image.level_by_feature["metadata.version"] == 30
        node.replica.lose(2, OTHER)
        await node.lead(3)
        assert node.names_by_kind() == kinds, "they are written once"

    tell(story)


def test_a_new_leader_aborts_the_unfinished_transaction_of_its_predecessor() -> None:
    async def story(node: Node) -> None:
        node.replica.lose(1, OTHER)
        node.replica.receive(*LEVELS)
        node.replica.receive(BeginTransactionRecord(), TopicRecord(name="t1", topic_id=uuid_of(1)))
        await node.lead(2)
        assert isinstance(node.replica.records()[-1], AbortTransactionRecord)
        assert node.topics() == []
        task = await node.begin_topic(1)
        node.replica.commit()
        await task
        assert node.topics() == ["t1"]

    tell(story)


def test_a_decision_is_answered_and_published_when_it_is_committed() -> None:
    async def story(node: Node) -> None:
        await node.lead()
        first, second = await node.begin_topic(1), await node.begin_topic(2)
        assert not first.done()
        assert node.topics() == []
        node.replica.commit(node.replica.end_offset - 1)
        await settle()
        assert (first.done(), second.done()) == (True, False)
        assert node.topics() == ["t1"]
        node.replica.commit()
        await second
        assert node.topics() == ["t1", "t2"]

    tell(story)


def test_a_decision_sees_the_earlier_ones_that_are_not_committed_yet() -> None:
    async def story(node: Node) -> None:
        await node.lead()
        await node.begin_topic(1)
        seen: list[list[str]] = []

        def look(controller: Controller) -> Decision[MetadataRecord, None]:
            seen.append(sorted(controller.image.topics))
            return Decision((), None)

        looking = asyncio.ensure_future(node.store.execute(look))
        await settle()
        assert seen == [["t1"]]
        assert not looking.done(), "it has seen a topic that may not come to be"
        node.replica.commit()
        await looking

    tell(story)


def test_on_losing_the_office_the_uncommitted_is_dropped_and_its_callers_hear_it() -> None:
    async def story(node: Node) -> None:
        await node.lead()
        first, second = await node.begin_topic(1), await node.begin_topic(2)
        node.replica.commit(node.replica.end_offset - 1)
        node.replica.lose(2, OTHER)
        assert not node.store.is_active
        assert await code_of(second) == ErrorCode.NOT_CONTROLLER
        assert await code_of(await node.begin_topic(3)) == ErrorCode.NOT_CONTROLLER
        await asyncio.wait([first])
        first.exception()
        assert node.topics() == ["t1"]
        node.replica.truncate(node.replica.high_watermark)
        node.replica.receive(TopicRecord(name="t4", topic_id=uuid_of(4)))
        node.replica.commit()
        await settle()
        assert node.topics() == ["t1", "t4"]
        await node.lead(3)
        task = await node.begin_topic(2)
        node.replica.commit()
        await task
        assert node.topics() == ["t1", "t2", "t4"]

    tell(story)


def test_a_decision_whose_outcome_was_unknown_is_published_if_the_next_leader_has_it() -> None:
    async def story(node: Node) -> None:
        await node.lead()
        task = await node.begin_topic(1)
        node.replica.lose(2, OTHER)
        assert await code_of(task) == ErrorCode.NOT_CONTROLLER
        assert node.topics() == []
        node.replica.commit()
        await settle()
        assert node.topics() == ["t1"]

    tell(story)


def test_control_batches_of_the_replica_do_not_disturb_the_office() -> None:
    async def story(node: Node) -> None:
        await node.lead()
        node.replica.append_control(VoterSet().record())
        offsets: list[int] = []

        def decide(controller: Controller) -> Decision[MetadataRecord, None]:
            offsets.append(controller.image.end_offset)
            return topic(1)

        task = asyncio.ensure_future(node.store.execute(decide))
        await settle()
        assert offsets == [node.replica.end_offset - 1], "the offset of the first record"
        node.replica.commit()
        await task
        assert node.store.image.end_offset == node.replica.end_offset

    tell(story)


def test_an_idle_controller_writes_records_without_effect() -> None:
    async def story(node: Node) -> None:
        await node.lead()
        node.replica.commits_at_once = True
        before = len(node.replica.records())
        await node.world.elapse(10 * IDLE_MS / 1000)
        written = node.replica.records()[before:]
        assert all(isinstance(one, NoOpRecord) for one in written)
        assert 8 <= len(written) <= 10
        assert node.store.image.end_offset == node.replica.end_offset
        node.replica.lose(2, OTHER)
        await node.world.elapse(5)
        assert len(node.replica.records()) == before + len(written)

    tell(story)


def test_the_office_begins_again_after_a_decision_that_failed_halfway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(node: Node) -> None:
        await node.lead()
        monkeypatch.setattr(proposed_log, "RECORDS_PER_BATCH_MAX", 4)
        wrong = (*(topic(n).records[0] for n in range(1, 10)), EndTransactionRecord())
        with pytest.raises(UnreplayableRecordError):
            await node.store.execute(lambda _: Decision(wrong, None))
        await settle()
        assert node.store.is_active
        node.replica.commits_at_once = True
        await (await node.begin_topic(20))
        assert node.topics() == ["t20"]

    tell(story)


def test_first_records_that_cannot_be_read_end_the_process() -> None:
    world = World(0)

    def damaged() -> list[MetadataRecord]:
        raise ProtocolError("/meta/bootstrap.checkpoint cannot be read: it has no footer")

    async def told() -> None:
        node = Node(world, bootstrap=damaged)
        await node.lead()
        with pytest.raises(ProtocolError, match=r"bootstrap\.checkpoint cannot be read"):
            await node.running

    world.run(asyncio.wait_for(told(), 10))


# -- large decisions ------------------------------------------------------------------------------


def test_a_decision_beyond_a_batch_is_a_metadata_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(node: Node) -> None:
        await node.lead()
        monkeypatch.setattr(proposed_log, "RECORDS_PER_BATCH_MAX", 4)
        records = tuple(TopicRecord(name=f"t{n}", topic_id=uuid_of(n)) for n in range(1, 10))
        task = asyncio.ensure_future(node.store.execute(lambda _: Decision(records, None)))
        await settle()
        assert [one.record_count for one in node.replica.batches[-3:]] == [4, 4, 3]
        kinds = node.names_by_kind()[-11:]
        assert kinds == ["BeginTransaction", *["Topic"] * 9, "EndTransaction"]
        node.replica.commit(node.replica.end_offset - 3)
        await settle()
        assert node.topics() == []
        node.replica.commit()
        await task
        assert len(node.topics()) == 9

    tell(story)


def test_a_decision_that_no_node_could_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: Node) -> None:
        await node.lead()
        monkeypatch.setattr(proposed_log, "BATCH_BYTES_MAX", 200)
        monkeypatch.setattr(proposed_log, "DECISION_BYTES_MAX", 1000)
        end_offset = node.replica.end_offset
        records = tuple(TopicRecord(name=f"t{n}", topic_id=uuid_of(n)) for n in range(1, 100))
        task = asyncio.ensure_future(node.store.execute(lambda _: Decision(records, None)))
        assert await code_of(task) == ErrorCode.POLICY_VIOLATION
        assert node.replica.end_offset == end_offset
        task = await node.begin_topic(1)
        node.replica.commit()
        await task

    tell(story)


# -- snapshots ------------------------------------------------------------------------------------


def test_a_snapshot_is_written_after_many_bytes_and_another_node_begins_with_it() -> None:
    async def story(node: Node) -> None:
        await node.lead()
        node.replica.commits_at_once = True
        for number in range(1, 20):
            await (await node.begin_topic(number))
        assert node.replica.snapshot is None
        await node.world.elapse(1)
        assert node.replica.snapshot is not None
        snapshot_id, _ = node.replica.snapshot
        assert snapshot_id.end_offset >= node.replica.end_offset - 3

        fresh = ReplicaTwin(OTHER)
        fresh.snapshot = node.replica.snapshot
        fresh.start_offset = fresh.high_watermark = snapshot_id.end_offset  # type: ignore[assignment]
        node.replica = fresh
        second = node.open()
        running = asyncio.ensure_future(second.run())
        await node.world.elapse(1)
        assert second.image.topics == node.store.image.topics
        assert second.image.level_by_feature == node.store.image.level_by_feature
        running.cancel()
        await asyncio.wait([running])
        await second.close()

    tell(story, record_bytes_max=1000)


def test_a_snapshot_is_written_after_a_long_time_if_there_is_anything_new() -> None:
    async def story(node: Node) -> None:
        node.replica.lose(1, OTHER)
        node.replica.receive(*LEVELS)
        node.replica.commit()
        await node.world.elapse(9)
        assert node.replica.snapshot is None
        await node.world.elapse(3)
        assert node.replica.snapshot is not None
        first = node.replica.snapshot
        await node.world.elapse(30)
        assert node.replica.snapshot is first

    tell(story, interval_ms=10_000)
