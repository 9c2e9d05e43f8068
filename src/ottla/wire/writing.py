"""Writes messages: one straight-line writer per message and version, generated at first use.

Where the compiled extension is present, it writes well-formed messages and leaves the rest to the
generated writer, which alone produces error messages.

The generated writer gives a list of pieces. Record batches are pieces of their own and may be
any object with a length, so that a broker can name a part of a file and let the kernel send it.
"""

import struct
import sys
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from ottla.wire.generated import LAYOUT_BY_KIND, Generated, SourceCode, join_path
from ottla.wire.primitives import SHORT_UVARINTS, uvarint, write_tags
from ottla.wire.schema import Field, Message, Struct

if TYPE_CHECKING:
    _compiled: ModuleType | None
else:
    try:
        from ottla.wire import _message_writer as _compiled
    except ImportError:
        _compiled = None

WRITING_ERRORS: Final = (ValueError, TypeError, AttributeError, struct.error)
STRING_BYTES_MAX: Final = (1 << 15) - 1
"""The largest length that fits two signed bytes."""
NO_LIMIT: Final = sys.maxsize
COPIED_BYTES_MAX: Final = 4096
"""Record batches up to this size are copied beside their neighbours: cheaper than another call."""


class UnwritableError(ValueError):
    """A value that this version of its message cannot carry; names the field and the reason."""


def write(value: Message, version: int) -> list[Any]:
    """Write a message as a list of pieces: bytes, and the given record batch objects."""
    out: list[Any] = []
    try:
        writer_for(type(value), version).function(value, out.append)
    except WRITING_ERRORS as error:
        raise _explained(value, version, error) from error
    return out


def encode(value: Message, version: int) -> bytes:
    """Write a message; its record batches, if any, must be bytes."""
    cls = type(value)
    try:
        return (cls.writers.get(version) or _quickest_writer(cls, version))(value) or _join(
            writer_for(cls, version).function, value
        )
    except WRITING_ERRORS as error:
        raise _explained(value, version, error) from error


def encode_if_small(value: Message, version: int, items_max: int = NO_LIMIT) -> bytes | None:
    """Write a message as `encode` does if all its record batches are small, and are bytes.

    Return None if they are not, if the message has more array items than `items_max`, if anything
    is odd, and where the extension is missing.
    """
    cls = type(value)
    if _compiled is None:
        return None
    writer = cls.writers.get(version) or _quickest_writer(cls, version)
    return writer(value, items_max)  # type: ignore[no-any-return]


def size_of(pieces: list[Any]) -> int:
    """Return the total size of the pieces."""
    return sum(map(len, pieces))


@cache
def writer_for(cls: type[Message], version: int) -> Generated:
    """Return the generated writer, a function of a value and a callback for each piece."""
    _check_version(cls, version)
    return _WriterSource(cls, version).compile("write", f"writer of {cls.__name__} v{version}")


@cache
def sliced_writer_for(cls: type[Message], version: int) -> Generated:
    """Return the same as a generator, which yields after each item of an array."""
    _check_version(cls, version)
    source = _WriterSource(cls, version, is_sliced=True)
    return source.compile("write", f"sliced writer of {cls.__name__} v{version}")


def compiled_writer_for(cls: type[Message], version: int) -> Callable[..., Any] | None:
    """Return the writer in C: a value in, bytes out, or None if the value is odd.

    Where the extension is missing there is no such writer.
    """
    _check_version(cls, version)
    if _compiled is None:
        return None
    writer = _compiled.MessageWriter(
        _struct_writer(_compiled, cls, version),
        is_flexible=version >= cls.flexible_since,
        text_bytes_max=STRING_BYTES_MAX,
        batches_bytes_max=COPIED_BYTES_MAX,
    )
    return writer.write  # type: ignore[no-any-return]


def _struct_writer(compiled: ModuleType, cls: type[Struct], version: int) -> Any:
    """Return a StructWriter with one instruction per slot."""
    plain: list[Any] = []
    tagged: list[Any] = []
    for field in cls.fields:
        nullable = field.is_nullable(version)
        if not field.is_present(version):
            if not field.ignorable:
                plain.append((field.name, "absent", False, nullable, -1, field.default, None))
            continue
        nested = field.struct and _struct_writer(compiled, field.struct, version)
        tag = field.tag if field.is_tagged(version) else -1
        how = (field.name, field.kind, field.is_array, nullable, tag, field.default, nested)
        (plain if tag == -1 else tagged).append(how)
    tagged.sort(key=lambda how: how[4])
    return compiled.StructWriter(cls, tuple(plain), tuple(tagged))


def _quickest_writer(cls: type[Message], version: int) -> Callable[..., Any]:
    writer = compiled_writer_for(cls, version) or partial(_join, writer_for(cls, version).function)
    cls.writers[version] = writer
    return writer


def _join(generated: Callable[..., Any], value: Message) -> bytes:
    pieces: list[Any] = []
    generated(value, pieces.append)
    return b"".join(pieces)


def _check_version(cls: type[Message], version: int) -> None:
    first, last = cls.versions
    assert first <= version <= last, f"{cls.__name__} has no version {version}"


def _explained(value: Message, version: int, error: Exception) -> UnwritableError:
    return explained(value, version, error, writer_for(type(value), version))


def explained(value: Message, version: int, error: Exception, writer: Generated) -> UnwritableError:
    """Return a failure of a generated writer as an error that names the field."""
    field, _ = writer.failed_at(error.__traceback__)
    where = f"{type(value).__name__} v{version}" + (f", {field}" if field else "")
    return UnwritableError(f"{where}: {error}")


def _text_uvarint(length_plus_one: int) -> bytes:
    """Write the length of a text; the limit is the same in compact and other encodings."""
    if length_plus_one > STRING_BYTES_MAX + 1:
        raise ValueError(f"{length_plus_one - 1} bytes of text are too many")
    return uvarint(length_plus_one)


class _WriterSource(SourceCode):
    """The source of one writer. In it, a appends a piece, n is a length or a count."""

    def __init__(self, cls: type[Message], version: int, *, is_sliced: bool = False) -> None:
        names = {
            "pack": struct.pack,
            "short": SHORT_UVARINTS,
            "text_uvarint": _text_uvarint,
            "uvarint": uvarint,
            "write_tags": write_tags,
        }
        super().__init__("def write(v, a)", names)
        self._version = version
        self._flexible = version >= cls.flexible_since
        self._is_sliced = is_sliced
        self._run: list[tuple[str, str, str]] = []
        self._write_struct(cls, "v", "", "a")
        self._flush("a")
        # A version may have no fields at all, and a generator has to have a yield.
        self.add("yield" if is_sliced else "return")

    def _fixed(self, letter: str, value: str, path: str) -> None:
        self._run.append((letter, value, path))

    def _flush(self, append: str) -> None:
        if not self._run:
            return
        run, self._run = self._run, []
        pack = self.name(self.layout("".join(r[0] for r in run)).pack, "pack")
        paths = " to ".join(dict.fromkeys((run[0][2], run[-1][2])))
        self.add(f"{append}({pack}({', '.join(r[1] for r in run)}))", paths)

    def _write_struct(self, cls: type[Struct], value: str, path: str, append: str) -> None:
        for field in cls.fields:
            if not field.is_present(self._version) and not field.ignorable:
                self._refuse_value(field, f"{value}.{field.name}", join_path(path, field.name))
        for field in cls.fields:
            if field.is_present(self._version) and not field.is_tagged(self._version):
                self._write_field(
                    field, f"{value}.{field.name}", join_path(path, field.name), append
                )
        if self._flexible:
            self._write_tagged_fields(cls, value, path, append)

    def _refuse_value(self, field: Field, value: str, path: str) -> None:
        self.open(f"if {self._is_set(field, value)}:", path)
        self.add(
            f"raise ValueError('this version has no such field, given {{!r}}'.format({value}))",
            path,
        )
        self.close()

    def _is_set(self, field: Field, value: str) -> str:
        """Return an expression that is true when the value is not the default."""
        if isinstance(field.default, list):
            return f"{value} or {value} is None" if field.is_nullable(self._version) else value
        if field.default is None:
            return f"{value} is not None"
        if isinstance(field.default, type):
            return f"{value} != {self.name(field.default(), 'default')}"
        return f"{value} != {self.name(field.default, 'default')}"

    def _write_field(self, field: Field, value: str, path: str, append: str) -> None:
        nullable = field.is_nullable(self._version)
        if field.is_array:
            self._write_array(field, value, path, append, nullable=nullable)
        elif field.struct is not None:
            null = None
            if nullable:
                null = b"\0" if field.is_tagged(self._version) else b"\xff"
            self._write_nested(field.struct, value, path, append, null)
        elif field.kind in LAYOUT_BY_KIND:
            self._fixed(LAYOUT_BY_KIND[field.kind], value, path)
        else:
            self._write_sized(field.kind, value, path, append, nullable=nullable)

    def _write_nested(
        self, cls: type[Struct], value: str, path: str, append: str, null: bytes | None
    ) -> None:
        """Write a structure; `null` is the encoding of None, where None is allowed."""
        local = value.replace(".", "_")
        if null is None:
            self.add(f"{local} = {value}", path)
            self._write_struct(cls, local, path, append)
            return
        self._flush(append)
        self.add(f"{local} = {value}", path)
        self.open(f"if {local} is None:", path)
        self.add(f"{append}({null!r})", path)
        self.close()
        self.open("else:", path)
        self.add(f"{append}(b'\\x01')", path)
        self._write_struct(cls, local, path, append)
        self._flush(append)
        self.close()

    def _write_sized(
        self, kind: str, value: str, path: str, append: str, *, nullable: bool
    ) -> None:
        letter = "h" if kind == "string" else "i"
        self._open_present(letter, value, path, append, nullable=nullable)
        self.add(f"s = {value}.encode()" if kind == "string" else f"s = {value}", path)
        self.add("n = len(s)", path)
        self._write_length(letter, path, append, "text_uvarint" if kind == "string" else "uvarint")
        self.add(f"{append}(s)", path)
        if nullable:
            self.close()

    def _open_present(
        self, letter: str, value: str, path: str, append: str, *, nullable: bool
    ) -> None:
        """If null may stand here, write it for None and leave a block open for the rest."""
        if not nullable:
            return
        self._flush(append)
        self.open(f"if {value} is None:", path)
        null = b"\0" if self._flexible else self.layout(letter).pack(-1)
        self.add(f"{append}({null!r})", path)
        self.close()
        self.open("else:", path)

    def _write_length(
        self, letter: str, path: str, append: str, long_uvarint: str = "uvarint"
    ) -> None:
        if self._flexible:
            self._flush(append)
            self.add("n += 1", path)
            short = f"short[n] if n < {len(SHORT_UVARINTS)}"
            self.add(f"{append}({short} else {long_uvarint}(n))", path)
        else:
            self._fixed(letter, "n", path)
            self._flush(append)

    def _write_array(
        self, field: Field, value: str, path: str, append: str, *, nullable: bool
    ) -> None:
        items, item = value.replace(".", "_") + "_items", value.replace(".", "_")
        self._flush(append)
        self.add(f"{items} = {value}", path)
        self._open_present("i", items, path, append, nullable=nullable)
        self.add(f"n = len({items})", path)
        self.open("if n:", path)
        self._write_length("i", path, append)
        path += "[]"
        if field.kind in LAYOUT_BY_KIND:
            letter = LAYOUT_BY_KIND[field.kind]
            self.add(f"{append}(pack('>' + {letter!r} * len({items}), *{items}))", path)
        else:
            self.open(f"for {item} in {items}:", path)
            self._write_item(field, item, path, append)
            self._flush(append)
            if self._is_sliced:
                self.add("yield", path)
            self.close()
        self.close()
        self.open("else:", path)
        none = b"\1" if self._flexible else bytes(4)
        self.add(f"{append}({none!r})", path)
        self.close()
        if nullable:
            self.close()

    def _write_item(self, field: Field, item: str, path: str, append: str) -> None:
        if field.struct is not None:
            self._write_struct(field.struct, item, path, append)
        else:
            self._write_sized(field.kind, item, path, append, nullable=False)

    def _write_tagged_fields(self, cls: type[Struct], value: str, path: str, append: str) -> None:
        known = [f for f in cls.fields if f.is_tagged(self._version)]
        path = join_path(path, "tagged fields")
        unset = [f"{value}.unknown_tags is None"]
        unset += [f"not ({self._is_set(f, f'{value}.{f.name}')})" for f in known]
        run = list(self._run)
        self.open(f"if {' and '.join(unset)}:", path)
        self._fixed("B", "0", path)
        self._flush(append)
        self.close()
        self.open("else:", path)
        self._run = run
        self._flush(append)
        tags = f"{value}_tags"
        self.add(f"{tags} = dict({value}.unknown_tags or ())", path)
        for field in known:
            self._write_known_tag(field, value, tags, path)
        self.add(f"write_tags({append}, {tags})", path)
        self.close()

    def _write_known_tag(self, field: Field, value: str, tags: str, path: str) -> None:
        inner = f"{value}_{field.name}_bytes"
        self.open(f"if {self._is_set(field, f'{value}.{field.name}')}:", path)
        self.add(f"{inner} = []", path)
        self.add(f"{inner}_a = {inner}.append", path)
        self._write_field(field, f"{value}.{field.name}", join_path(path, field.name), f"{inner}_a")
        self._flush(f"{inner}_a")
        self.add(f"{tags}[{field.tag}] = b''.join({inner})", path)
        self.close()
