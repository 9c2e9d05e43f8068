"""Compares two Protobuf schemas, with Confluent's names of the differences.

Messages are compared by name and fields by number. Compatible, and not reported, are: messages,
enums, enum values and oneofs that are added, optional fields that come or go, new names of fields,
and a string or bytes field that becomes repeated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto

from ottla.schemas.parsed_schema import Incompatibility

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema

Field = FieldDescriptorProto

_MESSAGES: Final = {Field.TYPE_MESSAGE, Field.TYPE_GROUP}
_TEXT_KIND: Final = "string or bytes"
_SCALAR_KINDS: Final = {
    **dict.fromkeys(
        (
            Field.TYPE_INT32,
            Field.TYPE_INT64,
            Field.TYPE_UINT32,
            Field.TYPE_UINT64,
            Field.TYPE_BOOL,
            Field.TYPE_ENUM,
        ),
        "varint",
    ),
    **dict.fromkeys((Field.TYPE_SINT32, Field.TYPE_SINT64), "zigzag varint"),
    **dict.fromkeys((Field.TYPE_STRING, Field.TYPE_BYTES), _TEXT_KIND),
    **dict.fromkeys((Field.TYPE_FIXED32, Field.TYPE_SFIXED32), "fixed 32 bits"),
    **dict.fromkeys((Field.TYPE_FIXED64, Field.TYPE_SFIXED64), "fixed 64 bits"),
    Field.TYPE_FLOAT: "float",
    Field.TYPE_DOUBLE: "double",
}


@dataclass(frozen=True, slots=True)
class _MessageType:
    """A message and its place: the name without the package, and whether the own file has it."""

    message: Any
    local_name: str
    is_imported: bool


def incompatibilities(reader: ProtobufSchema, writer: ProtobufSchema) -> list[Incompatibility]:
    """Return why the reader's schema cannot read data of the writer's."""
    comparison = _Comparison(_types(writer), _types(reader))
    before, after = writer.descriptor, reader.descriptor
    if before.package != after.package:
        comparison.add(
            "PACKAGE_CHANGED",
            "#/",
            f"The package changed from {before.package or 'none'} to {after.package or 'none'}",
        )
    comparison.compare_messages(before.message_type, after.message_type, "#/")
    return comparison.found


def _types(schema: ProtobufSchema) -> dict[str, _MessageType]:
    own = schema.descriptor
    found = {}
    for descriptor in schema.files.values():
        prefix = f".{descriptor.package}" if descriptor.package else ""
        pending = [("", message) for message in descriptor.message_type]
        while pending:
            scope, message = pending.pop()
            name = f"{scope}.{message.name}"
            is_imported = descriptor is not own
            found[prefix + name] = _MessageType(message, name[1:], is_imported)
            pending += [(name, inner) for inner in message.nested_type]
    return found


@dataclass(slots=True)
class _Comparison:
    writer_types: Mapping[str, _MessageType]
    reader_types: Mapping[str, _MessageType]
    found: list[Incompatibility] = field(default_factory=list)
    compared: set[tuple[str, str]] = field(default_factory=set)

    def add(self, rule: str, path: str, message: str) -> None:
        self.found.append(Incompatibility(rule, path, message))

    def compare_messages(self, before: Any, after: Any, path: str) -> None:
        """Compare the messages of one scope by name. The depth is limited by the parser."""
        after_by_name = {message.name: message for message in after}
        for message in before:
            if message.options.map_entry:
                continue
            inner_path, match = f"{path}{message.name}", after_by_name.get(message.name)
            if match is None or match.options.map_entry:
                text = f"Message {message.name} was removed: keep it, even without fields"
                self.add("MESSAGE_REMOVED", inner_path, text)
                continue
            self._compare(message, match, inner_path)
            self.compare_messages(message.nested_type, match.nested_type, f"{inner_path}/")

    def _compare(self, before: Any, after: Any, path: str) -> None:
        before_by_number = {member.number: member for member in before.field}
        after_by_number = {member.number: member for member in after.field}
        self._compare_oneofs(before, after, path)
        for number in sorted({*before_by_number, *after_by_number}):
            old, new = before_by_number.get(number), after_by_number.get(number)
            field_path = f"{path}/{number}"
            if old is not None and new is not None:
                self._compare_fields(old, new, field_path)
            else:
                self._compare_presence(old, new, field_path)

    def _compare_presence(self, old: Any, new: Any, path: str) -> None:
        if old is not None and old.label == Field.LABEL_REQUIRED:
            text = f"Required field {old.name} was removed: keep it, or make it optional first"
            self.add("REQUIRED_FIELD_REMOVED", path, text)
        if new is not None and new.label == Field.LABEL_REQUIRED:
            text = f"Required field {new.name} was added: make it optional"
            self.add("REQUIRED_FIELD_ADDED", path, text)

    def _compare_oneofs(self, before: Any, after: Any, path: str) -> None:
        old_members, new_members = _oneof_members(before), _oneof_members(after)
        was_plain = {member.number for member in before.field if not _is_in_oneof(member)}
        was_in_oneof = {number for numbers in old_members.values() for number in numbers}
        stays = {member.number for member in after.field}
        for name, numbers in new_members.items():
            moved = len(was_plain & numbers.keys())
            if moved > 1:
                text = f"{moved} fields were moved into oneof {name}, which keeps a single field"
                self.add("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}", text)
            elif moved == 1 and was_in_oneof & numbers.keys():
                text = f"A field was moved into oneof {name}, which already had fields"
                self.add("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}", text)
        for name, numbers in old_members.items():
            for number in sorted(numbers.keys() - stays if name in new_members else ()):
                text = f"Field {numbers[number]} was removed from oneof {name}"
                self.add("ONEOF_FIELD_REMOVED", f"{path}/{name}/{number}", text)

    def _compare_fields(self, old: Any, new: Any, path: str) -> None:
        old_kind, new_kind = self._kind(old, self.writer_types), self._kind(new, self.reader_types)
        if old_kind != new_kind:
            text = f"Field {new.name} changed from a {old_kind} to a {new_kind}"
            self.add("FIELD_KIND_CHANGED", path, text)
        elif old_kind == "scalar":
            self._compare_scalars(old, new, path)
        elif old_kind == "message":
            self._compare_named_types(old, new, path)
        else:
            old_entry = self.writer_types[old.type_name].message.field
            new_entry = self.reader_types[new.type_name].message.field
            for old_part, new_part in zip(old_entry, new_entry, strict=False):
                self._compare_fields(old_part, new_part, path)

    @staticmethod
    def _kind(member: Any, types: Mapping[str, _MessageType]) -> str:
        if member.type not in _MESSAGES:
            return "scalar"
        return "map" if types[member.type_name].message.options.map_entry else "message"

    def _compare_scalars(self, old: Any, new: Any, path: str) -> None:
        old_kind, new_kind = _SCALAR_KINDS[old.type], _SCALAR_KINDS[new.type]
        if old_kind != new_kind:
            text = f"Field {new.name} changed its encoding from {old_kind} to {new_kind}"
            self.add("FIELD_SCALAR_KIND_CHANGED", path, text)
            return
        was_repeated = old.label == Field.LABEL_REPEATED
        is_repeated = new.label == Field.LABEL_REPEATED
        if was_repeated != is_repeated and old_kind != _TEXT_KIND:
            change = "is now repeated" if is_repeated else "is no longer repeated"
            text = f"Field {new.name} {change}: a number is encoded in another way then"
            self.add("FIELD_NUMERIC_LABEL_CHANGED", path, text)

    def _compare_named_types(self, old: Any, new: Any, path: str) -> None:
        before, after = self.writer_types[old.type_name], self.reader_types[new.type_name]
        if before.local_name != after.local_name:
            text = f"Field {new.name} changed from {before.local_name} to {after.local_name}"
            self.add("FIELD_NAMED_TYPE_CHANGED", path, text)
        elif before.is_imported or after.is_imported:
            # The messages of the own file are compared by name; a recursive type only once.
            pair = (old.type_name, new.type_name)
            if pair in self.compared:
                return
            self.compared.add(pair)
            differences = len(self.found)
            self._compare_whole(before, after)
            if len(self.found) > differences:
                text = f"Field {new.name} has type {after.local_name}, which changed"
                self.add("FIELD_NAMED_TYPE_CHANGED", path, text)

    def _compare_whole(self, before: _MessageType, after: _MessageType) -> None:
        if before.message is after.message:
            return
        path = f"#/{before.local_name.replace('.', '/')}"
        self._compare(before.message, after.message, path)
        self.compare_messages(before.message.nested_type, after.message.nested_type, f"{path}/")


def _is_in_oneof(member: Any) -> bool:
    return member.HasField("oneof_index") and not member.proto3_optional


def _oneof_members(message: Any) -> dict[str, dict[int, str]]:
    """Return the names of the fields by number, by oneof; synthetic oneofs are left out."""
    return dict(_members(message))


def _members(message: Any) -> Iterator[tuple[str, dict[int, str]]]:
    for index, oneof in enumerate(message.oneof_decl):
        numbers = {
            member.number: str(member.name)
            for member in message.field
            if _is_in_oneof(member) and member.oneof_index == index
        }
        if numbers:
            yield oneof.name, numbers
