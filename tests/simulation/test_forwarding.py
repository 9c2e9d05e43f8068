"""Every broker forwards requests that only the controller can execute."""

import logging

from ottla.broker.controller.controller_client import PATIENCE_MS
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import API_BY_KEY
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.wire.messages.unregister_broker import UnregisterBrokerRequest
from tests.simulation.speaking_brokers import Speakers, tell

TOPIC, LOGGER = 2, 8


def test_a_topic_is_made_by_whichever_broker_is_asked() -> None:
    async def story(speakers: Speakers) -> None:
        for broker_id in speakers.ids:
            assert await speakers.create(broker_id, f"t{broker_id}") == ErrorCode.NONE
            again = await speakers.create(broker_id, f"t{broker_id}")
            assert again == ErrorCode.TOPIC_ALREADY_EXISTS
        await speakers.until_settled()
        assert all(sorted(speakers.image(one).topics) == ["t0", "t1", "t2"] for one in (0, 1, 2))

    tell(story)


def test_topics_grow_and_go_by_whichever_broker_is_asked() -> None:
    async def story(speakers: Speakers) -> None:
        asked = speakers.others[0]
        await speakers.create(asked, "t")
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name="t", count=3, assignments=None)]
        )
        (grown,) = (await speakers.ask(asked, 3, more)).results
        assert grown.error_code == ErrorCode.NONE
        await speakers.until_settled()
        assert len(speakers.image(asked).topics["t"].partitions) == 3
        gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="t")])
        (deleted,) = (await speakers.ask(asked, 6, gone)).responses
        assert (deleted.name, deleted.error_code) == ("t", ErrorCode.NONE)
        await speakers.until_settled()
        assert not speakers.image(asked).topics

    tell(story)


def test_every_version_is_passed_on_and_answered_as_the_controller_does() -> None:
    async def story(speakers: Speakers) -> None:
        here = speakers.by_id[speakers.controller].here
        asked = 0
        for key, route in here.items():
            if not route.is_for_controller:
                continue
            for version in route.versions:
                request = API_BY_KEY[key].request()
                by_itself = await speakers.ask(speakers.controller, version, request)
                passed_on = await speakers.ask(speakers.others[0], version, request)
                assert passed_on == by_itself, (ApiKey(key).name, version)
                asked += 1
        assert asked >= 30

    tell(story)


def test_while_the_controller_is_dead_requests_wait_for_the_next_one() -> None:
    async def story(speakers: Speakers) -> None:
        survivor = speakers.others[0]
        speakers.kill(speakers.controller)
        began = speakers.world.loop.time()
        assert await speakers.create(survivor, "t") == ErrorCode.NONE
        assert speakers.world.loop.time() - began > 1, "there was no controller for a while"
        assert "t" in speakers.image(speakers.controller).topics

    tell(story)


def test_a_request_goes_to_the_next_controller_if_the_asked_one_stands_still() -> None:
    async def story(speakers: Speakers) -> None:
        paused = speakers.controller
        survivor = speakers.others[0]
        speakers.machine(paused).pause()
        assert await speakers.create(survivor, "t") == ErrorCode.NONE
        speakers.machine(paused).resume()
        await speakers.until_settled()
        assert "t" in speakers.image(paused).topics

    tell(story)


def test_without_a_controller_clients_are_told_so_before_they_lose_patience() -> None:
    async def story(speakers: Speakers) -> None:
        asked, controller = speakers.others[0], speakers.controller
        speakers.world.network.block(f"b{asked}", f"b{controller}")
        began = speakers.world.loop.time()
        assert await speakers.create(asked, "t") == ErrorCode.NOT_CONTROLLER
        assert PATIENCE_MS <= (speakers.world.loop.time() - began) * 1000 < 30_000
        # Errors that are visible in this broker's own image are returned all the same.
        moves = await speakers.ask(asked, 0, ListPartitionReassignmentsRequest(topics=None))
        assert moves.error_code == ErrorCode.NONE

    tell(story)


def test_the_levels_of_loggers_change_where_it_is_asked_and_all_else_at_the_controller() -> None:
    name = "ottla.broker.controller.request_forwarding"
    before = logging.getLogger(name).level

    async def story(speakers: Speakers) -> None:
        asked = speakers.others[0]
        await speakers.create(asked, "t")
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=kind,
                    resource_name=resource,
                    configs=[AlterableConfig(name=setting, value=value)],
                )
                for kind, resource, setting, value in [
                    (TOPIC, "t", "retention.ms", "1000"),
                    (LOGGER, str(asked), name, "ERROR"),
                    (TOPIC, "nowhere", "retention.ms", "1000"),
                ]
            ]
        )
        answers = (await speakers.ask(asked, 1, request)).responses
        assert [(one.resource_type, one.resource_name) for one in answers] == [
            (one.resource_type, one.resource_name) for one in request.resources
        ]
        codes = [one.error_code for one in answers]
        assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert logging.getLogger(name).level == logging.ERROR
        await speakers.until_settled()
        assert speakers.image(asked).topic_settings("t") == {"retention.ms": "1000"}

    try:
        tell(story)
    finally:
        logging.getLogger(name).setLevel(before)


def test_only_a_broker_that_is_gone_can_be_unregistered() -> None:
    async def story(speakers: Speakers) -> None:
        gone, asked = speakers.others
        request = UnregisterBrokerRequest(broker_id=gone)
        refused = await speakers.ask(asked, 0, request)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "stop it first" in refused.error_message
        speakers.kill(gone)
        await speakers.until(lambda: speakers.image(asked).brokers[gone].is_fenced)
        assert (await speakers.ask(asked, 0, request)).error_code == ErrorCode.NONE
        await speakers.until(lambda: gone not in speakers.image(asked).brokers)
        unknown = await speakers.ask(asked, 0, request)
        assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED

    tell(story)
