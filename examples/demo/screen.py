"""What is seen of the demo: a table that lives on a terminal, and the last words."""

import sys
from contextlib import nullcontext

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from examples.demo.results import Results
from examples.demo.shop import PRODUCTS, Shop

WINDOWS_SHOWN = 6
NEXT = """What to try next
  ottla start                                      a broker that stays: 127.0.0.1:9092
  ottla pipeline run examples/demo/revenue.py      the same pipeline against it; list, status, stop
  docs/quickstart.md                               from nothing to a pipeline of your own
  docs/streams.md  docs/connect.md  docs/mirror.md what else can be said in a few lines"""


class Screen:
    """Shows results as they come if somebody looks; else says a line now and then."""

    def __init__(self) -> None:
        self.is_live = sys.stdout.isatty()
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False) if self.is_live else None

    def __enter__(self) -> "Screen":
        (self._live or nullcontext()).__enter__()
        return self

    def __exit__(self, *problem: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        """Say something that stays."""
        self._console.print(line, highlight=False)

    def show(self, shop: Shop, results: Results) -> None:
        """Show how things stand."""
        if self._live is not None:
            self._live.update(Group(_table(results), _sold(shop)), refresh=True)


def _table(results: Results) -> Table:
    table = Table("window", *PRODUCTS, title="paid, by product and two seconds")
    for column in table.columns[1:]:
        column.justify = "right"
    for window in results.windows()[-WINDOWS_SHOWN:]:
        paid = [results.cents.get((product, window)) for product in PRODUCTS]
        table.add_row(
            f"{window % 60:02d} s",
            *("" if cents is None else f"{cents / 100:.2f}" for cents in paid),
        )
    return table


def _sold(shop: Shop) -> Text:
    return Text(f"{shop.orders:,} orders, {shop.payments:,} payments sent. Ctrl-C ends the demo.")
