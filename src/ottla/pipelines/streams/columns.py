"""Columns that rows carry beside their own: which record they came from.

They begin with an underscore, are never part of a value that is written, and are dropped where rows
of several records become one.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sql

KEY: Final = "_key"
TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
TIMESTAMP: Final = "_timestamp"
HEADERS: Final = "_headers"
DELETED: Final = "_deleted"
"""Of a table's row: it is no longer there."""
Expression = Column | str
"""A column of Spark, or SQL that makes one."""


def column(expression: Expression) -> Column:
    """Return a column of what may be SQL."""
    return sql.expr(expression) if isinstance(expression, str) else expression


def is_of_the_record(name: str) -> bool:
    """Whether a column says where a row came from, and is not its own."""
    return name.startswith("_")


def own_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that are the row's own."""
    return [name for name in names if not is_of_the_record(name)]


def quoted(name: str) -> str:
    """Return a column's name as SQL takes it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"
