"""How far flows are, as rows, and as a table that changes."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from ottla.cli.output import Row
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
_TEXT_COLUMNS: Final = ("PIPELINE", "STATE", "FLOW", "WATERMARK", "AT")


def flow_rows(pipeline: str, outcome: Outcome, flows: Sequence[FlowProgress]) -> list[Row]:
    """Return a row for each flow; one without a flow if none has done anything."""
    if not flows:
        return [{"PIPELINE": pipeline, "STATE": outcome.value}]
    return [_row(pipeline, outcome, flow) for flow in flows]


def is_on_a_terminal() -> bool:
    """Whether people look at stdout."""
    return sys.stdout.isatty()


@contextmanager
def shown_live() -> Iterator[Callable[[Sequence[Row]], None]]:
    """Show rows in a table that changes, on a terminal."""
    from rich.console import Console  # noqa: PLC0415 - not for the other verbs
    from rich.live import Live  # noqa: PLC0415

    console = Console(highlight=False, markup=False)
    with Live(console=console, auto_refresh=False) as live:
        yield lambda rows: live.update(_table(rows), refresh=True)


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


def _table(rows: Sequence[Row]) -> "Table":
    from rich.table import Table  # noqa: PLC0415

    caption = "Ctrl-C ends this" if rows else "no pipeline runs; Ctrl-C ends this"
    table = Table(box=None, pad_edge=False, header_style="bold", caption=caption)
    table.caption_justify = "left"
    for name in FLOW_COLUMNS:
        table.add_column(name, justify="left" if name in _TEXT_COLUMNS else "right")
    for row in rows:
        cells = (row.get(name) for name in FLOW_COLUMNS)
        table.add_row(*("-" if cell is None or cell == "" else str(cell) for cell in cells))
    return table
