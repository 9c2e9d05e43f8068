"""kio: its classes are generated from Kafka's definitions, and its reader is written in Rust."""

import dataclasses
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from io import BytesIO
from types import NoneType
from typing import Any, Final, get_args

from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import LoadableEntityType, api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from ottla.model.identifiers import ZERO_UUID
from ottla.wire.apis import API_BY_KEY
from ottla.wire.schema import Field, Message
from tests.conformance.oracles import Plain

_ERROR_CODES: Final = tuple(int(code) for code in ErrorCode)
"""In kio these are an enumeration, which refuses any other number."""
_MOMENTS: Final = {
    "expiry_timestamp_ms": range(1 << 47),
    "issue_timestamp_ms": range(1 << 47),
    "log_append_time_ms": range(-1, 1 << 47),
    "max_timestamp_ms": range(1 << 47),
    "transaction_start_time_ms": range(1 << 47),
}
"""Datetimes in kio, not before 1970; in one field, -1 means that there is no time."""
_DURATIONS: Final = range(-(1 << 50), 1 << 50)
"""Sixty-four bits of milliseconds are timedeltas in kio, written by way of a float."""
_NAME_AND_TYPE: Final[dict[type[Message], tuple[str, LoadableEntityType]]] = {
    **{api.request: (api_key_map[key], EntityType.request) for key, api in API_BY_KEY.items()},
    **{api.response: (api_key_map[key], EntityType.response) for key, api in API_BY_KEY.items()},
}
_MISREAD: Final = frozenset({("BrokerHeartbeatRequest", 2)})
"""In kio the default of its nullable array of uuids is a uuid."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


class Kio:
    """kio, as an oracle."""

    fills_in_structs = True

    def knows(self, cls: type[Message], version: int) -> bool:
        if (cls.__name__, version) in _MISREAD:
            return False
        name, entity_type = _name_and_type(cls)
        return entity_type in schema_name_map.get(name, {}).get(version, {})

    def allowed(self, cls: type[Message], field: Field) -> Sequence[Any] | None:
        if field.name.endswith("error_code"):
            return _ERROR_CODES
        if field.kind == "int64" and field.name.endswith("_ms"):
            return _MOMENTS.get(field.name, _DURATIONS)
        return None

    def nullable_fields(self, cls: type[Message], version: int) -> set[str]:
        return _nullable_fields(kio_class(cls, version), "")

    def read(self, cls: type[Message], version: int, raw: bytes) -> tuple[Plain, bytes]:
        return _read_entity(kio_class(cls, version), raw)


def kio_class(cls: type[Message], version: int) -> Any:
    """Return kio's class for this version of a message."""
    name, entity_type = _name_and_type(cls)
    return load_entity_schema(name, version, entity_type)


def read_header(name: str, version: int, raw: bytes) -> tuple[Plain, bytes]:
    """Read a header; return its fields, and the bytes that kio writes for it."""
    return _read_entity(load_entity_schema(name, version, EntityType.header), raw)


def _name_and_type(cls: type[Message]) -> tuple[str, LoadableEntityType]:
    # Messages that are neither requests nor responses are data in kio, under Kafka's names.
    snake_case = re.sub("(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    return _NAME_AND_TYPE.get(cls, (snake_case, EntityType.data))


def _read_entity(entity_class: Any, raw: bytes) -> tuple[Plain, bytes]:
    entity, end = entity_reader(entity_class)(raw, 0)
    assert end == len(raw)
    written = BytesIO()
    entity_writer(entity_class)(written, entity)
    return _plain(entity), written.getvalue()


def _nullable_fields(entity_class: Any, path: str) -> set[str]:
    found = set()
    for field in dataclasses.fields(entity_class):
        here = f"{path}.{_kafka_name(field)}"
        types = {field.type, *get_args(field.type)}
        # A uuid of zeros and a moment of -1 are None in kio, and are not null in Kafka.
        if NoneType in types and field.metadata.get("kafka_type") not in {"uuid", "datetime_i64"}:
            found.add(here)
        types |= {inner for outer in types for inner in get_args(outer)}
        for nested in filter(dataclasses.is_dataclass, types):
            found |= _nullable_fields(nested, here)
    return found


def _kafka_name(field: dataclasses.Field[Any]) -> str:
    # kio gives points and lengths of time a type, and takes the unit off their names.
    is_time = field.metadata.get("kafka_type", "").startswith(("datetime", "timedelta"))
    return field.name.removesuffix("_") + ("_ms" if is_time else "")


def _plain(entity: Any) -> Plain:
    return {
        _kafka_name(field): _plain_item(
            field.metadata.get("kafka_type", "entity"), getattr(entity, field.name)
        )
        for field in dataclasses.fields(entity)
    }


def _plain_item(kind: str, item: Any) -> Any:
    if isinstance(item, tuple):
        return [_plain_item(kind, each) for each in item]
    match kind:
        case "entity":
            return None if item is None else _plain(item)
        case "uuid":
            return ZERO_UUID if item is None else item.bytes
        case "datetime_i64":
            return -1 if item is None else round((item - _EPOCH) / _MILLISECOND)
        case "timedelta_i32" | "timedelta_i64":
            return item // _MILLISECOND
        case _:
            return item
