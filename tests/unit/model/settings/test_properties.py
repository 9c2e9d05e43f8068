import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.settings.properties import PropertiesError, escaped_property, read_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n \t\n", {}),
        ("a=1", {"a": "1"}),
        ("a=1\nb=2\r\nc=3\rd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        ("  a \t=\f 1 ", {"a": "1 "}),
        ("a: 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a", {"a": ""}),
        ("a = = 1", {"a": "= 1"}),
        ("=1", {"": "1"}),
        ("# a=1\n ! b=2\nc#d=3!4", {"c#d": "3!4"}),
        ("a=1\na=2", {"a": "2"}),
    ],
)
def test_a_line_is_a_key_a_sign_and_a_value(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\\\n  2\\\r\n\t3", {"a": "123"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\nb=2", {"a": "1\\b=2"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("# a comment \\\nb=2", {"b": "2"}),
        ("\\\n# a comment as well\nb=2", {"b": "2"}),
        ("a\\\n=\\\n1", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("\\", {}),
    ],
)
def test_a_line_that_ends_with_a_backslash_goes_on(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"a\=b\:c\ d=1", {"a=b:c d": "1"}),
        (r"a=\t\n\r\f", {"a": "\t\n\r\f"}),
        (r"a=\q\"\\", {"a": 'q"\\'}),
        (r"a=\ 1", {"a": " 1"}),
        (r"\u0061=\u0158", {"a": "Ř"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        (r"a=\u00411", {"a": "A1"}),
    ],
)
def test_escapes_stand_for_characters(text: str, expected: dict[str, str]) -> None:
    assert read_properties(text) == expected


@pytest.mark.parametrize("escape", [r"\u", r"\u12", r"\u12g4", r"\ud83d"])
def test_an_escape_that_is_none_is_told_with_its_line(escape: str) -> None:
    with pytest.raises(PropertiesError, match=r"^line 3: ") as caught:
        read_properties(f"a=1\n\nb=\\\n{escape}\nc=2")
    assert caught.value.line == 3


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_what_is_escaped_comes_back(value_by_key: dict[str, str]) -> None:
    lines = [
        f"{escaped_property(key)}={escaped_property(value)}" for key, value in value_by_key.items()
    ]
    assert all(line.isascii() for line in lines)
    assert read_properties("\n".join(lines)) == value_by_key


def line_of_error(text: str) -> int | None:
    try:
        read_properties(text)
    except PropertiesError as error:
        return error.line
    return None


@given(st.text(alphabet="ab\\u0041=:#! \t\r\n"))
def test_any_text_is_read_or_refused(text: str) -> None:
    line = line_of_error(text)
    rest = [] if line is None else re.split(r"\r\n|\r|\n", text)[line - 1 :]
    assert line is None or "\\u" in "".join(rest)
