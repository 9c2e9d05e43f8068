"""The APIs of transactions."""

from ottla.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
)
from ottla.broker.requests.routes import Route
from ottla.broker.wiring.services import Services
from ottla.wire.api_key import ApiKey


def transaction_routes(services: Services) -> dict[int, Route]:
    """Create the handlers of transactions and their producers."""
    coordinator = services.transactions.coordinator
    init = init_producer_id.InitProducerIdHandler(services.transactions.producer_ids, coordinator)
    add = add_partitions_to_txn.AddPartitionsToTxnHandler(coordinator, services.store)
    offsets = add_offsets_to_txn.AddOffsetsToTxnHandler(coordinator, services.coordinator)
    end = end_txn.EndTxnHandler(coordinator)
    describe = describe_transactions.DescribeTransactionsHandler(coordinator)
    list_ = list_transactions.ListTransactionsHandler(coordinator)
    return {
        ApiKey.INIT_PRODUCER_ID: Route(init_producer_id.VERSIONS, init.handle),
        ApiKey.ADD_PARTITIONS_TO_TXN: Route(add_partitions_to_txn.VERSIONS, add.handle),
        ApiKey.ADD_OFFSETS_TO_TXN: Route(add_offsets_to_txn.VERSIONS, offsets.handle),
        ApiKey.END_TXN: Route(end_txn.VERSIONS, end.handle),
        ApiKey.DESCRIBE_TRANSACTIONS: Route(describe_transactions.VERSIONS, describe.handle),
        ApiKey.LIST_TRANSACTIONS: Route(list_transactions.VERSIONS, list_.handle),
    }
