"""Values of records as typed columns: rows are grouped by their schema, and decoded in Arrow.

The columns are the fields of one reader's schema, fixed when the decoder is made. Each writer's
schema is fetched once. A value that cannot be decoded is a row of nulls and an entry in `errors`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ottla.clients.records.serializers import complete
from ottla.clients.schemas.framing import (
    HEADER_BY_PART,
    PREFIX_BYTES,
    FramingError,
    read_frame,
    read_indexes,
)
from ottla.clients.schemas.registry_calls import RegistryCalls, RegistryError
from ottla.clients.schemas.registry_client import AsyncRegistryClient, RegistryClient
from ottla.schemas.arrow.arrow_codec import ArrowDecoder, DecodedValues
from ottla.schemas.parsed_schema import InvalidSchemaError, ParsedSchema
from ottla.schemas.schema import SchemaType

DECODERS_MAX: Final = 1_000
"""How many writers' schemas are remembered."""
_FROM_HEADER: Final = b"h"
"""Begins the label of rows with their schema in a header: no label of a prefix is that long."""
Binary = Any
"""A BinaryArray or LargeBinaryArray."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of one schema: all rows if `rows` is None."""

    label: bytes
    rows: Any


@dataclass(frozen=True, slots=True)
class _Writer:
    """How the rows of one label are decoded."""

    schema: ParsedSchema | None
    decoder: ArrowDecoder | None
    """None for Protobuf with the path before the value: the path selects the message."""
    skip: int
    reason: str = ""
    """Why the rows cannot be decoded."""


class TypedValues:
    """Decodes the values, or keys, of records into the columns of one schema.

    Any number of calls, by one thread or task at a time. With a synchronous registry client use
    `decode`, with an asyncio client `decode_in_loop`. Both raise RegistryUnreachableError, and
    RegistryError for any refusal but an unknown schema.
    """

    def __init__(
        self,
        registry: RegistryClient | AsyncRegistryClient | None,
        reader: ParsedSchema,
        *,
        part: str = "value",
        message_name: str | None = None,
    ) -> None:
        """Without a registry the values have no framing, and all are of the reader's schema.

        `message_name` selects the message of a Protobuf schema; by default the first.
        """
        self._calls: RegistryCalls | None = None if registry is None else registry.calls
        self._reader = reader
        self._header = HEADER_BY_PART[part]
        self._part = part
        self._message_name = message_name or reader.record_name
        self._own = decoder_of(reader, reader, message_name)
        self._writers: dict[bytes, _Writer] = {}

    @classmethod
    def of_subject(
        cls,
        registry: RegistryClient,
        subject: str,
        *,
        version: int | None = None,
        part: str = "value",
    ) -> "TypedValues":
        """Make a decoder into the columns of a subject's version, by default of the latest."""
        if version is None:
            found = registry.latest_version(subject)
        else:
            found = registry.version(subject, version)
        return cls(registry, registry.parsed(found.schema), part=part)

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self._own.schema

    def decode(self, values: Binary, headers: Any = None) -> DecodedValues:
        """Decode values; `headers` is the column of their headers, lists of key and value."""
        return complete(self.decode_in_loop(values, headers))

    async def decode_in_loop(self, values: Binary, headers: Any = None) -> DecodedValues:
        """Decode values, and await missing schemas."""
        if self._calls is None:
            return self._own.decode(values)
        groups = list(self._groups(values, headers))
        parts = [await self._decoded(group, values) for group in groups]
        if len(parts) == 1 and groups[0].rows is None:
            return parts[0]
        return self._joined(groups, parts, len(values))

    # -- groups -----------------------------------------------------------------------------------

    def _groups(self, values: Binary, headers: Any) -> Iterator[_Group]:
        """Group rows by the id before the value, or by the header."""
        labels = pc.binary_slice(values, 0, PREFIX_BYTES)
        if headers is not None:
            labels = self._with_headers(labels, headers)
        encoded = labels.dictionary_encode()
        distinct = encoded.dictionary.to_pylist()
        if len(distinct) == 1:
            # Nulls may be among the rows: every decoder makes rows of nulls of them.
            yield _Group(distinct[0], None)
            return
        for number, label in enumerate(distinct):
            yield _Group(label, _places(pc.equal(encoded.indices, number)))
        if encoded.null_count:
            yield _Group(b"", _places(pc.is_null(encoded.indices)))

    def _with_headers(self, labels: Any, headers: Any) -> Any:
        """Replace the labels of rows that have a header with the schema's id."""
        pairs = headers.flatten()
        if not len(pairs):
            return labels
        is_named = pc.equal(pairs.field("key"), self._header)
        if not pc.any(is_named).as_py():
            return labels
        rows = pc.list_parent_indices(headers).filter(is_named).cast(pa.int64())
        named = pairs.field("value").filter(is_named).cast(labels.type)
        marked = pc.binary_join_element_wise(_FROM_HEADER, pc.coalesce(named, b""), b"")
        # The last header of a row counts: rows come in order, so the next row differs from it.
        is_last = pc.not_equal(rows[:-1], rows[1:])
        is_last = pa.concat_arrays([is_last, pa.array([True])])
        rows, marked = rows.filter(is_last), marked.cast(labels.type).filter(is_last)
        is_replaced = pc.is_in(pa.array(range(len(labels)), pa.int64()), rows)
        is_replaced = pc.and_(is_replaced, pc.is_valid(labels))
        wanted = marked.filter(pc.is_valid(labels.take(rows)))
        return pc.replace_with_mask(labels, is_replaced, wanted)

    # -- decoding ---------------------------------------------------------------------------------

    async def _decoded(self, group: _Group, values: Binary) -> DecodedValues:
        chosen = values if group.rows is None else values.take(group.rows)
        if not group.label and chosen.null_count == len(chosen):
            return DecodedValues(_nulls(self.schema, len(chosen)), {})
        writer = self._writers.get(group.label)
        if writer is None:
            writer = await self._writer(group.label)
        if writer.reason:
            return _refused(self.schema, chosen, writer.reason)
        if writer.decoder is not None:
            return writer.decoder.decode(chosen, writer.skip)
        return self._decoded_messages(writer, chosen)

    async def _writer(self, label: bytes) -> _Writer:
        """Fetch the schema of a label; a refusal is not remembered here, but by the client."""
        assert self._calls is not None
        is_header = label.startswith(_FROM_HEADER) and len(label) > PREFIX_BYTES
        headers = [(self._header, label[1:])] if is_header else ()
        try:
            frame = read_frame(label, headers, self._part, has_indexes=False)
            if frame.guid is None:
                assert frame.id is not None
                found = await self._calls.by_id(frame.id, None, None)
            else:
                found = await self._calls.by_guid(frame.guid, None)
            schema = await self._calls.parsed(found.schema)
            writer = self._writer_of(schema, headers, frame.payload_start)
        except FramingError as error:
            return _Writer(None, None, 0, f"no id of a schema: {error}")
        except RegistryError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise  # the schema may exist: the value is not known to be bad
            return _Writer(None, None, 0, f"the schema cannot be used: {error}")
        except InvalidSchemaError as error:
            return _Writer(None, None, 0, f"the schema cannot be used: {error}")
        if len(self._writers) >= DECODERS_MAX:
            self._writers.clear()
        self._writers[label] = writer
        return writer

    def _writer_of(self, schema: Any, headers: Any, skip: int) -> _Writer:
        if schema.type is not self._reader.type:
            kind = f"the value is of type {schema.type}, the columns of {self._reader.type}"
            return _Writer(schema, None, 0, kind)
        if schema.type is not SchemaType.PROTOBUF:
            return _Writer(schema, decoder_of(self._reader, schema, None), skip)
        if headers:
            frame = read_frame(b"", headers, self._part, has_indexes=True)
            reason = self._mismatch(schema, frame.indexes)
            return _Writer(schema, self._own, 0, reason)
        return _Writer(schema, None, skip)

    def _mismatch(self, schema: Any, indexes: tuple[int, ...]) -> str:
        """Return why a message does not fit the columns; empty if it does."""
        try:
            name = schema.message(indexes)
        except KeyError:
            return f"the schema has no message at {list(indexes)}"
        if name == self._message_name:
            return ""
        return f"the value is a message {name}, the columns are of {self._message_name}"

    def _decoded_messages(self, writer: _Writer, values: Binary) -> DecodedValues:
        """Decode Protobuf values, grouped by the path of their message."""
        first = pc.binary_slice(values, writer.skip, writer.skip + 1)
        distinct = pc.unique(first.drop_null()).to_pylist()
        if distinct == [b"\0"]:
            reason = self._mismatch(writer.schema, (0,))
            if reason:
                return _refused(self.schema, values, reason)
            return self._own.decode(values, writer.skip + 1)
        by_path: dict[tuple[tuple[int, ...], int] | str, list[int]] = {}
        for row, value in enumerate(values.to_pylist()):
            by_path.setdefault(_path(value, writer.skip), []).append(row)
        groups = [_Group(b"", pa.array(rows, pa.int64())) for rows in by_path.values()]
        parts = []
        for path, group in zip(by_path, groups, strict=True):
            chosen = values.take(group.rows)
            reason = path if isinstance(path, str) else self._mismatch(writer.schema, path[0])
            if reason:
                parts.append(_refused(self.schema, chosen, reason))
            else:
                parts.append(self._own.decode(chosen, int(path[1])))
        return self._joined(groups, parts, len(values))

    def _joined(
        self, groups: list[_Group], parts: list[DecodedValues], count: int
    ) -> DecodedValues:
        """Put the rows of the groups back into their order."""
        if not parts:
            return DecodedValues(_nulls(self.schema, count), {})
        errors: dict[int, str] = {}
        for group, part in zip(groups, parts, strict=True):
            for row, reason in part.errors.items():
                errors[group.rows[row].as_py()] = reason
        places = pa.concat_arrays([group.rows.cast(pa.int64()) for group in groups])
        table = pa.Table.from_batches([part.batch for part in parts], self.schema)
        ordered = table.take(pc.sort_indices(places)).combine_chunks()
        batches = ordered.to_batches()
        batch = batches[0] if batches else _nulls(self.schema, 0)
        return DecodedValues(batch, dict(sorted(errors.items())))


def decoder_of(reader: Any, writer: Any, message_name: str | None) -> ArrowDecoder:
    """Return the decoder from a writer's schema into the columns of a reader's schema."""
    match reader.type:
        case SchemaType.AVRO:
            from ottla.schemas.arrow.avro_arrow import AvroArrowDecoder  # noqa: PLC0415

            return AvroArrowDecoder(reader, writer)
        case SchemaType.JSON:
            from ottla.schemas.arrow.json_arrow import JsonArrowDecoder  # noqa: PLC0415

            return JsonArrowDecoder(reader, writer)
        case _:
            from ottla.schemas.arrow.protobuf_arrow import (  # noqa: PLC0415
                ProtobufArrowDecoder,
            )

            return ProtobufArrowDecoder(reader, writer, message_name)


def _path(value: bytes | None, start: int) -> tuple[tuple[int, ...], int] | str:
    """Return the path of a message and where it ends, or why there is none."""
    if value is None:
        return (0,), 0
    try:
        return read_indexes(value, start)
    except FramingError as error:
        return str(error)


def _places(mask: Any) -> Any:
    return pc.indices_nonzero(pc.fill_null(mask, False)).cast(pa.int64())


def _nulls(schema: pa.Schema, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(count, row.type) for row in schema], schema=schema)


def _refused(schema: pa.Schema, values: Binary, reason: str) -> DecodedValues:
    """Return rows of nulls, with a reason for each value that is not null."""
    rows = pc.indices_nonzero(pc.is_valid(values)).to_pylist()
    return DecodedValues(_nulls(schema, len(values)), dict.fromkeys(rows, reason))
