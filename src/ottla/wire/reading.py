"""Reads messages: one straight-line reader per message and version, generated at first use.

Where the compiled extension is present, it reads well-formed messages and leaves the rest to the
generated reader, which alone produces error messages.

A reader does not trust its input. A budget that grows with the frame bounds its allocations: the
count of every array is charged against the budget before the first item is read. Slices past the
end of the buffer come out short, so every reader checks at the end where it stopped.
"""

import struct
from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ottla.wire.generated import LAYOUT_BY_KIND, Generated, SourceCode, join_path
from ottla.wire.primitives import read_tag_header, read_tags, read_uvarint
from ottla.wire.protocol_error import MessageTooLargeError, ProtocolError
from ottla.wire.schema import Field, Message, Struct

BUDGET_FLOOR_BYTES: Final = 1 << 20
BUDGET_MULTIPLE: Final = 16
"""A message may use a megabyte of memory, plus sixteen times the size of its frame."""
TAG_BYTES: Final = 192
_MEMORY_BY_KIND: Final = {"string": 64, "bytes": 64, "records": 208, "uuid": 64, "bool": 0}
_NUMBER_BYTES: Final = 32
_PLACE_BYTES: Final = 8
_LIST_BYTES: Final = 88
_OBJECT_BYTES: Final = 48


def is_number(field: Field) -> bool:
    """Return whether an array of these is read, or written, in one call."""
    return field.kind in LAYOUT_BY_KIND and field.kind != "uuid"


def item_bytes(field: Field, version: int) -> int:
    """Return the cost of an array's item: its memory, and its slot in the list.

    The cost of numbers never exceeds the budget that their bytes on the wire add: only another
    limit refuses them.
    """
    if is_number(field):
        wire_bytes = struct.calcsize(">" + LAYOUT_BY_KIND[field.kind])
        return min(_NUMBER_BYTES + _PLACE_BYTES, BUDGET_MULTIPLE * wire_bytes)
    return _memory_bytes(field, version) + 2 * _PLACE_BYTES


def _memory_bytes(field: Field, version: int) -> int:
    """Return the approximate memory of one item, without the contents of its arrays."""
    if field.struct is None:
        return _MEMORY_BY_KIND.get(field.kind, _NUMBER_BYTES)
    return _OBJECT_BYTES + sum(8 + _field_bytes(f, version) for f in field.struct.fields)


def _field_bytes(field: Field, version: int) -> int:
    if field.is_array:
        return _LIST_BYTES
    if not field.is_present(version) or field.is_tagged(version):
        return 0
    return _memory_bytes(field, version)


if TYPE_CHECKING:
    _compiled: ModuleType | None
else:
    try:
        from ottla.wire import _message_reader as _compiled
    except ImportError:
        _compiled = None

READING_ERRORS: Final = (ValueError, IndexError, OverflowError, struct.error)
NO_LIMIT: Final = (1 << 63) - 1
TAGS_MAX: Final = 64
"""How many tagged fields a structure may have. No message declares more than five."""

_CONVERSION_BY_KIND: Final = {
    "string": ".tobytes().decode()",
    "bytes": ".tobytes()",
    "records": "",
}
M = TypeVar("M", bound=Message)


def read(cls: type[M], version: int, buffer: memoryview, position: int = 0) -> tuple[M, int]:
    """Read one message at a position; return it and the position after it.

    Raises ProtocolError, and nothing else, for bytes that are no such message.
    """
    try:
        value, end = (cls.readers.get(version) or quickest_reader(cls, version))(
            buffer, position
        ) or reader_for(cls, version).function(buffer, position)
    except READING_ERRORS as error:
        raise explained(cls, version, error, reader_for(cls, version)) from None
    if end > len(buffer):
        raise wrong_end(cls, version, end, buffer)
    return value, end


def decode(cls: type[M], version: int, buffer: memoryview, position: int = 0) -> M:
    """Read one message that reaches from a position to the end of the buffer."""
    # The same as `read`, written out again: every request comes through here.
    try:
        value, end = (cls.readers.get(version) or quickest_reader(cls, version))(
            buffer, position
        ) or reader_for(cls, version).function(buffer, position)
    except READING_ERRORS as error:
        raise explained(cls, version, error, reader_for(cls, version)) from None
    if end != len(buffer):
        raise wrong_end(cls, version, end, buffer)
    return value  # type: ignore[no-any-return]


@cache
def reader_for(cls: type[Message], version: int) -> Generated:
    """Return the generated reader: (buffer, position) in, (value, position) out.

    Two more arguments limit its budget and the number of all array items; TooManyItemsError then.
    """
    _check_version(cls, version)
    return _ReaderSource(cls, version).compile("read", f"reader of {cls.__name__} v{version}")


@cache
def sliced_reader_for(cls: type[Message], version: int) -> Generated:
    """Return the same as a generator: it yields None after each item, at last (value, position)."""
    _check_version(cls, version)
    source = _ReaderSource(cls, version, is_sliced=True)
    return source.compile("read", f"sliced reader of {cls.__name__} v{version}")


def compiled_reader_for(cls: type[Message], version: int) -> Callable[..., Any] | None:
    """Return the reader in C: in and out as above, but None comes out if the bytes are odd.

    The limits are as above; None comes out, too, if there is more.

    Where the extension is missing there is no such reader.
    """
    _check_version(cls, version)
    if _compiled is None:
        return None
    reader = _compiled.MessageReader(
        _struct_reader(_compiled, cls, version),
        is_flexible=version >= cls.flexible_since,
        budget_floor=BUDGET_FLOOR_BYTES,
        budget_multiple=BUDGET_MULTIPLE,
    )
    return reader.read  # type: ignore[no-any-return]


def _struct_reader(compiled: ModuleType, cls: type[Struct], version: int) -> Any:
    """Return a StructReader with one instruction per slot."""
    steps: list[Any] = [("unknown_tags", "default", False, False, 0, None)]
    for field in cls.fields:
        if not field.is_present(version) or field.is_tagged(version):
            steps.append((field.name, "default", False, False, 0, field.default))
            continue
        nested = field.struct and _struct_reader(compiled, field.struct, version)
        nullable = field.is_nullable(version)
        cost = item_bytes(field, version)
        steps.append((field.name, field.kind, field.is_array, nullable, cost, nested))
    return compiled.StructReader(cls, tuple(steps))


def quickest_reader(cls: type[Message], version: int) -> Callable[..., Any]:
    """Return the reader in C, or the generated one, and keep it for the next message."""
    reader = compiled_reader_for(cls, version) or reader_for(cls, version).function
    cls.readers[version] = reader
    return reader


def _check_version(cls: type[Message], version: int) -> None:
    first, last = cls.versions
    assert first <= version <= last, f"{cls.__name__} has no version {version}"


def wrong_end(cls: type[Message], version: int, end: int, buffer: memoryview) -> ProtocolError:
    """Return the error for a message that does not end at the end of its buffer."""
    extra = len(buffer) - end
    if extra > 0:
        return ProtocolError(f"{extra} bytes follow {cls.__name__} v{version} at byte {end}")
    return ProtocolError(f"{cls.__name__} v{version} ends {-extra} bytes too early")


def explained(
    cls: type[Message], version: int, error: Exception, reader: Generated
) -> ProtocolError:
    """Return a failure of a generated reader as an error that names the field and the byte."""
    field, names = reader.failed_at(error.__traceback__)
    what = "the bytes end" if isinstance(error, IndexError | struct.error) else str(error)
    where = f"{cls.__name__} v{version}" + (f", {field}" if field else "")
    kind = MessageTooLargeError if isinstance(error, TooManyItemsError) else ProtocolError
    return kind(f"{where}, at byte {names.get('p', 0)}: {what}")


class TooManyItemsError(ValueError):
    """More array items than a limit allows, or more memory for them."""


class _ReaderSource(SourceCode):
    """The source of one reader. In it, b is the buffer, p the position, n a length or a count."""

    def __init__(self, cls: type[Message], version: int, *, is_sliced: bool = False) -> None:
        super().__init__(
            f"def read(b, p, memory_max={NO_LIMIT}, items_max={NO_LIMIT})",
            {
                "TooManyItemsError": TooManyItemsError,
                "new": object.__new__,
                "uvarint": read_uvarint,
                "read_tags": read_tags,
                "tag_header": read_tag_header,
                "unpack_from": struct.unpack_from,
            },
        )
        self._version = version
        self._flexible = version >= cls.flexible_since
        self._run: list[tuple[str, str, str]] = []
        self._is_sliced = is_sliced
        self.add(f"budget = {BUDGET_FLOOR_BYTES} + {BUDGET_MULTIPLE} * (len(b) - p)")
        self.add("refusal = ValueError")
        self.open("if budget > memory_max:")
        self.add("budget, refusal = memory_max, TooManyItemsError")
        self.close()
        self.add("items = items_max")
        self._read_struct(cls, "v", "")
        self._flush()
        self.add("yield v, p" if is_sliced else "return v, p")

    # A run is a row of fixed-width values, and the length that follows them, read in one call.

    def _fixed(self, letter: str, target: str, path: str) -> None:
        self._run.append((letter, target, path))

    def _flush(self) -> None:
        if not self._run:
            return
        run, self._run = self._run, []
        letters, targets = "".join(r[0] for r in run), ", ".join(r[1] for r in run)
        path = run[0][2]
        if letters == "B":
            self.add(f"{targets} = b[p]", path)
            self.add("p += 1", path)
            return
        layout = self.layout(letters)
        unpack = self.name(layout.unpack_from, "unpack")
        self.add(f"{targets}{',' if len(run) == 1 else ''} = {unpack}(b, p)", path)
        self.add(f"p += {layout.size}", path)

    def _read_struct(self, cls: type[Struct], target: str, path: str) -> None:
        self.add(f"{target} = new({self.name(cls, cls.__name__)})", path)
        self.add(f"{target}.unknown_tags = None", path)
        for field in cls.fields:
            if not field.is_present(self._version) or field.is_tagged(self._version):
                self._assign_default(field, f"{target}.{field.name}")
        for field in cls.fields:
            if field.is_present(self._version) and not field.is_tagged(self._version):
                self._read_field(field, f"{target}.{field.name}", join_path(path, field.name))
        if self._flexible:
            self._read_tagged_fields(cls, target, path)

    def _assign_default(self, field: Field, target: str) -> None:
        if isinstance(field.default, list):
            self.add(f"{target} = []")
        elif isinstance(field.default, type):
            self.add(f"{target} = {self.name(field.default, 'default')}()")
        else:
            self.add(f"{target} = {self.name(field.default, 'default')}")

    def _read_field(self, field: Field, target: str, path: str) -> None:
        nullable = field.is_nullable(self._version)
        if field.is_array:
            self._read_array(field, target, path, nullable=nullable)
        elif field.struct is not None:
            self._read_nested(field.struct, target, path, nullable=nullable)
        elif field.kind in LAYOUT_BY_KIND:
            self._fixed(LAYOUT_BY_KIND[field.kind], target, path)
        else:
            self._read_sized(field.kind, target, path, nullable=nullable)

    def _read_nested(self, cls: type[Struct], target: str, path: str, *, nullable: bool) -> None:
        local = target.replace(".", "_")
        if not nullable:
            self._flush()
            self._read_struct(cls, local, path)
            self._flush()
            self.add(f"{target} = {local}", path)
            return
        self._fixed("b", "n", path)
        self._flush()
        self.open("if n < 1:", path)  # -1 stands for null, but 0 in a tagged field
        self.add(f"{target} = None", path)
        self.close()
        self.open("else:", path)
        self._read_struct(cls, local, path)
        self._flush()
        self.add(f"{target} = {local}", path)
        self.close()

    def _read_sized(self, kind: str, target: str, path: str, *, nullable: bool) -> None:
        self._read_length("h" if kind == "string" else "i", target, path, nullable=nullable)
        self.add("e = p + n - 1" if self._flexible else "e = p + n", path)
        self.add(f"{target} = b[p:e]{_CONVERSION_BY_KIND[kind]}", path)
        self.add("p = e", path)
        if nullable:
            self.close()

    def _read_length(self, letter: str, target: str, path: str, *, nullable: bool) -> None:
        """Leave a length in n; a compact length is one more than the real one.

        If the field is nullable, leave a block open for the other values.
        """
        if self._flexible:
            self._fixed("B", "n", path)
            self._flush()
            self._finish_uvarint(path)
        else:
            self._fixed(letter, "n", path)
            self._flush()
        self.open("if not n:" if self._flexible else "if n < 0:", path)
        if not nullable:
            self.add("raise ValueError('null, or a negative length')", path)
            self.close()
            return
        if not self._flexible:
            self.open("if n != -1:", path)
            self.add("raise ValueError('a negative length')", path)
            self.close()
        self.add(f"{target} = None", path)
        self.close()
        self.open("else:", path)

    def _finish_uvarint(self, path: str) -> None:
        """Read the rest of a varint into n. A second byte is common, and cheaper in line."""
        self.open("if n > 127:", path)
        self.add("m = b[p]", path)
        self.open("if m < 128:", path)
        self.add("n += (m << 7) - 128", path)
        self.add("p += 1", path)
        self.close()
        self.open("else:", path)
        self.add("n, p = uvarint(b, p - 1)", path)
        self.close()
        self.close()

    def _read_array(self, field: Field, target: str, path: str, *, nullable: bool) -> None:
        self._read_length("i", target, path, nullable=nullable)
        path += "[]"
        if self._flexible:
            self.add("n -= 1", path)
        self._charge("n", item_bytes(field, self._version), path)
        if is_number(field):
            self._read_numbers(LAYOUT_BY_KIND[field.kind], target, path)
        else:
            self._read_items(field, target, path)
        if nullable:
            self.close()

    def _read_numbers(self, letter: str, target: str, path: str) -> None:
        size = self.layout(letter).size
        self.open(f"if n * {size} > len(b) - p:", path)
        self.add("raise ValueError(f'{n} items claimed, {len(b) - p} bytes left')", path)
        self.close()
        self.add(f"{target} = list(unpack_from(f'>{{n}}{letter}', b, p)) if n else []", path)
        self.add(f"p += n * {size}", path)

    def _read_items(self, field: Field, target: str, path: str) -> None:
        items = target.replace(".", "_") + "_items"
        item = target.replace(".", "_")
        self.add(f"{target} = {items} = []", path)
        self.open("for _ in range(n):", path)
        if field.struct is not None:
            self._read_struct(field.struct, item, path)
        elif field.kind == "uuid":
            self._fixed("16s", item, path)
        else:
            self._read_sized(field.kind, item, path, nullable=False)
        self._flush()
        self.add(f"{items}.append({item})", path)
        if self._is_sliced:
            self.add("yield", path)
        self.close()

    def _charge(self, count: str, cost: int, path: str) -> None:
        self.add(f"budget -= {count} * {cost}", path)
        self.add(f"items -= {count}", path)
        self.open("if budget < 0:", path)
        claimed = f"{{{count}}} items claimed in {{len(b)}} bytes"
        self.add(f"raise refusal(f'{claimed}')", path)
        self.close()
        self.open("if items < 0:", path)
        self.add("raise TooManyItemsError(f'more than {items_max} items')", path)
        self.close()

    def _read_tagged_fields(self, cls: type[Struct], target: str, path: str) -> None:
        self._fixed("B", "n", join_path(path, "tagged fields"))
        self._flush()
        path = join_path(path, "tagged fields")
        self.open("if n:", path)
        self._finish_uvarint(path)
        self.open(f"if n > {TAGS_MAX}:", path)
        self.add(f"raise ValueError(f'{{n}} tagged fields, the limit is {TAGS_MAX}')", path)
        self.close()
        self._charge("n", TAG_BYTES, path)
        known = [f for f in cls.fields if f.is_tagged(self._version)]
        if known:
            self._read_known_tags(known, target, path)
        else:
            self.add(f"{target}.unknown_tags, p = read_tags(b, p, n)", path)
        self.close()

    def _read_known_tags(self, known: list[Field], target: str, path: str) -> None:
        tag, end = f"{target}_tag", f"{target}_end"
        self.add(f"{tag} = -1", path)
        self.open("for _ in range(n):", path)
        self.add(f"{tag}, n, p = tag_header(b, p, {tag})", path)
        self.add(f"{end} = p + n", path)
        word = "if"
        for field in known:
            self.open(f"{word} {tag} == {field.tag}:", path)
            self._read_field(field, f"{target}.{field.name}", join_path(path, field.name))
            self._flush()
            self.close()
            word = "elif"
        self.open("else:", path)
        self.open(f"if {target}.unknown_tags is None:", path)
        self.add(f"{target}.unknown_tags = {{}}", path)
        self.close()
        self.add(f"{target}.unknown_tags[{tag}] = b[p:{end}].tobytes()", path)
        self.add(f"p = {end}", path)
        self.close()
        self.open(f"if p != {end}:", path)
        self.add(f"raise ValueError(f'tag {{{tag}}} does not end where it says')", path)
        self.close()
        self.close()
