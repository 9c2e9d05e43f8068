"""Columns of the record that a row came from, beside the row's own columns.

They begin with an underscore and are never part of a written value. They are dropped where rows of
several records become one.
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
"""Marks a row that was deleted from its table."""
Expression = Column | str
"""A Spark column or a SQL expression."""


def column(expression: Expression) -> Column:
    """Return the column of an expression."""
    return sql.expr(expression) if isinstance(expression, str) else expression


def is_of_the_record(name: str) -> bool:
    """Whether a column describes the record of a row, and is not the row's own."""
    return name.startswith("_")


def own_columns(names: Iterable[str]) -> list[str]:
    """Return the columns that are the row's own."""
    return [name for name in names if not is_of_the_record(name)]


def quoted(name: str) -> str:
    """Return a column's name quoted for SQL, with its special characters escaped."""
    return f"`{name.replace('`', '``')}`"
