"""Version 3: records to write, one by one in a stream, or several in a batch.

A stream is JSON objects one after the other, in one request that may stay open; each is answered
by a report as soon as it is written, in the same order.
"""

import asyncio
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from ottla.registry.http_messages import BadRequestError, BodyStream, StreamedResponse
from ottla.rest.call import Answer, Call
from ottla.rest.embedded_formats import (
    SCHEMA_TYPE_BY_TYPE,
    DataType,
    SchemaChoice,
    SchemaWriter,
    from_base64,
    plain_bytes,
)
from ottla.rest.producing import Outgoing, Sending, refusal
from ottla.rest.rest_errors import RestError, from_client, short
from ottla.rest.v3_resources import links_of
from ottla.schemas.json_schema.json_text import (
    TooDeepError,
    TooManyItemsError,
    check_depth,
    check_items,
)

RECORD_BYTES_MAX: Final = 10 << 20
"""The JSON of one record in a stream."""
RECORD_ITEMS_MAX: Final = 250_000
"""Objects, arrays and values in it."""
STREAM_IDLE_SECONDS_MAX: Final = 60.0
"""A stream without input ends after this."""
BATCH_RECORDS_MAX: Final = 1_000
HEADERS_MAX: Final = 1_000
"""Headers of one record."""
UNREPORTED_RECORDS_MAX: Final = 500
"""Records of a stream that are sent before the first of them is reported."""
ID_CHARACTERS_MAX: Final = 80
MULTI_STATUS: Final = 207
_TIMESTAMP_MS_MAX: Final = 253_402_300_799_999


class V3Header(Struct):
    """A header: the value is base64."""

    name: str
    value: str | None = None


class V3Part(Struct):
    """A key or value, and its format or schema."""

    type: str | None = None
    data: Any = None
    schema_id: int | None = None
    schema_version: int | None = None
    # "schema" is text here; in the reference of the API it is the raw schema.
    schema: str | None = None
    subject: str | None = None
    subject_name_strategy: str | None = None


class V3Record(Struct):
    """A record to write."""

    partition_id: int | None = None
    headers: list[V3Header] = []
    key: V3Part | None = None
    value: V3Part | None = None
    timestamp: str | int | None = None


class V3Entry(V3Record, kw_only=True):
    """A record of a batch. The reports have its id."""

    id: str


class V3Batch(Struct):
    """The body with several records."""

    entries: list[V3Entry]


_decode_record = msgspec.json.Decoder(V3Record).decode
_encode = msgspec.json.encode
Report = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Part:
    """An encoded key or value."""

    data: bytes | None = None
    type: DataType | None = None
    writer: SchemaWriter | None = None

    def report(self) -> Report | None:
        """Return the part's report, None without a part."""
        if self.data is None or self.type is None:
            return None
        report: Report = {"type": self.type.value, "size": len(self.data)}
        if self.writer is not None:
            report["subject"] = self.writer.subject
            report["schema_id"] = self.writer.schema_id
            report["schema_version"] = self.writer.version
        return report


@dataclass(frozen=True, slots=True)
class _Written:
    """A record that was sent."""

    sending: Sending
    key: _Part
    value: _Part


class RecordWriter:
    """Writes records of version 3 to one topic."""

    def __init__(self, call: Call, cluster_id: str, partition_count: int) -> None:
        self._call = call
        self._cluster_id = cluster_id
        self._partition_count = partition_count

    async def send(self, record: V3Record) -> _Written:
        """Encode and queue a record; RestError if it does not fit."""
        if len(record.headers) > HEADERS_MAX:
            raise RestError(42206, f"A record has at most {HEADERS_MAX} headers.")
        key = await self._part("key", record.key)
        value = await self._part("value", record.value)
        outgoing = Outgoing(
            key.data,
            value.data,
            record.partition_id,
            _timestamp_ms(record.timestamp),
            [(row.name, _header_value(row)) for row in record.headers],
        )
        sending = await self._call.services.producing.send(
            self._call.topic, self._partition_count, outgoing
        )
        return _Written(sending, key, value)

    async def _part(self, part: str, given: V3Part | None) -> _Part:
        if given is None:
            return _Part()
        form = _data_type(part, given.type)
        choice = SchemaChoice(
            form,
            given.schema_id,
            given.schema_version,
            given.schema,
            given.subject,
            given.subject_name_strategy,
        )
        names_schema = any(
            row is not None for row in (choice.id, choice.version, choice.text, choice.subject)
        )
        if form is not None and form not in SCHEMA_TYPE_BY_TYPE:
            if names_schema:
                raise RestError(42206, f"The type {form.value} of the {part} has no schema.")
            return _Part(plain_bytes(form, given.data, part), form)
        if given.data is None and not names_schema:
            return _Part()
        writer = await self._call.services.formats.writer(self._call.topic, part, choice)
        return _Part(writer.written(given.data, part), writer.type, writer)

    async def report(self, written: _Written) -> Report:
        """Wait for a record, and return its report."""
        result = await written.sending.result()
        if isinstance(result, Exception):
            return failure_report(refusal(result))
        report: Report = {
            "error_code": 200,
            "cluster_id": self._cluster_id,
            "topic_name": result.topic,
            "partition_id": result.partition,
            "offset": result.offset,
            "timestamp": _iso(result.timestamp),
        }
        for name, part in (("key", written.key), ("value", written.value)):
            if (shown := part.report()) is not None:
                report[name] = shown
        return report


def failure_report(refused: RestError) -> Report:
    """Return the report of a record that was not written."""
    return {"error_code": refused.code, "message": refused.message}


def _data_type(part: str, word: str | None) -> DataType | None:
    try:
        return None if word is None else DataType(word.upper())
    except ValueError:
        known = ", ".join(DataType)
        raise RestError(42206, f"The type of the {part} is one of {known}.") from None


def _header_value(row: V3Header) -> bytes | None:
    return None if row.value is None else from_base64(row.value, f"headers/{short(row.name)}")


def _timestamp_ms(given: str | int | None) -> int | None:
    if given is None:
        return None
    found = given
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            raise RestError(42206, "The timestamp is not of the form of ISO 8601.") from None
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
        found = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // _MILLISECOND
    if not isinstance(found, int) or not 0 <= found <= _TIMESTAMP_MS_MAX:
        raise RestError(42206, "The timestamp is not between 1970 and 9999.")
    return found


_MILLISECOND: Final = datetime(1970, 1, 1, 0, 0, 0, 1000) - datetime(1970, 1, 1)  # noqa: DTZ001


def _iso(timestamp_ms: int) -> str | None:
    if not 0 <= timestamp_ms <= _TIMESTAMP_MS_MAX:
        return None
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# -- operations -----------------------------------------------------------------------------------


async def produce_batch(call: Call) -> Answer:
    """Write several records; each succeeds or fails alone."""
    batch: V3Batch = call.body
    _check_batch(batch)
    writer = await _writer(call)
    successes: list[Report] = []
    failures: list[Report] = []
    sent: list[tuple[str, _Written]] = []
    for entry in batch.entries:
        try:
            sent.append((entry.id, await writer.send(entry)))
        except Exception as error:
            refused = from_client(error)
            if refused is None:
                raise
            failures.append({"id": entry.id, **failure_report(refused)})
    for name, written in sent:
        report = {"id": name, **await writer.report(written)}
        is_written = report["error_code"] == 200
        if is_written:
            del report["error_code"]
        (successes if is_written else failures).append(report)
    return Answer({"successes": successes, "failures": failures}, MULTI_STATUS)


def _check_batch(batch: V3Batch) -> None:
    names = {entry.id for entry in batch.entries}
    if not 0 < len(batch.entries) <= BATCH_RECORDS_MAX:
        raise RestError(42208, f"A batch has 1 to {BATCH_RECORDS_MAX} entries.")
    if len(names) < len(batch.entries):
        raise RestError(42208, "The ids of the entries of a batch are distinct.")
    if not all(0 < len(name) <= ID_CHARACTERS_MAX for name in names):
        raise RestError(42208, f"The id of an entry has 1 to {ID_CHARACTERS_MAX} characters.")


async def produce(call: Call) -> StreamedResponse:
    """Write a stream of records, and report each."""
    writer = await _writer(call)
    stream = call.request.stream
    assert stream is not None, "the route streams its body"
    return StreamedResponse(200, _reports(writer, stream), "application/json")


async def _writer(call: Call) -> RecordWriter:
    links = await links_of(call)
    count = await call.services.producing.partition_count(call.topic)
    return RecordWriter(call, links.cluster_id, count)


async def _reports(writer: RecordWriter, stream: BodyStream) -> AsyncGenerator[bytes, None]:
    try:
        async for texts in _objects(stream):
            async for report in _reports_of(writer, texts):
                yield _encode(report) + b"\n"
    except TimeoutError:
        late = RestError(408, f"no record came within {STREAM_IDLE_SECONDS_MAX:g} s")
        yield _encode(failure_report(late)) + b"\n"
    except (RestError, BadRequestError) as bad:
        yield _encode(failure_report(RestError(400, str(bad)))) + b"\n"


async def _objects(stream: BodyStream) -> AsyncGenerator[list[bytes], None]:
    """Yield the objects of the body, some at a time, as they arrive."""
    objects = ObjectSplitter()
    while True:
        async with asyncio.timeout(STREAM_IDLE_SECONDS_MAX):
            piece = await stream.read()
        texts = objects.split(piece)
        while texts:
            yield texts[:UNREPORTED_RECORDS_MAX]
            texts = texts[UNREPORTED_RECORDS_MAX:]
        if not piece:
            objects.end()
            return


async def _reports_of(writer: RecordWriter, texts: list[bytes]) -> AsyncGenerator[Report, None]:
    """Send some records, then yield their reports."""
    outcomes = [await _sent(writer, text) for text in texts]
    for outcome in outcomes:
        if isinstance(outcome, RestError):
            yield failure_report(outcome)
        else:
            yield await writer.report(outcome)


async def _sent(writer: RecordWriter, text: bytes) -> _Written | RestError:
    try:
        decoded = text.decode()
        check_items(decoded, RECORD_ITEMS_MAX)
        check_depth(decoded)
        return await writer.send(_decode_record(text))
    except TooManyItemsError as large:
        return RestError(413, f"The record has {large}")
    except msgspec.ValidationError as invalid:
        return RestError(422, f"The record is not valid: {short(invalid)}")
    except (msgspec.DecodeError, UnicodeDecodeError, TooDeepError, RecursionError) as invalid:
        return RestError(400, f"The record is not JSON: {short(invalid)}")
    except Exception as error:
        refused = from_client(error)
        if refused is None:
            raise
        return refused


class ObjectSplitter:
    """Finds the ends of JSON objects in input that comes in pieces. No byte is read twice."""

    _MARK = re.compile(rb'["{}]')
    _STRING = re.compile(rb'[^"\\]*(?:\\.[^"\\]*)*', re.DOTALL)
    _BETWEEN = re.compile(rb"[\s,]*")

    def __init__(self) -> None:
        self._held = bytearray()
        self._position = 0
        self._depth = 0
        self._in_string = False

    def split(self, piece: bytes) -> list[bytes]:
        """Return the objects that end in this piece; RestError 400 if there is something else."""
        self._held += piece
        found: list[bytes] = []
        while (text := self._next()) is not None:
            found.append(text)
        if len(self._held) > RECORD_BYTES_MAX:
            raise RestError(413, f"a record is larger than {RECORD_BYTES_MAX} bytes")
        return found

    def end(self) -> None:
        """RestError 400 if the input ends within an object."""
        if self._held:
            raise RestError(400, "the input ends within a record")

    def _next(self) -> bytes | None:
        if self._depth == 0 and not self._begin():
            return None
        while self._depth and self._position < len(self._held):
            if self._in_string:
                if not self._skip_string():
                    return None
            elif not self._step():
                return None
        if self._depth:
            return None
        text = bytes(memoryview(self._held)[: self._position])
        del self._held[: self._position]
        self._position = 0
        return text

    def _begin(self) -> bool:
        between = self._BETWEEN.match(self._held)
        assert between is not None
        del self._held[: between.end()]
        if not self._held:
            return False
        if self._held[0] != ord("{"):
            raise RestError(400, "the input is not a sequence of JSON objects")
        self._depth = self._position = 1
        return True

    def _step(self) -> bool:
        mark = self._MARK.search(self._held, self._position)
        if mark is None:
            self._position = len(self._held)
            return False
        self._position = mark.end()
        match mark[0]:
            case b'"':
                self._in_string = True
            case b"{":
                self._depth += 1
            case _:
                self._depth -= 1
        return True

    def _skip_string(self) -> bool:
        inside = self._STRING.match(self._held, self._position)
        assert inside is not None
        self._position = inside.end()
        if self._held[self._position : self._position + 1] != b'"':
            return False  # the string goes on, perhaps after a backslash that is the last byte
        self._position += 1
        self._in_string = False
        return True
