"""Avro data as Python values: dicts, lists, and the Python types of logical types.

The codec is an own loop: recursive types end fastavro's process on a deep payload, its arrays
of null have no limit, and it needs a file object for each value.
"""

from typing import Any, Final

from ottla.schemas.avro.avro_loops import read_value, write_value
from ottla.schemas.avro.avro_plan import plan_reading, plan_writing
from ottla.schemas.avro.avro_schema import AvroSchema
from ottla.schemas.avro.avro_steps import CAUGHT, InvalidValueError
from ottla.schemas.parsed_schema import InvalidSchemaError

__all__ = ["AvroReader", "AvroWriter", "InvalidValueError"]

_CAUGHT: Final = (*CAUGHT, RecursionError, BufferError)


class AvroReader:
    """Reads data of a writer's schema as values of a reader's schema."""

    __slots__ = ("_schemas", "_step")

    def __init__(self, writer: AvroSchema, reader: AvroSchema | None = None) -> None:
        """Prepare for a pair of schemas; without a reader's, values are of the writer's schema."""
        reader = reader or writer
        # The steps are found by the identity of types, so the types must live as long.
        self._schemas = writer, reader
        try:
            self._step = plan_reading(writer.root, reader.root)
        except RecursionError as error:
            raise InvalidSchemaError("A default of a field is nested too deep") from error

    def read(self, payload: bytes | bytearray | memoryview, start: int = 0) -> Any:
        """Return the value of a payload from `start` to its end.

        InvalidValueError if the payload does not end with the value, or the reader cannot read it.
        """
        try:
            return read_value(self._step, payload, start)
        except InvalidValueError:
            raise
        except _CAUGHT as error:
            raise InvalidValueError(str(error)) from error


class AvroWriter:
    """Writes Python values as data of a schema."""

    __slots__ = ("_schema", "_step")

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        try:
            self._step = plan_writing(schema.root)
        except RecursionError as error:
            raise InvalidSchemaError("A default of a field is nested too deep") from error

    def write(self, value: Any, prefix: bytes = b"") -> bytes:
        """Return the prefix, such as the id of the schema, and the data of a value.

        Records are mappings or objects with attributes. InvalidValueError if the value does not
        fit the schema.
        """
        try:
            return write_value(self._step, value, prefix)
        except InvalidValueError:
            raise
        except _CAUGHT as error:
            raise InvalidValueError(str(error)) from error
