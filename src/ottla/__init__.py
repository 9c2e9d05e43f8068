"""Ottla: an event-streaming platform that speaks the Kafka protocol.

The synchronous clients, and the types of their arguments, results and errors; `ottla.aio` has the
clients for asyncio. Each name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ottla.clients.admin.admin import Admin
    from ottla.clients.admin.admin_configs import Append, ConfigResource, Subtract
    from ottla.clients.admin.admin_groups import CommittedOffset
    from ottla.clients.admin.admin_offsets import OffsetSpec
    from ottla.clients.admin.admin_partitions import ElectionType
    from ottla.clients.admin.admin_transactions import TransactionFilter, TransactionStatus
    from ottla.clients.admin.per_item_results import ItemsFailedError
    from ottla.clients.config.setting_table import InvalidClientSettingError
    from ottla.clients.consumer.consumer import Consumer
    from ottla.clients.consumer.core.sync_calls import OffsetAndTimestamp
    from ottla.clients.consumer.group.group_errors import (
        CommitFailedError,
        FencedInstanceIdError,
        RebalanceInProgressError,
    )
    from ottla.clients.consumer.state.errors import (
        ConsumerError,
        CorruptRecordError,
        DeserializationError,
        LogTruncationError,
        NoOffsetForPartitionError,
        OffsetOutOfRangeError,
        WakeupError,
    )
    from ottla.clients.consumer.state.offsets import OffsetAndMetadata
    from ottla.clients.consumer.workers.errors import HandlerError, StuckHandlerError
    from ottla.clients.errors import (
        ClientClosedError,
        ForkedClientError,
        NoResponseError,
        UnreachableError,
    )
    from ottla.clients.producer.batching.record_encoding import ProducerRecord
    from ottla.clients.producer.bulk.bulk_delivery import BulkDeliveryError
    from ottla.clients.producer.producer import Producer
    from ottla.clients.producer.state.errors import (
        BufferFullError,
        DeliveryTimeoutError,
        ProducerClosedError,
        RecordNotSentError,
        RecordTooLargeError,
    )
    from ottla.clients.producer.state.record_metadata import RecordMetadata
    from ottla.clients.producer.transactions.transaction_errors import (
        FatalTransactionError,
        ProducerFencedError,
        TransactionAbortableError,
        TransactionAbortedError,
        TransactionStateError,
    )
    from ottla.clients.producer.transactions.transaction_state import PreparedTxnState
    from ottla.clients.records.serializers import SerializationError
    from ottla.clients.schemas.registry_calls import RegistryError, RegistryUnreachableError
    from ottla.clients.schemas.registry_client import RegistryClient
    from ottla.clients.schemas.serializers import SchemaDeserializer, SchemaSerializer
    from ottla.clients.tables.errors import DataLossError, SourceReadError
    from ottla.clients.tables.scan import scan
    from ottla.model.api_error import ApiError
    from ottla.model.error_code import ErrorCode
    from ottla.model.identifiers import TopicPartition
    from ottla.schemas.classes.class_types import Bits, FieldNumber, Precision
    from ottla.schemas.classes.declaration import schema
    from ottla.schemas.parsed_schema import InvalidSchemaError
    from ottla.schemas.schema import Schema, SchemaReference, SchemaType
    from ottla.wire.records.consumer_record import ConsumerRecord

__all__ = [
    "Admin",
    "ApiError",
    "Append",
    "Bits",
    "BufferFullError",
    "BulkDeliveryError",
    "ClientClosedError",
    "CommitFailedError",
    "CommittedOffset",
    "ConfigResource",
    "Consumer",
    "ConsumerError",
    "ConsumerRecord",
    "CorruptRecordError",
    "DataLossError",
    "DeliveryTimeoutError",
    "DeserializationError",
    "ElectionType",
    "ErrorCode",
    "FatalTransactionError",
    "FencedInstanceIdError",
    "FieldNumber",
    "ForkedClientError",
    "HandlerError",
    "InvalidClientSettingError",
    "InvalidSchemaError",
    "ItemsFailedError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "NoResponseError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRangeError",
    "OffsetSpec",
    "Precision",
    "PreparedTxnState",
    "Producer",
    "ProducerClosedError",
    "ProducerFencedError",
    "ProducerRecord",
    "RebalanceInProgressError",
    "RecordMetadata",
    "RecordNotSentError",
    "RecordTooLargeError",
    "RegistryClient",
    "RegistryError",
    "RegistryUnreachableError",
    "Schema",
    "SchemaDeserializer",
    "SchemaReference",
    "SchemaSerializer",
    "SchemaType",
    "SerializationError",
    "SourceReadError",
    "StuckHandlerError",
    "Subtract",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionFilter",
    "TransactionStateError",
    "TransactionStatus",
    "UnreachableError",
    "WakeupError",
    "scan",
    "schema",
]

_MODULE_BY_NAME: Final = {
    "Admin": "ottla.clients.admin.admin",
    "ApiError": "ottla.model.api_error",
    "Append": "ottla.clients.admin.admin_configs",
    "Bits": "ottla.schemas.classes.class_types",
    "BufferFullError": "ottla.clients.producer.state.errors",
    "BulkDeliveryError": "ottla.clients.producer.bulk.bulk_delivery",
    "ClientClosedError": "ottla.clients.errors",
    "CommitFailedError": "ottla.clients.consumer.group.group_errors",
    "CommittedOffset": "ottla.clients.admin.admin_groups",
    "ConfigResource": "ottla.clients.admin.admin_configs",
    "Consumer": "ottla.clients.consumer.consumer",
    "ConsumerError": "ottla.clients.consumer.state.errors",
    "ConsumerRecord": "ottla.wire.records.consumer_record",
    "CorruptRecordError": "ottla.clients.consumer.state.errors",
    "DataLossError": "ottla.clients.tables.errors",
    "DeliveryTimeoutError": "ottla.clients.producer.state.errors",
    "DeserializationError": "ottla.clients.consumer.state.errors",
    "ElectionType": "ottla.clients.admin.admin_partitions",
    "ErrorCode": "ottla.model.error_code",
    "FatalTransactionError": "ottla.clients.producer.transactions.transaction_errors",
    "FencedInstanceIdError": "ottla.clients.consumer.group.group_errors",
    "FieldNumber": "ottla.schemas.classes.class_types",
    "ForkedClientError": "ottla.clients.errors",
    "HandlerError": "ottla.clients.consumer.workers.errors",
    "InvalidClientSettingError": "ottla.clients.config.setting_table",
    "InvalidSchemaError": "ottla.schemas.parsed_schema",
    "ItemsFailedError": "ottla.clients.admin.per_item_results",
    "LogTruncationError": "ottla.clients.consumer.state.errors",
    "NoOffsetForPartitionError": "ottla.clients.consumer.state.errors",
    "NoResponseError": "ottla.clients.errors",
    "OffsetAndMetadata": "ottla.clients.consumer.state.offsets",
    "OffsetAndTimestamp": "ottla.clients.consumer.core.sync_calls",
    "OffsetOutOfRangeError": "ottla.clients.consumer.state.errors",
    "OffsetSpec": "ottla.clients.admin.admin_offsets",
    "Precision": "ottla.schemas.classes.class_types",
    "PreparedTxnState": "ottla.clients.producer.transactions.transaction_state",
    "Producer": "ottla.clients.producer.producer",
    "ProducerClosedError": "ottla.clients.producer.state.errors",
    "ProducerFencedError": "ottla.clients.producer.transactions.transaction_errors",
    "ProducerRecord": "ottla.clients.producer.batching.record_encoding",
    "RebalanceInProgressError": "ottla.clients.consumer.group.group_errors",
    "RecordMetadata": "ottla.clients.producer.state.record_metadata",
    "RecordNotSentError": "ottla.clients.producer.state.errors",
    "RecordTooLargeError": "ottla.clients.producer.state.errors",
    "RegistryClient": "ottla.clients.schemas.registry_client",
    "RegistryError": "ottla.clients.schemas.registry_calls",
    "RegistryUnreachableError": "ottla.clients.schemas.registry_calls",
    "Schema": "ottla.schemas.schema",
    "SchemaDeserializer": "ottla.clients.schemas.serializers",
    "SchemaReference": "ottla.schemas.schema",
    "SchemaSerializer": "ottla.clients.schemas.serializers",
    "SchemaType": "ottla.schemas.schema",
    "SerializationError": "ottla.clients.records.serializers",
    "SourceReadError": "ottla.clients.tables.errors",
    "StuckHandlerError": "ottla.clients.consumer.workers.errors",
    "Subtract": "ottla.clients.admin.admin_configs",
    "TopicPartition": "ottla.model.identifiers",
    "TransactionAbortableError": "ottla.clients.producer.transactions.transaction_errors",
    "TransactionAbortedError": "ottla.clients.producer.transactions.transaction_errors",
    "TransactionFilter": "ottla.clients.admin.admin_transactions",
    "TransactionStateError": "ottla.clients.producer.transactions.transaction_errors",
    "TransactionStatus": "ottla.clients.admin.admin_transactions",
    "UnreachableError": "ottla.clients.errors",
    "WakeupError": "ottla.clients.consumer.state.errors",
    "schema": "ottla.schemas.classes.declaration",
    "scan": "ottla.clients.tables.scan",
}


_NOT_OFFERED: Final = frozenset({"Any", "Final", "TYPE_CHECKING", "import_module"})
"""Names that this module imports for its own use."""


def __getattr__(name: str) -> Any:
    if name == "__version__":  # importlib.metadata is slow to import: not at every start
        return import_module("importlib.metadata").version("ottla")
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULE_BY_NAME[name]), name)


def __dir__() -> list[str]:
    """List the names that are offered, loaded or not, and the submodules that are loaded."""
    here = {name for name in globals() if name.startswith("__") or not name.startswith("_")}
    return sorted((here - _NOT_OFFERED) | {*__all__, "__version__"})
