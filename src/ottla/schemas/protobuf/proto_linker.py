"""Turns a file as written into a final descriptor, as protoc does.

Type names become absolute, default values normal, and the options of descriptor.proto are set.
Custom options stay uninterpreted: `proto_options` sets them, because they need a descriptor pool.
"""

import math
import struct
from collections.abc import Mapping
from itertools import pairwise, zip_longest
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from ottla.schemas.protobuf.proto_names import declared_symbols, json_name, messages_of, resolve
from ottla.schemas.protobuf.proto_options import set_standard_options
from ottla.schemas.protobuf.proto_parser import FIELD_NUMBER_MAX, camel_case
from ottla.schemas.protobuf.proto_reader import ProtoFile
from ottla.schemas.protobuf.proto_tokens import fail, float_of, integer_of, shown

Field = FieldDescriptorProto

_INTEGER_RANGES: Final = {
    **dict.fromkeys((Field.TYPE_INT32, Field.TYPE_SINT32, Field.TYPE_SFIXED32), (-(2**31), 2**31)),
    **dict.fromkeys((Field.TYPE_INT64, Field.TYPE_SINT64, Field.TYPE_SFIXED64), (-(2**63), 2**63)),
    **dict.fromkeys((Field.TYPE_UINT32, Field.TYPE_FIXED32), (0, 2**32)),
    **dict.fromkeys((Field.TYPE_UINT64, Field.TYPE_FIXED64), (0, 2**64)),
}
_NO_MAP_KEYS: Final = {
    Field.TYPE_FLOAT,
    Field.TYPE_DOUBLE,
    Field.TYPE_BYTES,
    Field.TYPE_MESSAGE,
    Field.TYPE_ENUM,
    Field.TYPE_GROUP,
}
_NOT_PACKABLE: Final = {
    Field.TYPE_STRING,
    Field.TYPE_BYTES,
    Field.TYPE_MESSAGE,
    Field.TYPE_GROUP,
}
_64_BITS: Final = {
    number for number, limits in _INTEGER_RANGES.items() if limits[1] in {2**63, 2**64}
}
_RESERVED_NUMBERS: Final = range(19_000, 20_000)
_OPTIONS_PREFIX: Final = ".google.protobuf."


_TYPES: Final = frozenset({"message", "enum"})
_MESSAGES: Final = frozenset({"message"})


class Linker:
    """Links one file; `imported` has the kinds of all names that its imports make visible."""

    def __init__(self, file: ProtoFile, imported: Mapping[str, str]) -> None:
        self._file = file
        self._linked = FileDescriptorProto()
        self._linked.CopyFrom(file.descriptor)
        self._is_proto3 = file.descriptor.syntax == "proto3"
        self.kinds = dict(imported)
        self.has_custom_options = False

    def link(self) -> Any:
        """Return the final descriptor; InvalidSchemaError or OptionError if it is not valid."""
        linked = self._linked
        self.has_custom_options = set_standard_options(linked)
        if linked.syntax == "proto2":
            linked.ClearField("syntax")
        self._register()
        prefix = linked.package
        for message in linked.message_type:
            if message.options.map_entry:
                full_name = f"{prefix}.{message.name}" if prefix else message.name
                self._fail(full_name, "a map's entry must be inside the message with the map")
        for full_name, message in list(messages_of(linked)):
            self._message(message, full_name)
        self._extensions(linked.extension, prefix)
        self._enums(linked.enum_type, prefix)
        for service in linked.service:
            scope = f"{prefix}.{service.name}" if prefix else service.name
            self._service(service, scope)
        return linked

    def _fail(self, full_name: str, reason: str) -> Any:
        fail(self._file.text, self._file.position(full_name), reason)

    def _register(self) -> None:
        for full_name, kind in declared_symbols(self._linked):
            known = self.kinds.get(full_name)
            if known is not None and not known == kind == "package":
                self._fail(full_name, f"{shown(full_name)} is already declared, as a {known}")
            self.kinds[full_name] = kind

    # --- messages and fields

    def _message(self, message: Any, scope: str) -> None:
        numbers: dict[int, str] = {}
        for field in message.field:
            self._field(field, scope)
            full_name = f"{scope}.{field.name}"
            if field.number in numbers:
                taken = numbers[field.number]
                self._fail(full_name, f"number {field.number} is already taken by {shown(taken)}")
            numbers[field.number] = field.name
            if field.number in _RESERVED_NUMBERS:
                self._fail(full_name, "the numbers 19000 to 19999 are reserved for Protobuf")
        self._check_oneofs(message, scope)
        self._check_ranges(message, scope)
        self._check_json_names(message, scope)
        self._check_map_entries(message, scope)
        self._extensions(message.extension, scope)
        self._enums(message.enum_type, scope)
        self._add_synthetic_oneofs(message)

    def _field(self, field: Any, scope: str) -> None:
        full_name = f"{scope}.{field.name}" if scope else field.name
        if not field.HasField("label"):
            field.label = Field.LABEL_OPTIONAL
        if field.type_name:
            self._resolve_type(field, scope, full_name)
        if field.HasField("default_value"):
            self._default(field, full_name)
        is_repeated = field.label == Field.LABEL_REPEATED
        if field.options.packed and not (is_repeated and field.type not in _NOT_PACKABLE):
            self._fail(full_name, "only repeated numbers, bools and enums can be packed")
        if field.options.jstype and field.type not in _64_BITS:
            self._fail(full_name, "only fields of 64 bits have a jstype")
        if field.HasField("json_name") and "\0" in field.json_name:
            self._fail(full_name, "json_name has a zero character")

    def _resolve_type(self, field: Any, scope: str, full_name: str) -> None:
        found = resolve(field.type_name, scope, self.kinds, _TYPES)
        if found is None:
            self._fail(full_name, f"{shown(field.type_name)} is not defined")
        assert found is not None
        field.type_name = f".{found}"
        if self.kinds[found] == "enum":
            field.type = Field.TYPE_ENUM
        elif field.type != Field.TYPE_GROUP:
            field.type = Field.TYPE_MESSAGE

    def _add_synthetic_oneofs(self, message: Any) -> None:
        taken = {field.name for field in message.field}
        taken.update(oneof.name for oneof in message.oneof_decl)
        for field in message.field:
            if not field.proto3_optional or field.HasField("oneof_index"):
                continue
            name = field.name if field.name.startswith("_") else f"_{field.name}"
            while name in taken:
                name = f"X{name}"
            taken.add(name)
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=name)

    def _check_oneofs(self, message: Any, scope: str) -> None:
        used = {field.oneof_index for field in message.field if field.HasField("oneof_index")}
        for index, oneof in enumerate(message.oneof_decl):
            if index not in used:
                self._fail(f"{scope}.{oneof.name}", f"oneof {shown(oneof.name)} has no fields")
        if any(index not in range(len(message.oneof_decl)) for index in used):
            self._fail(scope, "a field is in a oneof that does not exist")

    def _check_ranges(self, message: Any, scope: str) -> None:
        is_set = message.options.message_set_wire_format
        largest = 2**31 if is_set else FIELD_NUMBER_MAX + 1
        spans = [(span.start, span.end, "reserved") for span in message.reserved_range]
        spans += [(span.start, span.end, "extensions") for span in message.extension_range]
        spans.sort()
        for (start, end, kind), after in zip_longest(spans, spans[1:]):
            if end > largest or start >= end:
                self._fail(f"{scope} {kind}", f"the range {start} to {end - 1} is not valid")
            if after is not None and after[0] < end:
                reason = f"the ranges that start at {start} and {after[0]} overlap"
                self._fail(f"{scope} {kind}", reason)
        self._check_fields_outside(message, scope, spans)

    def _check_fields_outside(
        self, message: Any, scope: str, spans: list[tuple[int, int, str]]
    ) -> None:
        names = set(message.reserved_name)
        ordered, index = sorted(message.field, key=lambda field: int(field.number)), 0
        for field in ordered:
            while index < len(spans) and spans[index][1] <= field.number:
                index += 1
            full_name = f"{scope}.{field.name}"
            if index < len(spans) and spans[index][0] <= field.number:
                self._fail(full_name, f"number {field.number} is in a range of {spans[index][2]}")
            if field.name in names:
                self._fail(full_name, f"the name {shown(field.name)} is reserved")

    def _check_json_names(self, message: Any, scope: str) -> None:
        """Proto3 refuses two fields with one JSON name; proto2 allows it."""
        if not self._is_proto3:
            return
        names: dict[str, str] = {}
        for field in message.field:
            name = field.json_name or json_name(field.name)
            if name in names and not message.options.deprecated_legacy_json_field_conflicts:
                reason = f"its JSON name {shown(name)} is already taken by {shown(names[name])}"
                self._fail(f"{scope}.{field.name}", reason)
            names[name] = field.name

    def _check_map_entries(self, message: Any, scope: str) -> None:
        """Each entry is of one repeated field: the text of a descriptor has entries as messages.

        Confluent's serializer for Java names the entry of `counts` countsEntry, where protoc has
        CountsEntry.
        """
        for inner in message.nested_type:
            if inner.options.map_entry:
                full_name = f"{scope}.{inner.name}"
                fields = [one for one in message.field if one.type_name == f".{full_name}"]
                if [_entry_name(field) for field in fields] != [inner.name.lower()]:
                    self._fail(full_name, "a map's entry must be of one repeated field of its name")
                self._check_map_entry(inner, full_name)

    def _check_map_entry(self, message: Any, scope: str) -> None:
        if [(field.name, field.number) for field in message.field] != [("key", 1), ("value", 2)]:
            self._fail(scope, "a map's entry must have the fields key = 1 and value = 2")
        if message.field[0].type in _NO_MAP_KEYS:
            self._fail(scope, "a map's key must be an integer, a bool or a string")

    def _extensions(self, extensions: Any, scope: str) -> None:
        for extension in extensions:
            full_name = f"{scope}.{extension.name}" if scope else extension.name
            self._field(extension, scope)
            found = resolve(extension.extendee, scope, self.kinds, _MESSAGES)
            if found is None:
                self._fail(full_name, f"{shown(extension.extendee)} is not a message")
            extension.extendee = f".{found}"
            if extension.label == Field.LABEL_REQUIRED:
                self._fail(full_name, "an extension cannot be required")
            if self._is_proto3 and not self._is_options(extension.extendee):
                self._fail(full_name, "proto3 extends only the options of descriptor.proto")

    @staticmethod
    def _is_options(name: str) -> bool:
        return name.startswith(_OPTIONS_PREFIX) and name.endswith("Options")

    # --- default values

    def _default(self, field: Any, full_name: str) -> None:
        if self._is_proto3:
            self._fail(full_name, "proto3 fields have no default value")
        if field.label == Field.LABEL_REPEATED:
            self._fail(full_name, "a repeated field has no default value")
        written = field.default_value
        if field.type in _INTEGER_RANGES:
            normal = self._default_integer(written, _INTEGER_RANGES[field.type])
        elif field.type in {Field.TYPE_FLOAT, Field.TYPE_DOUBLE}:
            normal = _default_float(written, is_float=field.type == Field.TYPE_FLOAT)
        elif field.type == Field.TYPE_BOOL:
            normal = written if written in {"true", "false"} else None
        elif field.type in {Field.TYPE_MESSAGE, Field.TYPE_GROUP}:
            normal = None
        else:
            normal = written
        if normal is None:
            self._fail(full_name, f"the default {shown(written)} does not fit the field's type")
        field.default_value = normal

    @staticmethod
    def _default_integer(written: str, limits: tuple[int, int]) -> str | None:
        value = integer_of(written.removeprefix("-"))
        if value is None:
            return None
        value = -value if written.startswith("-") else value
        return str(value) if limits[0] <= value < limits[1] else None

    # --- enums and services

    def _enums(self, enums: Any, scope: str) -> None:
        for enum in enums:
            full_name = f"{scope}.{enum.name}" if scope else enum.name
            first = f"{scope}.{enum.value[0].name}" if scope else enum.value[0].name
            if self._is_proto3 and enum.value[0].number != 0:
                self._fail(first, "the first value of a proto3 enum must be 0")
            if not enum.options.allow_alias:
                self._check_aliases(enum, scope)
            self._check_enum_ranges(enum, full_name)

    def _check_aliases(self, enum: Any, scope: str) -> None:
        numbers: dict[int, str] = {}
        for value in enum.value:
            if value.number in numbers:
                full_name = f"{scope}.{value.name}" if scope else value.name
                other = shown(numbers[value.number])
                reason = f"number {value.number} is already taken by {other}: set allow_alias"
                self._fail(full_name, reason)
            numbers[value.number] = value.name

    def _check_enum_ranges(self, enum: Any, full_name: str) -> None:
        spans = sorted((span.start, span.end) for span in enum.reserved_range)
        for before, after in pairwise(spans):
            if after[0] <= before[1]:
                reason = f"the ranges that start at {before[0]} and {after[0]} overlap"
                self._fail(f"{full_name} reserved", reason)
        ordered, index = sorted(enum.value, key=lambda value: int(value.number)), 0
        names = set(enum.reserved_name)
        for value in ordered:
            while index < len(spans) and spans[index][1] < value.number:
                index += 1
            is_reserved = index < len(spans) and spans[index][0] <= value.number
            if is_reserved or value.name in names:
                self._fail(full_name, f"value {shown(value.name)} is reserved")

    def _service(self, service: Any, scope: str) -> None:
        for method in service.method:
            for attribute in ("input_type", "output_type"):
                name = getattr(method, attribute)
                found = resolve(name, scope, self.kinds, _MESSAGES)
                if found is None:
                    self._fail(f"{scope}.{method.name}", f"{shown(name)} is not a message")
                setattr(method, attribute, f".{found}")


def _entry_name(field: Any) -> str | None:
    """Return the name of the field's entry in small letters."""
    if field.label != Field.LABEL_REPEATED or field.HasField("oneof_index"):
        return None
    return f"{camel_case(field.name)}Entry".lower()


def _default_float(written: str, *, is_float: bool) -> str | None:
    sign, digits = ("-", written[1:]) if written.startswith("-") else ("", written)
    if digits in {"inf", "nan"}:
        return sign + digits
    try:
        integer = integer_of(digits)
        value = float_of(digits) if integer is None else float(integer)
    except ValueError:
        return None
    return sign + _shortest(value, is_float=is_float)


def _shortest(value: float, *, is_float: bool) -> str:
    """Return the shortest text that gives the value again, in the form of C's `%g`."""
    value = _single(value) if is_float else value
    if value == math.inf:
        return "inf"
    digits = (6, 9) if is_float else (15, 17)
    short = f"{value:.{digits[0]}g}"
    if is_float:
        return short if _single(float(short)) == value else f"{value:.{digits[1]}g}"
    return short if float(short) == value else f"{value:.{digits[1]}g}"


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf
