"""Compatibility of Avro schemas: whether a reader's schema can read data of a writer's schema.

The rules are the schema resolution of Avro's specification with the two liberties of Avro for Java:
named types match by their last name, and logical types do not matter. A comparison finds all pairs
of types that meet in data, then the pairs that cannot be read, then the reasons.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from ottla.schemas.avro.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Kind,
    Map,
    NamedType,
    Primitive,
    Record,
    Union,
)
from ottla.schemas.parsed_schema import Incompatibility

PAIRS_MAX: Final = 100_000
"""The most pairs of types in one comparison."""
INCOMPATIBILITIES_MAX: Final = 1000
"""The most reasons that a comparison lists."""

PROMOTIONS: Final = {
    Kind.INT: (Kind.LONG, Kind.FLOAT, Kind.DOUBLE),
    Kind.LONG: (Kind.FLOAT, Kind.DOUBLE),
    Kind.FLOAT: (Kind.DOUBLE,),
    Kind.STRING: (Kind.BYTES,),
    Kind.BYTES: (Kind.STRING,),
}
"""The other types as which a writer's type can be read, in the order of preference."""

_Key = tuple[int, int]


@dataclass(slots=True)
class _Pair:
    """A reader's type that meets a writer's type in data."""

    reader: AvroType
    writer: AvroType
    reasons: list[Incompatibility] = field(default_factory=list)
    """Reasons of this pair alone; their paths start at this pair."""
    all_of: list[tuple[str, "_Key"]] = field(default_factory=list)
    """Pairs that must all be readable, by the path from here."""
    any_of: list["_Key"] | None = None
    """Pairs of which one must be readable: the branches of the reader's union."""
    parents: list["_Key"] = field(default_factory=list)
    is_readable: bool = True


class Comparison:
    """All pairs of types that meet when a reader's schema reads data of a writer's schema."""

    def __init__(self, reader: AvroType, writer: AvroType) -> None:
        self._pairs: dict[_Key, _Pair] = {}
        self._branches: dict[int, Branches] = {}
        self._is_complete = True
        self._root = id(reader), id(writer)
        self._explore(reader, writer)
        self._spread()

    def is_readable(self, reader: AvroType, writer: AvroType) -> bool:
        """Whether the reader's type can read all data of the writer's type."""
        pair = self._pairs.get((id(reader), id(writer)))
        return self._is_complete and pair is not None and pair.is_readable

    def reasons(self, reader: AvroType, writer: AvroType) -> list[Incompatibility]:
        """Return why the reader's type alone, without the types inside, does not fit."""
        pair = self._pairs.get((id(reader), id(writer)))
        return [] if pair is None else pair.reasons

    def branch(self, reader: Union, writer: AvroType) -> AvroType | None:
        """Return the branch that reads a writer's type; None if there is none."""
        candidates = self._candidates(reader, writer)
        return next((each for each in candidates if self.is_readable(each, writer)), None)

    def incompatibilities(self) -> list[Incompatibility]:
        """Return all reasons, in the order of the reader's schema, each pair once."""
        if not self._is_complete:
            message = (
                f"The schemas have more than {PAIRS_MAX} pairs of types to compare; "
                "make the unions smaller"
            )
            return [Incompatibility("TYPE_MISMATCH", "", message)]
        found: list[Incompatibility] = []
        seen = set()
        waiting = [("", self._root)]
        while waiting and len(found) < INCOMPATIBILITIES_MAX:
            path, key = waiting.pop()
            pair = self._pairs[key]
            if pair.is_readable or key in seen:
                continue
            seen.add(key)
            found.extend(_moved(path, reason) for reason in pair.reasons)
            if pair.any_of is not None:
                found.append(self._missing_branch(path, pair.reader, pair.writer))
            elif isinstance(pair.reader, Union) and isinstance(pair.writer, Union):
                found.extend(self._missing_branches(path, pair))
            else:
                waiting.extend((path + step, inner) for step, inner in reversed(pair.all_of))
        return found

    def _explore(self, reader: AvroType, writer: AvroType) -> None:
        waiting = [(reader, writer)]
        while waiting:
            one, other = waiting.pop()
            key = id(one), id(other)
            if key in self._pairs:
                continue
            if len(self._pairs) >= PAIRS_MAX:
                self._is_complete = False
                return
            self._pairs[key] = pair = _Pair(one, other)
            waiting.extend(self._compare(pair))

    def _spread(self) -> None:
        """Mark the pairs that cannot be read because of a pair inside them."""
        for key, pair in self._pairs.items():
            for inner in [*(inner for _, inner in pair.all_of), *(pair.any_of or ())]:
                if inner in self._pairs:
                    self._pairs[inner].parents.append(key)
        failed = [pair for pair in self._pairs.values() if pair.reasons or pair.any_of == []]
        for pair in failed:
            pair.is_readable = False
        while failed:
            for key in failed.pop().parents:
                parent = self._pairs[key]
                if parent.is_readable and not self._has_hope(parent):
                    parent.is_readable = False
                    failed.append(parent)

    def _has_hope(self, pair: _Pair) -> bool:
        if pair.any_of is None:
            return False
        return any(self._pairs[key].is_readable for key in pair.any_of)

    def _compare(self, pair: _Pair) -> Iterator[tuple[AvroType, AvroType]]:
        """Fill a pair, and yield the pairs inside."""
        reader, writer = pair.reader, pair.writer
        if isinstance(writer, Union):
            inside = [(f"/{index}", reader, each) for index, each in enumerate(writer.branches)]
        elif isinstance(reader, Union):
            candidates = self._candidates(reader, writer)
            pair.any_of = [(id(each), id(writer)) for each in candidates]
            yield from ((each, writer) for each in candidates)
            return
        else:
            inside = self._compare_same(pair)
        for step, one, other in inside:
            pair.all_of.append((step, (id(one), id(other))))
            yield one, other

    def _compare_same(self, pair: _Pair) -> list[tuple[str, AvroType, AvroType]]:
        match pair.reader, pair.writer:
            case (Primitive() as reader, Primitive() as writer):
                if not _is_promoted(reader.kind, writer.kind):
                    pair.reasons.append(_type_mismatch(reader, writer))
            case (Array() as reader, Array() as writer):
                return [("/items", reader.items, writer.items)]
            case (Map() as reader, Map() as writer):
                return [("/values", reader.values, writer.values)]
            case (Record() as reader, Record() as writer):
                pair.reasons += _name_reasons(reader, writer)
                return self._compare_fields(pair, reader, writer)
            case (Enum() as reader, Enum() as writer):
                pair.reasons += _name_reasons(reader, writer) + _symbol_reasons(reader, writer)
            case (Fixed() as reader, Fixed() as writer):
                pair.reasons += _name_reasons(reader, writer) + _size_reasons(reader, writer)
            case (reader, writer):
                pair.reasons.append(_type_mismatch(reader, writer))
        return []

    def _compare_fields(
        self, pair: _Pair, reader: Record, writer: Record
    ) -> list[tuple[str, AvroType, AvroType]]:
        inside: list[tuple[str, AvroType, AvroType]] = []
        matches = match_fields(reader, writer)
        for index, reader_field in enumerate(reader.fields):
            writer_field = matches.get(reader_field.name)
            if writer_field is not None:
                inside.append((f"/fields/{index}/type", reader_field.type, writer_field.type))
            elif reader_field.default is NO_DEFAULT:
                pair.reasons.append(_missing_default(index, reader_field))
        return inside

    def _candidates(self, reader: Union, writer: AvroType) -> list[AvroType]:
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = Branches(reader)
        return branches.candidates(writer)

    def _missing_branches(self, path: str, pair: _Pair) -> Iterator[Incompatibility]:
        assert isinstance(pair.writer, Union)
        for (step, key), branch in zip(pair.all_of, pair.writer.branches, strict=True):
            if not self._pairs[key].is_readable:
                yield self._missing_branch(path + step, pair.reader, branch)

    def _missing_branch(self, path: str, reader: AvroType, writer: AvroType) -> Incompatibility:
        assert isinstance(reader, Union)
        candidates = self._candidates(reader, writer)
        inner = self._first_reason(candidates[0], writer) if candidates else None
        if inner is None:
            message = (
                f"The reader's union has no branch for the writer's {_shown(writer)}; "
                "add the branch"
            )
        else:
            message = (
                f"The branch of the reader's union for the writer's {_shown(writer)} "
                f"cannot read it, at {inner.path or '/'} inside: {inner.message}"
            )
        return Incompatibility("MISSING_UNION_BRANCH", path, message)

    def _first_reason(self, reader: AvroType, writer: AvroType) -> Incompatibility | None:
        key, path = (id(reader), id(writer)), ""
        seen = set()
        while key not in seen:
            seen.add(key)
            pair = self._pairs[key]
            if pair.reasons:
                return _moved(path, pair.reasons[0])
            step = next(
                ((step, inner) for step, inner in pair.all_of if self._is_failed(inner)), None
            )
            if step is None:
                break
            path, key = path + step[0], step[1]
        return None

    def _is_failed(self, key: _Key) -> bool:
        return not self._pairs[key].is_readable


class Branches:
    """The branches of a reader's union by the writer's types that they may read."""

    __slots__ = ("_aliased", "_by_kind", "_by_name")

    def __init__(self, union: Union) -> None:
        self._by_kind: dict[object, AvroType] = {}
        self._by_name: dict[tuple[type, str], list[NamedType]] = {}
        self._aliased: dict[tuple[type, str], list[NamedType]] = {}
        for branch in union.branches:
            if isinstance(branch, Record | Enum | Fixed):
                key = type(branch), last_name(branch.full_name)
                self._by_name.setdefault(key, []).append(branch)
                for alias in branch.aliases:
                    self._aliased.setdefault((type(branch), alias), []).append(branch)
            else:
                self._by_kind[branch.kind if isinstance(branch, Primitive) else type(branch)] = (
                    branch
                )

    def candidates(self, writer: AvroType) -> list[AvroType]:
        """Return the branches that may read a type, the best first."""
        if isinstance(writer, Record | Enum | Fixed):
            named = self._by_name.get((type(writer), last_name(writer.full_name)), [])
            exact = [each for each in named if each.full_name == writer.full_name]
            aliased = self._aliased.get((type(writer), writer.full_name), [])
            return list({id(each): each for each in [*exact, *aliased, *named]}.values())
        keys: list[object] = [type(writer)]
        if isinstance(writer, Primitive):
            keys = [writer.kind, *PROMOTIONS.get(writer.kind, ())]
        return [self._by_kind[key] for key in keys if key in self._by_kind]


def match_fields(reader: Record, writer: Record) -> dict[str, Field]:
    """Return the writer's field for each field of the reader that has one, by the reader's name.

    A name comes before an alias, and a field of the writer is read once.
    """
    writer_fields = {each.name: each for each in writer.fields}
    matches = {
        each.name: writer_fields.pop(each.name)
        for each in reader.fields
        if each.name in writer_fields
    }
    for each in reader.fields:
        if each.name not in matches:
            alias = next((alias for alias in each.aliases if alias in writer_fields), None)
            if alias is not None:
                matches[each.name] = writer_fields.pop(alias)
    return matches


def last_name(full_name: str) -> str:
    """Return a name without its namespace."""
    return full_name.rpartition(".")[2]


def _is_promoted(reader: Kind, writer: Kind) -> bool:
    return reader is writer or reader in PROMOTIONS.get(writer, ())


def _moved(path: str, reason: Incompatibility) -> Incompatibility:
    return Incompatibility(reason.rule, path + reason.path, reason.message)


def _type_mismatch(reader: AvroType, writer: AvroType) -> Incompatibility:
    message = f"The reader's {_shown(reader)} cannot read the writer's {_shown(writer)}; "
    if isinstance(reader, Primitive) and isinstance(writer, Primitive):
        wider = [kind.value for kind in PROMOTIONS.get(writer.kind, ())]
        choices = " or ".join([writer.kind.value, *wider])
        message += f"use {choices}, or add a field with a new name and a default"
    else:
        message += "keep the type, or add a field with a new name and a default"
    return Incompatibility("TYPE_MISMATCH", "", message)


def _name_reasons(reader: NamedType, writer: NamedType) -> list[Incompatibility]:
    if last_name(reader.full_name) == last_name(writer.full_name):
        return []
    if writer.full_name in reader.aliases:
        return []
    message = (
        f"The reader's {_shown(reader)} has another name than the writer's {_shown(writer)}; "
        f"keep the name, or add the alias {writer.full_name}"
    )
    return [Incompatibility("NAME_MISMATCH", "/name", message)]


def _symbol_reasons(reader: Enum, writer: Enum) -> list[Incompatibility]:
    known = set(reader.symbols)
    missing = [symbol for symbol in writer.symbols if symbol not in known]
    if not missing or reader.default is not NO_DEFAULT:
        return []
    listed = ", ".join(missing[:10]) + (", …" if len(missing) > 10 else "")
    message = (
        f"The reader's enum {reader.full_name} lacks symbols of the writer's: {listed}; "
        "add them, or give the enum a default"
    )
    return [Incompatibility("MISSING_ENUM_SYMBOLS", "/symbols", message)]


def _size_reasons(reader: Fixed, writer: Fixed) -> list[Incompatibility]:
    if reader.size == writer.size:
        return []
    message = (
        f"The reader's fixed {reader.full_name} has {reader.size} bytes and the writer's "
        f"{writer.size}; keep the size, or add a field with a new name"
    )
    return [Incompatibility("FIXED_SIZE_MISMATCH", "/size", message)]


def _missing_default(index: int, missing: Field) -> Incompatibility:
    message = (
        f"The reader's field {missing.name} is not in the writer's record and has no default; "
        "add a default, or an alias if the field was renamed"
    )
    return Incompatibility("READER_FIELD_MISSING_DEFAULT_VALUE", f"/fields/{index}", message)


def _shown(shown: AvroType) -> str:
    match shown:
        case Primitive():
            return shown.kind.value
        case Record() | Enum() | Fixed():
            return f"{type(shown).__name__.lower()} {shown.full_name}"
        case Array() | Map() | Union():
            return type(shown).__name__.lower()
