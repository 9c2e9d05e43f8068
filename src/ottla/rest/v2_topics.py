"""Version 2: topics, partitions and brokers; produced records; records from an offset."""

import asyncio
from typing import Any, Final

from msgspec import Struct

from ottla.clients.admin.admin_configs import ConfigResource
from ottla.clients.admin.admin_topics import TopicDescription, TopicPartitionState, described
from ottla.clients.errors import check, only
from ottla.model.identifiers import TopicPartition
from ottla.rest.call import Answer, Call, number_of
from ottla.rest.embedded_formats import (
    SCHEMA_TYPE_BY_TYPE,
    TYPE_BY_FORMAT,
    DataType,
    SchemaChoice,
    SchemaWriter,
    plain_bytes,
)
from ottla.rest.producing import Outgoing, is_retriable, refusal
from ottla.rest.reading import RECORDS_BYTES_MAX, WAIT_MS_MAX, take_records
from ottla.rest.rest_errors import (
    RestError,
    conversion_failed,
    partition_not_found,
    short,
    unprocessable,
)
from ottla.schemas.values import InvalidValueError
from ottla.wire.records.consumer_record import ConsumerRecord

RECORDS_PER_REQUEST_MAX: Final = 10_000
"""Records in one produce request."""
_FATAL: Final = 1
_RETRIABLE: Final = 2


class V2Record(Struct):
    """A record of a produce request."""

    key: Any = None
    value: Any = None
    partition: int | None = None


class V2Produce(Struct):
    """The body of a produce request."""

    records: list[V2Record]
    key_schema: str | None = None
    key_schema_id: int | None = None
    value_schema: str | None = None
    value_schema_id: int | None = None


class V2Offset(Struct):
    """Where a record was written, or why it was not."""

    partition: int | None
    offset: int | None
    error_code: int | None = None
    error: str | None = None


class V2Produced(Struct):
    """The answer to a produce request, in the order of its records."""

    offsets: list[V2Offset]
    key_schema_id: int | None
    value_schema_id: int | None


class V2ConsumedRecord(Struct):
    """A record that was read."""

    topic: str
    key: Any
    value: Any
    partition: int
    offset: int


def v2_type(form: DataType | None) -> str:
    """Return the content type of a format; the common type without one."""
    word = "" if form is None else f".{form.value.lower()}"
    return f"application/vnd.kafka{word}.v2+json"


TYPE_BY_CONTENT_TYPE: Final = {v2_type(form): form for form in TYPE_BY_FORMAT.values()}


# -- metadata -------------------------------------------------------------------------------------


async def list_topics(call: Call) -> list[str]:
    """Return the names of all topics."""
    return sorted(topic.name for topic in await call.services.admin.topics.list())


async def find_topic(call: Call) -> TopicDescription:
    """Ask for the path's topic, without the wait that a new topic would get; RestError 40401."""
    found = only(await call.services.view.refresh([call.topic]), "a topic")
    check(found.error_code, f"there is no topic {short(call.topic)!r}")
    return described(found)


async def get_topic(call: Call) -> dict[str, Any]:
    """Return a topic with its settings and partitions."""
    topic = await find_topic(call)
    resource = ConfigResource.topic(call.topic)
    configs = (await call.services.admin.configs.describe(resource))[resource]
    return {
        "name": topic.name,
        "configs": {name: entry.value for name, entry in sorted(configs.items())},
        "partitions": [_partition(row) for row in topic.partitions],
    }


def _partition(row: TopicPartitionState) -> dict[str, Any]:
    return {
        "partition": row.partition,
        "leader": row.leader,
        "replicas": [
            {
                "broker": broker,
                "leader": broker == row.leader,
                "in_sync": broker in row.in_sync_replicas,
            }
            for broker in row.replicas
        ],
    }


async def list_partitions(call: Call) -> list[dict[str, Any]]:
    """Return a topic's partitions."""
    return [_partition(row) for row in (await find_topic(call)).partitions]


async def find_partition(call: Call) -> TopicPartitionState:
    """Return the path's partition; RestError 40401 or 40402 if there is none."""
    number = call.path_number("partition")
    for row in (await find_topic(call)).partitions:
        if row.partition == number:
            return row
    raise partition_not_found(call.topic, number)


async def get_partition(call: Call) -> dict[str, Any]:
    """Return one partition."""
    return _partition(await find_partition(call))


async def get_offsets(call: Call) -> dict[str, int]:
    """Return the first offset of a partition, and the offset after its last record."""
    row = await find_partition(call)
    name = TopicPartition(call.topic, row.partition)
    beginning, end = (await call.services.admin.offsets.ends([name]))[name]
    return {"beginning_offset": beginning, "end_offset": end}


async def list_brokers(call: Call) -> dict[str, list[int]]:
    """Return the numbers of the brokers."""
    cluster = await call.services.admin.cluster.describe()
    return {"brokers": sorted(broker.broker_id for broker in cluster.brokers)}


# -- produce --------------------------------------------------------------------------------------


async def produce(call: Call) -> V2Produced:
    """Write records to a topic, or to one of its partitions.

    Every record is encoded before the first is sent: a record that does not fit refuses all.
    """
    request: V2Produce = call.body
    if not 0 < len(request.records) <= RECORDS_PER_REQUEST_MAX:
        raise unprocessable(f"A request has 1 to {RECORDS_PER_REQUEST_MAX} records.")
    partition = call.path_number("partition") if "partition" in call.path else None
    producing = call.services.producing
    count = await producing.partition_count(call.topic)
    if partition is not None and partition >= count:
        raise partition_not_found(call.topic, partition)
    form = TYPE_BY_CONTENT_TYPE[call.body_type]
    key_writer, value_writer = await _writers(call, request, form)
    encoded = [
        Outgoing(
            _encoded(form, key_writer, record.key, f"records/{index}/key"),
            _encoded(form, value_writer, record.value, f"records/{index}/value"),
            record.partition if partition is None else partition,
        )
        for index, record in enumerate(request.records)
    ]
    sent = [await producing.send(call.topic, count, one) for one in encoded]
    results = [await one.result() for one in sent]
    return V2Produced(
        [_offset(one) for one in results],
        None if key_writer is None else key_writer.schema_id,
        None if value_writer is None else value_writer.schema_id,
    )


async def _writers(
    call: Call, request: V2Produce, form: DataType
) -> tuple[SchemaWriter | None, SchemaWriter | None]:
    if form not in SCHEMA_TYPE_BY_TYPE:
        return None, None
    found: list[SchemaWriter | None] = []
    for part, code in (("key", 42201), ("value", 42202)):
        schema_id = getattr(request, f"{part}_schema_id")
        text = getattr(request, f"{part}_schema")
        if schema_id is not None or text:
            choice = SchemaChoice(form, schema_id, None, text)
            found.append(await call.services.formats.writer(call.topic, part, choice))
        elif any(getattr(record, part) is not None for record in request.records):
            raise RestError(
                code,
                f"A {part} has no schema: the request needs {part}_schema or {part}_schema_id.",
            )
        else:
            found.append(None)
    key_writer, value_writer = found
    return key_writer, value_writer


def _encoded(form: DataType, writer: SchemaWriter | None, value: Any, place: str) -> bytes | None:
    return plain_bytes(form, value, place) if writer is None else writer.written(value, place)


def _offset(result: Any) -> V2Offset:
    if isinstance(result, Exception):
        code = _RETRIABLE if is_retriable(result) else _FATAL
        return V2Offset(None, None, code, refusal(result).message)
    return V2Offset(result.partition, result.offset)


# -- records from an offset -----------------------------------------------------------------------


async def partition_records(call: Call) -> Answer:
    """Return records of a partition from an offset on."""
    row = await find_partition(call)
    name = TopicPartition(call.topic, row.partition)
    offset = call.integer("offset")
    wait_ms = min(call.integer("timeout", 1_000), WAIT_MS_MAX)
    bytes_max = bytes_limit(call)
    form = TYPE_BY_CONTENT_TYPE.get(call.content_type, DataType.BINARY)
    async with call.services.readers.open([name]) as consumer:
        consumer.seek(name, offset)
        taken = await take_records(consumer, wait_ms / 1000, bytes_max)
    shown, failure = await shown_records(call, form, taken)
    if failure is not None and not shown:
        raise failure
    return Answer(shown, content_type=v2_type(form))


def bytes_limit(call: Call) -> int:
    """Return the parameter max_bytes within its limits; -1 is the default."""
    text = call.text("max_bytes")
    given = number_of("The parameter max_bytes", text, -1) if text else -1
    return RECORDS_BYTES_MAX if given <= 0 else min(given, RECORDS_BYTES_MAX)


async def shown_records(
    call: Call, form: DataType, records: list[ConsumerRecord]
) -> tuple[list[V2ConsumedRecord], RestError | None]:
    """Return the records up to the first that is not of this format, and the failure there."""
    shown: list[V2ConsumedRecord] = []
    formats = call.services.formats
    for index, record in enumerate(records):
        if index % 100 == 0:
            await asyncio.sleep(0)  # noqa: TID251 - a turn for other requests, not a wait
        try:
            key = await formats.json_of(form, "key", record.key, record.headers)
            value = await formats.json_of(form, "value", record.value, record.headers)
        except InvalidValueError as error:
            place = f"The record at offset {record.offset} of {record.topic}-{record.partition}"
            code = conversion_failed(place, error).message
            return shown, RestError(42207, code)
        shown.append(V2ConsumedRecord(record.topic, key, value, record.partition, record.offset))
    return shown, None
