"""A Protobuf schema: one file, linked with the files that it imports.

Each schema has a descriptor pool of its own, so that two versions of one message can be in use at
once, and no schema changes Protobuf's global pool.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, Final, Self, cast

from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from ottla.schemas.parsed_schema import CompatibilityPolicy, Incompatibility, InvalidSchemaError
from ottla.schemas.protobuf.built_in_files import PATHS, built_in_text, protobuf_file
from ottla.schemas.protobuf.proto_linker import Linker
from ottla.schemas.protobuf.proto_names import is_repeated, messages_of, symbols_of
from ottla.schemas.protobuf.proto_options import (
    OptionError,
    holders_of,
    set_custom_options,
)
from ottla.schemas.protobuf.proto_parser import parse_file
from ottla.schemas.protobuf.proto_printer import (
    move_implied_messages_last,
    print_file,
    sort_for_normal_form,
    source_of,
)
from ottla.schemas.protobuf.proto_reader import NESTING_MAX, ProtoFile
from ottla.schemas.protobuf.proto_tokens import fail, shown
from ottla.schemas.protobuf.protobuf_compatibility import incompatibilities
from ottla.schemas.schema import SchemaType

SERIALIZED_BYTES_MAX: Final = 1 << 20
FILES_MAX: Final = 1_000
"""Of one schema: its own file and all files that it imports, also indirectly."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]++={0,2}+\s*+")
MessageClass = type[Message]
_OWN_NAME: Final = "default.proto"
_NAME_IN_ERROR: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


class ProtobufSchema:
    """A valid file with its imports. Immutable."""

    def __init__(
        self, file: ProtoFile, descriptor: Any, imports: Mapping[str, "ProtobufSchema"]
    ) -> None:
        self._file = file
        self._descriptor = descriptor
        self._imports = imports

    @property
    def type(self) -> SchemaType:
        """The type of the schema."""
        return SchemaType.PROTOBUF

    @property
    def descriptor(self) -> Any:
        """The FileDescriptorProto; callers must not change it."""
        return self._descriptor

    @property
    def imports(self) -> Mapping[str, "ProtobufSchema"]:
        """The schema of each imported file, by its path."""
        return self._imports

    @property
    def record_name(self) -> str | None:
        """The full name of the first message."""
        if not self._descriptor.message_type:
            return None
        return self._full_name(self._descriptor.message_type[0].name)

    def _full_name(self, name: str) -> str:
        package = self._descriptor.package
        return f"{package}.{name}" if package else name

    # --- text

    def canonical(self) -> str:
        """Return the text, printed anew without comments."""
        return print_file(self._file)

    @cached_property
    def _normalized(self) -> str:
        source = source_of(self._descriptor, self.pool_with_options)
        sort_for_normal_form(source)
        return print_file(source)

    def normalized(self) -> str:
        """Return the text with full names, and with imports, options and fields sorted."""
        return self._normalized

    def formatted(self, output_format: str) -> str:
        """Return the canonical text, `serialized` in base64, or `ignore_extensions`."""
        match output_format:
            case "" | "default":
                return self.canonical()
            case "serialized":
                return base64.b64encode(self._descriptor.SerializeToString()).decode()
            case "ignore_extensions":
                return print_file(self._file, ignore_extensions=True)
            case _:
                raise ValueError(
                    f"a Protobuf schema has no format {shown(output_format)!r}:"
                    " there are serialized and ignore_extensions"
                )

    def reading(
        self, writer: Self, policy: CompatibilityPolicy = CompatibilityPolicy.STRICT
    ) -> list[Incompatibility]:
        """Return why this schema cannot read data of the writer's; an empty list if it can."""
        del policy
        return incompatibilities(self, writer)

    # --- messages

    def indexes(self, full_name: str) -> tuple[int, ...]:
        """Return the message indexes of a message; KeyError if the file does not declare it."""
        return self._indexes_by_name[full_name]

    def message(self, indexes: tuple[int, ...]) -> str:
        """Return the full name of a message; KeyError if the file has none at these indexes.

        The entry of a map is no message of its own: such indexes count otherwise than this text.
        """
        return self._names_by_indexes[tuple(indexes)]

    @cached_property
    def _indexes_by_name(self) -> dict[str, tuple[int, ...]]:
        return {name: indexes for indexes, name in self._names_by_indexes.items()}

    @cached_property
    def _names_by_indexes(self) -> dict[tuple[int, ...], str]:
        pending: list[tuple[tuple[int, ...], str, Any]] = [
            ((index,), self._full_name(message.name), message)
            for index, message in enumerate(self._descriptor.message_type)
        ]
        found = {}
        while pending:
            indexes, name, message = pending.pop()
            if message.options.map_entry:
                continue
            found[indexes] = name
            pending += [
                ((*indexes, index), f"{name}.{inner.name}", inner)
                for index, inner in enumerate(message.nested_type)
            ]
        return found

    def message_class(self, full_name: str) -> MessageClass:
        """Return the Python class of a message; KeyError if the file does not declare it."""
        self.indexes(full_name)
        found = GetMessageClass(self.pool.FindMessageTypeByName(full_name))
        return cast("MessageClass", found)

    # --- files

    @cached_property
    def files(self) -> dict[str, Any]:
        """The descriptors of all files by path, each after its imports; the own file is last."""
        found: dict[str, Any] = {}
        for path, schema in self._imports.items():
            for inner_path, descriptor in schema.files_as(path).items():
                known = found.setdefault(inner_path, descriptor)
                if known is not descriptor and not _are_equal(known, descriptor):
                    raise InvalidSchemaError(
                        f"two different files are imported as {shown(inner_path)!r}:"
                        " let all references name the same version"
                    )
        if len(found) >= FILES_MAX:
            raise InvalidSchemaError(f"the schema imports more than {FILES_MAX} files")
        name = self._descriptor.name
        while name in found:
            name = f"own/{name}"
        found[name] = self._descriptor
        return found

    def files_as(self, path: str) -> dict[str, Any]:
        """Return the files, with the own file under the path by which another file imports it."""
        *others, own = self.files.items()
        return {**dict(others), path: own[1]}

    @cached_property
    def pool(self) -> DescriptorPool:
        """The descriptor pool with this file and its imports."""
        return _pool_of(self.files)

    @cached_property
    def pool_with_options(self) -> DescriptorPool:
        """The same with descriptor.proto, which declares the options."""
        path = "google/protobuf/descriptor.proto"
        if path in self.files or "google.protobuf.FieldOptions" in self.own_symbols:
            return self.pool
        return _pool_of({path: protobuf_file(path), **self.files})

    @cached_property
    def own_symbols(self) -> Mapping[str, str]:
        """The kinds of the names that the file declares."""
        return symbols_of(self._descriptor)

    def visible_symbols(self) -> dict[str, str]:
        """Return the kinds of the names that an import of this file makes visible."""
        found: dict[str, str] = {}
        pending: list[ProtobufSchema] = [self]
        seen = set()
        while pending:
            schema = pending.pop()
            if id(schema) in seen:
                continue
            seen.add(id(schema))
            found.update(schema.own_symbols)
            descriptor = schema.descriptor
            public = (descriptor.dependency[index] for index in descriptor.public_dependency)
            pending += [schema.imports[path] for path in public]
        return found


def _are_equal(one: Any, other: Any) -> bool:
    copies = []
    for descriptor in (one, other):
        copy = FileDescriptorProto()
        copy.CopyFrom(descriptor)
        copy.ClearField("name")
        copies.append(copy)
    return bool(copies[0] == copies[1])


def _pool_of(files: Mapping[str, Any]) -> DescriptorPool:
    pool = DescriptorPool()
    for path, descriptor in files.items():
        named = FileDescriptorProto()
        named.CopyFrom(descriptor)
        named.name = path
        named.ClearField("source_code_info")
        pool.AddSerializedFile(named.SerializeToString())
    return pool


def parse_protobuf(
    text: str, references: Mapping[str, ProtobufSchema] | None = None
) -> ProtobufSchema:
    """Parse `.proto` text, or a serialized FileDescriptorProto in base64.

    References are by import path. The files of google/protobuf, google/type and confluent need
    none. InvalidSchemaError, with the line in text, if the schema is not valid.
    """
    if not text.strip():
        raise InvalidSchemaError("the text is empty")
    if len(text) <= 2 * SERIALIZED_BYTES_MAX and _BASE64.fullmatch(text):
        return _of_descriptor(_decoded(text), references or {})
    return _linked(parse_file(text), references or {})


def _linked(file: ProtoFile, references: Mapping[str, ProtobufSchema]) -> ProtobufSchema:
    imports = {path: _imported(path, file, references) for path in file.descriptor.dependency}
    visible: dict[str, str] = {}
    for schema in imports.values():
        visible.update(schema.visible_symbols())
    if not file.descriptor.name:
        file.descriptor.name = _OWN_NAME
    move_implied_messages_last(file)
    linker = Linker(file, visible)
    try:
        descriptor = linker.link()
        if linker.has_custom_options:
            bare = FileDescriptorProto()
            bare.CopyFrom(descriptor)
            schema = ProtobufSchema(file, _without_options(bare), imports)
            pool = _checked_pool(file, schema)
            set_custom_options(descriptor, linker.kinds, pool)
    except OptionError as error:
        fail(file.text, file.option_position(error.owner, error.name), str(error))
    schema = ProtobufSchema(file, descriptor, imports)
    _checked_pool(file, schema)
    return schema


def _without_options(descriptor: Any) -> Any:
    """Remove custom options: a pool refuses options that are not interpreted."""
    for _, holder in holders_of(descriptor):
        if holder.HasField("options"):
            del holder.options.uninterpreted_option[:]
    return descriptor


def _imported(
    path: str, file: ProtoFile, references: Mapping[str, ProtobufSchema]
) -> ProtobufSchema:
    found = _referenced(path, references)
    if found is None and path in PATHS:
        found = built_in(path)
    if found is None:
        fail(
            file.text,
            file.position(f"import {path}"),
            f"import {shown(path)!r} has no reference of this name",
        )
    return found


def _referenced(path: str, references: Mapping[str, ProtobufSchema]) -> ProtobufSchema | None:
    """Find a file among the references and, as Confluent's registry does, their imports."""
    if path in references:
        return references[path]
    pending, seen = list(references.values()), set()
    while pending:
        schema = pending.pop()
        if id(schema) in seen:
            continue
        seen.add(id(schema))
        if path in schema.imports:
            return schema.imports[path]
        pending += schema.imports.values()
    return None


def _checked_pool(file: ProtoFile, schema: ProtobufSchema) -> DescriptorPool:
    """Build the pool; its error names a declaration, which gives the line."""
    try:
        return schema.pool
    except (TypeError, ValueError, DecodeError) as error:
        reason = " ".join(str(error).split())
        names = (name.rstrip(".") for name in _NAME_IN_ERROR.findall(reason))
        position = next((file.positions[name] for name in names if name in file.positions), 0)
        fail(file.text, position, reason)


@cache
def built_in(path: str) -> ProtobufSchema:
    """Return a file that needs no reference; KeyError if there is no such file."""
    text = built_in_text(path)
    if text is not None:
        file = parse_file(text)
        file.descriptor.name = path
        return _linked(file, {})
    descriptor = protobuf_file(path)
    if descriptor is None:
        raise KeyError(path)
    imports = {name: built_in(name) for name in descriptor.dependency}
    pool = ProtobufSchema(ProtoFile(descriptor), descriptor, imports).pool_with_options
    return ProtobufSchema(source_of(descriptor, pool), descriptor, imports)


# --- serialized descriptors


def _decoded(text: str) -> Any:
    try:
        content = base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise InvalidSchemaError(f"line 1: neither .proto text nor base64: {error}") from None
    if len(content) > SERIALIZED_BYTES_MAX:
        raise InvalidSchemaError(f"the descriptor has more than {SERIALIZED_BYTES_MAX} bytes")
    try:
        descriptor = FileDescriptorProto.FromString(content)
    except DecodeError:
        reason = "neither .proto text nor a serialized FileDescriptorProto in base64"
        raise InvalidSchemaError(f"line 1: {reason}") from None
    _check_strings(descriptor)
    return descriptor


def _check_strings(message: Any) -> None:
    """Refuse strings that are not UTF-8: Protobuf gives them as bytes. It limits the nesting."""
    for field, value in message.ListFields():
        elements = value if is_repeated(field) else [value]
        if field.message_type is not None:
            for element in elements:
                _check_strings(element)
        elif field.type == field.TYPE_STRING and not all(isinstance(e, str) for e in elements):
            raise InvalidSchemaError(f"{field.full_name} is not UTF-8")


def _join_synthetic_oneofs(message: Any) -> None:
    """Put each optional field into the oneof of its name, which Confluent's registry does, too.

    Some programs build descriptors by hand and leave the index of the oneof out.
    """
    index_by_name = {oneof.name: index for index, oneof in enumerate(message.oneof_decl)}
    for field in message.field:
        if field.proto3_optional and not field.HasField("oneof_index"):
            index = index_by_name.get(f"_{field.name}")
            if index is None:
                index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field.name}")
            field.oneof_index = index


def _of_descriptor(descriptor: Any, references: Mapping[str, ProtobufSchema]) -> ProtobufSchema:
    descriptor.ClearField("source_code_info")
    for name, message in messages_of(descriptor):
        if name.count(".") - descriptor.package.count(".") > NESTING_MAX + 1:
            raise InvalidSchemaError(f"messages are nested more than {NESTING_MAX} deep")
        if not message.name:
            raise InvalidSchemaError("a message has no name")
        _join_synthetic_oneofs(message)
    placeholder = ProtoFile(descriptor)
    imports = {path: _imported(path, placeholder, references) for path in descriptor.dependency}
    schema = ProtobufSchema(placeholder, descriptor, imports)
    _checked_pool(placeholder, schema)
    # Printed and parsed again: a descriptor obeys the same rules as text.
    try:
        pool = schema.pool_with_options
        text = print_file(source_of(descriptor, pool, has_map_fields=False))
    except (DecodeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InvalidSchemaError(f"the descriptor is not valid: {error}") from None
    file = parse_file(text)
    file.descriptor.name = descriptor.name
    return _linked(file, references)
