"""Objects of a class as plain values and back, for schemas that have no plan.

Plain values of Avro are dicts, lists and Python's own types, as AvroWriter takes them; values for
JSON are of msgspec. Protobuf's are messages, read and written field by field.
"""

import datetime
import uuid
from decimal import Decimal
from typing import Any, Final

from ottla.schemas.classes._objects_python import micros_of
from ottla.schemas.classes.avro_text import accepts, symbol_of
from ottla.schemas.classes.class_types import (
    NO_DEFAULT,
    NONE,
    Atom,
    AtomType,
    ClassType,
    DecimalType,
    EnumType,
    FieldType,
    ListType,
    MapType,
    RecordType,
    UnionType,
    is_pydantic,
)
from ottla.schemas.classes.protobuf_text import branch_name, enum_prefix
from ottla.schemas.values import InvalidValueError

_NS_PER_MICRO: Final = 1_000
_SECOND_MICROS: Final = 1_000_000


def member_of(row: FieldType, value: Any) -> Any:
    """Return a field of an object; InvalidValueError if the object has no such field."""
    try:
        if isinstance(value, dict):
            return value[row.name] if row.is_required else value.get(row.name)
        return getattr(value, row.attribute)
    except (KeyError, AttributeError):
        raise InvalidValueError(
            f"{row.attribute}: an object of type {type(value).__name__} has no such field"
        ) from None


def made(record: RecordType, members: dict[str, Any]) -> Any:
    """Make an object from its fields by attribute; InvalidValueError if the class refuses them."""
    for row in record.fields:
        if row.attribute not in members and row.default is NO_DEFAULT:
            raise InvalidValueError(f"{row.name}: the value has no such field, and no default")
    if record.is_mapping:
        optional = {row.attribute for row in record.fields if not row.is_required}
        return {k: v for k, v in members.items() if v is not None or k not in optional}
    try:
        return record.cls(**members)
    except (TypeError, ValueError) as error:
        raise InvalidValueError(f"{record.name}: {error}") from None


def _inside(name: str, error: ValueError) -> InvalidValueError:
    return InvalidValueError(f"{name}: {error}")


# -- Avro -----------------------------------------------------------------------------------------


def to_plain(found: ClassType, value: Any, namespace: str = "") -> Any:
    """Return an object as AvroWriter takes it; a record in a union is a pair with its full name."""
    match found:
        case RecordType():
            return {row.name: _plain_member(row, value, namespace) for row in found.fields}
        case EnumType():
            return symbol_of(found, value)
        case ListType():
            return [to_plain(found.item, item, namespace) for item in value]
        case MapType():
            return {key: to_plain(found.value, item, namespace) for key, item in value.items()}
        case UnionType():
            return _plain_branch(_branch(found, value), value, namespace)
        case _:
            if isinstance(value, datetime.datetime):
                micros_of(value)  # without a time zone it has no place on the time line
            return value


def _plain_branch(branch: ClassType, value: Any, namespace: str) -> Any:
    plain = to_plain(branch, value, namespace)
    if not isinstance(branch, RecordType | EnumType):
        return plain
    return f"{namespace}.{branch.name}" if namespace else branch.name, plain


def _plain_member(row: FieldType, value: Any, namespace: str) -> Any:
    try:
        return to_plain(row.type, member_of(row, value), namespace)
    except (TypeError, ValueError) as error:
        raise _inside(row.name, ValueError(error)) from None


def _branch(union: UnionType, value: Any) -> ClassType:
    for branch in union.branches:
        if accepts(branch, value):
            return branch
    raise InvalidValueError(f"{type(value).__name__} is no branch of the union")


def from_plain(found: ClassType, value: Any) -> Any:
    """Return the object of a value from AvroReader; InvalidValueError if it does not fit."""
    match found:
        case RecordType():
            return _record_from_plain(found, value)
        case EnumType():
            return _member_from_symbol(found, value)
        case ListType():
            items = [from_plain(found.item, item) for item in value]
            return items if found.cls is list else found.cls(items)
        case MapType():
            return {key: from_plain(found.value, item) for key, item in value.items()}
        case UnionType():
            return _union_from_plain(found, value)
        case _:
            return _atom_from_plain(found, value)


def _record_from_plain(found: RecordType, value: Any) -> Any:
    if not isinstance(value, dict):
        raise InvalidValueError(f"expected a record {found.name}, not {type(value).__name__}")
    members = {}
    for row in found.fields:
        if row.name in value:
            try:
                members[row.attribute] = from_plain(row.type, value[row.name])
            except (TypeError, ValueError) as error:
                raise _inside(row.name, ValueError(error)) from None
    return made(found, members)


def _member_from_symbol(found: EnumType, value: Any) -> Any:
    if value not in found.member_by_symbol:
        raise InvalidValueError(f"{value!r} is no symbol of {found.name}")
    return found.member_by_symbol[value]


def _union_from_plain(found: UnionType, value: Any) -> Any:
    """Try the branches: a dict may be any of several records."""
    if value is None and found.is_optional:
        return None
    reason: ValueError | None = None
    for branch in found.branches:
        if branch != NONE:
            try:
                return from_plain(branch, value)
            except (TypeError, ValueError) as error:
                reason = reason or ValueError(error)
    raise InvalidValueError(f"no branch of the union fits: {reason}")


def _atom_from_plain(found: ClassType, value: Any) -> Any:
    if isinstance(found, AtomType):
        if found.atom is Atom.UUID and isinstance(value, str):
            return uuid.UUID(value)
        if found.atom in {Atom.FLOAT, Atom.FLOAT32} and type(value) is int:
            return float(value)
    if not accepts(found, value):
        raise InvalidValueError(f"expected {_shown(found)}, not {type(value).__name__}")
    return value


def _shown(found: ClassType) -> str:
    return found.atom.value if isinstance(found, AtomType) else type(found).__name__


# -- JSON -----------------------------------------------------------------------------------------


def to_json_plain(value: Any) -> Any:
    """Return an object as JsonWriter takes it."""
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def from_json_plain(record: RecordType, value: Any) -> Any:
    """Return the object of a JSON value; InvalidValueError if it does not fit."""
    import msgspec  # noqa: PLC0415 - part of the extra `schemas`

    try:
        if is_pydantic(record.cls):
            return record.cls.model_validate(value)  # type: ignore[attr-defined]
        return msgspec.convert(value, record.cls)
    except (msgspec.ValidationError, ValueError) as error:
        raise InvalidValueError(str(error)) from None


# -- Protobuf -------------------------------------------------------------------------------------


def to_message(record: RecordType, value: Any, message: Any) -> Any:
    """Set the fields of a message from an object, and return it."""
    for row in record.fields:
        try:
            _set_field(row, member_of(row, value), message)
        except (TypeError, ValueError) as error:
            raise _inside(row.name, ValueError(error)) from None
    return message


def _set_field(row: FieldType, value: Any, message: Any) -> None:
    found, name = row.type, row.name
    if isinstance(found, UnionType):
        if value is None and found.is_optional:
            return
        found = _branch(found, value)
        if len([branch for branch in row.type.branches if branch != NONE]) > 1:  # type: ignore[union-attr]
            name = branch_name(name, found)
    match found:
        case RecordType():
            target = getattr(message, name)
            target.SetInParent()
            to_message(found, value, target)
        case AtomType() if found.atom is Atom.DATETIME:
            _set_time(getattr(message, name), value)
        case ListType():
            _add_items(found.item, value, getattr(message, name))
        case MapType():
            _put_items(found.value, value, getattr(message, name))
        case _:
            setattr(message, name, _to_scalar(found, value))


def _add_items(item_type: ClassType, value: Any, target: Any) -> None:
    for item in value:
        if isinstance(item_type, RecordType):
            to_message(item_type, item, target.add())
        elif _is_time(item_type):
            _set_time(target.add(), item)
        else:
            target.append(_to_scalar(item_type, item))


def _put_items(value_type: ClassType, value: Any, target: Any) -> None:
    for key, item in value.items():
        if isinstance(value_type, RecordType):
            to_message(value_type, item, target[key])
        elif _is_time(value_type):
            _set_time(target[key], item)
        else:
            target[key] = _to_scalar(value_type, item)


def _is_time(found: ClassType) -> bool:
    return isinstance(found, AtomType) and found.atom is Atom.DATETIME


def _set_time(target: Any, value: Any) -> None:
    seconds, micros = divmod(micros_of(value), _SECOND_MICROS)
    target.seconds, target.nanos = seconds, micros * _NS_PER_MICRO
    target.SetInParent()


def _to_scalar(found: ClassType, value: Any) -> Any:
    if not accepts(found, value):
        raise InvalidValueError(f"expected {_shown(found)}, not {type(value).__name__}")
    if isinstance(found, EnumType):
        return list(found.symbols).index(symbol_of(found, value)) + 1
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    return value


def from_message(record: RecordType, message: Any) -> Any:
    """Return the object of a message; fields that the message type lacks get their defaults."""
    known = message.DESCRIPTOR.fields_by_name
    members = {}
    for row in record.fields:
        try:
            if isinstance(row.type, UnionType):
                members[row.attribute] = _union_from_message(row, row.type, message)
            elif row.name in known:
                found = getattr(message, row.name)
                members[row.attribute] = _from_field(row.type, found)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise _inside(row.name, ValueError(error)) from None
    return made(record, members)


def _union_from_message(row: FieldType, union: UnionType, message: Any) -> Any:
    branches = [branch for branch in union.branches if branch != NONE]
    known = message.DESCRIPTOR.fields_by_name
    for branch in branches:
        name = row.name if len(branches) == 1 else branch_name(row.name, branch)
        if name in known and (not known[name].has_presence or message.HasField(name)):
            return _from_field(branch, getattr(message, name))
    if union.is_optional:
        return None
    raise InvalidValueError("no branch of the union is set")


def _from_field(found: ClassType, value: Any) -> Any:
    match found:
        case RecordType():
            return from_message(found, value)
        case ListType():
            items = [_from_field(found.item, item) for item in value]
            return items if found.cls is list else found.cls(items)
        case MapType():
            return {key: _from_field(found.value, item) for key, item in value.items()}
        case EnumType():
            if not 0 < value <= len(found.symbols):
                raise InvalidValueError(f"{enum_prefix(found)}{value} is no member of {found.name}")
            return found.member_by_symbol[found.symbols[value - 1]]
        case _:
            return _from_scalar(found, value)


def _from_scalar(found: ClassType, value: Any) -> Any:
    if isinstance(found, DecimalType):
        return Decimal(value)
    match found.atom if isinstance(found, AtomType) else None:
        case Atom.DATETIME:
            zone = datetime.UTC
            whole = datetime.datetime.fromtimestamp(value.seconds, zone)
            return whole + datetime.timedelta(microseconds=value.nanos // _NS_PER_MICRO)
        case Atom.DATE:
            return datetime.date.fromisoformat(value)
        case Atom.TIME:
            return datetime.time.fromisoformat(value)
        case Atom.UUID:
            return uuid.UUID(value)
        case _:
            return value
