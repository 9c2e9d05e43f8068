"""Bounds on JSON texts, checked before a parser makes objects of them."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.schemas.json_schema.json_text import (
    DEPTH_MAX,
    TooDeepError,
    TooManyItemsError,
    check_depth,
    check_items,
)

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(alphabet='"\\{}[],:ab', max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text('"\\,{'), inner, max_size=4)
    ),
    max_leaves=12,
)


def items_of(value: Any) -> int:
    """Count the containers, and the values in each after its first."""
    if not isinstance(value, list | dict):
        return 0
    inner = list(value.values()) if isinstance(value, dict) else value
    return max(len(inner), 1) + sum(map(items_of, inner))


@given(VALUES)
def test_items_are_counted_outside_of_strings(value: Any) -> None:
    text, items = json.dumps(value), items_of(value)
    check_items(text, items)
    if items:
        with pytest.raises(TooManyItemsError, match=f"more than {items - 1} "):
            check_items(text, items - 1)


def test_brackets_in_strings_do_not_nest() -> None:
    check_depth(json.dumps(["[" * 1_000, '\\"[' * 1_000, "\\" * 1_001]))
    check_depth("[" * DEPTH_MAX + "]" * DEPTH_MAX)
    with pytest.raises(TooDeepError):
        check_depth('["\\\\",' * (DEPTH_MAX + 1))


@pytest.mark.parametrize("escape", ["\\n", '\\"', "\\\\"])
def test_a_long_string_of_escapes_takes_no_memory_for_each(escape: str) -> None:
    text = "[]" * (DEPTH_MAX + 1) + '"' + escape * 200_000 + '"'
    tracemalloc.start()
    try:
        check_depth(text)
        check_items(text, 10)
    except TooManyItemsError:
        pass
    finally:
        _, peak_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak_bytes < 4 * len(text)
