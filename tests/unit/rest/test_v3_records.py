import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.rest import v3_records
from ottla.rest.rest_errors import RestError
from ottla.rest.v3_records import ObjectSplitter

OBJECTS = st.lists(
    st.dictionaries(
        st.text(max_size=5),
        st.recursive(
            st.none() | st.text(alphabet='"\\{}[],ž\n ', max_size=8) | st.integers(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
        max_size=3,
    ),
    max_size=5,
)


@given(OBJECTS, st.sampled_from(["", " ", "\r\n", ",\n"]), st.integers(1, 40), st.booleans())
def test_objects_are_found_however_the_input_is_cut(
    objects: list[object], between: str, size: int, is_ascii: bool
) -> None:
    text = between.join(json.dumps(one, ensure_ascii=is_ascii) for one in objects).encode()
    splitter = ObjectSplitter()
    found: list[bytes] = []
    for start in range(0, len(text), size):
        found += splitter.split(text[start : start + size])
    splitter.end()
    assert [json.loads(one) for one in found] == objects


@pytest.mark.parametrize("text", [b"[{}]", b"1", b'"a"', b"}", b"null"])
def test_input_that_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(RestError, match="not a sequence of JSON objects"):
        ObjectSplitter().split(text)


def test_an_object_without_an_end_is_refused() -> None:
    splitter = ObjectSplitter()
    assert splitter.split(b'{"a": "}') == []
    with pytest.raises(RestError, match="ends within a record"):
        splitter.end()


def test_the_size_of_an_object_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(v3_records, "RECORD_BYTES_MAX", 100)
    with pytest.raises(RestError) as refused:
        ObjectSplitter().split(b'{"a": "' + b"x" * 100)
    assert refused.value.code == 413
