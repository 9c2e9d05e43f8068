"""The controller's term: one holder at a time, and no two terms share an epoch."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ottla.broker.metadata_store.metadata_history import first_offset
from ottla.broker.metadata_store.zookeeper.controller_term import ControllerTerm, Office, win
from ottla.broker.metadata_store.zookeeper.registration import (
    agree_on_cluster_id,
    make_paths,
    register,
)
from ottla.broker.metadata_store.zookeeper.znodes import (
    CONTROLLER,
    CONTROLLER_EPOCH,
    LiveBroker,
    UnreadableZnodeError,
    config_data,
    config_path,
)
from ottla.environment.zookeeper import Create, Node, Watch
from ottla.machines.controller.settings import ControllerSettings
from ottla.metadata.image import EVERY_BROKER
from ottla.model.api_error import ApiError
from ottla.simulation.world.zookeeper_tree import ZooKeeperTree
from tests.metadata_building import CLUSTER_ID, FixedClock, new_broker, new_topic, uuid_of
from tests.unit.broker.metadata_store.direct_session import DirectSession


def tell(story: Callable[[ZooKeeperTree], Awaitable[None]]) -> None:
    async def told() -> None:
        tree = ZooKeeperTree()
        await make_paths(DirectSession(tree))
        await story(tree)

    asyncio.run(told())


async def term_of(session: DirectSession) -> ControllerTerm:
    office = await win(session, 1, 0)
    assert office is not None
    settings = ControllerSettings(broker_id=1)
    term = ControllerTerm(session, office, settings, FixedClock(), CLUSTER_ID)
    await term.begin()
    return term


async def create(term: ControllerTerm, name: str, number: int) -> None:
    await term.execute(
        lambda one: one.create_topics([new_topic(name)], topic_ids=[uuid_of(number)], start=0)
    )


def test_one_wins_and_the_other_does_not_until_the_first_is_gone() -> None:
    async def story(tree: ZooKeeperTree) -> None:
        first, second = DirectSession(tree), DirectSession(tree)
        assert await win(first, 1, 0) == Office(1, 1)
        assert await win(second, 2, 0) is None
        await first.close()
        assert await win(second, 2, 0) == Office(2, 2)
        assert tree.get(CONTROLLER_EPOCH).data == b"2"

    tell(story)


def test_who_has_the_office_begins_a_new_term_with_a_new_epoch() -> None:
    async def story(tree: ZooKeeperTree) -> None:
        session = DirectSession(tree)
        assert await win(session, 1, 0) == Office(1, 1)
        assert await win(session, 1, 0) == Office(2, 2)
        assert tree.get(CONTROLLER).stat.owner_session == session.session_id

    tell(story)


def test_no_epoch_is_had_twice_although_a_whole_term_passes_while_one_looks() -> None:
    class Slow(DirectSession):
        async def get(self, path: str, watch: Watch | None = None) -> Node:
            if path == CONTROLLER:
                other = DirectSession(self.tree)
                assert await win(other, 2, 0) == Office(2, 2)
                await other.close()
            return await super().get(path, watch)

    async def story(tree: ZooKeeperTree) -> None:
        first = DirectSession(tree)
        assert await win(first, 1, 0) == Office(1, 1)
        await first.close()
        assert await win(Slow(tree), 1, 0) is None
        assert tree.exists(CONTROLLER) is None

    tell(story)


def test_a_term_that_another_one_has_followed_commits_nothing() -> None:
    async def story(tree: ZooKeeperTree) -> None:
        session = DirectSession(tree)
        await register(session, LiveBroker(new_broker(1, uuid_of(9)), has_lost_tail=False), 0)
        old = await term_of(session)
        await create(old, "a", 1)
        new = await term_of(session)
        assert new.image.topics.keys() == {"a"}
        assert new.image.end_offset >= first_offset(new.epoch)
        zxid = tree.zxid
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            await create(old, "b", 2)
        assert (old.is_over, old.feed.is_closed, tree.zxid) == (True, True, zxid)
        await create(new, "b", 2)

    tell(story)


def test_cancelling_the_wait_does_not_take_a_decision_back() -> None:
    async def story(tree: ZooKeeperTree) -> None:
        session = DirectSession(tree)
        await register(session, LiveBroker(new_broker(1, uuid_of(9)), has_lost_tail=False), 0)
        term = await term_of(session)
        waiting = asyncio.ensure_future(create(term, "a", 1))
        await asyncio.sleep(0)
        waiting.cancel()
        await create(term, "b", 2)
        assert term.image.topics.keys() == {"a", "b"}

    tell(story)


@pytest.mark.parametrize("is_set_for_all", [False, True])
def test_brokers_that_count_on_another_number_in_sync_are_told_of_once(
    caplog: pytest.LogCaptureFixture, *, is_set_for_all: bool
) -> None:
    async def story(tree: ZooKeeperTree) -> None:
        session = DirectSession(tree)
        if is_set_for_all:
            data = config_data({"min.insync.replicas": "2"})
            await session.commit([Create(config_path(EVERY_BROKER), data)])
        for broker_id, min_insync_replicas in ((1, 1), (2, 2), (3, None)):
            broker = new_broker(broker_id, uuid_of(broker_id))
            await register(session, LiveBroker(broker, False, min_insync_replicas), 0)
        term = await term_of(session)
        await term.look_around()
        await term_of(session)

    tell(story)
    told = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert len(told) == (0 if is_set_for_all else 1)
    assert all("broker 2 has min.insync.replicas=2" in one for one in told)


def test_an_unreadable_znode_is_reported_with_its_path() -> None:
    async def story(tree: ZooKeeperTree) -> None:
        session = DirectSession(tree)
        await session.commit([Create("/brokers/topics/a", b"?")])
        with pytest.raises(UnreadableZnodeError, match="/brokers/topics/a"):
            await term_of(session)

    tell(story)


def test_the_first_proposal_is_the_clusters_id() -> None:
    async def story(tree: ZooKeeperTree) -> None:
        assert await agree_on_cluster_id(DirectSession(tree), "first") == "first"
        assert await agree_on_cluster_id(DirectSession(tree), "second") == "first"

    tell(story)


def test_a_broker_that_is_registered_by_this_session_is_not_registered_again() -> None:
    async def story(tree: ZooKeeperTree) -> None:
        session = DirectSession(tree)
        epochs = [
            await register(session, LiveBroker(new_broker(1, uuid_of(9)), has_lost_tail=False), 0)
            for _ in range(2)
        ]
        assert epochs[0] == epochs[1] == tree.get("/brokers/ids/1").stat.created_zxid

    tell(story)
