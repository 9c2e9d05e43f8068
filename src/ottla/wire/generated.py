"""Generated source code: collected line by line, compiled, and cached.

Every line remembers its field. Generated code therefore needs no error handling of its own: when
it fails, the line number in the traceback gives the field.
"""

from collections.abc import Callable
from struct import Struct as Layout
from types import TracebackType
from typing import Any, NamedTuple

LAYOUT_BY_KIND = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The kinds of fixed width, as `struct` spells them. Neighbours are read and written together."""


class Generated(NamedTuple):
    """A compiled function, and the field of each of its lines."""

    function: Callable[..., Any]
    field_by_line: tuple[str, ...]

    def failed_at(self, traceback: TracebackType | None) -> tuple[str, dict[str, Any]]:
        """Return the field and the local variables of the line that failed."""
        while traceback is not None:
            if traceback.tb_frame.f_code is self.function.__code__:
                return self.field_by_line[traceback.tb_lineno - 1], traceback.tb_frame.f_locals
            traceback = traceback.tb_next
        return "", {}


class SourceCode:
    """Collects lines, indented, and the values that they refer to by name."""

    def __init__(self, signature: str, names: dict[str, Any]) -> None:
        self._lines = [f"{signature}:"]
        self._fields = [""]
        self._names = dict(names)
        self._depth = 1

    def add(self, line: str, field: str = "") -> None:
        """Add one line for this field."""
        self._lines.append("    " * self._depth + line)
        self._fields.append(field)

    def open(self, line: str, field: str = "") -> None:
        """Add a line that ends in a colon; the following lines are indented under it."""
        self.add(line, field)
        self._depth += 1

    def close(self) -> None:
        """End the block that the last `open` began."""
        self._depth -= 1

    def name(self, value: Any, hint: str) -> str:
        """Return a name by which the code can refer to value."""
        name = f"{hint}_{len(self._names)}"
        self._names[name] = value
        return name

    def layout(self, letters: str) -> Layout:
        """Return the big-endian layout of these fixed-width values."""
        return Layout(">" + letters)

    def compile(self, function: str, title: str) -> Generated:
        """Compile the collected lines. The title shows in tracebacks."""
        code = compile("\n".join(self._lines), f"<{title}>", "exec")
        exec(code, self._names)  # noqa: S102 - the source comes only from our own declarations
        return Generated(self._names[function], tuple(self._fields))


def join_path(path: str, name: str) -> str:
    """Return the path of a field inside the structure at a path."""
    return f"{path}.{name}" if path else name
