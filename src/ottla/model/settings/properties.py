r"""Java's properties files: `server.properties`, and the `meta.properties` of a log dir.

# a comment; so is a line that begins with !
key=value
key : value        around the sign may be blanks, and they alone will do
key=one \
value          a line that ends with a backslash continues after the next line's blanks
key=\u0158e\u017eor   escapes: \t \n \r \f, \u and four digits, and \ before anything else

As in Java, the last of several values of a key counts, and blanks at the end belong to the value.
"""

import re
from collections.abc import Iterator

_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTY = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


class PropertiesError(ValueError):
    """A line of a properties file cannot be read."""

    def __init__(self, line: int, detail: str) -> None:
        super().__init__(f"line {line}: {detail}")
        self.line = line
        self.detail = detail


def read_properties(text: str) -> dict[str, str]:
    """Read a whole file; PropertiesError for an invalid escape, or half of a surrogate pair."""
    value_by_key: dict[str, str] = {}
    for number, line in _logical_lines(text):
        match = _PROPERTY.fullmatch(line)
        assert match is not None, line
        try:
            value_by_key[_unescaped(match[1])] = _unescaped(match[2])
        except ValueError as error:
            raise PropertiesError(number, str(error)) from None
    return value_by_key


def escaped_property(value: str) -> str:
    """Write a value in ASCII, so that it reads the same in any encoding of the file."""
    return re.sub(r"[^A-Za-z0-9_.-]", _escaped_character, value)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield logical lines, with continuations joined and without comments, and their numbers."""
    parts: list[str] = []
    first = 0
    for number, line in enumerate(_LINE_END.split(text), 1):
        part = line.lstrip(_BLANKS)
        if not parts and part.startswith(("#", "!")):
            continue
        goes_on = (len(part) - len(part.rstrip("\\"))) % 2 == 1
        if goes_on:
            part = part[:-1]
        if part:
            first = first if parts else number
            parts.append(part)
        if parts and not goes_on:
            yield first, "".join(parts)
            parts.clear()
    if parts:
        yield first, "".join(parts)


def _unescaped(text: str) -> str:
    units = _ESCAPE.sub(_unescaped_character, text)
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be")


def _unescaped_character(match: re.Match[str]) -> str:
    code = match[1]
    if code == "u":
        raise ValueError("an escape has fewer than four hexadecimal digits")
    return chr(int(code[1:], 16)) if len(code) > 1 else _ESCAPED.get(code, code)


def _escaped_character(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
