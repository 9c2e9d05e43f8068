"""Without a writable metadata store, every resource gets an error."""

from ottla.broker.handlers.alter_configs import AlterConfigsHandler
from ottla.broker.handlers.incremental_alter_configs import IncrementalAlterConfigsHandler
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.simulation.world.disk import SimulatedDisk
from ottla.wire.messages import alter_configs, incremental_alter_configs
from tests.metadata_building import tell

CONTEXT = RequestContext("User:ANONYMOUS", None, "127.0.0.1", "PLAINTEXT", 1, 0)
NAMES = ("a", "b")


def test_a_store_that_stops_refuses_every_resource() -> None:
    replaced = alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(resource_type=32, resource_name=name)
            for name in NAMES
        ]
    )
    changed = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(resource_type=32, resource_name=name)
            for name in NAMES
        ]
    )

    async def alter(store: EmbeddedMetadataStore) -> None:
        await store.close()
        whole = await AlterConfigsHandler(store).handle(CONTEXT, replaced)
        single = await IncrementalAlterConfigsHandler(store, 0).handle(CONTEXT, changed)
        for answer in (whole, single):
            assert [(one.resource_name, one.error_code) for one in answer.responses] == [
                (name, ErrorCode.NOT_CONTROLLER) for name in NAMES
            ]

    tell(SimulatedDisk(), alter)
