"""kafka-python, which interprets Kafka's definitions as they stand.

For versions that these definitions have dropped, it still has older ones that were written by hand.
"""

import warnings
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from types import ModuleType
from typing import Any, Final

from ottla.model.identifiers import ZERO_UUID
from ottla.wire.headers import RequestHeader
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.schema import Field, Message
from tests.conformance.oracles import Plain

with warnings.catch_warnings():
    # It loads the definitions with functions that Python 3.11 and 3.12 call deprecated.
    warnings.filterwarnings("ignore", "(read|open)_text is deprecated", DeprecationWarning)
    from kafka.protocol import admin, consumer, metadata, producer, sasl
    from kafka.protocol.api_header import RequestHeader as TheirRequestHeader
    from kafka.protocol.api_header import ResponseHeader as TheirResponseHeader
    from kafka.protocol.api_message import ApiMessage
    from kafka.protocol.old import admin as old_admin
    from kafka.protocol.old import commit, fetch, list_offsets, offset_for_leader_epoch, produce
    from kafka.protocol.old.struct import Struct as OldStruct
    from kafka.protocol.old.types import Array, Schema

_MODULES: Final = (admin, consumer, metadata, producer, sasl)
_OLD_MODULES: Final = (
    old_admin,
    commit,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
_WRONG: Final = {
    old_admin.DescribeLogDirsRequest_v0,  # reads one partition where Kafka has an array of them
}
_KAFKA_NAMES: Final = {
    ("DescribeClusterResponse", "authorized_operations"): "cluster_authorized_operations",
    ("MetadataResponse", "authorized_operations"): "cluster_authorized_operations",
    ("MetadataResponseTopic", "authorized_operations"): "topic_authorized_operations",
}
"""The fields that kafka-python names in its own way."""


class KafkaPython:
    """kafka-python, as an oracle."""

    fills_in_structs = False

    def knows(self, cls: type[Message], version: int) -> bool:
        return _class_of(cls, version) is not None

    def allowed(self, cls: type[Message], field: Field) -> Sequence[Any] | None:
        if cls is ApiVersionsResponse and field.name == "error_code":
            return (0,)  # it takes any response with an error for version 0
        return None

    def nullable_fields(self, cls: type[Message], version: int) -> set[str]:
        return _nullable_fields(_class_of(cls, version), version, "")

    def says_what_is_nullable(self, cls: type[Message], version: int) -> bool:
        """Return whether its class defines nullability; old classes accept null anywhere."""
        return not issubclass(_class_of(cls, version), OldStruct)

    def read(self, cls: type[Message], version: int, raw: bytes) -> tuple[Plain, bytes]:
        value = _read(cls, version, raw)
        said = _plain_old_message(value) if isinstance(value, OldStruct) else _plain(value)
        return said, value.encode(header=False)

    def frame(self, cls: type[Message], version: int, raw: bytes, header: RequestHeader) -> bytes:
        """Return a whole frame for an encoded message, starting with the frame length."""
        value = _read(cls, version, raw)
        value.with_header(header.correlation_id, header.client_id)
        framed: bytes = value.encode(header=True, framed=True)
        return framed


def read_request_header(version: int, raw: bytes) -> tuple[Plain, bytes]:
    """Read a header; return its fields, and the bytes that kafka-python writes for it."""
    return _read_header(TheirRequestHeader, raw, flexible=version == 2)


def read_response_header(version: int, raw: bytes) -> tuple[Plain, bytes]:
    """Read a header; return its fields, and the bytes that kafka-python writes for it."""
    return _read_header(TheirResponseHeader, raw, flexible=version == 1)


def _read_header(theirs: Any, raw: bytes, *, flexible: bool) -> tuple[Plain, bytes]:
    header = theirs.decode(BytesIO(raw), flexible=flexible)
    return _plain(header), header.encode(flexible=flexible)


def _read(cls: type[Message], version: int, raw: bytes) -> Any:
    theirs = _class_of(cls, version)
    if issubclass(theirs, OldStruct):
        return theirs.decode(raw)
    value = theirs.decode(raw, version=version, header=False)
    if isinstance(value, ApiMessage):
        value.with_header()  # some do not even write their body without one
    return value


@cache
def _class_of(cls: type[Message], version: int) -> Any:
    """Return the class for this version of a message, or None if there is none."""
    current = _find(cls.__name__, _MODULES)
    if current is not None and current.valid_versions[0] <= version <= current.valid_versions[1]:
        return current
    old = _find(f"{cls.__name__}_v{version}", _OLD_MODULES)
    return None if old in _WRONG else old


def _find(name: str, modules: Sequence[ModuleType]) -> Any:
    return next((getattr(module, name) for module in modules if hasattr(module, name)), None)


def _nullable_fields(container: Any, version: int, path: str) -> set[str]:
    found = set()
    for name, field in container.fields.items():
        if not field.for_version_q(version):
            continue
        here = f"{path}.{_kafka_name(container, name)}"
        if field.nullable_for_version_q(version):
            found.add(here)
        if field.is_struct() or field.is_struct_array():
            found |= _nullable_fields(field.data_class, version, here)
    return found


def _kafka_name(container: Any, name: str) -> str:
    return _KAFKA_NAMES.get((container.__name__, name), name)


def _plain(value: Any) -> Plain:
    return {
        _kafka_name(type(value), name): _plain_item(
            field.type_str.removeprefix("[]"), getattr(value, name)
        )
        for name, field in value.fields.items()
        if field.for_version_q(value.version)
    }


def _plain_item(kind: str, item: Any) -> Any:
    if isinstance(item, list):
        return [_plain_item(kind, each) for each in item]
    match kind:
        case "uuid":
            return ZERO_UUID if item is None else item.bytes
        case "bitfield":
            bits = sum(1 << bit for bit in ({31} if item is None else item))
            return bits - (1 << 32) if bits >> 31 else bits
        case _:
            return _plain(item) if hasattr(item, "fields") else item


def _plain_old_message(value: OldStruct) -> Plain:
    schema = value.SCHEMA
    return _plain_old(schema, [getattr(value, name) for name in schema.names])


def _plain_old(schema: Schema, values: Sequence[Any]) -> Plain:
    fields = zip(schema.names, schema.fields, values, strict=True)
    return {name: _plain_old_item(kind, item) for name, kind, item in fields}


def _plain_old_item(kind: Any, item: Any) -> Any:
    if isinstance(kind, Array) and item is not None:
        return [_plain_old_item(kind.array_of, each) for each in item]
    return _plain_old(kind, item) if isinstance(kind, Schema) else item
