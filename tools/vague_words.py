"""Counts vague words: pronouns that stand for a thing, or a person, that has a name.

Counted are docstrings and comments, the strings of src, the names of tests, and the pages of the
documentation.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Final

LIMITS: Final = {"src": 52, "tests": 14, "test names": 554, "docs": 27}
"""The most vague words an area may have. A limit only goes down."""

_PEOPLE: Final = (
    "who|whoever|whom|whose|somebody|someone|nobody|no one|anybody|anyone|everybody|everyone"
    "|whatever"
)
_THINGS: Final = (
    r"what(?! for\b)|that of|those (?:of|who|that|in|on)"
    r"|(?:this|that|the|each|every|any|another|other|some|such|first|last|next|new|old) ones?"
    r"|one (?:that|who|of them|is|has|was)|is so\b|if so\b|where (?:it|they) (?:is|are) so"
)
_VAGUE: Final = re.compile(rf"\b(?:{_PEOPLE}|{_THINGS})\b", re.IGNORECASE)
_CODE_BLOCK: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)


def vague_lines(path: Path) -> Iterator[str]:
    """Yield a line for each vague word."""
    texts = _python_texts(path) if path.suffix == ".py" else _page_lines(path)
    for number, text in texts:
        for word in _VAGUE.findall(text):
            yield f"{path}:{number}: {word!r} in: {' '.join(text.split())[:100]}"


def _page_lines(path: Path) -> Iterator[tuple[int, str]]:
    text = _CODE_BLOCK.sub(lambda code: "\n" * code[0].count("\n"), path.read_text())
    yield from enumerate(text.splitlines(), 1)


def _python_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield docstrings and comments, and all strings of src: users read errors and help."""
    source = path.read_text()
    is_read_by_users = path.parts[0] == "src"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant if is_read_by_users else ast.Expr):
            text = node if isinstance(node, ast.Constant) else node.value
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.lineno, text.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def vague_names(path: Path) -> Iterator[str]:
    """Yield a line for each vague word in the name of a test."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            for word in _VAGUE.findall(node.name.replace("_", " ")):
                yield f"{path}:{node.lineno}: {word!r} in: {node.name}"


def vague_lines_by_area() -> dict[str, list[str]]:
    """Return a line for each vague word of each area."""
    src = sorted(Path("src").rglob("*.py"))
    tests = [path for name in ("tests", "tools") for path in sorted(Path(name).rglob("*.py"))]
    docs = [*sorted(Path().glob("*.md")), *sorted(Path("docs").rglob("*.md"))]
    return {
        "src": [line for path in src for line in vague_lines(path)],
        "tests": [line for path in tests for line in vague_lines(path)],
        "test names": [line for path in tests for line in vague_names(path)],
        "docs": [line for path in docs for line in vague_lines(path)],
    }


def main() -> int:
    """Return 1, and print the vague words, if an area has more of them than its limit."""
    is_bad = False
    for area, lines in vague_lines_by_area().items():
        if len(lines) > LIMITS[area]:
            sys.stdout.writelines(line + "\n" for line in lines)
            print(f"{area}: {len(lines)} vague words, the limit is {LIMITS[area]}")
            is_bad = True
        elif len(lines) < LIMITS[area]:
            print(f"{area}: {len(lines)} vague words: lower the limit in tools/vague_words.py")
    return int(is_bad)


if __name__ == "__main__":
    sys.exit(main())
