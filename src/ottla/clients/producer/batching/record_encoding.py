"""Prepares records for the queue: interceptors, then serializers."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ottla.clients.producer.batching.accumulator import OnDelivery
from ottla.clients.producer.state.record_metadata import RecordMetadata
from ottla.clients.producer.state.settings import ProducerSettings
from ottla.clients.records.interceptors import Interceptors
from ottla.clients.records.serializers import bind_serializer, not_serialized

Headers = Sequence[tuple[str, bytes | None]]


class ProducerRecord(NamedTuple):
    """A record from the application, which interceptors may replace."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


def explained(error: Exception, value: Any, key: Any, headers: Any) -> Exception:
    """Return an error that names the faulty part of a record, else the given error."""
    for name, given in (("value", value), ("key", key)):
        if not _is_bytes_or_text(given):
            return TypeError(
                f"the {name} is of type {type(given).__name__}: bytes and text can be sent, and "
                f"an object that {name}.serializer converts to bytes"
            )
    try:
        is_fine = all(isinstance(name, str) and _is_bytes(given) for name, given in headers or ())
    except (TypeError, ValueError):
        is_fine = False
    if not is_fine:
        return TypeError(f"headers are a list of pairs, text and bytes, not {headers!r}")
    return error


def _is_bytes_or_text(given: Any) -> bool:
    return isinstance(given, str) or _is_bytes(given)


def _is_bytes(given: Any) -> bool:
    try:
        return given is None or bool(memoryview(given).itemsize)
    except TypeError:
        return False


async def resolve_schemas(topic: str, serializers: Iterable[Any]) -> None:
    """Find the schemas of a topic's keys and values; SerializationError if there is none."""
    for serializer in serializers:
        if not serializer.is_resolved(topic):
            try:
                await serializer.resolve(topic)
            except Exception as error:
                raise not_serialized(topic, serializer.part, serializer, error) from error


class RecordEncoding:
    """One producer's serializers and interceptors."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._interceptors = Interceptors(settings.interceptors)
        self._key_serializer = settings.key_serializer
        self._value_serializer = settings.value_serializer
        given = (settings.key_serializer, settings.value_serializer)
        self._schema_serializers = tuple(one for one in given if hasattr(one, "is_resolved"))
        self._adds_headers = any(one.adds_header for one in self._schema_serializers)
        self.serialize_key = bind_serializer(settings.key_serializer, "key")
        self.serialize_value = bind_serializer(settings.value_serializer, "value")

    @property
    def is_needed(self) -> bool:
        """Whether there are serializers or interceptors; otherwise records need no preparation."""
        intercepted = self._interceptors.on_send or self._interceptors.on_acknowledgement
        serializers = (self._key_serializer, self._value_serializer)
        return bool(intercepted) or serializers != (None, None)

    def prepare(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> tuple[Any, ...]:
        """Return the arguments of `Accumulator.append`; a new schema may ask the registry."""
        return self._encoded(self._interceptors.sent(record), on_delivery)

    async def prepare_in_loop(
        self, record: ProducerRecord, on_delivery: OnDelivery | None
    ) -> tuple[Any, ...]:
        """Do the same without blocking the event loop."""
        record = self._interceptors.sent(record)
        await resolve_schemas(record.topic, self._schema_serializers)
        return self._encoded(record, on_delivery)

    def _encoded(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> tuple[Any, ...]:
        headers = record.headers
        value = self.serialize_value(record.topic, record.value, headers)
        key = self.serialize_key(record.topic, record.key, headers)
        if self._adds_headers:
            headers = self._with_schema_ids(record)
        if self._interceptors.on_acknowledgement:
            on_delivery = self._telling(on_delivery)
        return (record.topic, value, key, record.partition, record.timestamp, headers, on_delivery)

    def _with_schema_ids(self, record: ProducerRecord) -> Headers:
        added = [
            one.header(record.topic)
            for one in self._schema_serializers
            if one.adds_header and getattr(record, one.part) is not None
        ]
        return [*(record.headers or ()), *added]

    def close(self) -> None:
        """Close the interceptors."""
        self._interceptors.close()

    def _telling(self, on_delivery: OnDelivery | None) -> OnDelivery:
        def tell(error: BaseException | None, metadata: RecordMetadata | None) -> None:
            self._interceptors.acknowledged(metadata, error)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return tell


def open_schemas(settings: ProducerSettings, *, is_async: bool) -> tuple[ProducerSettings, Any]:
    """Return the settings with serializers for `key` and `value`, and their registry client.

    The client is None without schemas; otherwise the producer closes it.
    """
    if settings.schemas is None:
        return settings, None
    from ottla.clients.schemas import client_schemas  # noqa: PLC0415 - imports the languages

    registry = client_schemas.registry_client(settings.schemas, is_async=is_async)
    return client_schemas.with_serializers(settings, settings.schemas, registry), registry
