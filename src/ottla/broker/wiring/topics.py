"""The APIs of topics and their partitions."""

from ottla.broker.controller.metadata_propagation import nobody
from ottla.broker.describing.metadata_response_cache import DescribedTopics
from ottla.broker.handlers import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_topic_partitions,
    metadata,
)
from ottla.broker.requests.routes import Route
from ottla.broker.wiring.services import Services
from ottla.wire.api_key import ApiKey


def topic_routes(services: Services) -> dict[int, Route]:
    """Create the handlers that create, grow, delete and describe topics."""
    store = services.store
    metadata_ = metadata.MetadataHandler(
        services.view,
        services.creation,
        services.coordinator.open,
        DescribedTopics(services.view),
        services.slices,
    )
    spread = nobody if services.cluster is None else services.cluster.spread
    create = create_topics.CreateTopicsHandler(services.creation, spread)
    delete = delete_topics.DeleteTopicsHandler(store, services.config.delete_topic_enable, spread)
    partitions = create_partitions.CreatePartitionsHandler(store, services.randomness, spread)
    describe = describe_topic_partitions.DescribeTopicPartitionsHandler(
        services.view, services.slices
    )
    return {
        ApiKey.METADATA: Route(metadata.VERSIONS, metadata_.handle),
        ApiKey.CREATE_TOPICS: Route(create_topics.VERSIONS, create.handle, is_for_controller=True),
        ApiKey.DELETE_TOPICS: Route(delete_topics.VERSIONS, delete.handle, is_for_controller=True),
        ApiKey.CREATE_PARTITIONS: Route(
            create_partitions.VERSIONS, partitions.handle, is_for_controller=True
        ),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: Route(
            describe_topic_partitions.VERSIONS, describe.handle
        ),
    }
