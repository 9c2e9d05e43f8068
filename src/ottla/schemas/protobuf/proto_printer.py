"""Prints a file as text, in the form that Confluent's registry stores.

The form decides which id a text has, so each blank line counts. Comments are left out. Sections
come in a fixed order: in a message reserved, options, fields, oneofs, groups, extension ranges,
extensions, messages, enums.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from ottla.schemas.protobuf.proto_names import json_name, messages_of
from ottla.schemas.protobuf.proto_options import holders_of, written_options
from ottla.schemas.protobuf.proto_parser import FIELD_NUMBER_MAX, SCALARS
from ottla.schemas.protobuf.proto_reader import (
    ENUM_NUMBER_MAX,
    ProtoFile,
    ReservedValue,
    option_name,
)
from ottla.schemas.protobuf.proto_tokens import Token, TokenKind, bytes_of, quoted, tokens_of

Field = FieldDescriptorProto
_SCALAR_NAMES: Final = {number: name for name, number in SCALARS.items()}
_LABELS: Final = {
    Field.LABEL_OPTIONAL: "optional ",
    Field.LABEL_REQUIRED: "required ",
    Field.LABEL_REPEATED: "repeated ",
}
_EDITIONS: Final = {1000: "2023", 1001: "2024"}


def source_of(linked: Any, pool: DescriptorPool, *, has_map_fields: bool = True) -> ProtoFile:
    """Return a final descriptor as a file could write it: options as text, labels where needed.

    Without map fields, a map is a repeated field of a message with the option `map_entry`. Only
    that form keeps the place of the entry, which message indexes count, among the other messages.
    """
    source = FileDescriptorProto()
    source.CopyFrom(linked)
    source.ClearField("source_code_info")
    for _, holder in holders_of(source):
        if holder.HasField("options"):
            written = written_options(holder.options, pool)
            is_entry = getattr(holder.options, "map_entry", False)
            holder.options.Clear()
            holder.options.uninterpreted_option.extend(written)
            if is_entry and has_map_fields:
                holder.options.map_entry = True
    is_proto2 = source.syntax in {"", "proto2"}
    for _, message in messages_of(source):
        _unlink_fields(message.field, is_proto2=is_proto2)
        _unlink_fields(message.extension, is_proto2=is_proto2)
        used = [f.oneof_index for f in message.field if f.HasField("oneof_index")]
        # Synthetic oneofs come last, so the indexes of the others stay.
        del message.oneof_decl[max(used, default=-1) + 1 :]
    _unlink_fields(source.extension, is_proto2=is_proto2)
    return ProtoFile(source)


def _unlink_fields(fields: Any, *, is_proto2: bool) -> None:
    for field in fields:
        if field.proto3_optional:
            field.ClearField("oneof_index")
        elif field.HasField("oneof_index") or (
            not is_proto2 and field.label == Field.LABEL_OPTIONAL
        ):
            field.ClearField("label")
        if field.json_name == json_name(field.name):
            field.ClearField("json_name")


def sort_for_normal_form(file: ProtoFile) -> None:
    """Sort imports, fields, ranges and enum values; the order of types stays: indexes need it."""
    source = file.descriptor
    _sort_imports(source)
    for _, message in messages_of(source):
        _sort_oneofs(message)
        message.field.sort(key=lambda field: int(field.number))
        _sort_extensions(message.extension)
        message.reserved_range.sort(key=lambda span: int(span.start))
        message.reserved_name.sort()
        message.extension_range.sort(key=lambda span: int(span.start))
        _sort_enums(message.enum_type)
    _sort_extensions(source.extension)
    _sort_enums(source.enum_type)


def _sort_imports(source: Any) -> None:
    public = {source.dependency[index] for index in source.public_dependency}
    weak = {source.dependency[index] for index in source.weak_dependency}
    paths = sorted(source.dependency)
    del source.dependency[:], source.public_dependency[:], source.weak_dependency[:]
    source.dependency.extend(paths)
    source.public_dependency.extend(i for i, path in enumerate(paths) if path in public)
    source.weak_dependency.extend(i for i, path in enumerate(paths) if path in weak)


def _sort_oneofs(message: Any) -> None:
    first: dict[int, int] = {}
    for field in message.field:
        if field.HasField("oneof_index"):
            smallest = min(field.number, first.get(field.oneof_index, field.number))
            first[field.oneof_index] = smallest
    order = sorted(range(len(message.oneof_decl)), key=lambda index: first.get(index, 0))
    place = {old: new for new, old in enumerate(order)}
    oneofs = [message.oneof_decl[index] for index in order]
    for field in message.field:
        if field.HasField("oneof_index"):
            field.oneof_index = place[field.oneof_index]
    copies = [type(oneof).FromString(oneof.SerializeToString()) for oneof in oneofs]
    del message.oneof_decl[:]
    message.oneof_decl.extend(copies)


def _sort_extensions(extensions: Any) -> None:
    order: dict[str, int] = {}
    for extension in extensions:
        order.setdefault(extension.extendee, len(order))
    extensions.sort(key=lambda extension: (order[extension.extendee], extension.number))


def _sort_enums(enums: Any) -> None:
    for enum in enums:
        enum.value.sort(key=lambda value: (value.number, value.name))
        enum.reserved_range.sort(key=lambda span: int(span.start))
        enum.reserved_name.sort()


def move_implied_messages_last(file: ProtoFile) -> None:
    """Move the entries of map fields, and the messages of groups, behind the declared messages.

    Text of a canonical form has all fields before the messages. With the places of protoc, an entry
    or a group would therefore change the indexes of the messages that were declared before it. So
    Confluent's registry counts the declared messages only.
    """
    source = file.descriptor
    for scope, messages in (
        (source, source.message_type),
        *((message, message.nested_type) for _, message in messages_of(source)),
    ):
        hidden = _group_names(scope)
        messages.sort(key=lambda one: one.options.map_entry or one.name in hidden)


def print_file(file: ProtoFile, *, ignore_extensions: bool = False) -> str:
    """Return the text of a file as written, or of a source made by source_of."""
    return _Printer(file, ignore_extensions).text()


def _indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.rstrip("\n").split("\n"))


@dataclass(frozen=True, slots=True)
class _Printer:
    file: ProtoFile
    ignores_extensions: bool

    def text(self) -> str:
        source = self.file.descriptor
        prefix = f"{source.package}." if source.package else ""
        sections = [
            "".join(map(self._import, self._imports(source))),
            "".join(self._option_statements(source.options)),
            self._types(source, source.message_type, prefix),
            self._extends(source, source.message_type, prefix),
            "".join(self._service(service) for service in source.service),
        ]
        return self._head(source) + "".join(f"\n{part}" for part in sections if part)

    @staticmethod
    def _head(source: Any) -> str:
        head = ""
        if source.syntax == "editions":
            head = f'edition = "{_EDITIONS.get(source.edition, "")}";\n'
        elif source.syntax:
            head = f'syntax = "{source.syntax}";\n'
        return f"{head}package {source.package};\n" if source.package else head

    @staticmethod
    def _imports(source: Any) -> list[tuple[str, str]]:
        public, weak = set(source.public_dependency), set(source.weak_dependency)
        kinds = [
            (("public " if index in public else "weak " if index in weak else ""), path)
            for index, path in enumerate(source.dependency)
        ]
        return sorted(kinds, key=lambda entry: ("", "public ", "weak ").index(entry[0]))

    @staticmethod
    def _import(entry: tuple[str, str]) -> str:
        return f"import {entry[0]}{quoted(entry[1].encode())};\n"

    # --- types

    def _types(self, scope: Any, messages: Any, prefix: str) -> str:
        hidden = _group_names(scope)
        shown_messages = [
            self._message(message, prefix + message.name)
            for message in messages
            if not message.options.map_entry and message.name not in hidden
        ]
        enums = [self._enum(enum, prefix + enum.name) for enum in scope.enum_type]
        return "".join(shown_messages) + "".join(enums)

    def _message(self, message: Any, full_name: str) -> str:
        body = self._message_body(message, full_name)
        return f"{_visibility(message)}message {message.name} {{{body}}}\n"

    def _message_body(self, message: Any, full_name: str) -> str:
        bare = [field for field in message.field if not field.HasField("oneof_index")]
        groups = [field for field in bare if field.type == Field.TYPE_GROUP]
        prefix = f"{full_name}."
        print_field = self._field_printer(message, message.nested_type, prefix)
        sections: list[Iterable[str]] = [
            self._reserved(message, full_name, largest=FIELD_NUMBER_MAX, excess=1),
            self._option_statements(message.options),
            (print_field(field) for field in bare if field.type != Field.TYPE_GROUP),
            self._oneofs(message, print_field),
            map(print_field, groups),
            [] if self.ignores_extensions else self._extension_ranges(message, full_name),
            [self._extends(message, message.nested_type, prefix)],
            [self._types(message, message.nested_type, prefix)],
        ]
        texts = ("".join(section) for section in sections)
        return "".join(f"\n{_indented(text)}" for text in texts if text)

    def _oneofs(self, message: Any, print_field: Callable[[Any], str]) -> Iterator[str]:
        for index, oneof in enumerate(message.oneof_decl):
            fields = [
                field
                for field in message.field
                if field.HasField("oneof_index") and field.oneof_index == index
            ]
            fields.sort(key=lambda field: bool(field.type == Field.TYPE_GROUP))
            options = "".join(self._option_statements(oneof.options))
            body = f"\n{_indented(options)}" if options else ""
            yield f"oneof {oneof.name} {{{body}\n{_indented(''.join(map(print_field, fields)))}}}\n"

    def _field_printer(self, scope: Any, messages: Any, prefix: str) -> Callable[[Any], str]:
        del scope
        nested = {message.name: message for message in messages}

        def print_field(field: Any) -> str:
            label = _LABELS[field.label] if field.HasField("label") else ""
            inner = nested.get(field.type_name.rpartition(".")[2])
            if field.type == Field.TYPE_GROUP and inner is not None:
                options = self._bracketed(field)
                body = self._message_body(inner, prefix + inner.name)
                return f"{label}group {inner.name} = {field.number}{options} {{{body}}}\n"
            kind = _type_name(field)
            is_own = field.type_name in {inner and inner.name, f".{prefix}{inner and inner.name}"}
            if inner is not None and is_own and inner.options.map_entry:
                label, kind = "", f"map<{', '.join(map(_type_name, inner.field))}>"
            return f"{label}{kind} {field.name} = {field.number}{self._bracketed(field)};\n"

        return print_field

    def _extends(self, scope: Any, messages: Any, prefix: str) -> str:
        if self.ignores_extensions:
            return ""
        print_field = self._field_printer(scope, messages, prefix)
        return "".join(
            f"extend {name} {{\n{_indented(''.join(map(print_field, extensions)))}}}\n"
            for name, extensions in groupby(scope.extension, key=lambda field: str(field.extendee))
        )

    def _enum(self, enum: Any, full_name: str) -> str:
        reserved = "".join(self._reserved(enum, full_name, largest=ENUM_NUMBER_MAX, excess=0))
        lines = "".join(self._option_statements(enum.options))
        lines += "".join(
            f"{value.name} = {value.number}{self._bracketed(value)};\n" for value in enum.value
        )
        return f"{_visibility(enum)}enum {enum.name} {{\n{_indented(reserved + lines)}}}\n"

    def _service(self, service: Any) -> str:
        options = "".join(self._option_statements(service.options))
        methods = "".join(map(self._method, service.method))
        body = "".join(f"\n{_indented(part)}" for part in (options, methods) if part)
        return f"service {service.name} {{{body}}}\n"

    def _method(self, method: Any) -> str:
        request = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        response = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        options = "".join(self._option_statements(method.options))
        body = f" {{\n{_indented(options)}}}" if options else ""
        return f"rpc {method.name} ({request}) returns ({response}){body};\n"

    # --- ranges and options

    def _reserved(self, owner: Any, full_name: str, *, largest: int, excess: int) -> Iterator[str]:
        statements = self.file.reserved.get(full_name)
        if statements is None:
            spans = ((span.start, span.end - excess) for span in owner.reserved_range)
            statements = [[first if first == last else (first, last)] for first, last in spans]
            statements += [[str(name)] for name in owner.reserved_name]
        is_bare = self.file.descriptor.syntax == "editions"
        for values in statements:
            texts = (_range_text(value, largest, is_bare=is_bare) for value in values)
            yield f"reserved {', '.join(texts)};\n"

    def _extension_ranges(self, message: Any, full_name: str) -> Iterator[str]:
        statements = self.file.extension_ranges.get(full_name)
        if statements is None:
            spans = ((span.start, span.end - 1) for span in message.extension_range)
            statements = [[first if first == last else (first, last)] for first, last in spans]
        spans_left = iter(message.extension_range)
        for values in statements:
            texts = (_range_text(value, FIELD_NUMBER_MAX, is_bare=False) for value in values)
            first, *_ = [next(spans_left) for _ in values]
            yield f"extensions {', '.join(texts)}{self._bracketed(first)};\n"

    def _options(self, options: Any) -> list[Any]:
        found = list(options.uninterpreted_option)
        if not self.ignores_extensions:
            return found
        return [
            option
            for option in found
            if not option.name[0].is_extension
            or option.name[0].name_part.lstrip(".").startswith("confluent.")
        ]

    def _option_statements(self, options: Any) -> Iterator[str]:
        return (f"option {_option_text(option)};\n" for option in self._options(options))

    def _bracketed(self, holder: Any) -> str:
        texts = [_option_text(option) for option in self._options(holder.options)]
        if isinstance(holder, FieldDescriptorProto):
            if holder.HasField("default_value"):
                texts.append(f"default = {_default_text(holder)}")
            if holder.HasField("json_name"):
                texts.append(f"json_name = {quoted(holder.json_name.encode())}")
        if not texts:
            return ""
        if len(texts) == 1:
            return f" [{texts[0]}]"
        return f" [\n{''.join(map(_indented, _with_commas(texts)))}]"


def _visibility(declaration: Any) -> str:
    return ("", "local ", "export ")[getattr(declaration, "visibility", 0)]


def _group_names(scope: Any) -> set[str]:
    fields = [*getattr(scope, "field", ()), *scope.extension]
    return {f.type_name.rpartition(".")[2] for f in fields if f.type == Field.TYPE_GROUP}


def _type_name(field: Any) -> str:
    return str(field.type_name) if field.type_name else _SCALAR_NAMES[field.type]


def _default_text(field: Any) -> str:
    if field.type == Field.TYPE_STRING:
        return quoted(field.default_value.encode())
    return f'"{field.default_value}"' if field.type == Field.TYPE_BYTES else field.default_value


def _range_text(value: ReservedValue, largest: int, *, is_bare: bool) -> str:
    if isinstance(value, str):
        return value if is_bare else quoted(value.encode())
    if isinstance(value, int):
        return str(value)
    return f"{value[0]} to {'max' if value[1] >= largest else value[1]}"


def _with_commas(texts: list[str]) -> Iterator[str]:
    yield from (f"{text}," for text in texts[:-1])
    yield texts[-1]


def _option_text(option: Any) -> str:
    name = option_name(option)
    if option.HasField("aggregate_value"):
        return f"{name} = {_aggregate(option.aggregate_value)}"
    if option.HasField("string_value"):
        return f"{name} = {quoted(option.string_value)}"
    if option.HasField("identifier_value"):
        return f"{name} = {option.identifier_value}"
    if option.HasField("double_value"):
        return f"{name} = {_double_text(option.double_value)}"
    if option.HasField("negative_int_value"):
        return f"{name} = {option.negative_int_value}"
    return f"{name} = {option.positive_int_value}"


def _double_text(value: float) -> str:
    return repr(value) if math.isfinite(value) else ("-inf" if value < 0 else str(value))


def _aggregate(text: str) -> str:
    """Print a message in text format: one field per line, repeated fields as lists."""
    return _AggregatePrinter(tokens_of(text)).fields()


class _AggregatePrinter:
    """Prints the tokens of text format; the parser has limited their nesting."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._next = 0

    def fields(self) -> str:
        found: dict[str, list[str]] = {}
        while self._tokens[self._next].text not in {"", "}", ">"}:
            if self._accept(",") or self._accept(";"):
                continue
            name = self._name()
            self._accept(":")
            found.setdefault(name, []).extend(self._values())
        lines = [f"{name}: {_listed(values)}" for name, values in found.items()]
        return f"{{\n{''.join(map(_indented, _with_commas(lines)))}}}" if lines else "{\n}"

    def _accept(self, text: str) -> bool:
        token = self._tokens[self._next]
        is_there = token.text == text and token.kind is TokenKind.SYMBOL
        self._next += is_there
        return is_there

    def _name(self) -> str:
        parts = []
        if self._accept("["):
            while not self._accept("]"):
                parts.append(self._take())
            return f"[{''.join(parts)}]"
        return self._take()

    def _take(self) -> str:
        token = self._tokens[self._next]
        self._next += token.kind is not TokenKind.END
        if token.kind is TokenKind.END:
            raise ValueError("the text of an option ends too early")
        return token.text

    def _values(self) -> list[str]:
        if not self._accept("["):
            return [self._value()]
        values = []
        while not self._accept("]"):
            if not self._accept(","):
                values.append(self._value())
        return values

    def _value(self) -> str:
        for start, end in (("{", "}"), ("<", ">")):
            if self._accept(start):
                text = self.fields()
                self._accept(end)
                return text
        if self._tokens[self._next].kind is TokenKind.STRING:
            parts = []
            while self._tokens[self._next].kind is TokenKind.STRING:
                parts.append(bytes_of(self._take()))
            return quoted(b"".join(parts))
        sign = "-" if self._accept("-") else ""
        return sign + self._take()


def _listed(values: list[str]) -> str:
    if len(values) == 1:
        return values[0]
    return f"[\n{''.join(map(_indented, _with_commas(values)))}]" if values else "[]"
