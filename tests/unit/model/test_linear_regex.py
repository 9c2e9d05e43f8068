"""Patterns compared with `re`, which supports more but can take exponential time."""

import re
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.linear_regex import (
    DEPTH_MAX,
    PATTERN_CHARACTERS_MAX,
    SUBJECT_CHARACTERS_MAX,
    Pattern,
    PatternError,
)

ATOMS = ["a", "b", "c", ".", "[ab]", "[^a]", "[a-c-]", r"\d", r"\W", r"\.", "-"]
patterns = st.recursive(
    st.sampled_from(ATOMS),
    lambda inner: (
        st.builds("({}|{})".format, inner, inner)
        | st.builds("{}{}".format, inner, inner)
        | st.builds(
            "(?:{}){}".format, inner, st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}"])
        )
    ),
    max_leaves=6,
)


@given(patterns, st.text("abc.-1", max_size=6))
def test_a_pattern_matches_what_re_matches(text: str, subject: str) -> None:
    assert Pattern(text).matches(subject) == (re.fullmatch(text, subject) is not None)


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("", ""),
        ("^app-.*$", "app-1"),
        (r"11\.1.*?", "11.1.7"),
        ("(foo|bar)-[0-9]{1,3}", "bar-12"),
        (r"costs 5\$", "costs 5$"),
        ("a|", ""),
    ],
)
def test_what_people_write_is_understood(text: str, subject: str) -> None:
    pattern = Pattern(text)
    assert pattern.matches(subject)
    assert not pattern.matches(subject + "\nmore")
    assert pattern == Pattern(text)
    assert hash(pattern) == hash(Pattern(text))


@pytest.mark.parametrize("text", ["(a+)+b", "(a|a)*b", "a?" * 60 + "a" * 60, "(.*.*.*)*x" * 10])
def test_a_pattern_that_never_ends_in_re_ends_here(text: str) -> None:
    assert not Pattern(text).matches("a" * (SUBJECT_CHARACTERS_MAX - 1) + "!")


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "a)",
        "*",
        "a**",
        "[",
        "[]",
        "[z-a]",
        "[[a]]",
        "[a--b]",
        "\\",
        r"\1",
        r"\b",
        "(?=a)",
        "(?P<a>b)",
        "a{3,1}",
        "a^b",
        "((a{99}){99}){99}",
        "(" * (DEPTH_MAX + 1) + ")" * (DEPTH_MAX + 1),
        "a" * (PATTERN_CHARACTERS_MAX + 1),
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(PatternError):
        Pattern(text)


@given(st.text("ab()[]{}*+?|^$\\,-.0123:=", max_size=40))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    with suppress(PatternError):
        Pattern(text).matches("ab")


def test_a_text_that_is_too_long_matches_nothing() -> None:
    assert Pattern(".*").matches("a" * SUBJECT_CHARACTERS_MAX)
    assert not Pattern(".*").matches("a" * (SUBJECT_CHARACTERS_MAX + 1))
