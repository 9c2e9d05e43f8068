r"""Regular expressions of untrusted clients, matched in linear time.

`re` tries alternatives one after the other, which can take exponential time. This matcher follows
all alternatives at once: a step for each character, over at most `STATES_MAX` places in the
pattern. It knows characters, `.`, `[a-z]`, `\d \w \s` and their opposites, groups, `|`,
`* + ? {m,n}`; no backreferences, and no lookahead or lookbehind.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

PATTERN_CHARACTERS_MAX: Final = 256
SUBJECT_CHARACTERS_MAX: Final = 256
"""Longer texts match nothing."""
STATES_MAX: Final = 250
DEPTH_MAX: Final = 16

# A character, in one of the ways to write it. Each is given to `re`, and can match only one.
_CHARACTER = re.compile(
    r"\\[dDwWsS]|\\[^A-Za-z0-9]|\[\^?(?:\\[dDwWsS]|\\[^A-Za-z0-9]|[^\\\[\]&~|-]|-(?!-))+\]"
    r"|[^\\()\[\]{}*+?|^$]"
)
_REPETITION = re.compile(r"([*+?]|\{([0-9]{1,4})(,([0-9]{1,4})?)?\})\??")

IsMatch = Callable[[str], object]


class PatternError(ValueError):
    """A pattern cannot be read, or is too large."""


class _State(NamedTuple):
    """A state of the automaton: a transition on a character, or empty transitions."""

    is_match: IsMatch | None
    following: tuple[int, ...]


_END: Final = 0


class Pattern:
    """A regular expression that must match a whole text."""

    __slots__ = ("_start", "_states", "text")

    def __init__(self, text: str) -> None:
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise PatternError(f"a pattern has at most {PATTERN_CHARACTERS_MAX} characters")
        self.text = text
        end = "" if text.endswith("\\$") else "$"
        tree = _Parser(text.removeprefix("^").removesuffix(end)).parse()
        self._states: list[_State] = [_State(None, ())]
        self._start = tree.emit(self._states, _END)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def matches(self, subject: str) -> bool:
        """Return whether the pattern matches the whole text."""
        if len(subject) > SUBJECT_CHARACTERS_MAX:
            return False
        current = self._closure([self._start])
        for character in subject:
            current = self._closure(
                [
                    state.following[0]
                    for state in map(self._states.__getitem__, current)
                    if state.is_match is not None and state.is_match(character)
                ]
            )
        return _END in current

    def _closure(self, places: list[int]) -> set[int]:
        """Return these places, and the places reachable from them without a character."""
        found: set[int] = set()
        while places:
            place = places.pop()
            if place not in found:
                found.add(place)
                if self._states[place].is_match is None:
                    places += self._states[place].following
        return found


def _add(states: list[_State], state: _State) -> int:
    if len(states) >= STATES_MAX:
        raise PatternError("the pattern is too large")
    states.append(state)
    return len(states) - 1


class _Character(NamedTuple):
    is_match: IsMatch

    def emit(self, states: list[_State], following: int) -> int:
        return _add(states, _State(self.is_match, (following,)))


class _Sequence(NamedTuple):
    parts: "list[_Tree]"

    def emit(self, states: list[_State], following: int) -> int:
        for part in reversed(self.parts):
            following = part.emit(states, following)
        return following


class _Choice(NamedTuple):
    parts: "list[_Tree]"

    def emit(self, states: list[_State], following: int) -> int:
        return _add(states, _State(None, tuple(one.emit(states, following) for one in self.parts)))


class _Repetition(NamedTuple):
    part: "_Tree"
    least: int
    most: int | None

    def emit(self, states: list[_State], following: int) -> int:
        place = following
        if self.most is None:
            place = _add(states, _State(None, ()))
            states[place] = _State(None, (self.part.emit(states, place), following))
        else:
            for _ in range(self.most - self.least):
                place = _add(states, _State(None, (self.part.emit(states, place), following)))
        for _ in range(self.least):
            place = self.part.emit(states, place)
        return place


_Tree = _Character | _Sequence | _Choice | _Repetition


class _Parser:
    """Reads a pattern from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def parse(self) -> _Tree:
        tree = self._choice()
        if self._at < len(self._text):
            raise PatternError(f"a ) without its ( at {self._at}")
        return tree

    def _choice(self) -> _Tree:
        parts: list[_Tree] = [self._sequence()]
        while self._takes("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else _Choice(parts)

    def _sequence(self) -> _Tree:
        parts: list[_Tree] = []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            parts.append(self._repeated(self._atom()))
        return _Sequence(parts)

    def _atom(self) -> _Tree:
        if self._takes("("):
            return self._group()
        found = _CHARACTER.match(self._text, self._at)
        if found is None:
            raise PatternError(f"nothing that can be matched at {self._at}")
        self._at = found.end()
        try:
            return _Character(re.compile(found[0]).fullmatch)
        except re.error as error:
            raise PatternError(str(error)) from None

    def _group(self) -> _Tree:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise PatternError(f"more than {DEPTH_MAX} groups in each other")
        self._takes("?:")
        tree = self._choice()
        if not self._takes(")"):
            raise PatternError(f"a ( without its ) before {self._at}")
        self._depth -= 1
        return tree

    def _repeated(self, tree: _Tree) -> _Tree:
        found = _REPETITION.match(self._text, self._at)
        if found is None:
            return tree
        self._at = found.end()
        least, most = _counts(found)
        if most is not None and most < least:
            raise PatternError(f"{found[0]} at {found.start()} is never")
        return _Repetition(tree, least, most)

    def _takes(self, sign: str) -> bool:
        is_there = self._text.startswith(sign, self._at)
        self._at += len(sign) * is_there
        return is_there


def _counts(found: re.Match[str]) -> tuple[int, int | None]:
    match found[1]:
        case "*":
            return 0, None
        case "+":
            return 1, None
        case "?":
            return 0, 1
        case _:
            least = int(found[2])
            most = int(found[4]) if found[4] else None
            return least, most if found[3] else least
