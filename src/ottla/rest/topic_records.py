"""`GET /v1/topics/{topic}/records`: the records of a topic as lines, as events, or in Arrow.

    from        beginning (default), end, an offset, or a time of ISO 8601
    to          the end of now (default), an offset, or a time; the record there is not included
    follow      true: go on with new records, until the client goes away
    partition   only these; may be repeated
    filter      `path=value`, also != < <= > >=, or only `path`; may be repeated, all must hold
    limit       at most so many records

A path is key, partition, offset, timestamp, or a JSON pointer into the value, such as /customer/id.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final

import msgspec

from ottla.clients.admin.admin_offsets import OffsetSpec
from ottla.clients.consumer.async_consumer import AsyncConsumer
from ottla.model.identifiers import TopicPartition
from ottla.registry.http_messages import StreamedResponse
from ottla.rest.call import Call, number_of
from ottla.rest.embedded_formats import to_base64
from ottla.rest.reading import take_records
from ottla.rest.rest_errors import RestError, partition_not_found, short, unprocessable
from ottla.rest.v2_topics import find_topic
from ottla.wire.records.consumer_record import ConsumerRecord

LINES_TYPE: Final = "application/x-ndjson"
EVENTS_TYPE: Final = "text/event-stream"
ARROW_TYPE: Final = "application/vnd.apache.arrow.stream"
FILTERS_MAX: Final = 16
FILTER_CHARACTERS_MAX: Final = 1_000
POINTER_STEPS_MAX: Final = 32
QUIET_SECONDS: Final = 10.0
"""After so long without records, a line without content shows that the stream is alive."""
BATCH_RECORDS: Final = 200
"""Records in one piece of the response; other requests get a turn after each."""
PIECE_BYTES: Final = 1 << 20

_encode = msgspec.json.encode
_FILTER = re.compile(r"([^=!<>]+)(?:(=|!=|<=|>=|<|>)(.*))?", re.DOTALL)
_COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": eq,
    "!=": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}
_FIELDS: Final = frozenset({"key", "partition", "offset", "timestamp"})
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Filter:
    """One condition on a record as it is shown."""

    steps: tuple[str, ...]
    is_field: bool
    comparison: str | None
    wanted: Any
    """The value as JSON, or as text if it is not JSON."""

    def matches(self, row: Mapping[str, Any]) -> bool:
        """Whether a row fulfils the condition; a missing member fulfils none."""
        found: Any = row if self.is_field else row["value"]
        for step in self.steps:
            if isinstance(found, dict) and step in found:
                found = found[step]
            elif isinstance(found, list) and step.isdecimal() and int(step) < len(found):
                found = found[int(step)]
            else:
                return False
        if self.comparison is None:
            return found is not None
        try:
            return _COMPARISONS[self.comparison](_comparable(found, self.wanted), self.wanted)
        except TypeError:
            return False


def _comparable(found: Any, wanted: Any) -> Any:
    """Return a found value; the value inside if it is of a union of Avro."""
    if isinstance(found, dict) and len(found) == 1 and not isinstance(wanted, dict):
        return next(iter(found.values()))
    return found


def parse_filter(text: str) -> Filter:
    """Parse a condition; RestError 422 if it is not valid."""
    matched = _FILTER.fullmatch(text) if len(text) <= FILTER_CHARACTERS_MAX else None
    if matched is None:
        raise unprocessable("A filter is path=value, with at most 1,000 characters.")
    path, comparison, given = matched.groups()
    steps = tuple(
        step.replace("~1", "/").replace("~0", "~") for step in path.removeprefix("/").split("/")
    )
    if len(steps) > POINTER_STEPS_MAX:
        raise unprocessable(f"The path of a filter has at most {POINTER_STEPS_MAX} steps.")
    is_field = not path.startswith("/") and steps[0] in _FIELDS
    return Filter(steps, is_field, comparison, _wanted(given))


def _wanted(given: str | None) -> Any:
    if given is None:
        return None
    try:
        return msgspec.json.decode(given)
    except (msgspec.MsgspecError, RecursionError):
        return given


@dataclass(frozen=True, slots=True)
class _Range:
    """The first and the end offset by partition; no end while following."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int] | None
    limit: int | None


async def records(call: Call) -> StreamedResponse:
    """Stream records in the form that the header Accept names."""
    filters = [parse_filter(text) for text in call.query.get("filter", ())]
    if len(filters) > FILTERS_MAX:
        raise unprocessable(f"A request has at most {FILTERS_MAX} filters.")
    if call.content_type == ARROW_TYPE and filters:
        raise unprocessable("A filter works with lines and events, not with Arrow.")
    wanted = await _wanted_range(call)
    call.services.readers.check()
    return StreamedResponse(200, _read(call, wanted, filters), call.content_type)


async def _read(call: Call, wanted: _Range, filters: list[Filter]) -> AsyncGenerator[bytes, None]:
    # Opened here: a generator that is closed before its start runs none of its clean-up.
    async with call.services.readers.open(sorted(wanted.starts)) as consumer:
        for name, offset in wanted.starts.items():
            consumer.seek(name, offset)
        async with aclosing(_pieces(call, consumer, wanted, filters)) as pieces:
            async for piece in pieces:
                yield piece


def _pieces(
    call: Call, consumer: AsyncConsumer, wanted: _Range, filters: list[Filter]
) -> AsyncGenerator[bytes, None]:
    if call.content_type == ARROW_TYPE:
        return _arrow_pieces(consumer, wanted)
    return _row_pieces(call, consumer, wanted, filters)


async def _wanted_range(call: Call) -> _Range:
    topic = await find_topic(call)
    known = {row.partition for row in topic.partitions}
    asked = [number_of("The parameter partition", text) for text in call.query.get("partition", ())]
    for number in asked:
        if number not in known:
            raise partition_not_found(call.topic, number)
    names = [TopicPartition(call.topic, number) for number in sorted(asked or known)]
    bounds = await call.services.admin.offsets.ends(names)
    starts = await _offsets(call, "from", names, bounds, default=0)
    ends = None if call.flag("follow") else await _offsets(call, "to", names, bounds, default=1)
    if ends is None and call.text("to"):
        raise unprocessable("The parameters follow and to exclude each other.")
    limit = call.integer("limit", minimum=1) if call.text("limit") else None
    return _Range(starts, ends, limit)


async def _offsets(
    call: Call,
    name: str,
    partitions: list[TopicPartition],
    bounds: Mapping[TopicPartition, tuple[int, int]],
    default: int,
) -> dict[TopicPartition, int]:
    """Return the offset of a bound in each partition, within the log."""
    text = call.text(name)
    if text in {"", "beginning", "end"}:
        side = {"": default, "beginning": 0, "end": 1}[text]
        return {one: bounds[one][side] for one in partitions}
    if text.isdecimal():
        offset = number_of(f"The parameter {name}", text)
        return {one: min(max(offset, bounds[one][0]), bounds[one][1]) for one in partitions}
    time_ms = _time_ms(name, text)
    found = await call.services.admin.offsets.find(dict.fromkeys(partitions, time_ms))
    return {
        one: row.offset if row.offset != OffsetSpec.LATEST else bounds[one][1]
        for one, row in found.items()
    }


def _time_ms(name: str, text: str) -> int:
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+"))  # a plus is a space in a query
    except ValueError:
        raise unprocessable(
            f"The parameter {name} is beginning, end, an offset, or a time of ISO 8601, not "
            f"{short(text)!r}."
        ) from None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(int((moment - _EPOCH).total_seconds() * 1000), 0)


def _is_over(consumer: AsyncConsumer, wanted: _Range) -> bool:
    """Whether every partition is read up to its end."""
    if wanted.ends is None:
        return False
    consumed = consumer.core.state.consumed()
    for name, end_offset in wanted.ends.items():
        position = consumed.get(name)
        if position is None or position.offset < end_offset:
            return False
    return True


async def _row_pieces(
    call: Call, consumer: AsyncConsumer, wanted: _Range, filters: list[Filter]
) -> AsyncGenerator[bytes, None]:
    is_event = call.content_type == EVENTS_TYPE
    left = wanted.limit
    starting = wanted.ends is not None and all(
        offset >= wanted.ends[name] for name, offset in wanted.starts.items()
    )
    is_over = starting
    yield b": ottla\n\n" if is_event else b""
    while not is_over and left != 0:
        seconds = QUIET_SECONDS if wanted.ends is None else 1.0
        taken = await take_records(consumer, seconds, PIECE_BYTES, BATCH_RECORDS)
        rows = [await _row(call, record) for record in taken if _is_within(record, wanted)]
        rows = [row for row in rows if all(one.matches(row) for one in filters)][:left]
        left = None if left is None else left - len(rows)
        if rows:
            yield b"".join(_event(row) if is_event else _encode(row) + b"\n" for row in rows)
        elif not taken:
            yield b":\n\n" if is_event else b"\n"
        is_over = _is_over(consumer, wanted)


def _is_within(record: ConsumerRecord, wanted: _Range) -> bool:
    name = TopicPartition(record.topic, record.partition)
    return wanted.ends is None or record.offset < wanted.ends[name]


async def _row(call: Call, record: ConsumerRecord) -> dict[str, Any]:
    formats = call.services.formats
    key = await formats.recognized("key", record.key, record.headers)
    value = await formats.recognized("value", record.value, record.headers)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": key.value,
        "key_type": key.type,
        "value": value.value,
        "value_type": value.type,
        "headers": [{"name": row.key, "value": to_base64(row.value)} for row in record.headers],
    }


def _event(row: Mapping[str, Any]) -> bytes:
    event_id = f"{row['partition']}:{row['offset']}".encode()
    return b"id: " + event_id + b"\ndata: " + _encode(row) + b"\n\n"


async def _arrow_pieces(consumer: AsyncConsumer, wanted: _Range) -> AsyncGenerator[bytes, None]:
    from ottla.clients.tables.arrow_streams import ArrowStreamWriter  # noqa: PLC0415 - heavy

    writer = ArrowStreamWriter()
    yield writer.begin()
    left = wanted.limit
    is_over = wanted.ends is not None and wanted.starts == wanted.ends
    while not is_over and left != 0:
        seconds = QUIET_SECONDS if wanted.ends is None else 1.0
        table = await consumer.poll_arrow(writer.columns, timeout=seconds)
        piece, count = writer.write(table, wanted.ends, left)
        left = None if left is None else left - count
        yield piece
        await asyncio.sleep(0)  # noqa: TID251 - a turn for other requests, not a wait
        is_over = _is_over(consumer, wanted)
    yield writer.end()


def without_arrow() -> RestError | None:
    """Return the refusal of Arrow if pyarrow is not installed."""
    try:
        import ottla.clients.tables.arrow_streams  # noqa: F401, PLC0415
    except ImportError as error:
        return RestError(406, str(error))
    return None
