"""The ZooKeeper writes of decisions: complete, minimal, and consistent after each commit."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.metadata_store.zookeeper.registration import make_paths
from ottla.broker.metadata_store.zookeeper.znode_reads import Loaded, load
from ottla.broker.metadata_store.zookeeper.znode_writes import (
    BYTES_PER_COMMIT_MAX,
    NODE_BYTES_MAX,
    OPERATIONS_PER_COMMIT_MAX,
    commits_for,
    in_commits,
)
from ottla.broker.metadata_store.zookeeper.znodes import PERSISTENT_PATHS, state_path, topic_path
from ottla.environment.zookeeper import Create, Delete, Operation, Write
from ottla.machines.decision import Decision
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import ConfigRecord, MetadataRecord, RegisterBrokerRecord
from ottla.metadata.replay import replay
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.zookeeper_tree import ZooKeeperTree
from ottla.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from tests.metadata_building import CLUSTER_ID, broker_record, controller_of, new_topic, uuid_of
from tests.unit.broker.metadata_store.direct_session import DirectSession


class Keeper:
    """A controller that writes its decisions to a tree, and the contents of that tree."""

    def __init__(self) -> None:
        self.tree = ZooKeeperTree()
        self.session = DirectSession(self.tree)
        run(lambda: make_paths(self.session))
        self.controller = controller_of(ClusterImage(CLUSTER_ID))
        self.commits: list[list[Operation]] = []
        for broker_id in range(3):
            self.write(Decision((broker_record(broker_id),), None))

    def write(self, decision: Decision[MetadataRecord, Any], commits_max: int = 10**9) -> None:
        """Write a decision, or the first commits of it."""
        before = self.controller.image
        after = replay(before, decision.records, before.end_offset + len(decision.records))
        self.commits = commits_for(before, after, decision.records, 4)
        for commit in self.commits[:commits_max]:
            self.tree.commit(1, commit)
        self.controller.image = after

    def loaded(self) -> Loaded:
        return run(lambda: load(self.session))

    def reload(self) -> ClusterImage:
        """Return the image, without brokers, that a next term would load."""
        return replay(ClusterImage(CLUSTER_ID), self.loaded().records, 10**9)

    def check(self) -> None:
        image, found = self.controller.image, self.reload()
        assert found.topics == image.topics
        assert found.configs == image.configs
        assert found.next_producer_id == image.next_producer_id
        assert found.level_by_feature == image.level_by_feature

    def create(self, *topics: Any, commits_max: int = 10**9) -> None:
        ids = [uuid_of(int.from_bytes(topic.name.encode())) for topic in topics]
        decision = self.controller.create_topics(topics, topic_ids=ids, start=0)
        assert not any(one.error_code for one in decision.response)
        self.write(decision, commits_max)


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    async def told() -> Any:
        return await work()

    return asyncio.run(told())


def test_decisions_are_there_when_they_are_read_again() -> None:
    keeper = Keeper()
    keeper.write(keeper.controller.bootstrap())
    keeper.create(new_topic("a", 3, 3, retention_ms="5"), new_topic("b", 1, 2))
    keeper.check()
    wanted = [CreatePartitionsTopic(name="b", count=4)]
    keeper.write(keeper.controller.create_partitions(wanted, start=0))
    keeper.check()
    keeper.write(keeper.controller.fence_broker(1))
    keeper.check()
    keeper.write(keeper.controller.allocate_producer_ids(0, 0))
    keeper.write(keeper.controller.allocate_producer_ids(0, 0))
    keeper.check()
    keeper.write(keeper.controller.delete_topics([DeleteTopicState(name="a")]))
    keeper.check()
    keeper.create(new_topic("a", 1, 1))
    keeper.check()


def test_the_version_of_a_state_is_the_partition_epoch() -> None:
    keeper = Keeper()
    keeper.create(new_topic("a", 1, 3))
    for broker_id in (0, 1):
        keeper.write(keeper.controller.fence_broker(broker_id))
    partition = keeper.controller.image.topics["a"].partitions[0]
    assert partition.partition_epoch == 2
    assert keeper.tree.get(state_path("a", 0)).stat.version == 2


def test_a_new_topic_and_its_settings_come_together() -> None:
    keeper = Keeper()
    keeper.create(new_topic("a", 2000, 1, retention_ms="5"), commits_max=0)
    first = [operation.path for operation in keeper.commits[0]]
    assert {topic_path("a"), "/config/topics/a"} <= set(first)
    assert len(keeper.commits) > 1


def test_a_successor_finds_the_topic_creation_to_complete() -> None:
    keeper = Keeper()
    keeper.create(new_topic("a", 600, 2), commits_max=1)
    loaded = keeper.loaded()
    assert 0 < len(loaded.stateless) < 600
    topic, number = loaded.stateless[0]
    assert topic.partitions[number].isr == topic.partitions[number].replicas


@pytest.mark.parametrize("commits_max", [1, 2, 3, 4])
def test_a_successor_finds_the_topic_deletion_to_complete(
    commits_max: int,
) -> None:
    keeper = Keeper()
    keeper.create(new_topic("a", 600, 2, retention_ms="5"), new_topic("b"))
    empty = Keeper().tree
    keeper.write(
        keeper.controller.delete_topics([DeleteTopicState(name="a")]), commits_max=commits_max
    )
    assert len(keeper.commits) >= 3
    loaded = keeper.loaded()
    for path in loaded.rubbish:
        keeper.tree.commit(1, [Delete(path)])
    assert list(keeper.reload().topics) == ["b"]
    assert keeper.tree.exists("/config/topics/a") is None
    assert keeper.tree.children("/admin/delete_topics") == empty.children("/admin/delete_topics")


def test_replicas_and_isr_are_written_together() -> None:
    keeper = Keeper()
    keeper.create(new_topic("a", 700, 1))
    moves = [ReassignablePartition(partition_index=n, replicas=[0, 1]) for n in range(700)]
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name="a", partitions=moves)]
    )
    decision = keeper.controller.reassign_partitions(request)
    assert decision.records
    image = keeper.controller.image
    keeper.write(decision, commits_max=1)
    assert len(keeper.commits) > 1
    halfway = keeper.reload().topics["a"].partitions
    after = keeper.controller.image.topics["a"].partitions
    before = image.topics["a"].partitions
    assert all(one in {old, new} for one, old, new in zip(halfway, before, after, strict=True))
    assert halfway != before
    for commit in keeper.commits[1:]:
        keeper.tree.commit(1, commit)
    keeper.check()


def test_that_a_broker_is_handled_is_said_last() -> None:
    keeper = Keeper()
    keeper.create(new_topic("a", 1, 1), new_topic("b", 1, 1))
    keeper.write(keeper.controller.fence_broker(0))
    assert keeper.loaded().seen_epochs[0] == -1
    keeper.write(keeper.controller.unfence_broker(0))
    assert isinstance(keeper.commits[-1][-1], Write)
    assert keeper.commits[-1][-1].path.startswith("/ottla/seen")
    assert keeper.loaded().seen_epochs[0] == 0
    keeper.write(keeper.controller.unregister_broker(0))
    assert 0 not in keeper.loaded().seen_epochs


def test_who_is_trusted_without_being_known_is_told() -> None:
    keeper = Keeper()
    keeper.create(new_topic("a", 1, 3))
    for broker_id in range(3):
        keeper.tree.commit(1, [Delete(f"/ottla/seen_broker_epochs/{broker_id}")])
    assert keeper.loaded().unseen == [0, 1, 2]


def test_settings_of_nothing_are_to_be_removed() -> None:
    keeper = Keeper()
    keeper.create(new_topic("a"))
    keeper.tree.commit(
        1,
        [
            Create("/config/topics/gone", b'{"version":1,"config":{"retention.ms":"1"}}'),
            Create("/config/topics/a", b'{"version":1,"config":{}}'),
        ],
    )
    assert sorted(keeper.loaded().rubbish) == ["/config/topics/a", "/config/topics/gone"]


def test_commits_stay_below_the_limit_of_zookeeper() -> None:
    small: list[list[Operation]] = [[Create(f"/{number}")] for number in range(1200)]
    assert max(map(len, in_commits(small))) == OPERATIONS_PER_COMMIT_MAX
    assert sum(map(len, in_commits(small))) == 1200
    large: list[list[Operation]] = [[Create("/a", bytes(200_000)), Create("/b")]] * 5
    commits = list(in_commits(large))
    assert [len(commit) for commit in commits] == [4, 4, 2]
    for commit in commits:
        assert (
            sum(len(one.data) for one in commit if isinstance(one, Create)) < BYTES_PER_COMMIT_MAX
        )
    assert list(in_commits([[], []])) == []


def test_what_no_node_can_hold_is_refused_before_anything_is_written() -> None:
    keeper = Keeper()
    records = tuple(
        ConfigRecord(resource_type=32, resource_name="g", name=f"n{number}", value="v" * 30_000)
        for number in range(NODE_BYTES_MAX // 30_000 + 1)
    )
    with pytest.raises(ApiError) as refused:
        keeper.write(Decision(records, None))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
    assert keeper.tree.children("/config/groups") == []


def test_making_the_paths_again_changes_nothing() -> None:
    keeper = Keeper()
    zxid = keeper.tree.zxid
    run(lambda: make_paths(keeper.session))
    assert keeper.tree.zxid == zxid
    assert all(keeper.tree.exists(path) for path in PERSISTENT_PATHS)


def test_a_broker_that_registers_again_keeps_its_node() -> None:
    keeper = Keeper()
    again = RegisterBrokerRecord(broker_id=0, incarnation_id=uuid_of(1), broker_epoch=9)
    keeper.write(Decision((again,), None))
    assert keeper.commits == []
