"""The tokens of `.proto` text, and the values of its literals.

The scan is one pass of one regular expression without backtracking: linear in the text's length.
"""

import re
from enum import Enum
from typing import Final, NamedTuple, NoReturn

from ottla.schemas.parsed_schema import InvalidSchemaError

TOKENS_MAX: Final = 300_000
"""A text of 1 MiB with ordinary names has about half as many."""
UINT64_MAX: Final = 2**64 - 1

_TOKEN: Final = re.compile(
    r"""
      (?P<SPACE>[ \t\r\n\f\v]++ | //[^\n]*+ | /\*.*?\*/)
    | (?P<NAME>[A-Za-z_][A-Za-z0-9_]*+)
    | (?P<NUMBER>(?:0[xX][0-9A-Fa-f]++
                 |(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+[fF]?+)
        (?![A-Za-z0-9_]))
    | (?P<STRING>"[^"\\\n]*+(?:\\[^\n][^"\\\n]*+)*+"|'[^'\\\n]*+(?:\\[^\n][^'\\\n]*+)*+')
    | (?P<SYMBOL>[][{}()<>=;,.:+-]|/(?!\*))
    | (?P<WRONG>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9A-Fa-f]{1,2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL
)
_SIMPLE_ESCAPES: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
    b"?": b"?",
}


class TokenKind(Enum):
    """The kinds of tokens; spaces and comments are left out."""

    NAME = "NAME"
    NUMBER = "NUMBER"
    STRING = "STRING"
    SYMBOL = "SYMBOL"
    END = "END"


class Token(NamedTuple):
    """A token and its position in the text."""

    kind: TokenKind
    text: str
    position: int


def fail(text: str, position: int, reason: str) -> NoReturn:
    """Raise InvalidSchemaError with the line of a position."""
    line = text.count("\n", 0, position) + 1
    raise InvalidSchemaError(f"line {line}: {reason}") from None


def shown(text: str) -> str:
    """Return a name or literal for an error message, cut if it is long."""
    return text if len(text) <= 80 else f"{text[:77]}..."


def tokens_of(text: str) -> list[Token]:
    """Scan a text; the last token is END."""
    found: list[Token] = []
    kinds = {kind.name: kind for kind in TokenKind}
    for match in _TOKEN.finditer(text):
        name = match.lastgroup
        if name == "SPACE":
            continue
        if name is None or name == "WRONG":
            fail(text, match.start(), _wrong(text, match.start()))
        found.append(Token(kinds[name], match[0], match.start()))
        if len(found) > TOKENS_MAX:
            fail(text, match.start(), f"more than {TOKENS_MAX} tokens")
    found.append(Token(TokenKind.END, "", len(text)))
    return found


def _wrong(text: str, position: int) -> str:
    if text.startswith("/*", position):
        return "a comment without an end"
    character = text[position]
    if character.isdigit():
        return "a number followed by a letter"
    return "a string without an end" if character in "\"'" else f"unexpected {character!r}"


def integer_of(literal: str) -> int | None:
    """Return the value of an integer literal: decimal, octal or hexadecimal; None if it is none."""
    if literal[:2] in {"0x", "0X"}:
        return int(literal, 16)
    if not literal.isdigit() or len(literal) > 22:
        return None
    if literal.startswith("0") and len(literal) > 1:
        return int(literal, 8) if not set(literal) & {"8", "9"} else None
    return int(literal)


def float_of(literal: str) -> float:
    """Return the value of a number literal as a double."""
    return float(literal.rstrip("fF"))


def bytes_of(literal: str) -> bytes:
    """Return the bytes of a quoted string; ValueError for an unknown escape."""
    content = literal[1:-1].encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(_unescaped, content) if b"\\" in content else content


def _unescaped(match: re.Match[bytes]) -> bytes:
    octal, hexadecimal, short, long, simple = match.groups()
    if octal is not None:
        value = int(octal, 8)
        if value > 255:
            raise ValueError(f"octal escape \\{octal.decode()} is more than one byte")
        return bytes((value,))
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if (code := short or long) is not None:
        if int(code, 16) > 0x10FFFF:
            raise ValueError(f"\\U{code.decode()} is no Unicode character")
        return chr(int(code, 16)).encode("utf-8", "surrogatepass")
    if simple not in _SIMPLE_ESCAPES:
        raise ValueError(f"unknown escape \\{simple.decode('utf-8', 'replace')}")
    return _SIMPLE_ESCAPES[simple]


def quoted(content: bytes) -> str:
    """Return a string literal with the escapes that Confluent's registry writes.

    Other control characters, and bytes that are not UTF-8, become octal escapes.
    """
    return f'"{"".join(map(_escaped, content.decode("utf-8", "surrogateescape")))}"'


_ESCAPED: Final = {
    value.decode(): f"\\{name.decode()}" for name, value in _SIMPLE_ESCAPES.items() if name != b"?"
}


def _escaped(character: str) -> str:
    known = _ESCAPED.get(character)
    if known is not None:
        return known
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\{code - 0xDC00:03o}"
    return f"\\{code:03o}" if code < 0x20 or code == 0x7F else character
