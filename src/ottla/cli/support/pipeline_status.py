"""The progress of flows, as rows or as a live table."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla.cli.support.output import Row
from ottla.pipelines.running.progress import FlowProgress
from ottla.pipelines.running.registry import Outcome

if TYPE_CHECKING:
    from rich.table import Table

FLOW_COLUMNS: Final = (
    "PIPELINE",
    "STATE",
    "FLOW",
    "BATCH",
    "ROWS",
    "ROWS-PER-S",
    "LAG",
    "WATERMARK",
    "STATE-ROWS",
    "STATE-BYTES",
    "BATCH-MS",
    "AT",
)
NARROW_COLUMNS: Final = ("FLOW", "STATE", "BATCH", "ROWS", "ROWS-PER-S", "LAG", "BATCH-MS")
"""The columns that fit a terminal of 80 characters."""
NOTHING: Final = "-"
_TEXT_COLUMNS: Final = ("PIPELINE", "STATE", "FLOW", "WATERMARK", "AT")


def flow_rows(pipeline: str, outcome: Outcome, flows: Sequence[FlowProgress]) -> list[Row]:
    """Return a row for each flow; a single row without a flow if there is no progress yet."""
    if not flows:
        return [{"PIPELINE": pipeline, "STATE": outcome.value}]
    return [_row(pipeline, outcome, flow) for flow in flows]


def is_on_a_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


@contextmanager
def shown_live() -> Iterator[Callable[[Sequence[Row]], None]]:
    """Show rows in a live table, on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - not for the other verbs
    from rich.live import Live  # noqa: PLC0415

    console = Console(highlight=False, markup=False)
    with Live(console=console, auto_refresh=False) as live:
        yield lambda rows: live.update(live_table(rows, console.width), refresh=True)


def _row(pipeline: str, outcome: Outcome, flow: FlowProgress) -> Row:
    values = (
        pipeline,
        outcome.value,
        flow.flow,
        flow.batch,
        flow.rows,
        flow.rows_per_second,
        flow.lag,
        flow.watermark,
        flow.state_rows,
        flow.state_bytes,
        flow.batch_ms,
        flow.at,
    )
    return dict(zip(FLOW_COLUMNS, values, strict=True))


def live_table(rows: Sequence[Row], width: int) -> "Table":
    """Return a table of all columns, or of the narrow columns if these do not fit the terminal."""
    cells = {name: [_cell(row.get(name)) for row in rows] for name in FLOW_COLUMNS}
    needed = sum(max(map(len, (name, *column))) + 2 for name, column in cells.items())
    if needed <= width or not rows:
        return _table(cells, "Ctrl-C ends this" if rows else "no pipeline runs; Ctrl-C ends this")
    cells["FLOW"] = [
        pipeline if flow == NOTHING else f"{pipeline}/{flow}"
        for pipeline, flow in zip(cells["PIPELINE"], cells["FLOW"], strict=True)
    ]
    more = "wider terminals show more; Ctrl-C ends this"
    return _table({name: cells[name] for name in NARROW_COLUMNS}, more)


def _table(cells: Mapping[str, Sequence[str]], caption: str) -> "Table":
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption)
    table.caption_justify = "left"
    for name in cells:
        is_text = name in _TEXT_COLUMNS
        table.add_column(
            name, justify="left" if is_text else "right", no_wrap=not is_text, overflow="fold"
        )
    for row in zip(*cells.values(), strict=True):
        table.add_row(*row)
    return table


def _cell(value: object) -> str:
    return NOTHING if value is None or value == "" else str(value)
