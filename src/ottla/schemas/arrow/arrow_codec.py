"""The common interface of the codecs between values and Arrow columns.

A decoder has the writer's and the reader's schema, and builds columns without a Python object per
value. A value that does not fit its schema never raises: its row is null in every column, and
`errors` has the reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """Columns with one row per value; all top-level fields are nullable."""

    batch: pa.RecordBatch
    errors: Mapping[int, str]
    """The reason for each row that could not be decoded, by its number."""


class ArrowDecoder(Protocol):
    """Decodes values of one writer's schema into the columns of one reader's schema."""

    @property
    def schema(self) -> pa.Schema:
        """The columns. A schema that is not a record has one column, `value`."""
        ...

    def decode(self, values: pa.Array, skip: int = 0) -> DecodedValues:
        """Decode a BinaryArray or LargeBinaryArray, after `skip` bytes of each value.

        A null value, such as a tombstone, is a row of nulls and no error.
        """
        ...


class ArrowEncoder(Protocol):
    """Encodes columns as values of one schema."""

    def encode(self, batch: pa.RecordBatch, prefix: bytes = b"") -> pa.Array:
        """Return a BinaryArray with one value per row, each after the prefix.

        ValueError, with the column and row, if a value does not fit the schema.
        """
        ...
