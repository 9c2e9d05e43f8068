"""Plans how objects of a class become Avro bytes: one step for each type of the writer's schema.

A plan exists where the class fits the schema without promotions. Fields that only the writer has
are skipped; fields that only the class has get their defaults. Everything else takes the general
way, through `AvroReader` and `AvroWriter`.
"""

import datetime
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from ottla.schemas.avro.avro_types import (
    Array,
    AvroType,
    Enum,
    Fixed,
    Kind,
    Map,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.classes.avro_text import accepts
from ottla.schemas.classes.class_types import (
    NO_DEFAULT,
    Atom,
    AtomType,
    ClassType,
    DecimalType,
    EnumType,
    ListType,
    MapType,
    RecordType,
    UnionType,
    constructor_of,
)

DEPTH_MAX: Final = 100
"""How deep objects may be nested in each other."""


class Op(IntEnum):
    """The operations; the compiled loop has the same numbers."""

    NULL = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    STRING = 6
    BYTES = 7
    DATETIME = 8
    DATE = 9
    TIME = 10
    UUID = 11
    DECIMAL = 12
    ENUM = 13
    LIST = 14
    MAP = 15
    UNION = 16
    RECORD = 17


class NoPlanError(Exception):
    """The class and the schema need the general way."""


@dataclass(eq=False, slots=True)
class Step:
    """One type of the writer's schema, and its counterpart in the class."""

    op: Op
    children: list["Step"] = field(default_factory=list)
    cls: Any = None
    """RECORD: the constructor; LIST: makes the value from a list, None for a list itself."""
    attributes: tuple[str, ...] = ()
    """RECORD: the attribute of each child; "" for a field that is only skipped."""
    targets: tuple[int, ...] = ()
    """RECORD: the argument that each child sets, -1 for a skipped field."""
    defaults: tuple[Any, ...] = ()
    """RECORD: the value of each argument before the children set theirs."""
    names: tuple[str, ...] = ()
    """RECORD: the names of the arguments."""
    is_positional: bool = False
    is_mapping: bool = False
    is_writable: bool = True
    """Whether objects can be written: the class has all of the writer's fields."""
    members: tuple[Any, ...] = ()
    """ENUM: the member of each symbol."""
    index_by_member: Mapping[Any, int] = field(default_factory=dict)
    index_by_class: Mapping[type, int] = field(default_factory=dict)
    """UNION: the branch of each exact class."""
    types: tuple[ClassType, ...] = ()
    """UNION: the class's type of each branch, for objects of subclasses."""
    precision: int = 0
    scale: int = 0

    def branch_of(self, value: Any) -> int:
        """Return the branch of a union for a value; TypeError if there is none."""
        found = self.index_by_class.get(type(value))
        if found is not None:
            return found
        for index, branch in enumerate(self.types):
            if accepts(branch, value):
                return index
        raise TypeError(f"{type(value).__name__} is no branch of the union")


_OP_BY_ATOM: Final[Mapping[Atom, tuple[Op, Kind, str]]] = {
    Atom.NULL: (Op.NULL, Kind.NULL, ""),
    Atom.BOOLEAN: (Op.BOOLEAN, Kind.BOOLEAN, ""),
    Atom.INT: (Op.LONG, Kind.LONG, ""),
    Atom.INT32: (Op.INT, Kind.INT, ""),
    Atom.FLOAT: (Op.DOUBLE, Kind.DOUBLE, ""),
    Atom.FLOAT32: (Op.FLOAT, Kind.FLOAT, ""),
    Atom.STRING: (Op.STRING, Kind.STRING, ""),
    Atom.BYTES: (Op.BYTES, Kind.BYTES, ""),
    Atom.DATETIME: (Op.DATETIME, Kind.LONG, "timestamp-micros"),
    Atom.DATE: (Op.DATE, Kind.INT, "date"),
    Atom.TIME: (Op.TIME, Kind.LONG, "time-micros"),
    Atom.UUID: (Op.UUID, Kind.STRING, "uuid"),
}
_SKIPPED: Final[Mapping[Kind, Op]] = {
    Kind.NULL: Op.NULL,
    Kind.BOOLEAN: Op.BOOLEAN,
    Kind.INT: Op.INT,
    Kind.LONG: Op.LONG,
    Kind.FLOAT: Op.FLOAT,
    Kind.DOUBLE: Op.DOUBLE,
    Kind.BYTES: Op.BYTES,
    Kind.STRING: Op.STRING,
}
_CLASS_BY_ATOM: Final[Mapping[Atom, type]] = {
    Atom.NULL: type(None),
    Atom.BOOLEAN: bool,
    Atom.INT: int,
    Atom.INT32: int,
    Atom.FLOAT: float,
    Atom.FLOAT32: float,
    Atom.STRING: str,
    Atom.BYTES: bytes,
    Atom.DATETIME: datetime.datetime,
    Atom.DATE: datetime.date,
    Atom.TIME: datetime.time,
    Atom.UUID: uuid.UUID,
}


def plan(writer: AvroType, record: RecordType) -> Step:
    """Return the root step; NoPlanError if objects must take the general way."""
    planner = _Planner()
    root = planner.step(writer, record)
    for made in planner.lists:
        # A few bytes could name any number of items that have no bytes.
        if not _has_bytes(made.children[0], set()):
            raise NoPlanError
    return root


def _has_bytes(step: Step, seen: set[int]) -> bool:
    """Whether every value of a step has at least one byte."""
    if step.op is not Op.RECORD:
        return step.op is not Op.NULL
    if id(step) in seen:
        return False
    return any(_has_bytes(child, seen | {id(step)}) for child in step.children)


class _Planner:
    """Plans each pair of named types once, because records may contain themselves."""

    def __init__(self) -> None:
        self._planned: dict[tuple[int, int], Step] = {}
        self._skipper = _Skipper(self)
        self.lists: list[Step] = []

    def step(self, writer: AvroType, found: ClassType) -> Step:
        if isinstance(writer, Union):
            return self._union(writer, found)
        if isinstance(found, UnionType):
            return self._only_branch(writer, found)
        if isinstance(writer, Record) and isinstance(found, RecordType):
            return self._record(writer, found)
        if isinstance(writer, Array) and isinstance(found, ListType):
            made = None if found.cls is list else found.cls
            return self._list(Step(Op.LIST, [self.step(writer.items, found.item)], cls=made))
        if isinstance(writer, Map) and isinstance(found, MapType):
            return Step(Op.MAP, [self.step(writer.values, found.value)])
        return _leaf(writer, found)

    def _list(self, step: Step) -> Step:
        self.lists.append(step)
        return step

    def _only_branch(self, writer: AvroType, found: UnionType) -> Step:
        for branch in found.branches:
            try:
                return self.step(writer, branch)
            except NoPlanError:
                continue
        raise NoPlanError

    def _union(self, writer: Union, found: ClassType) -> Step:
        if not isinstance(found, UnionType):
            raise NoPlanError
        step = Step(Op.UNION)
        types = []
        for branch in writer.branches:
            for candidate in found.branches:
                if _is_pair(branch, candidate):
                    step.children.append(self.step(branch, candidate))
                    types.append(candidate)
                    break
            else:
                raise NoPlanError
        step.types = tuple(types)
        step.is_writable = len(types) == len(found.branches)
        step.index_by_class = {
            cls: index
            for index, candidate in enumerate(types)
            if (cls := _class_of(candidate)) is not None
        }
        return step

    def _record(self, writer: Record, found: RecordType) -> Step:
        key = (id(writer), id(found))
        if key in self._planned:
            return self._planned[key]
        constructor, is_positional = constructor_of(found)
        step = self._planned[key] = Step(Op.RECORD, cls=constructor)
        place_by_name = {row.name: place for place, row in enumerate(found.fields)}
        step.is_positional, step.is_mapping = is_positional, found.is_mapping
        step.names = tuple(row.attribute for row in found.fields)
        written = set()
        targets, attributes = [], []
        for row in writer.fields:
            place = place_by_name.get(row.name, -1)
            targets.append(place)
            if place < 0:
                step.children.append(self._skipper.step(row.type))
                attributes.append("")
                step.is_writable = False
            else:
                written.add(place)
                step.children.append(self.step(row.type, found.fields[place].type))
                attributes.append(found.fields[place].attribute)
        step.targets, step.attributes = tuple(targets), tuple(attributes)
        step.defaults = tuple(
            _default(row.default, is_written=place in written)
            for place, row in enumerate(found.fields)
        )
        if found.is_mapping and not all(row.is_required for row in found.fields):
            raise NoPlanError  # keys that may be missing
        return step


class _Skipper:
    """Plans steps for dropped values: every logical type is read as its plain type."""

    def __init__(self, planner: _Planner) -> None:
        self._planner = planner
        self._planned: dict[int, Step] = {}

    def step(self, writer: AvroType) -> Step:
        match writer:
            case Primitive():
                return Step(_SKIPPED[writer.kind])
            case Array():
                made = Step(Op.LIST, [self.step(writer.items)])
                self._planner.lists.append(made)
                return made
            case Map():
                return Step(Op.MAP, [self.step(writer.values)])
            case Enum():
                return Step(Op.ENUM, members=writer.symbols)
            case Union():
                return Step(Op.UNION, [self.step(branch) for branch in writer.branches])
            case Record():
                return self._record(writer)
            case Fixed():
                raise NoPlanError

    def _record(self, writer: Record) -> Step:
        if id(writer) not in self._planned:
            names = tuple(row.name for row in writer.fields)
            step = Step(Op.RECORD, cls=dict, names=names, is_mapping=True, attributes=names)
            step.targets, step.defaults = tuple(range(len(names))), (None,) * len(names)
            self._planned[id(writer)] = step
            step.children += [self.step(row.type) for row in writer.fields]
        return self._planned[id(writer)]


def _atom(writer: Primitive, found: AtomType) -> Step:
    op, kind, logical = _OP_BY_ATOM[found.atom]
    name = "" if writer.logical is None else writer.logical.name
    if writer.kind is not kind or name != logical:
        raise NoPlanError
    return Step(op)


def _decimal(writer: Primitive, found: DecimalType) -> Step:
    logical = writer.logical
    if writer.kind is not Kind.BYTES or logical is None or logical.name != "decimal":
        raise NoPlanError
    if logical.scale != found.scale:
        raise NoPlanError
    return Step(Op.DECIMAL, precision=logical.precision, scale=logical.scale)


def _enum(writer: Enum, found: EnumType) -> Step:
    if not set(writer.symbols) <= set(found.symbols):
        raise NoPlanError
    members = tuple(found.member_by_symbol[symbol] for symbol in writer.symbols)
    return Step(
        Op.ENUM,
        members=members,
        index_by_member={member: index for index, member in enumerate(members)},
        is_writable=len(members) == len(found.symbols),
    )


def _leaf(writer: AvroType, found: ClassType) -> Step:
    if isinstance(writer, Enum) and isinstance(found, EnumType):
        return _enum(writer, found)
    if isinstance(writer, Primitive) and isinstance(found, DecimalType):
        return _decimal(writer, found)
    if isinstance(writer, Primitive) and isinstance(found, AtomType):
        return _atom(writer, found)
    raise NoPlanError


def _is_pair(writer: AvroType, found: ClassType) -> bool:
    """Whether a class's type is the counterpart of a union's branch, by its outermost type."""
    if isinstance(writer, Record | Enum):
        is_same_kind = isinstance(found, RecordType if isinstance(writer, Record) else EnumType)
        return is_same_kind and writer.full_name.rpartition(".")[2] == getattr(found, "name", "")
    if isinstance(writer, Array):
        return isinstance(found, ListType)
    if isinstance(writer, Map):
        return isinstance(found, MapType)
    try:
        _leaf(writer, found)
    except NoPlanError:
        return False
    return True


def _class_of(found: ClassType) -> type | None:
    match found:
        case AtomType():
            return _CLASS_BY_ATOM[found.atom]
        case EnumType() | ListType():
            return found.cls
        case RecordType():
            return None if found.is_mapping else found.cls
        case MapType():
            return dict
        case _:
            return None


def _default(value: Any, *, is_written: bool) -> Any:
    if is_written:
        return None
    if value is NO_DEFAULT or isinstance(value, list | dict | set):
        raise NoPlanError  # every object needs a collection of its own
    return value
