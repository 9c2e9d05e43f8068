"""DescribeConfigs responses have a size limit."""

import pytest

from ottla.broker.handlers import describe_configs
from ottla.broker.handlers.describe_configs import DescribeConfigsHandler
from ottla.broker.hosting.live_config import LiveConfig
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.broker.requests.time_slices import TimeSlices
from ottla.model.settings.broker_config import BrokerConfig
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.metadata_building import FixedClock, tell

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 4, 0)


def test_more_settings_than_an_answer_can_have_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(describe_configs, "SETTINGS_MAX", 7)
    subscriptions = [
        DescribeConfigsResource(resource_type=16, resource_name=name, configuration_keys=None)
        for name in "abc"
    ]

    async def describe(store: EmbeddedMetadataStore) -> None:
        handler = DescribeConfigsHandler(
            store, LiveConfig(BrokerConfig()), TimeSlices(FixedClock())
        )
        answer = await handler.handle(CONTEXT, DescribeConfigsRequest(resources=subscriptions))
        assert [len(result.configs) for result in answer.results] == [3, 3, 0]
        assert answer.results[2].error_message == (
            "the answer is too large: ask for fewer resources at once"
        )

    tell(SimulatedDisk(), describe)


def test_an_empty_list_of_settings_stands_for_all_of_them() -> None:
    wanted = DescribeConfigsResource(resource_type=32, resource_name="g", configuration_keys=[])

    async def describe(store: EmbeddedMetadataStore) -> None:
        handler = DescribeConfigsHandler(
            store, LiveConfig(BrokerConfig()), TimeSlices(FixedClock())
        )
        answer = await handler.handle(CONTEXT, DescribeConfigsRequest(resources=[wanted]))
        assert len(answer.results[0].configs) == 11

    tell(SimulatedDisk(), describe)
