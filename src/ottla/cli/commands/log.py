"""`ottla log`: the files of a partition, read without a broker."""

import json
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from ottla.cli.support.exit_codes import one_sentence
from ottla.cli.support.output import OutputFormat, show
from ottla.runtime.disk import KernelDisk
from ottla.storage.dump import DumpError, dump

logs = typer.Typer(no_args_is_help=True)
Format = Annotated[
    OutputFormat, typer.Option("--format", help="A table per file, or an object per line.")
]


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(logs, name=name, help=summary)
    logs.callback()(_noun)


def _noun() -> None:
    """Keep `dump` a separate word: a Typer application with one command would omit it."""


@logs.command("dump")
def dump_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE…", help="Segments (.log), .index, .timeindex, .txnindex, .snapshot."
        ),
    ],
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Show the records of every batch, too.")
    ] = False,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the content of a partition's files, up to the first damage if there is any."""
    with one_sentence(DumpError):
        for file in files:
            rows = map(_readable, dump(KernelDisk(), str(file), with_records=records))
            if form is OutputFormat.JSON:
                _write_lines(rows)
            else:
                sys.stdout.write(f"{file}\n" if len(files) > 1 else "")
                _write_tables(rows)


def _write_lines(rows: Iterator[dict[str, object]]) -> None:
    for row in rows:
        sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")


def _write_tables(rows: Iterator[dict[str, object]]) -> None:
    """Write adjacent rows of one kind as a table; rows before a damage are shown."""
    block: list[dict[str, object]] = []
    try:
        for row in chain(rows, [{}]):
            if block and row.keys() != block[0].keys():
                _write_table(block)
                block = []
            block.append(row)
    except DumpError:
        _write_table(block)
        raise


def _write_table(block: list[dict[str, object]]) -> None:
    rows = [{_column(name): value for name, value in row.items()} for row in block]
    if rows:
        show(rows, list(rows[0]), OutputFormat.TABLE)


def _column(name: str) -> str:
    return name.upper().replace("_", "-")


def _readable(row: Mapping[str, object]) -> dict[str, object]:
    return {name: _text(value) for name, value in row.items()}


def _text(value: object) -> object:
    """Show bytes as text, with escapes for other bytes."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, tuple):
        return [f"{key}={_text(content)}" for key, content in value]
    return value
