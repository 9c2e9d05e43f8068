"""The display of the demo: a live table on a terminal, or a line for each event."""

import os
import shutil
import sys
from contextlib import nullcontext
from pathlib import Path
from time import monotonic
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.demo.results import Results
from examples.demo.shop import PRODUCTS, WINDOW_SECONDS, Shop

WINDOWS_SHOWN: Final = 6
STATUS_LINE_SECONDS: Final = 5
PRODUCT_WIDTH: Final = 10
"""Columns keep their width while numbers grow; the table takes 64 of 80 columns."""
_STEPS: Final = (
    ("ottla", "start", "a broker"),
    ("python", "-m examples.demo.shop", "topics, and sales"),
    ("ottla", "pipeline run examples/demo/revenue.py", "the same pipeline"),
    ("ottla", "consume revenue --follow", "what comes out"),
    ("ottla", "pipeline status", "rates, lag, state"),
)


def next_steps() -> str:
    """Return commands that work as printed, in the directory where the demo was started."""
    commands = [f"{_program(name)} {words}" for name, words, _ in _STEPS]
    width = max(map(len, commands))
    lines = [
        f"  {command:<{width}}  # {why}"
        for command, (_, _, why) in zip(commands, _STEPS, strict=True)
    ]
    return "\n".join(
        (
            "What to try next: the same in pieces, each line in a terminal of its own",
            *lines,
            "Read docs/quickstart.md for a pipeline of your own, then docs/streams.md,",
            "docs/connect.md and docs/mirror.md.",
        )
    )


def _program(name: str) -> str:
    """Return the shell path of a program of this environment, from the current directory."""
    ours = Path(sys.executable).parent / name
    found = shutil.which(name)
    if found is not None and Path(found).parent.resolve() == ours.parent.resolve():
        return name
    path = os.path.relpath(ours)
    return str(ours) if path.startswith("..") else path


class Screen:
    """Shows live results on a terminal; otherwise prints events."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self.is_live = self._console.is_terminal
        self._told_at = monotonic()
        self._live = Live(console=self._console, auto_refresh=False) if self.is_live else None

    def __enter__(self) -> "Screen":
        (self._live or nullcontext()).__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        self.freeze()

    def say(self, line: str) -> None:
        """Print a line that stays."""
        self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def show(self, shop: Shop, results: Results, spark: str) -> None:
        """Show the results, the shop and Spark; without a terminal, print Spark's status."""
        if self._live is not None:
            self._live.update(frame(shop, results, spark), refresh=True)
        elif monotonic() - self._told_at >= STATUS_LINE_SECONDS:
            self._told_at = monotonic()
            self.say(f"Spark {spark}.")

    def freeze(self) -> None:
        """Freeze the table; later lines are printed below it."""
        if self._live is not None:
            self._live.stop()


def frame(shop: Shop, results: Results, spark: str) -> RenderableType:
    """Return one picture of the demo."""
    sold = f"shop   {shop.orders:,} orders, {shop.payments:,} payments sent"
    lines = [Text(sold), Text(f"spark  {spark}"), Text("Ctrl-C ends the demo.", style="dim")]
    return Group(_table(results), *lines)


def _table(results: Results) -> Table:
    title = f"paid by product, in windows of {WINDOW_SECONDS} seconds"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("window, UTC", width=11)
    for product in PRODUCTS:
        table.add_column(product, justify="right", width=PRODUCT_WIDTH)
    windows = results.windows()[-WINDOWS_SHOWN:]
    for window in windows:
        paid = [results.cents.get((product, window)) for product in PRODUCTS]
        table.add_row(
            f"{window // 3600 % 24:02}:{window // 60 % 60:02}:{window % 60:02}",
            *("" if cents is None else f"{cents / 100:,.2f}" for cents in paid),
        )
    for _ in range(WINDOWS_SHOWN - len(windows)):
        table.add_row()  # the table keeps its height, so that the lines below it stay in place
    return table
