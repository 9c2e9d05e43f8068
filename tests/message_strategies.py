"""Hypothesis strategies for every message: any value that a version of it can carry."""

import string
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ottla.wire.apis import API_BY_KEY
from ottla.wire.schema import Field, Message, Struct

FieldStrategy = Callable[[Field], "st.SearchStrategy[Any] | None"]

_NUMBERS = {
    "bool": st.booleans(),
    "int8": st.integers(-(1 << 7), (1 << 7) - 1),
    "int16": st.integers(-(1 << 15), (1 << 15) - 1),
    "uint16": st.integers(0, (1 << 16) - 1),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "int64": st.integers(-(1 << 63), (1 << 63) - 1),
    "float64": st.floats(allow_nan=False),
}
_TEXT = st.text(max_size=8) | st.text(string.ascii_letters, min_size=120, max_size=140)
_SIMPLE = {
    **_NUMBERS,
    "uuid": st.binary(min_size=16, max_size=16),
    "string": _TEXT,
    "bytes": st.binary(max_size=8),
    "records": st.binary(max_size=8),
}


def all_messages() -> list[type[Message]]:
    """Return the request and the response of every API."""
    return [cls for api in API_BY_KEY.values() for cls in api]


def all_versions() -> list[tuple[type[Message], int]]:
    """Return every message with each of its versions."""
    return [(cls, v) for cls in all_messages() for v in range(cls.versions[0], cls.versions[1] + 1)]


def name_of(case: Any) -> str:
    """Name a parameter of a test, which may be a message class or a version."""
    return case.__name__ if isinstance(case, type) else str(case)


def values_of(
    cls: type[Struct], version: int, override: FieldStrategy = lambda _: None
) -> st.SearchStrategy[Any]:
    """Return any value that this version carries; `override` may narrow single fields."""
    present = {f.name: _field(f, version, override) for f in cls.fields if f.is_present(version)}
    return st.builds(cls, **present)


def _field(field: Field, version: int, override: FieldStrategy) -> st.SearchStrategy[Any]:
    narrowed = override(field)
    one = narrowed if narrowed is not None else _one(field, version, override)
    values = st.lists(one, max_size=3) if field.is_array else one
    may_be_absent = field.is_tagged(version) and field.default is None
    return values | st.none() if field.is_nullable(version) or may_be_absent else values


def _one(field: Field, version: int, override: FieldStrategy) -> st.SearchStrategy[Any]:
    if field.struct is not None:
        return values_of(field.struct, version, override)
    return _SIMPLE[field.kind]
