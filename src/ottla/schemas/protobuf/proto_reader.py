"""Reads names, literals and options from the tokens of `.proto` text."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.descriptor_pb2 import (
    FieldDescriptorProto,
    FileDescriptorProto,
    UninterpretedOption,
)

from ottla.schemas.protobuf.proto_tokens import (
    UINT64_MAX,
    Token,
    TokenKind,
    bytes_of,
    fail,
    float_of,
    integer_of,
    shown,
    tokens_of,
)

Field = FieldDescriptorProto
NESTING_MAX: Final = 32
"""Of messages, and of braces in option values; protoc has the same limit for messages."""
DECLARATIONS_MAX: Final = 50_000
ENUM_NUMBER_MAX: Final = 2**31 - 1

ReservedValue = str | int | tuple[int, int]
"""A name, a number, or the first and last number of a range."""


@dataclass(slots=True)
class ProtoFile:
    """A parsed file. Positions and statements are by full name, or by option's owner."""

    descriptor: Any
    text: str = ""
    positions: dict[str, int] = field(default_factory=dict)
    reserved: dict[str, list[list[ReservedValue]]] = field(default_factory=dict)
    extension_ranges: dict[str, list[list[ReservedValue]]] = field(default_factory=dict)

    def position(self, full_name: str) -> int:
        """Return the position of a declaration, or of the closest one around it."""
        while full_name and full_name not in self.positions:
            full_name = full_name.rpartition(".")[0]
        return self.positions.get(full_name, 0)

    def option_position(self, owner: str, name: str) -> int:
        """Return the position of an option; `owner` is the package for an option of the file."""
        for key in (f"{owner} option {name}", f" option {name}"):
            if key in self.positions:
                return self.positions[key]
        return self.position(owner)


class ProtoReader:
    """A cursor over the tokens of one text; the parser adds the declarations."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        self._next = 0
        self._declarations = 0
        self._file = ProtoFile(FileDescriptorProto(), text)

    # --- tokens

    @property
    def _token(self) -> Token:
        return self._tokens[self._next]

    def _fail(self, reason: str) -> Any:
        fail(self._text, self._token.position, reason)

    def _expected(self, wanted: str) -> Any:
        found = shown(self._token.text) or "the end of the text"
        self._fail(f"expected {wanted}, found {found}")

    def _looks_at(self, text: str) -> bool:
        token = self._token
        return token.text == text and token.kind in {TokenKind.NAME, TokenKind.SYMBOL}

    def _accept(self, text: str) -> bool:
        if self._looks_at(text):
            self._next += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._accept(text):
            self._expected(f"'{text}'")

    def _name(self, wanted: str = "a name") -> str:
        token = self._token
        if token.kind is not TokenKind.NAME:
            self._expected(wanted)
        self._next += 1
        return token.text

    def _dotted_name(self, wanted: str, *, may_be_absolute: bool = True) -> str:
        parts = [""] if may_be_absolute and self._accept(".") else []
        parts.append(self._name(wanted))
        while self._accept("."):
            parts.append(self._name(wanted))
        return ".".join(parts)

    def _integer(self, wanted: str, largest: int) -> int:
        token = self._token
        value = integer_of(token.text) if token.kind is TokenKind.NUMBER else None
        if value is None:
            self._expected(wanted)
        assert value is not None
        if value > largest:
            self._fail(f"{wanted} must be at most {largest}")
        self._next += 1
        return value

    def _signed(self, wanted: str) -> int:
        if self._accept("-"):
            return -self._integer(wanted, ENUM_NUMBER_MAX + 1)
        return self._integer(wanted, ENUM_NUMBER_MAX)

    def _string(self, wanted: str = "a string") -> bytes:
        if self._token.kind is not TokenKind.STRING:
            self._expected(wanted)
        parts = []
        while self._token.kind is TokenKind.STRING:
            try:
                parts.append(bytes_of(self._token.text))
            except ValueError as error:
                self._fail(str(error))
            self._next += 1
        return b"".join(parts)

    def _unicode(self, wanted: str) -> str:
        position = self._token.position
        try:
            return self._string(wanted).decode()
        except UnicodeDecodeError:
            fail(self._text, position, f"{wanted} must be UTF-8")

    def _declare(self, full_name: str, position: int | None = None) -> str:
        self._declarations += 1
        if self._declarations > DECLARATIONS_MAX:
            self._fail(f"more than {DECLARATIONS_MAX} declarations")
        at = self._token.position if position is None else position
        self._file.positions.setdefault(full_name, at)
        return full_name

    def _body(self, statement: Callable[[], None]) -> None:
        self._expect("{")
        while not self._accept("}"):
            if self._token.kind is TokenKind.END:
                self._expected("'}'")
            if not self._accept(";"):
                statement()

    # --- options

    def _option_statement(self, options: Any, owner: str) -> None:
        position, option = self._token.position, self._option(UninterpretedOption())
        self._declare(f"{owner} option {option_name(option)}", position)
        options.uninterpreted_option.append(option)
        self._expect(";")

    def _bracketed(self, read: Callable[[], None]) -> None:
        self._expect("[")
        read()
        while self._accept(","):
            read()
        self._expect("]")

    def _field_options(self, member: Any, owner: str) -> None:
        def read() -> None:
            position, option = self._token.position, self._option(UninterpretedOption())
            self._declare(f"{owner} option {option_name(option)}", position)
            name = option.name[0].name_part
            if len(option.name) > 1 or option.name[0].is_extension:
                name = ""
            if name not in {"default", "json_name"}:
                member.options.uninterpreted_option.append(option)
                return
            attribute = "default_value" if name == "default" else name
            if member.HasField(attribute):
                fail(self._text, position, f"a second {name} of the field")
            self._set_special(member, attribute, option, position)

        if self._looks_at("["):
            self._bracketed(read)

    def _set_special(self, member: Any, attribute: str, option: Any, position: int) -> None:
        """Set json_name, or the default value as it is written: the linker normalizes it."""
        if attribute == "default_value":
            is_text = member.type in {Field.TYPE_STRING, Field.TYPE_BYTES}
            if is_text and not option.HasField("string_value"):
                fail(self._text, position, "the default of the field must be a string")
            end = self._tokens[self._next].position
            if option.HasField("string_value"):
                is_bytes = member.type == Field.TYPE_BYTES
                member.default_value = _default_text(option.string_value, is_bytes=is_bytes)
            else:
                written = self._text[position:end].partition("=")[2]
                member.default_value = "".join(token.text for token in tokens_of(written))
            return
        try:
            member.json_name = option.string_value.decode()
        except UnicodeDecodeError:
            fail(self._text, position, "json_name must be UTF-8")
        if not option.HasField("string_value"):
            fail(self._text, position, "json_name must be a string")

    def _option(self, option: Any) -> Any:
        """Read `name = value` into an uninterpreted option."""
        while True:
            if self._accept("("):
                option.name.add(name_part=self._dotted_name("an option's name"), is_extension=True)
                self._expect(")")
            else:
                option.name.add(name_part=self._name("an option's name"), is_extension=False)
            if not self._accept("."):
                break
        self._expect("=")
        self._option_value(option)
        return option

    def _option_value(self, option: Any) -> None:
        token = self._token
        if token.kind is TokenKind.STRING:
            option.string_value = self._string()
        elif token.text == "{" and token.kind is TokenKind.SYMBOL:
            option.aggregate_value = self._aggregate()
        else:
            is_negative = self._accept("-")
            if self._token.kind is TokenKind.NAME:
                self._option_name(option, is_negative=is_negative)
            else:
                self._option_number(option, is_negative=is_negative)

    def _option_name(self, option: Any, *, is_negative: bool) -> None:
        name = self._name()
        if not is_negative:
            option.identifier_value = name
        elif name in {"inf", "nan"}:
            option.double_value = -float(name)
        else:
            self._fail(f"expected a number after '-', found {shown(name)}")

    def _option_number(self, option: Any, *, is_negative: bool) -> None:
        token = self._token
        if token.kind is not TokenKind.NUMBER:
            self._expected("an option's value")
        value = integer_of(token.text)
        if value is None or value > (2**63 if is_negative else UINT64_MAX):
            if token.text[:2] in {"0x", "0X"}:
                self._fail("an integer of more than 64 bits")
            number = float_of(token.text)
            option.double_value = -number if is_negative else number
        elif is_negative:
            option.negative_int_value = -value
        else:
            option.positive_int_value = value
        self._next += 1

    def _aggregate(self) -> str:
        """Return the tokens between braces, with spaces between them."""
        depth, start = 0, self._next
        while True:
            token = self._token
            if token.kind is TokenKind.END:
                self._expected("'}'")
            if token.kind is TokenKind.SYMBOL and token.text in "{[<":
                depth += 1
            elif token.kind is TokenKind.SYMBOL and token.text in "}]>":
                depth -= 1
            if depth > NESTING_MAX:
                self._fail(f"an option's value is nested more than {NESTING_MAX} deep")
            self._next += 1
            if depth == 0:
                break
        texts = (token.text for token in self._tokens[start + 1 : self._next - 1])
        # Python's text format wants a sign right before its number.
        return "".join(text if text == "-" else f"{text} " for text in texts).rstrip()


def option_name(option: Any) -> str:
    """Return the name of an option as text writes it."""
    parts = (f"({part.name_part})" if part.is_extension else part.name_part for part in option.name)
    return ".".join(parts)


def _default_text(content: bytes, *, is_bytes: bool) -> str:
    """Return a default value as descriptors have it: bytes in C escapes, strings as they are."""
    if not is_bytes:
        return content.decode("utf-8", "replace")
    return "".join(_c_escaped(byte) for byte in content)


_C_ESCAPES: Final = {10: "\\n", 13: "\\r", 9: "\\t", 34: '\\"', 39: "\\'", 92: "\\\\"}


def _c_escaped(byte: int) -> str:
    if byte in _C_ESCAPES:
        return _C_ESCAPES[byte]
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
