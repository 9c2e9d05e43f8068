"""Serializers of values with a schema, against confluent_kafka's with its API of dicts.

Both use the registry of one broker; the schema is registered and known before the first round.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

import ottla
from benchmarks.comparison import MILLION_RECORDS, Case, Peer
from ottla import RegistryClient, SchemaDeserializer, SchemaSerializer
from ottla.clients.schemas.typed_values import TypedValues
from ottla.schemas.classes.declaration import schema_of_class
from ottla.testing import Broker

TITLE = "Serializers of values with a schema, beside confluent_kafka's"
VALUES = 1_000
ROWS = 100_000
TOPIC = "orders"
NOW = datetime(2026, 5, 1, 12, 30, 1, 123456, tzinfo=UTC)


class Order(msgspec.Struct):
    """Six fields."""

    id: int
    customer: str
    amount: float
    is_paid: bool
    at: datetime
    note: str | None = None


@ottla.schema(format="json")
class Letter(msgspec.Struct):
    """Six fields without a time: Confluent's serializer writes none as JSON."""

    id: int
    customer: str
    amount: float
    is_paid: bool
    city: str
    note: str | None = None


def cases() -> Iterator[Case]:
    """Yield both directions of Avro and JSON, and typed columns."""
    with ExitStack() as stack:
        url = stack.enter_context(Broker()).registry_url
        ours = stack.enter_context(RegistryClient(url=url))
        theirs = stack.enter_context(SchemaRegistryClient({"url": url}))
        order = Order(12_345, "Milena", 12.5, True, NOW, "soon")
        letter = Letter(12_345, "Milena", 12.5, True, "Wien", "soon")
        write = AvroSerializer(theirs, schema_of_class(Order).text)
        yield _case("Avro", ours, order, write, AvroDeserializer(theirs), asked=5.0)
        text = schema_of_class(Letter).text
        read = JSONDeserializer(text, schema_registry_client=theirs)
        yield _case("JSON", ours, letter, JSONSerializer(text, theirs), read)
        yield _columns(ours, order)


def _case(
    name: str,
    registry: RegistryClient,
    value: Any,
    write: Callable[..., Any],
    read: Callable[..., Any],
    asked: float | None = None,
) -> Case:
    """Return the case of values that are serialized and deserialized."""
    topic = f"{TOPIC}-{name}"
    serializer = SchemaSerializer(type(value), registry)
    deserializer = SchemaDeserializer(type(value), registry)
    plain = msgspec.to_builtins(value, builtin_types=(datetime,))
    context = SerializationContext(topic, MessageField.VALUE)

    def ours() -> None:
        serialize, deserialize = serializer.serialize, deserializer.deserialize
        for _ in range(VALUES):
            deserialize(topic, serialize(topic, value))  # type: ignore[arg-type]

    def theirs() -> None:
        for _ in range(VALUES):
            read(write(plain, context), context)

    ours()
    theirs()
    return Case(
        work=f"{name} of a class with six fields, written and read, against dicts",
        unit=MILLION_RECORDS,
        ours=ours,
        amount=VALUES,
        peers=(Peer("confluent_kafka", theirs, asked_ratio=asked),),
    )


def _columns(registry: RegistryClient, value: Any) -> Case:
    payload = SchemaSerializer(Order, registry).serialize("columns", value)
    values = pa.array([payload] * ROWS, pa.binary())
    typed = TypedValues.of_subject(registry, "columns-value")
    return Case(
        work=f"typed columns of {ROWS:,} values of one schema, with the search for their ids",
        unit=MILLION_RECORDS,
        ours=lambda: typed.decode(values),
        amount=ROWS,
    )
