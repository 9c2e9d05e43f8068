"""Avro: texts are fixed points, compatible schemas decode, and both loops agree on any bytes."""

import io
import json
import math
from contextlib import suppress
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ottla.schemas.avro.avro_parser import is_same
from ottla.schemas.avro.avro_plan import plan_reading, plan_writing
from ottla.schemas.avro.avro_schema import AvroSchema, parse_avro
from ottla.schemas.avro.avro_values import AvroReader, AvroWriter, InvalidValueError
from ottla.schemas.parsed_schema import InvalidSchemaError
from tests.avro_strategies import evolved, schemas, values
from tests.avro_twins import both_read, both_write
from tests.examples import examples

SOME = settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))


def _parsed(schema: Any) -> AvroSchema:
    try:
        return parse_avro(json.dumps(schema))
    except InvalidSchemaError:
        # An evolution may take a definition away.
        assume(False)
        raise


def _written_by_fastavro(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def _read_by_fastavro(payload: bytes, writer: Any, reader: Any = None) -> Any:
    parsed = fastavro.parse_schema(reader) if reader is not None else None
    return fastavro.schemaless_reader(io.BytesIO(payload), fastavro.parse_schema(writer), parsed)


def _close(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_close(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_close, one, other))
    return bool(one == other)


@SOME
@given(schema=schemas())
def test_the_texts_of_a_schema_are_fixed_points_with_the_same_types(schema: Any) -> None:
    parsed = parse_avro(json.dumps(schema, indent=2))
    canonical, normalized = parsed.canonical(), parsed.normalized()
    again, normal = parse_avro(canonical), parse_avro(normalized)
    assert (again.canonical(), again.normalized()) == (canonical, normalized)
    assert (normal.canonical(), normal.normalized()) == (normalized, normalized)
    for other in (again, normal):
        assert list(other.named) == list(parsed.named)
        assert all(is_same(other.named[name], parsed.named[name]) for name in parsed.named)
        assert not other.reading(parsed)
        assert not parsed.reading(other)


@SOME
@given(schema=schemas(), data=st.data())
def test_fastavro_reads_the_data_and_its_data_is_read(schema: Any, data: st.DataObject) -> None:
    value = data.draw(values(schema))
    parsed = parse_avro(json.dumps(schema))
    reader, writer = AvroReader(parsed), AvroWriter(parsed)
    payload = writer.write(value)
    assert _close(reader.read(payload), value)
    assert _close(_read_by_fastavro(payload, schema), value)
    theirs = _written_by_fastavro(schema, value)
    assert _close(reader.read(theirs), value)


@SOME
@given(schema=schemas(), data=st.data())
def test_a_compatible_schema_decodes_the_data_of_the_writer(
    schema: Any, data: st.DataObject
) -> None:
    changed = data.draw(evolved(schema))
    writer, reader = parse_avro(json.dumps(schema)), _parsed(changed)
    reasons = reader.reading(writer)
    payload = _written_by_fastavro(schema, data.draw(values(schema)))
    if reasons:
        # Data without the incompatible part is readable.
        with suppress(InvalidValueError):
            AvroReader(writer, reader).read(payload)
        return
    decoded = AvroReader(writer, reader).read(payload)
    # The decoded value is a value of the reader's schema.
    assert _close(AvroReader(reader).read(AvroWriter(reader).write(decoded)), decoded)


@pytest.mark.usefixtures("needs_compiled_loops")
@SOME
@pytest.mark.usefixtures("needs_compiled_loops")
@given(schema=schemas(), data=st.data())
def test_any_bytes_end_in_a_value_or_one_error_in_both_loops(
    schema: Any, data: st.DataObject
) -> None:
    parsed = parse_avro(json.dumps(schema))
    reader = _parsed(data.draw(evolved(schema)))
    payload = bytearray(_written_by_fastavro(schema, data.draw(values(schema))))
    plans = [plan_reading(parsed.root, parsed.root), plan_reading(parsed.root, reader.root)]
    for wrong in (
        bytes(payload),
        data.draw(st.binary(max_size=40)),
        bytes(payload[: data.draw(st.integers(0, len(payload)))]),
        _damaged(payload, data),
    ):
        assert all(both_read(plan, wrong) for plan in plans)
        try:
            AvroReader(parsed, reader).read(wrong)
        except InvalidValueError as error:
            assert str(error)


def _damaged(payload: bytearray, data: st.DataObject) -> bytes:
    damaged = bytearray(payload)
    for _ in range(3):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    return bytes(damaged)


@pytest.mark.usefixtures("needs_compiled_loops")
@SOME
@pytest.mark.usefixtures("needs_compiled_loops")
@given(schema=schemas(), data=st.data())
def test_both_loops_write_the_same_bytes_or_refuse_with_the_same_error(
    schema: Any, data: st.DataObject
) -> None:
    plan = plan_writing(parse_avro(json.dumps(schema)).root)
    assert both_write(plan, data.draw(values(schema)))
    assert both_write(plan, data.draw(values(data.draw(schemas()))))
