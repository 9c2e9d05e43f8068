"""Records on their way to topics, through one producer for all requests."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import RETRIABLE, NoResponseError, UnreachableError
from ottla.clients.producer.async_producer import AsyncProducer
from ottla.clients.producer.state.errors import BufferFullError, DeliveryTimeoutError
from ottla.clients.producer.state.record_metadata import RecordMetadata
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.rest.rest_errors import RestError, from_client, partition_not_found, topic_not_found


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One record to send."""

    key: bytes | None = None
    value: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Producing:
    """Sends records. An invalid record fails alone."""

    def __init__(self, producer: AsyncProducer, view: ClusterView, *, creates_topics: bool) -> None:
        self._producer = producer
        self._view = view
        self._creates_topics = creates_topics

    async def partition_count(self, topic: str) -> int:
        """Return a topic's partitions, creating it if brokers may; RestError 40401 without it."""
        try:
            found = await self._view.topic(topic, allow_auto_creation=self._creates_topics)
        except ApiError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise topic_not_found(topic) from None
            raise
        return len(found.partitions)

    async def send(self, topic: str, partition_count: int, record: Outgoing) -> "Sending":
        """Queue a record; the result is awaited later, so that records share requests."""
        if record.partition is not None and not 0 <= record.partition < partition_count:
            return Sending(failure=partition_not_found(topic, record.partition))
        try:
            delivery = await self._producer.send(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp=record.timestamp_ms,
                headers=list(record.headers),
            )
        except (ApiError, ValueError, OSError) as error:
            return Sending(failure=error)
        return Sending(delivery)


class Sending:
    """A record that is queued, or has failed before."""

    def __init__(
        self, delivery: Awaitable[RecordMetadata] | None = None, *, failure: Exception | None = None
    ) -> None:
        self._delivery = delivery
        self._failure = failure

    async def result(self) -> RecordMetadata | Exception:
        """Return where the record is, or why it is nowhere."""
        if self._delivery is None:
            assert self._failure is not None
            return self._failure
        try:
            return await self._delivery
        except (ApiError, ValueError, OSError, RuntimeError) as error:
            return error


def is_retriable(error: Exception) -> bool:
    """Whether the same record may be accepted later."""
    if isinstance(error, ApiError):
        return error.code in RETRIABLE
    passing = (NoResponseError, UnreachableError, BufferFullError, DeliveryTimeoutError)
    return isinstance(error, passing)


def refusal(error: Exception) -> RestError:
    """Return the refusal for a record's failure."""
    return from_client(error) or RestError(50002, f"The record was not written: {error}")
