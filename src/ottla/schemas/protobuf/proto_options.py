"""Sets options from their text, and gives options their text again.

An option is text while its name and value are an UninterpretedOption, as protoc's parser has it.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from io import StringIO
from typing import Any, Final

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import UninterpretedOption
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ottla.schemas.protobuf.proto_names import is_repeated, messages_of, resolve
from ottla.schemas.protobuf.proto_reader import option_name
from ottla.schemas.protobuf.proto_tokens import shown

_EXTENSIONS: Final = frozenset({"extension"})
_INTEGERS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64),
}
_UNKNOWN_NAME: Final = re.compile(r'has no field named "([^"]*)"')


class OptionError(Exception):
    """An option that cannot be set; the linker adds the line."""

    def __init__(self, owner: str, reason: str, name: str = "") -> None:
        super().__init__(reason)
        self.owner = owner
        self.name = name


def holders_of(descriptor: Any) -> Iterator[tuple[str, Any]]:
    """Yield each declaration that has options, with its full name."""
    prefix = f"{descriptor.package}." if descriptor.package else ""
    yield descriptor.package, descriptor
    for full_name, message in messages_of(descriptor):
        yield full_name, message
        for part in (*message.field, *message.oneof_decl):
            yield f"{full_name}.{part.name}", part
        for span in message.extension_range:
            yield f"{full_name} extensions", span
        yield from _nested_holders(message, f"{full_name}.")
    yield from _nested_holders(descriptor, prefix)
    for service in descriptor.service:
        yield prefix + service.name, service
        for method in service.method:
            yield f"{prefix}{service.name}.{method.name}", method


def _nested_holders(scope: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for extension in scope.extension:
        yield prefix + extension.name, extension
    for enum in scope.enum_type:
        yield prefix + enum.name, enum
        for value in enum.value:
            yield prefix + value.name, value


def set_standard_options(descriptor: Any) -> bool:
    """Set the options of descriptor.proto; return whether custom options are left."""
    has_custom = False
    for owner, holder in holders_of(descriptor):
        if not holder.HasField("options"):
            continue
        written = list(holder.options.uninterpreted_option)
        if not written:
            continue
        del holder.options.uninterpreted_option[:]
        for option in written:
            if any(part.is_extension for part in option.name):
                holder.options.uninterpreted_option.append(option)
                has_custom = True
            else:
                _set(holder.options, option, owner, _no_extension, None)
    return has_custom


def set_custom_options(descriptor: Any, kinds: Mapping[str, str], pool: DescriptorPool) -> None:
    """Set the options that are extensions; the pool has this file and its imports."""
    for owner, holder in holders_of(descriptor):
        if not holder.HasField("options") or not holder.options.uninterpreted_option:
            continue
        name = holder.options.DESCRIPTOR.full_name
        try:
            options = GetMessageClass(pool.FindMessageTypeByName(name))()
        except KeyError:
            reason = "a custom option needs the import google/protobuf/descriptor.proto"
            first = option_name(holder.options.uninterpreted_option[0])
            raise OptionError(owner, reason, first) from None
        written = list(holder.options.uninterpreted_option)
        del holder.options.uninterpreted_option[:]
        options.ParseFromString(holder.options.SerializeToString())

        def extension_of(name: str, owner: str = owner) -> Any:
            found = resolve(name, owner, kinds, _EXTENSIONS)
            return pool.FindExtensionByName(found) if found is not None else None

        for option in written:
            _set(options, option, owner, extension_of, pool)
        try:
            holder.options.ParseFromString(options.SerializeToString(deterministic=True))
        except (DecodeError, ValueError) as error:
            raise OptionError(owner, f"its options are not valid: {error}") from None


def _no_extension(_name: str) -> Any:
    return None


def _set(
    options: Any,
    option: Any,
    owner: str,
    extension_of: Callable[[str], Any],
    pool: DescriptorPool | None,
) -> None:
    """Follow the parts of the option's name, and set the value of the last part."""
    message, field, shown_name = options, None, option_name(option)
    for index, part in enumerate(option.name):
        field = _field_of(message, part, extension_of)
        if field is None:
            raise OptionError(owner, f"unknown option {shown(shown_name)}", shown_name)
        if index + 1 == len(option.name):
            break
        if field.type != FieldDescriptor.TYPE_MESSAGE or is_repeated(field):
            reason = f"option {shown(shown_name)} goes into a value with no fields"
            raise OptionError(owner, reason, shown_name)
        message = _member(message, field)
        message.SetInParent()
    try:
        _set_value(message, field, option, pool)
    except (ValueError, text_format.ParseError, TypeError, RecursionError) as error:
        reason = f"option {shown(shown_name)}: {shown(str(error))}"
        raise OptionError(owner, reason, shown_name) from None


def _field_of(message: Any, part: Any, extension_of: Callable[[str], Any]) -> Any:
    if not part.is_extension:
        return message.DESCRIPTOR.fields_by_name.get(part.name_part)
    found = extension_of(part.name_part)
    is_fitting = found is not None and found.containing_type is message.DESCRIPTOR
    return found if is_fitting else None


def _member(message: Any, field: Any) -> Any:
    return message.Extensions[field] if field.is_extension else getattr(message, field.name)


def _set_value(message: Any, field: Any, option: Any, pool: DescriptorPool | None) -> None:
    if field.type in {FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP}:
        if not option.HasField("aggregate_value"):
            raise ValueError("its value must be in braces")
        member = _member(message, field)
        target = member.add() if is_repeated(field) else member
        if not is_repeated(field):
            if _has(message, field):
                raise ValueError("it is set twice")
            target.SetInParent()
        text_format.Merge(option.aggregate_value, target, descriptor_pool=pool)
        return
    value = _scalar(field, option)
    if is_repeated(field):
        _member(message, field).append(value)
        return
    if field.has_presence and _has(message, field):
        raise ValueError("it is set twice")
    if field.is_extension:
        message.Extensions[field] = value
    else:
        setattr(message, field.name, value)


def _has(message: Any, field: Any) -> bool:
    return bool(message.HasExtension(field) if field.is_extension else message.HasField(field.name))


def _scalar(field: Any, option: Any) -> Any:
    kind = field.cpp_type
    if kind in _INTEGERS:
        return _integer(option, *_INTEGERS[kind])
    if kind in {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}:
        return _number(option)
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        if option.identifier_value not in {"true", "false"}:
            raise ValueError("its value must be true or false")
        return option.identifier_value == "true"
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        value = field.enum_type.values_by_name.get(option.identifier_value)
        if value is None:
            raise ValueError(f"its value is no value of {field.enum_type.full_name}")
        return value.number
    if not option.HasField("string_value"):
        raise ValueError("its value must be a string")
    is_bytes = field.type == FieldDescriptor.TYPE_BYTES
    return option.string_value if is_bytes else option.string_value.decode()


def _integer(option: Any, smallest: int, limit: int) -> int:
    if option.HasField("positive_int_value"):
        value = option.positive_int_value
    elif option.HasField("negative_int_value"):
        value = option.negative_int_value
    else:
        raise ValueError("its value must be an integer")
    if not smallest <= value < limit:
        raise ValueError(f"its value must be from {smallest} to {limit - 1}")
    return int(value)


def _number(option: Any) -> float:
    if option.identifier_value in {"inf", "nan"}:
        return float(option.identifier_value)
    for attribute in ("double_value", "positive_int_value", "negative_int_value"):
        if option.HasField(attribute):
            return float(getattr(option, attribute))
    raise ValueError("its value must be a number")


# --- options as text again


def written_options(options: Any, pool: DescriptorPool) -> list[Any]:
    """Return the options that are set as uninterpreted options, sorted by name."""
    options_class = GetMessageClass(pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))
    known = options_class()
    known.ParseFromString(options.SerializeToString())
    found = []
    for field, value in known.ListFields():
        if field.name == "uninterpreted_option" and not field.is_extension:
            continue
        found += list(_written(field, value))
    return sorted(found, key=option_name)


def _written(field: Any, value: Any, names: tuple[tuple[str, bool], ...] = ()) -> Iterator[Any]:
    name = (*names, (field.full_name if field.is_extension else field.name, field.is_extension))
    if is_repeated(field):
        for element in value:
            yield _option(name, field, element)
    elif field.type == FieldDescriptor.TYPE_MESSAGE and not field.is_extension:
        # An option such as features.field_presence.
        for inner, inner_value in value.ListFields():
            yield from _written(inner, inner_value, name)
    else:
        yield _option(name, field, value)


def _option(name: tuple[tuple[str, bool], ...], field: Any, value: Any) -> Any:
    option = UninterpretedOption()
    for part, is_extension in name:
        option.name.add(name_part=part, is_extension=is_extension)
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        option.aggregate_value = aggregate_text(value)
    elif kind == FieldDescriptor.CPPTYPE_STRING:
        option.string_value = value if isinstance(value, bytes) else value.encode()
    elif kind == FieldDescriptor.CPPTYPE_BOOL:
        option.identifier_value = "true" if value else "false"
    elif kind == FieldDescriptor.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        option.identifier_value = str(value) if known is None else known.name
    elif kind in {FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE}:
        _set_double(option, value)
    elif value < 0:
        option.negative_int_value = value
    else:
        option.positive_int_value = value
    return option


def _set_double(option: Any, value: float) -> None:
    if value != value or value == float("inf"):  # noqa: PLR0124 - NaN differs from itself
        option.identifier_value = str(value)
    else:
        option.double_value = value


def aggregate_text(message: Any) -> str:
    """Return a message in text format, the fields of each level sorted by name."""
    return " ".join(_aggregate_parts(message))


def _aggregate_parts(message: Any) -> Iterator[str]:
    fields = ((_aggregate_name(field), field, value) for field, value in message.ListFields())
    for name, field, value in sorted(fields, key=lambda entry: entry[0]):
        for element in _elements(field, value):
            if field.cpp_type == FieldDescriptor.CPPTYPE_MESSAGE:
                yield f"{name} {{ {aggregate_text(element)} }}"
            else:
                text = StringIO()
                text_format.PrintFieldValue(field, element, text, as_utf8=True)
                yield f"{name} : {text.getvalue()}"


def _elements(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry_class = GetMessageClass(field.message_type)
        return [entry_class(key=key, value=value[key]) for key in sorted(value)]
    return value if is_repeated(field) else [value]


def _aggregate_name(field: Any) -> str:
    return f"[{field.full_name}]" if field.is_extension else str(field.name)
