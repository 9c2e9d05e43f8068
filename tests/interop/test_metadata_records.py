"""Every kind and version of metadata records, field by field as Kafka's decoder reads them."""

import json
from base64 import b64encode
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.metadata.records import RECORD_BY_KIND
from ottla.model.identifiers import uuid_to_text
from ottla.wire.primitives import uvarint
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.schema import Field, Struct
from ottla.wire.writing import encode
from tests.interop.kafka_dump import dump
from tests.message_strategies import values_of

CASES = [
    (kind, version)
    for kind, cls in RECORD_BY_KIND.items()
    for version in range(cls.versions[0], cls.versions[1] + 1)
]


@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_kafka_reads_every_field_of_every_kind(data: st.DataObject) -> None:
    records = [
        data.draw(values_of(RECORD_BY_KIND[kind], version, plain)) for kind, version in CASES
    ]
    builder = BatchBuilder()
    for (kind, version), record in zip(CASES, records, strict=True):
        frame = uvarint(1) + uvarint(kind) + uvarint(version)
        builder.append(1, None, frame + encode(record, version))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "__cluster_metadata-0" / "00000000000000000000.log"
        path.parent.mkdir()
        path.write_bytes(builder.build())
        found = dump([path], "--cluster-metadata-decoder")
    rows = [json.loads(str(row["value"])) for row in found.by_path[path].records]
    assert len(rows) == len(records)
    for (_, version), record, row in zip(CASES, records, rows, strict=True):
        assert row["version"] == version
        assert row["data"] == shown(record, version), row["type"]


def plain(field: Field) -> "st.SearchStrategy[Any] | None":
    """Leave out texts that the tool would break into lines, and numbers that JSON rounds."""
    if field.kind == "string":
        return st.text("abc-. é", max_size=8)
    if field.kind == "float64":
        return st.integers(-1000, 1000).map(lambda number: number / 8)
    return None


def shown(value: Struct, version: int) -> dict[str, Any]:
    """Return a value as Kafka's converters write it: without tagged fields at their defaults."""
    found = {}
    for field in type(value).fields:
        item = getattr(value, field.name)
        is_default = item == field.default or (field.is_array and item == [] == field.default)
        if field.is_present(version) and not (field.is_tagged(version) and is_default):
            found[camel_case(field.name)] = converted(field, item, version)
    return found


def converted(field: Field, item: Any, version: int) -> Any:
    if item is None:
        return None
    if isinstance(item, list):
        return [converted(field, one, version) for one in item]
    if isinstance(item, Struct):
        return shown(item, version)
    if field.kind == "uuid":
        return uuid_to_text(item)
    return b64encode(item).decode() if field.kind == "bytes" else item


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))
