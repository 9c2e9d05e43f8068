"""The loops over Avro values: compiled if possible, else the fallback in plain Python."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.schemas.avro._values_python import ReadStep, WriteStep, read_value, write_value
else:
    try:
        from ottla.schemas.avro._values import ReadStep, WriteStep, read_value, write_value
    except ImportError:
        from ottla.schemas.avro._values_python import (
            ReadStep,
            WriteStep,
            read_value,
            write_value,
        )

__all__ = ["ReadStep", "WriteStep", "read_value", "write_value"]
