"""Brokers' own requests to the controller, and their behaviour without a response."""

import asyncio

import pytest

from ottla.broker.controller.controller_client import ATTEMPT_MS
from ottla.machines.controller.producer_ids import PRODUCER_IDS_PER_BLOCK
from ottla.metadata.records import NO_LEADER
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.wire.messages.alter_partition import AlterPartitionRequest
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from ottla.wire.messages.envelope import EnvelopeRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from tests.metadata_building import new_topic
from tests.simulation.speaking_brokers import Speakers, tell
from tests.simulation.stores import in_sync_request


def leaders(speakers: Speakers, topic: str = "t") -> list[int]:
    return [one.leader for one in speakers.image(speakers.controller).topics[topic].partitions]


async def next_producer_id(speakers: Speakers, broker_id: int) -> int:
    answer = await speakers.ask(broker_id, 4, InitProducerIdRequest(transactional_id=None))
    assert answer.error_code == ErrorCode.NONE
    return int(answer.producer_id)


def test_brokers_give_out_producer_ids_of_blocks_of_their_own() -> None:
    async def story(speakers: Speakers) -> None:
        given = [await next_producer_id(speakers, one) for one in speakers.ids for _ in range(2)]
        assert len(set(given)) == 6
        assert {one // PRODUCER_IDS_PER_BLOCK for one in given} == {0, 1, 2}

    tell(story)


def test_producer_ids_are_not_given_twice_when_the_controller_dies_meanwhile() -> None:
    async def story(speakers: Speakers) -> None:
        survivors = speakers.others
        asking = [asyncio.ensure_future(next_producer_id(speakers, survivors[0]))]
        await speakers.world.elapse(0.0007)
        speakers.kill(speakers.controller)
        (first,) = await asyncio.gather(*asking)
        second = await next_producer_id(speakers, survivors[1])
        assert first // PRODUCER_IDS_PER_BLOCK != second // PRODUCER_IDS_PER_BLOCK

    tell(story)


def test_a_producer_that_no_controller_answers_is_told_to_come_again() -> None:
    async def story(speakers: Speakers) -> None:
        asked, controller = speakers.others[0], speakers.controller
        speakers.world.network.block(f"b{asked}", f"b{controller}")
        answer = await speakers.ask(asked, 4, InitProducerIdRequest(transactional_id=None))
        assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    tell(story)


def test_a_topic_that_is_merely_used_is_made_by_the_controller() -> None:
    async def story(speakers: Speakers) -> None:
        asked = speakers.others[0]
        making = speakers.by_id[asked].creation.create_automatically(["used"])
        assert await speakers.within(asked, making) == [ErrorCode.LEADER_NOT_AVAILABLE]
        await speakers.until(lambda: "used" in speakers.image(asked).topics, 1)
        wanted = [new_topic("__consumer_offsets", 5, 3)]
        (result,) = await speakers.within(asked, speakers.by_id[asked].creation.create(wanted))
        assert (result.error_code, result.num_partitions) == (ErrorCode.NONE, 5)

    tell(story)


def test_leaders_change_their_isr_at_the_controller_with_compare_and_set() -> None:
    async def story(speakers: Speakers) -> None:
        await speakers.create(0, "t", 6, 3)
        await speakers.until_settled()
        number = leaders(speakers).index(speakers.others[0])
        leader = speakers.others[0]
        alter = speakers.by_id[leader].cluster.controller.alter_partition
        request = in_sync_request(speakers.image(leader), "t", number, [leader])
        (topic,) = (await speakers.within(leader, alter(request))).topics
        assert topic.partitions[0].isr == [leader]
        await speakers.until_settled()
        assert speakers.image(leader).topics["t"].partitions[number].isr == (leader,)
        (topic,) = (await speakers.within(leader, alter(request))).topics
        assert topic.partitions[0].error_code == ErrorCode.INVALID_UPDATE_VERSION
        request.broker_epoch -= 1
        answer = await speakers.within(leader, alter(request))
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH

    tell(story)


def test_an_isr_is_asked_for_once_since_an_earlier_try_may_still_be_granted() -> None:
    async def story(speakers: Speakers) -> None:
        await speakers.create(0, "t", 6, 3)
        await speakers.until_settled()
        leader, controller = speakers.others[0], speakers.controller
        number = leaders(speakers).index(leader)
        channel = speakers.by_id[leader].cluster.controller
        request = in_sync_request(speakers.image(leader), "t", number, [leader])
        speakers.world.network.block(f"b{controller}", f"b{leader}")
        asking = asyncio.ensure_future(speakers.within(leader, channel.alter_partition(request)))
        done, _ = await asyncio.wait([asking], timeout=ATTEMPT_MS / 1000 + 1)
        assert done
        assert isinstance(asking.exception(), OSError)

    tell(story)


def test_a_broker_that_is_not_the_controller_says_so() -> None:
    async def story(speakers: Speakers) -> None:
        asked = speakers.others[0]
        for version, request in [
            (3, AlterPartitionRequest()),
            (0, AllocateProducerIdsRequest()),
            (1, BrokerHeartbeatRequest(want_shut_down=True)),
            (1, BrokerHeartbeatRequest()),
            (0, EnvelopeRequest()),
        ]:
            answer = await speakers.ask(asked, version, request)
            assert answer.error_code == ErrorCode.NOT_CONTROLLER, request

    tell(story)


@pytest.mark.parametrize("is_controller", [False, True])
def test_a_stopped_broker_leads_nothing_and_all_brokers_know(
    is_controller: bool,
) -> None:
    async def story(speakers: Speakers) -> None:
        await speakers.create(0, "t", 6, 3)
        await speakers.until_settled()
        stopping = speakers.controller if is_controller else speakers.others[0]
        cluster = speakers.by_id[stopping].cluster
        began = speakers.world.loop.time()
        await speakers.within(
            stopping, cluster.controller.shut_down(cluster.controlled_shutdown.grant)
        )
        assert speakers.world.loop.time() - began < 0.2
        for one in speakers.ids:
            if one == stopping and not is_controller:
                continue  # it may be the last to learn of it
            led_by = [part.leader for part in speakers.image(one).topics["t"].partitions]
            assert stopping not in led_by
            assert NO_LEADER not in led_by

    tell(story)


def test_a_stopping_broker_waits_for_brokers_with_old_metadata() -> None:
    async def story(speakers: Speakers) -> None:
        await speakers.create(0, "t", 6, 3)
        await speakers.until_settled()
        stopping, deaf = speakers.others
        cluster = speakers.by_id[stopping].cluster
        network = speakers.world.network
        network.block(f"b{speakers.controller}", f"b{deaf}")
        leaving = asyncio.ensure_future(
            speakers.within(
                stopping, cluster.controller.shut_down(cluster.controlled_shutdown.grant)
            )
        )
        await speakers.world.elapse(1)
        assert not leaving.done()
        network.unblock(f"b{speakers.controller}", f"b{deaf}")
        await leaving
        led_by = [part.leader for part in speakers.image(deaf).topics["t"].partitions]
        assert stopping not in led_by

    tell(story)


def test_an_earlier_life_of_a_broker_cannot_stop_the_present_one() -> None:
    async def story(speakers: Speakers) -> None:
        broker_id = speakers.others[0]
        epoch = speakers.by_id[broker_id].store.broker_epoch
        for wants in (False, True):
            request = BrokerHeartbeatRequest(
                broker_id=broker_id, broker_epoch=epoch - 1, want_shut_down=wants
            )
            answer = await speakers.ask(speakers.controller, 1, request)
            assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
            assert not speakers.image(speakers.controller).brokers[broker_id].is_shutting_down
        request = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
        answer = await speakers.ask(speakers.controller, 1, request)
        assert (answer.error_code, answer.is_fenced, answer.should_shut_down) == (0, False, False)

    tell(story)


def test_no_more_requests_wait_for_the_controller_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ottla.broker.controller.controller_connection.WAITING_MAX", 10)

    async def story(speakers: Speakers) -> None:
        asked, controller = speakers.others[0], speakers.controller
        speakers.world.network.block(f"b{asked}", f"b{controller}")
        ask = speakers.by_id[asked].cluster.controller.forward
        waiting = [
            asyncio.ensure_future(speakers.within(asked, ask(EnvelopeRequest()))) for _ in range(10)
        ]
        await speakers.world.elapse(1)
        with pytest.raises(ApiError, match="REQUEST_TIMED_OUT: 10 requests wait"):
            await speakers.within(asked, ask(EnvelopeRequest()))
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(one, ApiError) for one in outcomes)

    tell(story)


def test_a_closed_channel_fails_its_waiters() -> None:
    async def story(speakers: Speakers) -> None:
        asked, controller = speakers.others[0], speakers.controller
        speakers.world.network.block(f"b{asked}", f"b{controller}")
        cluster = speakers.by_id[asked].cluster
        asking = asyncio.ensure_future(
            speakers.within(asked, cluster.controller.allocate_producer_ids())
        )
        await speakers.world.elapse(1)
        assert not asking.done()
        began = speakers.world.loop.time()
        cluster.channel.close()
        with pytest.raises(ApiError, match="the broker stops"):
            await asking
        assert speakers.world.loop.time() == began

    tell(story)


def test_a_broker_that_is_not_the_controller_refuses_and_the_controller_is_asked() -> None:
    async def story(speakers: Speakers) -> None:
        asked, wrong = speakers.others
        source = speakers.by_id[asked].source
        source._follow(speakers.image(asked).brokers[wrong])  # until it pulls again
        assert await speakers.create(asked, "t") == ErrorCode.NONE
        assert source.controller == speakers.image(asked).brokers[speakers.controller]

    tell(story)
