"""Finds the error codes in responses, at any depth of their messages."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

from ottla.wire.apis import API_BY_KEY
from ottla.wire.schema import Field, StructType

ERROR_CODE: Final = "error_code"


@cache
def error_finder(api_key: int) -> Callable[[Any], Iterator[int]]:
    """Return the function that yields the error codes of one API's responses, without NONE."""
    return _finder(API_BY_KEY[api_key].response)


def _finder(cls: StructType) -> Callable[[Any], Iterator[int]]:
    has_code = any(field.name == ERROR_CODE for field in cls.fields)
    inner = [
        (field.name, field.is_array, _finder(field.struct))
        for field in cls.fields
        if field.struct is not None and _can_fail(field)
    ]

    def find(value: Any) -> Iterator[int]:
        if has_code and value.error_code:
            yield value.error_code
        for name, is_array, find_inner in inner:
            found = getattr(value, name)
            if found is not None:
                for item in found if is_array else (found,):
                    yield from find_inner(item)

    return find


def _can_fail(field: Field) -> bool:
    struct = field.struct
    return struct is not None and any(
        inner.name == ERROR_CODE or _can_fail(inner) for inner in struct.fields
    )
