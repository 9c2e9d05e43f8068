"""Results on stdout: columns for people, JSON for programs."""

import json
import sys
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from ottla.clients.admin.per_item_results import ItemsFailedError
from ottla.model.api_error import ApiError

K = TypeVar("K")

Row = Mapping[str, object]
_UNDERSCORES = str.maketrans("-.", "__")


async def outcomes_of(items: Iterable[K], call: Awaitable[object]) -> dict[K, ApiError | None]:
    """Wait for a call about items; return the error of each, if any."""
    failed: dict[K, ApiError] = {}
    try:
        await call
    except ItemsFailedError as error:
        failed = error.failed
    return {item: failed.get(item) for item in items}


class OutputFormat(StrEnum):
    """The format of a result."""

    TABLE = "table"
    JSON = "json"


def show(rows: Sequence[Row], columns: Sequence[str], form: OutputFormat) -> None:
    """Write rows, which have their columns as keys."""
    if form is OutputFormat.JSON:
        _write_json([{json_key(name): row.get(name) for name in columns} for row in rows])
    elif sys.stdout.isatty():
        _write_rich(rows, columns)
    else:
        _write_plain(rows, columns)


def show_one(row: Row, form: OutputFormat) -> None:
    """Write one row: its columns below each other, or a JSON object."""
    if form is OutputFormat.JSON:
        _write_json({json_key(name): value for name, value in row.items()})
        return
    width = max(map(len, row))
    for name, value in row.items():
        sys.stdout.write(f"{name:<{width}}  {_cell(value)}\n")


def json_key(column: str) -> str:
    """Return the JSON key of a column: letters, digits and underscores, as `jq` takes unquoted."""
    return column.lower().replace("/", "_per_").removeprefix("#").translate(_UNDERSCORES)


def _write_json(value: object) -> None:
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _write_plain(rows: Sequence[Row], columns: Sequence[str]) -> None:
    """Write aligned columns that any program can split at its spaces."""
    lines = [list(columns), *([_cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _write_rich(rows: Sequence[Row], columns: Sequence[str]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only where there is a terminal
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        numbers = rows and all(isinstance(row.get(name), int | None) for row in rows)
        table.add_column(name, justify="right" if numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(name)) for name in columns))
    Console(highlight=False, markup=False).print(table)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "-"
    return str(value)
