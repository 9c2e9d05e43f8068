"""The APIs that move records."""

from ottla.broker.handlers import fetch, init_producer_id, list_offsets, produce
from ottla.broker.producer_ids import ProducerIds
from ottla.broker.routes import Route
from ottla.broker.services import Services
from ottla.wire.api_key import ApiKey


def data_routes(services: Services) -> dict[int, Route]:
    """Make the handlers of records and their offsets."""
    partitions = services.partitions
    producer_ids = ProducerIds(services.store, services.config.node_id, services.broker_epoch)
    produce_ = produce.ProduceHandler(partitions, services.flushing, services.clock)
    fetch_ = fetch.FetchHandler(partitions, services.bells)
    offsets = list_offsets.ListOffsetsHandler(partitions)
    init = init_producer_id.InitProducerIdHandler(producer_ids)
    return {
        ApiKey.PRODUCE: Route(produce.VERSIONS, produce_.handle),
        ApiKey.FETCH: Route(fetch.VERSIONS, fetch_.handle),
        ApiKey.LIST_OFFSETS: Route(list_offsets.VERSIONS, offsets.handle),
        ApiKey.INIT_PRODUCER_ID: Route(init_producer_id.VERSIONS, init.handle),
    }
