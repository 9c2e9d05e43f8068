"""Dead letters: records whose processing failed, written to a topic.

Each keeps the record's key, value, timestamp and headers, as bytes. Additional headers, named as in
Kafka Connect, hold its origin and the failure.
"""

import traceback
from typing import TYPE_CHECKING, Any, Final

from ottla.clients.consumer.workers.errors import message_of
from ottla.clients.consumer.workers.executors import Failure
from ottla.wire.records.consumer_record import ConsumerRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.clients.producer.async_producer import AsyncProducer

PREFIX: Final = "__connect.errors."
TEXT_BYTES_MAX: Final = 16 << 10
"""The limit of a message or traceback in a header; only the end of a longer text is kept."""
REQUEST_BYTES_MAX: Final = 1 << 30
"""The client sets no limit on the size of a record: the broker's limit applies."""
CLOSE_SECONDS_MAX: Final = 5.0


class DeadLetters:
    """Writes to one topic, and waits until all in-sync replicas have it."""

    def __init__(
        self, topic: str, group_id: str | None, handler: object, make: "Callable[[], AsyncProducer]"
    ) -> None:
        self.topic = topic
        self._group_id = group_id
        self._handler = handler
        self._make = make
        self._producer: AsyncProducer | None = None

    async def put(self, record: ConsumerRecord, failure: Failure) -> None:
        """Return once the record is delivered; raises the producer's error if that fails."""
        if self._producer is None:
            self._producer = self._make()
        added = error_headers(record, failure, self._group_id, _name_of(self._handler))
        delivery = await self._producer.send(
            self.topic,
            record.value,
            record.key,
            timestamp=record.timestamp if record.timestamp >= 0 else None,
            headers=[*record.headers, *added],
        )
        await delivery

    async def close(self) -> None:
        """Close the producer, if there is one."""
        if self._producer is not None:
            await self._producer.close(CLOSE_SECONDS_MAX)


def error_headers(
    record: ConsumerRecord, failure: Failure, group_id: str | None, handler: str
) -> list[tuple[str, bytes]]:
    """Return the headers of a failure; the group takes the place of Connect's connector."""
    error = failure.error
    trace = "".join(traceback.format_exception(error))
    said = {
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "connector.name": group_id,
        "stage": failure.stage.value,
        "class.name": handler,
        "exception.class.name": _name_of(type(error)),
        "exception.message": message_of(error),
        "exception.stacktrace": trace,
    }
    return [
        (PREFIX + name, text.encode("utf-8", "replace")[-TEXT_BYTES_MAX:])
        for name, text in said.items()
        if text is not None
    ]


def _name_of(named: Any) -> str:
    """Return the full name of a class or function, or of an object's class."""
    if not hasattr(named, "__qualname__"):
        named = type(named)
    module, name = named.__module__, named.__qualname__
    return name if module == "builtins" else f"{module}.{name}"
