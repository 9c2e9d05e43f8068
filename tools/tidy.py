"""Checks that no linter has: the size of files and functions, and vague names."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 50
VAGUE_NAME_ENDINGS = ("Manager", "Helper", "Helpers", "Util", "Utils", "Impl", "Info", "Data")
# The protocol's own names stay the protocol's own.
PROTOCOL_NAMES = (Path("src/ottla/wire/messages"), Path("src/ottla/wire/coordinator_records"))


def problems(path: Path) -> Iterator[str]:
    """Yield one line per rule that the file breaks."""
    text = path.read_text()
    if text.count("\n") > FILE_LINES_MAX:
        yield f"{path}: more than {FILE_LINES_MAX} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _function_problems(path, node)
        elif isinstance(node, ast.ClassDef) and path.parent not in PROTOCOL_NAMES:
            yield from _class_problems(path, node)


def _function_problems(path: Path, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if lines > FUNCTION_LINES_MAX:
        yield f"{path}:{node.lineno}: {node.name} has {lines} lines"


def _class_problems(path: Path, node: ast.ClassDef) -> Iterator[str]:
    if node.name.endswith(VAGUE_NAME_ENDINGS):
        yield f"{path}:{node.lineno}: {node.name} does not say what it is"


def main() -> int:
    """Print every problem under src and return 1 if there is one."""
    found = [line for path in sorted(Path("src").rglob("*.py")) for line in problems(path)]
    sys.stdout.writelines(line + "\n" for line in found)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
