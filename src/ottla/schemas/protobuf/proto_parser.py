"""Parses `.proto` text into a file descriptor as written: names and options are not resolved.

The result is a FileDescriptorProto in which type names are relative, options are uninterpreted,
and labels are set only where the text has one. `proto_linker` makes the final descriptor of it,
and `proto_printer` prints it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    UninterpretedOption,
)

from ottla.schemas.protobuf.proto_reader import (
    ENUM_NUMBER_MAX,
    NESTING_MAX,
    ProtoFile,
    ProtoReader,
    ReservedValue,
)
from ottla.schemas.protobuf.proto_tokens import (
    TokenKind,
    fail,
    shown,
)

TEXT_BYTES_MAX: Final = 1 << 20
FIELD_NUMBER_MAX: Final = 2**29 - 1

_SCALAR_NAMES: Final = (
    "double float int64 uint64 int32 fixed64 fixed32 bool string bytes "
    "uint32 sfixed32 sfixed64 sint32 sint64"
)
SCALARS: Final[Mapping[str, int]] = {
    name: FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}") for name in _SCALAR_NAMES.split()
}
_LABELS: Final = {
    "optional": FieldDescriptorProto.LABEL_OPTIONAL,
    "required": FieldDescriptorProto.LABEL_REQUIRED,
    "repeated": FieldDescriptorProto.LABEL_REPEATED,
}
_VISIBILITIES: Final = {"local": 1, "export": 2}
_EDITIONS: Final = {"2023": 1000, "2024": 1001}


def parse_file(text: str) -> ProtoFile:
    """Parse a text; InvalidSchemaError with the line and the reason if it is not `.proto`."""
    if len(text) > TEXT_BYTES_MAX or len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
        fail("", 0, f"the text has more than {TEXT_BYTES_MAX} bytes")
    return _Parser(text).parse()


class _Parser(ProtoReader):
    """Recursive descent over the tokens; each method reads one construct."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._is_proto3 = False
        self._has_editions = False
        self._visibility = 0

    # --- the file

    def parse(self) -> ProtoFile:
        self._syntax()
        statements: dict[str, Callable[[], None]] = {
            "package": self._package,
            "import": self._import,
            "option": lambda: self._option_statement(self._file.descriptor.options, ""),
            "message": lambda: self._message(self._file.descriptor.message_type, self._scope, 1),
            "enum": lambda: self._enum(self._file.descriptor.enum_type, self._scope),
            "extend": self._file_extend,
            "service": self._service,
        }
        while self._token.kind is not TokenKind.END:
            if self._accept(";"):
                continue
            self._read_visibility()
            statement = statements.get(self._token.text)
            if statement is None:
                self._expected("a declaration such as 'message'")
            assert statement is not None
            self._next += 1
            statement()
        return self._file

    def _read_visibility(self) -> None:
        """Read `export` or `local` of edition 2024, for the message or enum that follows."""
        following = self._tokens[min(self._next + 1, len(self._tokens) - 1)].text
        if (
            self._file.descriptor.edition >= _EDITIONS["2024"]
            and self._token.text in _VISIBILITIES
            and following in {"message", "enum"}
        ):
            self._visibility = _VISIBILITIES[self._token.text]
            self._next += 1

    def _set_visibility(self, declaration: Any) -> None:
        # Protobuf before 6.31 has no such member; all files of a schema see the name then.
        if self._visibility and "visibility" in declaration.DESCRIPTOR.fields_by_name:
            declaration.visibility = self._visibility
        self._visibility = 0

    @property
    def _scope(self) -> str:
        return str(self._file.descriptor.package)

    def _syntax(self) -> None:
        descriptor = self._file.descriptor
        if self._accept("syntax"):
            self._expect("=")
            value = self._unicode("a syntax")
            if value not in {"proto2", "proto3"}:
                self._fail(f"syntax {shown(value)!r} is neither proto2 nor proto3")
            descriptor.syntax = value
            self._is_proto3 = value == "proto3"
            self._expect(";")
        elif self._accept("edition"):
            self._expect("=")
            value = self._unicode("an edition")
            if value not in _EDITIONS:
                self._fail(f"edition {shown(value)!r} is none of {', '.join(_EDITIONS)}")
            descriptor.syntax, descriptor.edition = "editions", _EDITIONS[value]
            self._has_editions = True
            self._expect(";")

    def _package(self) -> None:
        if self._file.descriptor.package:
            self._fail("a second package")
        self._file.descriptor.package = self._dotted_name("a package", may_be_absolute=False)
        self._expect(";")

    def _import(self) -> None:
        descriptor = self._file.descriptor
        position = self._token.position
        kind = self._name() if self._token.kind is TokenKind.NAME else ""
        if kind not in {"", "public", "weak"}:
            self._fail(f"unknown kind of import {shown(kind)!r}")
        path = self._unicode("an import path")
        if path in descriptor.dependency:
            fail(self._text, position, f"import {shown(path)!r} is there twice")
        if kind == "public":
            descriptor.public_dependency.append(len(descriptor.dependency))
        elif kind == "weak":
            descriptor.weak_dependency.append(len(descriptor.dependency))
        descriptor.dependency.append(path)
        self._declare(f"import {path}", position)
        self._expect(";")

    def _file_extend(self) -> None:
        descriptor = self._file.descriptor
        self._extend(descriptor.extension, descriptor.message_type, self._scope, 1)

    # --- messages

    def _message(self, messages: Any, scope: str, depth: int) -> None:
        position = self._token.position
        message = messages.add(name=self._name("a message's name"))
        self._set_visibility(message)
        full_name = self._declare(_joined(scope, message.name), position)
        self._message_body(message, full_name, depth)

    def _message_body(self, message: Any, scope: str, depth: int) -> None:
        if depth > NESTING_MAX:
            self._fail(f"messages are nested more than {NESTING_MAX} deep")
        statements: dict[str, Callable[[], None]] = {
            "message": lambda: self._message(message.nested_type, scope, depth + 1),
            "enum": lambda: self._enum(message.enum_type, scope),
            "extend": lambda: self._extend(message.extension, message.nested_type, scope, depth),
            "extensions": lambda: self._extensions(message, scope),
            "reserved": lambda: self._reserved(message, scope, FIELD_NUMBER_MAX),
            "option": lambda: self._option_statement(message.options, scope),
            "oneof": lambda: self._oneof(message, scope, depth),
        }

        def statement() -> None:
            self._read_visibility()
            known = statements.get(self._token.text)
            if known is not None and not self._is_field():
                self._next += 1
                known()
            else:
                self._field(message.field, message, scope, depth)

        self._body(statement)

    def _is_field(self) -> bool:
        """Return whether the statement is a field with a type that is named like a keyword."""
        after = self._tokens[self._next + 1 : self._next + 3]
        return (
            len(after) == 2
            and (after[0].kind is TokenKind.NAME or after[0].text == ".")
            and after[1].kind is not TokenKind.END
            and after[1].text == "="
            and self._token.text not in {"option", "message", "enum"}
        )

    def _field(
        self, fields: Any, message: Any, scope: str, depth: int, oneof: int | None = None
    ) -> None:
        label = None
        if self._token.text in _LABELS and self._tokens[self._next + 1].text != "=":
            label = self._name()
            if oneof is not None:
                self._fail(f"a field of a oneof cannot be {label}")
        if message is not None and label is None and self._is_map():
            self._map_field(fields, message, scope)
            return
        is_group = self._token.text == "group" and self._tokens[self._next + 2].text == "="
        if label is None and oneof is None and not self._is_proto3 and not self._has_editions:
            self._expected("'optional', 'required' or 'repeated'")
        member = fields.add()
        if oneof is not None:
            member.oneof_index = oneof
        self._set_label(member, label)
        if is_group:
            self._next += 1
            self._group(member, message.nested_type if message is not None else None, scope, depth)
            return
        self._set_type(member, self._dotted_name("a field's type"))
        self._named_field(member, scope)
        self._expect(";")

    def _set_label(self, member: Any, label: str | None) -> None:
        if label is None:
            return
        if self._is_proto3 and label == "required":
            self._fail("proto3 has no required fields")
        if self._has_editions and label != "repeated":
            self._fail(f"editions have no label {label}: use the feature field_presence")
        member.label = _LABELS[label]
        if self._is_proto3 and label == "optional":
            member.proto3_optional = True

    @staticmethod
    def _set_type(member: Any, type_name: str) -> None:
        if type_name in SCALARS:
            member.type = SCALARS[type_name]
        else:
            member.type_name = type_name

    def _named_field(self, member: Any, scope: str) -> None:
        position = self._token.position
        member.name = self._name("a field's name")
        full_name = self._declare(_joined(scope, member.name), position)
        self._expect("=")
        member.number = self._field_number()
        self._field_options(member, full_name)

    def _field_number(self) -> int:
        number = self._integer("a field's number", FIELD_NUMBER_MAX)
        if number == 0:
            self._fail("a field's number must be at least 1")
        return number

    def _is_map(self) -> bool:
        return self._token.text == "map" and self._tokens[self._next + 1].text == "<"

    def _map_field(self, fields: Any, message: Any, scope: str) -> None:
        self._next += 2
        member = fields.add(label=FieldDescriptorProto.LABEL_REPEATED)
        entry = DescriptorProto()
        entry.options.map_entry = True
        for name, number in (("key", 1), ("value", 2)):
            part = entry.field.add(name=name, number=number)
            self._set_type(part, self._dotted_name(f"a map's {name} type"))
            self._expect("," if name == "key" else ">")
        self._named_field(member, scope)
        self._expect(";")
        entry.name = member.type_name = f"{camel_case(member.name)}Entry"
        self._declare(_joined(scope, entry.name), self._file.position(f"{scope}.{member.name}"))
        message.nested_type.append(entry)

    def _group(self, member: Any, messages: Any, scope: str, depth: int) -> None:
        if self._is_proto3 or self._has_editions:
            self._fail("only proto2 has groups")
        position = self._token.position
        name = self._name("a group's name")
        if not name[0].isupper():
            self._fail(f"group {shown(name)} must start with a capital letter")
        member.type = FieldDescriptorProto.TYPE_GROUP
        member.name, member.type_name = name.lower(), name
        self._expect("=")
        member.number = self._field_number()
        self._field_options(member, self._declare(_joined(scope, member.name), position))
        full_name = self._declare(_joined(scope, name), position)
        self._message_body(messages.add(name=name), full_name, depth + 1)

    def _oneof(self, message: Any, scope: str, depth: int) -> None:
        position = self._token.position
        oneof = message.oneof_decl.add(name=self._name("a oneof's name"))
        index = len(message.oneof_decl) - 1
        full_name = self._declare(_joined(scope, oneof.name), position)

        def statement() -> None:
            if self._looks_at("option"):
                self._next += 1
                self._option_statement(oneof.options, full_name)
            elif self._is_map():
                self._fail("a map cannot be in a oneof")
            else:
                self._field(message.field, message, scope, depth, index)

        before = len(message.field)
        self._body(statement)
        if len(message.field) == before:
            fail(self._text, position, f"oneof {shown(oneof.name)} has no fields")

    def _extend(self, extensions: Any, messages: Any, scope: str, depth: int) -> None:
        extendee = self._dotted_name("the name of a message to extend")
        holder = DescriptorProto()

        def statement() -> None:
            if self._is_map():
                self._fail("a map cannot be an extension")
            self._field(extensions, holder, scope, depth)
            extensions[-1].extendee = extendee
            messages.extend(holder.nested_type)
            del holder.nested_type[:]

        before = len(extensions)
        self._body(statement)
        if len(extensions) == before:
            self._fail(f"the extension of {shown(extendee)} has no fields")

    # --- ranges

    def _range(self, largest: int, *, is_enum: bool) -> ReservedValue:
        read = self._signed if is_enum else self._reserved_number
        first = read("a number")
        if not self._accept("to"):
            return first
        last = largest if self._accept("max") else read("a number or 'max'")
        if last < first:
            self._fail(f"the range {first} to {last} ends before its start")
        return (first, last)

    def _reserved_number(self, wanted: str) -> int:
        number = self._integer(wanted, FIELD_NUMBER_MAX)
        if number == 0:
            self._fail("a field's number must be at least 1")
        return number

    def _extensions(self, message: Any, scope: str) -> None:
        if self._is_proto3:
            self._fail("proto3 messages have no extension ranges")
        ranges = [self._range(FIELD_NUMBER_MAX, is_enum=False)]
        while self._accept(","):
            ranges.append(self._range(FIELD_NUMBER_MAX, is_enum=False))
        options = UninterpretedOption
        found: list[Any] = []
        if self._looks_at("["):
            self._bracketed(lambda: found.append(self._option(options())))
        for value in ranges:
            first, last = _ends(value)
            added = message.extension_range.add(start=first, end=last + 1)
            added.options.uninterpreted_option.extend(found)
            if not found:
                added.ClearField("options")
        self._file.extension_ranges.setdefault(scope, []).append(ranges)
        self._declare(f"{scope} extensions")
        self._expect(";")

    def _reserved(self, owner: Any, scope: str, largest: int) -> None:
        values: list[ReservedValue] = []
        while True:
            values.append(self._reserved_value(owner, largest))
            self._declare(f"{scope} reserved")
            if not self._accept(","):
                break
        self._file.reserved.setdefault(scope, []).append(values)
        self._expect(";")

    def _reserved_value(self, owner: Any, largest: int) -> ReservedValue:
        if self._token.kind is TokenKind.STRING or (
            self._has_editions and self._token.kind is TokenKind.NAME
        ):
            name = self._name() if self._has_editions else self._unicode("a reserved name")
            owner.reserved_name.append(name)
            return name
        is_enum = isinstance(owner, EnumDescriptorProto)
        value = self._range(largest, is_enum=is_enum)
        first, last = _ends(value)
        owner.reserved_range.add(start=first, end=last if is_enum else last + 1)
        return value

    # --- enums and services

    def _enum(self, enums: Any, scope: str) -> None:
        position = self._token.position
        enum = enums.add(name=self._name("an enum's name"))
        self._set_visibility(enum)
        full_name = self._declare(_joined(scope, enum.name), position)

        def statement() -> None:
            is_value = self._tokens[self._next + 1].text == "="
            if not is_value and self._accept("option"):
                self._option_statement(enum.options, full_name)
            elif not is_value and self._accept("reserved"):
                self._reserved(enum, full_name, ENUM_NUMBER_MAX)
            else:
                self._enum_value(enum, scope)

        self._body(statement)
        if not enum.value:
            fail(self._text, position, f"enum {shown(enum.name)} has no values")

    def _enum_value(self, enum: Any, scope: str) -> None:
        position = self._token.position
        value = enum.value.add(name=self._name("an enum value's name"))
        # The names of values are in the scope of the enum, not inside it.
        full_name = self._declare(_joined(scope, value.name), position)
        self._expect("=")
        value.number = self._signed("an enum value's number")
        if self._looks_at("["):
            self._bracketed(
                lambda: value.options.uninterpreted_option.append(
                    self._option(UninterpretedOption())
                )
            )
        self._expect(";")
        self._file.positions.setdefault(full_name, position)

    def _service(self) -> None:
        position = self._token.position
        service = self._file.descriptor.service.add(name=self._name("a service's name"))
        full_name = self._declare(_joined(self._scope, service.name), position)

        def statement() -> None:
            if self._accept("option"):
                self._option_statement(service.options, full_name)
            else:
                self._expect("rpc")
                self._rpc(service, full_name)

        self._body(statement)

    def _rpc(self, service: Any, scope: str) -> None:
        position = self._token.position
        method = service.method.add(name=self._name("a method's name"))
        full_name = self._declare(_joined(scope, method.name), position)
        method.input_type, is_streaming = self._rpc_type()
        if is_streaming:
            method.client_streaming = True
        self._expect("returns")
        method.output_type, is_streaming = self._rpc_type()
        if is_streaming:
            method.server_streaming = True
        if self._accept(";"):
            return

        def statement() -> None:
            self._expect("option")
            self._option_statement(method.options, full_name)

        method.options.SetInParent()
        self._body(statement)

    def _rpc_type(self) -> tuple[str, bool]:
        self._expect("(")
        is_streaming = self._looks_at("stream") and self._tokens[self._next + 1].text != ")"
        if is_streaming:
            self._next += 1
        name = self._dotted_name("a message's name")
        self._expect(")")
        return name, is_streaming


def camel_case(name: str) -> str:
    """Return the name of a map's entry without its suffix: `first_name` gives `FirstName`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _ends(value: ReservedValue) -> tuple[int, int]:
    if isinstance(value, tuple):
        return value
    assert isinstance(value, int)
    return value, value
