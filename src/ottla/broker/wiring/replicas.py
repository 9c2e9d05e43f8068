"""The APIs of replicas: leaders, reassignments and the metadata quorum."""

from ottla.broker.handlers import (
    alter_partition_reassignments,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
)
from ottla.broker.metadata_store.embedded.store import EmbeddedMetadataStore
from ottla.broker.requests.routes import Route
from ottla.broker.wiring.services import Services
from ottla.wire.api_key import ApiKey


def replica_routes(services: Services) -> dict[int, Route]:
    """Create the handlers of elections and moves, and of the quorum where there is one."""
    store = services.store
    elect = elect_leaders.ElectLeadersHandler(store)
    alter = alter_partition_reassignments.AlterPartitionReassignmentsHandler(store)
    listing = list_partition_reassignments.ListPartitionReassignmentsHandler(lambda: store.image)
    routes: dict[int, Route] = {
        ApiKey.ELECT_LEADERS: Route(elect_leaders.VERSIONS, elect.handle, is_for_controller=True),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: Route(
            alter_partition_reassignments.VERSIONS, alter.handle, is_for_controller=True
        ),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: Route(
            list_partition_reassignments.VERSIONS, listing.handle, is_for_controller=True
        ),
    }
    if isinstance(store, EmbeddedMetadataStore):  # in ZooKeeper the metadata has no quorum of ours
        quorum = describe_quorum.DescribeQuorumHandler(store, services.clock)
        routes[ApiKey.DESCRIBE_QUORUM] = Route(describe_quorum.VERSIONS, quorum.handle)
    return routes
