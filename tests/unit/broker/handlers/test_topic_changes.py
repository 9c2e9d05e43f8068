"""Without a working controller, every topic gets an error."""

import pytest

from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.topic_creation import TopicCreation
from ottla.broker.handlers.create_partitions import CreatePartitionsHandler
from ottla.broker.handlers.create_topics import CreateTopicsHandler
from ottla.broker.handlers.delete_topics import DeleteTopicsHandler
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.wire.messages.create_topics import CreateTopicsRequest
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.metadata_building import CountingRandomness, FixedClock, new_topic, tell

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 7, 0)
NAMES = ("a", "b")


@pytest.mark.parametrize(
    ("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)]
)
def test_topics_stay_where_deleting_is_switched_off(version: int, code: ErrorCode) -> None:
    request = DeleteTopicsRequest(topic_names=list(NAMES))

    async def delete(store: EmbeddedMetadataStore) -> None:
        handler = DeleteTopicsHandler(store, is_enabled=False)
        answer = await handler.handle(CONTEXT._replace(api_version=version), request)
        assert [(one.name, one.error_code) for one in answer.responses] == [
            (name, code) for name in NAMES
        ]

    tell(SimulatedDisk(), delete)


def test_a_store_that_stops_refuses_every_topic() -> None:
    created = CreateTopicsRequest(topics=[new_topic(name) for name in NAMES])
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=2) for name in NAMES]
    )
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in NAMES])

    async def change(store: EmbeddedMetadataStore) -> None:
        await store.close()
        dice = CountingRandomness()
        controller = ActiveController(0, lambda: 0, store, FixedClock())
        creation = TopicCreation(store, dice, True, controller)
        made = await CreateTopicsHandler(creation).handle(CONTEXT, created)
        more = await CreatePartitionsHandler(store, dice).handle(CONTEXT, grown)
        gone = await DeleteTopicsHandler(store).handle(CONTEXT, deleted)
        for results in (made.topics, more.results, gone.responses):
            assert [(one.name, one.error_code) for one in results] == [
                (name, ErrorCode.NOT_CONTROLLER) for name in NAMES
            ]
        by_name = DeleteTopicsRequest(topic_names=list(NAMES))
        gone = await DeleteTopicsHandler(store).handle(CONTEXT._replace(api_version=5), by_name)
        assert [one.name for one in gone.responses] == list(NAMES)

    tell(SimulatedDisk(), change)
