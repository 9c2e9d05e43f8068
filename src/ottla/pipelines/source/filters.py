"""Filters on topic, partition and offset, applied to partitions and ranges before reading."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from ottla.model.identifiers import TopicPartition
from ottla.pipelines.source.planning import PartitionFilter, Wanted

_TYPE_BY_COLUMN: Final = {"topic": str, "partition": int, "offset": int}
_FITS_BY_FILTER: Final[dict[type[Filter], Callable[[Any, Any], bool]]] = {
    EqualTo: lambda cell, value: bool(cell == value),
    EqualNullSafe: lambda cell, value: bool(cell == value),
    GreaterThan: lambda cell, value: bool(cell > value),
    GreaterThanOrEqual: lambda cell, value: bool(cell >= value),
    LessThan: lambda cell, value: bool(cell < value),
    LessThanOrEqual: lambda cell, value: bool(cell <= value),
    In: lambda cell, value: cell in value,
    StringStartsWith: lambda cell, value: cell.startswith(value),
    StringEndsWith: lambda cell, value: cell.endswith(value),
    StringContains: lambda cell, value: value in cell,
}


class _Filtered(Protocol):
    wanted: Wanted


class PushFilters:
    """Stands in for the reader's method `pushFilters`, and passes for the base class's method.

    If spark.sql.python.filterPushdown.enabled is false, Spark fails a reader that overrides
    `pushFilters`. It detects an override by `__func__`.
    """

    def __init__(self, reader: _Filtered, prefix: str = "") -> None:
        """`prefix` is before the names of the record's columns: `_offset` beside typed columns."""
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader
        self._prefix = prefix

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        """Take the filters that need no records; return the others, for Spark to apply."""
        if not self._prefix:
            self._reader.wanted, left = pushed(filters)
            return left
        renamed = [(one, _without_prefix(one, self._prefix)) for one in filters]
        self._reader.wanted, left = pushed(new for _, new in renamed if new is not None)
        is_left = {id(new) for new in left}
        return [one for one, new in renamed if new is None or id(new) in is_left]


def _without_prefix(one: Filter, prefix: str) -> Filter | None:
    """Return a filter on `_offset` as one on `offset`; None if it is on another column."""
    inner: Any = one.child if isinstance(one, Not) else one
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    name = path[0].removeprefix(prefix) if len(path) == 1 else ""
    if name not in _TYPE_BY_COLUMN or path[0] == name:
        return None
    renamed = replace(inner, attribute=(name,))
    return Not(renamed) if isinstance(one, Not) else renamed


def pushed(filters: Iterable[Filter]) -> tuple[Wanted, list[Filter]]:
    """Take the filters that need no records; return the others, for Spark to apply."""
    wanted, left = Wanted(), []
    for one in filters:
        column = _column(one)
        if isinstance(one, IsNotNull) and column is not None:
            continue  # none of these columns is ever null
        if column in {"topic", "partition"} and _is_understood(one):
            fits: PartitionFilter = partial(_fits, one)
            wanted = replace(wanted, partition_filters=(*wanted.partition_filters, fits))
            continue
        narrowed = _narrowed(wanted, one) if column == "offset" else None
        if narrowed is None:
            left.append(one)
        else:
            wanted = narrowed
    return wanted, left


def _narrowed(wanted: Wanted, one: Filter) -> Wanted | None:
    """Narrow the range of offsets by a filter; return None if the filter is not a range."""
    if type(one) not in _FITS_BY_FILTER or not _is_understood(one):
        return None
    value = one.value  # type: ignore[attr-defined]
    start, end = wanted.start_offset, wanted.end_offset
    match one:
        case EqualTo() | EqualNullSafe():
            start, end = max(start, value), min(end, value + 1)
        case GreaterThan():
            start = max(start, value + 1)
        case GreaterThanOrEqual():
            start = max(start, value)
        case LessThan():
            end = min(end, value)
        case LessThanOrEqual():
            end = min(end, value + 1)
        case _:
            return None
    return replace(wanted, start_offset=start, end_offset=end)


def _column(one: Filter) -> str | None:
    inner = one.child if isinstance(one, Not) else one
    path: tuple[str, ...] = getattr(inner, "attribute", ())
    return path[0] if len(path) == 1 and path[0] in _TYPE_BY_COLUMN else None


def _is_understood(one: Filter) -> bool:
    inner = one.child if isinstance(one, Not) else one
    column = _column(inner)
    if type(inner) not in _FITS_BY_FILTER or column is None:
        return False
    return all(type(value) is _TYPE_BY_COLUMN[column] for value in _values(inner))


def _values(one: Filter) -> Iterator[Any]:
    value = one.value  # type: ignore[attr-defined]
    yield from value if isinstance(one, In) else (value,)


def _fits(one: Filter, name: TopicPartition) -> bool:
    if isinstance(one, Not):
        return not _fits(one.child, name)
    cell = name.topic if _column(one) == "topic" else name.partition
    return _FITS_BY_FILTER[type(one)](cell, one.value)  # type: ignore[attr-defined]
