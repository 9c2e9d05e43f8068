"""What happens to a record before it is queued: interceptors, then serializers."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.clients.interceptors import Interceptors
from ottla.clients.producer.accumulator import OnDelivery
from ottla.clients.producer.record_metadata import RecordMetadata
from ottla.clients.producer.settings import ProducerSettings
from ottla.clients.serializers import bind_serializer

Headers = Sequence[tuple[str, bytes | None]]


class ProducerRecord(NamedTuple):
    """A record as the application gave it, which interceptors see and may replace."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: int | None = None
    headers: Headers = ()


class Preparation:
    """One producer's serializers and interceptors."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._interceptors = Interceptors(settings.interceptors)
        self._key_serializer = settings.key_serializer
        self._value_serializer = settings.value_serializer
        self.serialize_key = bind_serializer(settings.key_serializer, "key")
        self.serialize_value = bind_serializer(settings.value_serializer, "value")

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be done; if not, records are queued as they are."""
        intercepted = self._interceptors.on_send or self._interceptors.on_acknowledgement
        serializers = (self._key_serializer, self._value_serializer)
        return bool(intercepted) or serializers != (None, None)

    def prepare(self, record: ProducerRecord, on_delivery: OnDelivery | None) -> tuple[Any, ...]:
        """Return what `Accumulator.append` takes."""
        record = self._interceptors.sent(record)
        headers = record.headers
        value = self.serialize_value(record.topic, record.value, headers)
        key = self.serialize_key(record.topic, record.key, headers)
        if self._interceptors.on_acknowledgement:
            on_delivery = self._telling(on_delivery)
        return (record.topic, value, key, record.partition, record.timestamp, headers, on_delivery)

    def close(self) -> None:
        """Tell the interceptors."""
        self._interceptors.close()

    def _telling(self, on_delivery: OnDelivery | None) -> OnDelivery:
        def tell(error: BaseException | None, metadata: RecordMetadata | None) -> None:
            self._interceptors.acknowledged(metadata, error)
            if on_delivery is not None:
                on_delivery(error, metadata)

        return tell
