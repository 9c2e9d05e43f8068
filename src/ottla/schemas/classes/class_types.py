"""The fields and types of a class: dataclass, msgspec.Struct, pydantic model or TypedDict.

`record_of` reads a class into a tree that the three schema languages share. Named types are
compared by identity, because a class may contain itself.
"""

import dataclasses
import datetime
import enum
import inspect
import re
import types
import typing
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import (
    Annotated,
    Any,
    Final,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
)

from ottla.schemas.parsed_schema import InvalidSchemaError

NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
FIELDS_MAX: Final = 2_000
"""How many fields a class may have."""


class _Missing:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Final[Any] = _Missing()


class Atom(StrEnum):
    """The types without parts."""

    NULL = "None"
    BOOLEAN = "bool"
    INT = "int"
    INT32 = "int32"
    FLOAT = "float"
    FLOAT32 = "float32"
    STRING = "str"
    BYTES = "bytes"
    DATETIME = "datetime"
    DATE = "date"
    TIME = "time"
    UUID = "UUID"


@dataclass(frozen=True, slots=True)
class Precision:
    """The digits of a Decimal, as in `Annotated[Decimal, Precision(10, 2)]`."""

    precision: int
    scale: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.scale <= self.precision or self.precision < 1:
            raise ValueError(
                f"Precision({self.precision}, {self.scale}): the precision is at least 1, and the "
                "scale from 0 to the precision"
            )


@dataclass(frozen=True, slots=True)
class Bits:
    """The width of an int or float, as in `Annotated[int, Bits(32)]`; the default is 64."""

    bits: int

    def __post_init__(self) -> None:
        if self.bits not in {32, 64}:
            raise ValueError(f"Bits({self.bits}): the width is 32 or 64")


@dataclass(frozen=True, slots=True)
class FieldNumber:
    """The number of a Protobuf field, as in `Annotated[str, FieldNumber(7)]`."""

    number: int


@dataclass(frozen=True, slots=True)
class AtomType:
    """A type without parts."""

    atom: Atom


@dataclass(frozen=True, slots=True)
class DecimalType:
    """A Decimal with a fixed precision and scale."""

    precision: int
    scale: int


@dataclass(frozen=True, slots=True)
class EnumType:
    """An enum.Enum. Its symbols are the values if all are names, else the names of the members."""

    name: str
    cls: type[enum.Enum]
    symbols: tuple[str, ...]
    member_by_symbol: Mapping[str, enum.Enum] = field(compare=False)


@dataclass(frozen=True, slots=True)
class ListType:
    """A list, set, frozenset or tuple of any length; `cls` makes it from a list."""

    item: "ClassType"
    cls: type


@dataclass(frozen=True, slots=True)
class MapType:
    """A dict with str as keys."""

    value: "ClassType"


@dataclass(frozen=True, slots=True)
class UnionType:
    """One of several types; None is a branch. Never directly inside another union."""

    branches: tuple["ClassType", ...]

    @property
    def is_optional(self) -> bool:
        """Whether None is one of the branches."""
        return NONE in self.branches


@dataclass(frozen=True, slots=True)
class FieldType:
    """A field of a class. `name` is in the schema, `attribute` in Python."""

    name: str
    attribute: str
    type: "ClassType"
    default: Any = NO_DEFAULT
    number: int | None = None
    is_required: bool = True
    """False for a key of a TypedDict that may be missing."""


@dataclass(eq=False, slots=True)
class RecordType:
    """A class with fields. The fields are set once all of its types are known."""

    name: str
    cls: type
    fields: tuple[FieldType, ...] = ()
    tag: tuple[str, str | int] | None = None
    """The field and value that tell a tagged msgspec.Struct from others, in JSON."""

    @property
    def is_mapping(self) -> bool:
        """Whether the values are dicts: the class is a TypedDict."""
        return typing.is_typeddict(self.cls)


ClassType: TypeAlias = (
    AtomType | DecimalType | EnumType | ListType | MapType | UnionType | RecordType
)
NONE: Final = AtomType(Atom.NULL)
_ATOM_BY_CLASS: Final[Mapping[Any, Atom]] = {
    type(None): Atom.NULL,
    None: Atom.NULL,
    bool: Atom.BOOLEAN,
    int: Atom.INT,
    float: Atom.FLOAT,
    str: Atom.STRING,
    bytes: Atom.BYTES,
    datetime.datetime: Atom.DATETIME,
    datetime.date: Atom.DATE,
    datetime.time: Atom.TIME,
    uuid.UUID: Atom.UUID,
}
_LISTS: Final[Mapping[Any, type]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    typing.Sequence: list,
    Iterable: list,
}


def is_record_class(cls: Any) -> bool:
    """Whether `record_of` knows this kind of class."""
    if not isinstance(cls, type):
        return False
    return (
        dataclasses.is_dataclass(cls)
        or is_struct(cls)
        or is_pydantic(cls)
        or typing.is_typeddict(cls)
    )


def is_struct(cls: type) -> bool:
    """Whether a class is a msgspec.Struct; msgspec is not imported for it."""
    return hasattr(cls, "__struct_config__")


def is_pydantic(cls: type) -> bool:
    """Whether a class is a pydantic model; pydantic is not imported for it."""
    return hasattr(cls, "__pydantic_fields__")


def record_of(cls: type, name: str | None = None) -> RecordType:
    """Read a class; InvalidSchemaError names the field if its type has no place in a schema."""
    if not is_record_class(cls):
        raise InvalidSchemaError(
            f"{cls!r} is no schema: give a dataclass, msgspec.Struct, pydantic model or TypedDict"
        )
    return _Reader().record(cls, name)


class _Reader:
    """Reads one class, and each class inside it once."""

    def __init__(self) -> None:
        self._record_by_class: dict[type, RecordType] = {}
        self._class_by_name: dict[str, type] = {}

    def record(self, cls: type, name: str | None = None) -> RecordType:
        if cls in self._record_by_class:
            return self._record_by_class[cls]
        record = RecordType(self._claim(cls, name), cls, tag=_tag_of(cls))
        self._record_by_class[cls] = record
        rows = _rows_of(cls)
        if len(rows) > FIELDS_MAX:
            raise InvalidSchemaError(f"{cls.__name__} has more than {FIELDS_MAX} fields")
        record.fields = tuple(self._field(cls, row) for row in rows)
        return record

    def _claim(self, cls: type, name: str | None = None) -> str:
        name = name or cls.__name__.partition("[")[0]
        if not NAME.fullmatch(name):
            raise InvalidSchemaError(f"{name!r} is not a name that schemas can have")
        if self._class_by_name.setdefault(name, cls) is not cls:
            raise InvalidSchemaError(
                f"two classes are called {name}: {cls!r} and {self._class_by_name[name]!r}; "
                "rename one"
            )
        return name

    def _field(self, cls: type, row: "_Row") -> FieldType:
        if not NAME.fullmatch(row.name):
            raise InvalidSchemaError(f"{cls.__name__}.{row.name} is not a name for a field")
        try:
            hint, extras, is_required = _unwrapped(row.hint)
            extras = (*extras, *row.extras)
            found = self.read(hint, extras)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"{cls.__name__}.{row.name}: {error}") from None
        default = row.default
        if not is_required:
            found, default = _optional(found), None
        numbers = [extra.number for extra in extras if isinstance(extra, FieldNumber)]
        number = numbers[0] if numbers else None
        return FieldType(row.name, row.attribute, found, default, number, is_required)

    def read(self, hint: Any, extras: tuple[Any, ...] = ()) -> ClassType:
        hint, more, _ = _unwrapped(hint)
        extras = (*extras, *more)
        origin = get_origin(hint)
        if origin in {Union, types.UnionType}:
            return self._union(get_args(hint), extras)
        if hint in _ATOM_BY_CLASS:
            return AtomType(_sized(_ATOM_BY_CLASS[hint], extras))
        if hint is Decimal:
            return _decimal(extras)
        if origin is not None or hint in _LISTS or hint in {dict, tuple}:
            return self._generic(hint, origin or hint, get_args(hint))
        return self._named(hint)

    def _union(self, hints: tuple[Any, ...], extras: tuple[Any, ...]) -> ClassType:
        branches: list[ClassType] = []
        for hint in hints:
            branch = self.read(hint, extras)
            inner = branch.branches if isinstance(branch, UnionType) else (branch,)
            branches += [one for one in inner if one not in branches]
        branches.sort(key=lambda branch: branch != NONE)  # None first, the others in their order
        return branches[0] if len(branches) == 1 else UnionType(tuple(branches))

    def _generic(self, hint: Any, origin: Any, arguments: tuple[Any, ...]) -> ClassType:
        if origin is typing.Literal and all(isinstance(word, str) for word in arguments):
            return AtomType(Atom.STRING)
        if origin is tuple and len(arguments) == 2 and arguments[1] is ...:
            return ListType(self.read(arguments[0]), tuple)
        if len(arguments) == 1 and (made := _list_class(origin)) is not None:
            return ListType(self.read(arguments[0]), made)
        if len(arguments) == 2 and _is_mapping(origin):
            if arguments[0] is not str:
                raise InvalidSchemaError(f"the keys of a dict are str, not {arguments[0]!r}")
            return MapType(self.read(arguments[1]))
        if is_record_class(origin):
            raise InvalidSchemaError(f"{hint!r}: generic classes are not supported")
        raise InvalidSchemaError(f"{hint!r} has no place in a schema{_hint_for(origin)}")

    def _named(self, hint: Any) -> ClassType:
        if is_record_class(hint):
            return self.record(hint)
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return self._enum(hint)
        raise InvalidSchemaError(f"{hint!r} has no place in a schema{_hint_for(hint)}")

    def _enum(self, cls: type[enum.Enum]) -> EnumType:
        members: list[enum.Enum] = list(cls)
        if not members:
            raise InvalidSchemaError(f"{cls.__name__} has no members")
        values = [member.value for member in members]
        is_named = all(isinstance(value, str) and NAME.fullmatch(value) for value in values)
        symbols = values if is_named else [member.name for member in members]
        by_symbol = dict(zip(symbols, members, strict=True))
        return EnumType(self._claim(cls), cls, tuple(symbols), by_symbol)


@dataclass(frozen=True, slots=True)
class _Row:
    """A field as the class declares it."""

    name: str
    attribute: str
    hint: Any
    default: Any
    extras: tuple[Any, ...] = ()


def _rows_of(cls: type) -> list[_Row]:
    hints = _hints_of(cls)
    if is_struct(cls):
        return _rows_of_struct(cls, hints)
    if is_pydantic(cls):
        return _rows_of_pydantic(cls, hints)
    if typing.is_typeddict(cls):
        required: frozenset[str] = getattr(cls, "__required_keys__", frozenset())
        return [
            _Row(name, name, hint if name in required else NotRequired[hint], NO_DEFAULT)
            for name, hint in hints.items()
        ]
    return [
        _Row(row.name, row.name, hints[row.name], _made(row.default, row.default_factory))
        for row in dataclasses.fields(cls)
        if row.init
    ]


def _rows_of_struct(cls: Any, hints: Mapping[str, Any]) -> list[_Row]:
    import msgspec  # noqa: PLC0415 - the class is one of msgspec's, so it is loaded

    return [
        _Row(
            row.encode_name,
            row.name,
            hints[row.name],
            _made(row.default, row.default_factory, msgspec.NODEFAULT),
        )
        for row in msgspec.structs.fields(cls)
    ]


def _rows_of_pydantic(cls: Any, hints: Mapping[str, Any]) -> list[_Row]:
    from pydantic_core import PydanticUndefined  # noqa: PLC0415 - as above

    return [
        _Row(
            name,
            name,
            hints[name],
            _made(row.default, row.default_factory, PydanticUndefined),
            tuple(row.metadata),
        )
        for name, row in cls.model_fields.items()
    ]


def _hints_of(cls: type) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(cls, include_extras=True)
    except NameError as error:
        raise InvalidSchemaError(
            f"{cls.__name__}: the type {error.name!r} is not known in its module"
        ) from None


def _made(default: Any, factory: Any, missing: Any = dataclasses.MISSING) -> Any:
    """Return the default value; a factory counts only if it makes an empty collection."""
    if default is not missing and default is not dataclasses.MISSING:
        return default
    return factory() if factory in {list, dict, set, frozenset, tuple} else NO_DEFAULT


def _tag_of(cls: Any) -> tuple[str, str | int] | None:
    if not is_struct(cls) or cls.__struct_config__.tag is None:
        return None
    return cls.__struct_config__.tag_field, cls.__struct_config__.tag


def _unwrapped(hint: Any) -> tuple[Any, tuple[Any, ...], bool]:
    """Return the type without Annotated and NotRequired, the annotations, and if it is required."""
    extras: tuple[Any, ...] = ()
    is_required = True
    while (origin := get_origin(hint)) in {Annotated, NotRequired, Required}:
        inner, *more = get_args(hint)
        hint, extras = inner, (*extras, *more)
        is_required = is_required and origin is not NotRequired
    while isinstance(hint, typing.NewType):
        hint = hint.__supertype__
    return hint, extras, is_required


def _optional(found: ClassType) -> ClassType:
    branches = found.branches if isinstance(found, UnionType) else (found,)
    return found if NONE in branches else UnionType((NONE, *branches))


def _sized(atom: Atom, extras: tuple[Any, ...]) -> Atom:
    if any(isinstance(extra, Bits) and extra.bits == 32 for extra in extras):
        return {Atom.INT: Atom.INT32, Atom.FLOAT: Atom.FLOAT32}.get(atom, atom)
    return atom


def _decimal(extras: tuple[Any, ...]) -> DecimalType:
    digits = places = None
    for extra in extras:
        if isinstance(extra, Precision):
            return DecimalType(extra.precision, extra.scale)
        digits = getattr(extra, "max_digits", None) or digits  # of pydantic's Field
        places = getattr(extra, "decimal_places", None) or places
    if digits is None:
        raise InvalidSchemaError(
            "a Decimal needs a precision: Annotated[Decimal, Precision(10, 2)]"
        )
    return DecimalType(digits, places or 0)


def _list_class(origin: Any) -> type | None:
    if origin in _LISTS:
        return _LISTS[origin]
    name = getattr(origin, "__name__", "")
    return list if name in {"Sequence", "Iterable", "Collection", "MutableSequence"} else None


def _is_mapping(origin: Any) -> bool:
    return origin is dict or getattr(origin, "__name__", "") in {"Mapping", "MutableMapping"}


def _hint_for(hint: Any) -> str:
    if hint is Any or hint is object:
        return ": name its types, such as int | str"
    if hint in {list, dict, set, tuple, frozenset}:
        return ": name the types inside, such as list[int]"
    return ""


def constructor_of(record: RecordType) -> tuple[Callable[..., Any], bool]:
    """Return a callable that makes an object, and whether it takes all fields by position."""
    if record.is_mapping:
        return dict, False
    parameters = list(inspect.signature(record.cls).parameters.values())
    is_positional = [row.name for row in parameters] == [row.attribute for row in record.fields]
    kinds = {row.kind for row in parameters}
    return record.cls, is_positional and kinds <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}
