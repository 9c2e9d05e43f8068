"""Metadata stores over ZooKeeper: one decides, all follow, and no acknowledged change is lost."""

import asyncio

import pytest

from ottla.broker.metadata_store.zookeeper.znodes import CONTROLLER, topic_path
from ottla.environment.zookeeper import Delete
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.zookeeper import MACHINE
from tests.simulation.store_stories import create, deletion, others, tell
from tests.simulation.stores import Stores, in_sync_request


def test_what_the_controller_decides_is_known_everywhere() -> None:
    async def story(stores: Stores) -> None:
        await create(stores, "t", partitions=3, replicas=3)
        await stores.until_settled()
        for store in stores.store_by_id.values():
            assert len(store.image.topics["t"].partitions) == 3

    tell(story)


def test_a_broker_that_is_not_the_controller_says_so() -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        for broker_id in others(stores, controller):
            with pytest.raises(ApiError, match="NOT_CONTROLLER"):
                await stores.execute(broker_id, lambda one: one.prefer_leaders())

    tell(story)


def test_another_one_takes_over_when_the_controller_dies_and_knows_what_it_decided() -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        await create(stores, "t", partitions=6, replicas=3)
        epoch = stores.store_by_id[controller].controller_epoch
        stores.kill(controller)
        await stores.until_settled()
        (successor,) = stores.controllers()
        store = stores.store_by_id[successor]
        assert store.controller_epoch == epoch + 1
        assert store.image.brokers[controller].is_fenced
        for partition in store.image.topics["t"].partitions:
            assert partition.leader in others(stores, controller)
            assert controller not in partition.isr

    tell(story)


def test_a_controller_that_was_paused_past_its_session_decides_nothing_any_more() -> None:
    async def story(stores: Stores) -> None:
        (zombie,) = stores.controllers()
        stores.machine(zombie).pause()
        await stores.until(lambda: len(stores.controllers()) == 2)
        await stores.world.elapse(1)
        late = asyncio.ensure_future(stores.execute(zombie, lambda one: one.prefer_leaders()))
        await stores.world.elapse(0.1)
        stores.machine(zombie).resume()
        with pytest.raises(ApiError) as refused:
            await late
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        await stores.until_settled()
        assert zombie not in stores.controllers()

    tell(story)


def test_a_decision_whose_answer_is_lost_is_in_the_next_term() -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        epoch = stores.store_by_id[controller].controller_epoch
        stores.world.network.block(MACHINE, f"b{controller}")
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            await create(stores, "t")
        stores.world.network.unblock(MACHINE, f"b{controller}")
        await stores.until_settled()
        store = stores.store_by_id[stores.controllers()[0]]
        assert store.controller_epoch > epoch
        assert "t" in store.image.topics

    tell(story)


def test_a_controller_in_doubt_goes_on_with_a_new_term_of_the_same_session() -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        broker_epoch = stores.store_by_id[controller].broker_epoch
        seen: list[str] = []
        for store in stores.store_by_id.values():
            store.subscribe(lambda image, _: seen.extend(image.topics))
        stores.world.network.block(f"b{controller}", MACHINE)
        with pytest.raises(ApiError, match="NOT_CONTROLLER"):
            await create(stores, "t")
        assert not seen  # changes that were not written were not published
        stores.world.network.unblock(f"b{controller}", MACHINE)
        await stores.until_settled()
        assert stores.controllers() == [controller]
        assert stores.store_by_id[controller].broker_epoch == broker_epoch
        await create(stores, "u")

    tell(story)


def test_a_topic_that_was_half_created_is_completed_and_one_half_deleted_goes() -> None:
    async def story(stores: Stores) -> None:
        (first,) = stores.controllers()
        tree = stores.zookeeper.tree
        creating = asyncio.ensure_future(create(stores, "t", partitions=1200, replicas=2))
        while tree.exists(topic_path("t")) is None:
            await stores.world.elapse(0.0001)
        stores.kill(first)
        states = sum(f"{topic_path('t')}/partitions/{n}/state" in tree._nodes for n in range(1200))
        assert states < 1200
        await stores.until_settled()
        creating.cancel()
        (second,) = stores.controllers()
        partitions = stores.store_by_id[second].image.topics["t"].partitions
        assert len(partitions) == 1200
        assert all(one.leader in others(stores, first) for one in partitions)

        store = stores.store_by_id[second]
        topic_id = store.image.topics["t"].topic_id
        deleting = asyncio.ensure_future(stores.execute(second, deletion(topic_id)))
        while tree.exists(f"{topic_path('t')}/partitions/0") is not None:
            await stores.world.elapse(0.0001)
        stores.kill(second)
        assert tree.exists(topic_path("t")) is not None
        stores.start(first)
        await stores.until_settled()
        deleting.cancel()
        assert "t" not in stores.store_by_id[stores.controllers()[0]].image.topics
        assert tree.exists(topic_path("t")) is None
        await create(stores, "t")

    tell(story)


def test_preferred_replicas_lead_again_after_a_while() -> None:
    async def story(stores: Stores) -> None:
        await create(stores, "t", partitions=6, replicas=3)
        (controller,) = stores.controllers()
        broker_id = others(stores, controller)[0]
        stores.kill(broker_id)
        await stores.until_settled()
        stores.start(broker_id)
        await stores.until_settled()
        store = stores.store_by_id[controller]
        assert broker_id not in {one.leader for one in store.image.topics["t"].partitions}
        for number in range(6):
            request = in_sync_request(store.image, "t", number, stores.ids)
            await stores.execute(controller, lambda one, told=request: one.alter_partition(told))

        def is_balanced() -> bool:
            return all(one.leader == one.replicas[0] for one in store.image.topics["t"].partitions)

        await stores.until(is_balanced, 120)

    tell(story, rebalance_seconds=60)


def test_a_removed_controller_node_begins_a_new_term() -> None:
    async def story(stores: Stores) -> None:
        (controller,) = stores.controllers()
        epoch = stores.store_by_id[controller].controller_epoch
        tree = stores.zookeeper.tree
        tree.commit(tree.open_session(), [Delete(CONTROLLER)])
        await stores.until(lambda: stores.store_by_id[0].controller_epoch > epoch)
        await stores.until_settled()

    tell(story)


def test_a_store_that_cannot_publish_says_so_and_ends() -> None:
    stores = Stores(1, 1)

    async def story() -> None:
        stores.start(0)
        await stores.until_settled()

        def fail(*_: object) -> None:
            raise OSError("no room")

        stores.store_by_id[0].subscribe(fail)
        with pytest.raises(ApiError, match="UNKNOWN_SERVER_ERROR"):
            await create(stores, "t")
        await stores.until(lambda: bool(stores.rules.broken))

    stores.run(story)
    assert "no room" in stores.rules.broken[0]
