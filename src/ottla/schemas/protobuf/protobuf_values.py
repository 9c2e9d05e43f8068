"""Protobuf messages as bytes and as dicts."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError, EncodeError, Message

from ottla.schemas.protobuf.protobuf_schema import ProtobufSchema
from ottla.schemas.values import InvalidValueError


def message_name_of(schema: ProtobufSchema, name: str | None) -> str:
    """Return the name, or the name of the first message; ValueError if the file has no such."""
    found = schema.record_name if name is None else name
    if found is None:
        raise ValueError("the schema declares no message")
    try:
        schema.indexes(found)
    except KeyError:
        raise ValueError(f"the schema does not declare message {found}") from None
    return found


class ProtobufReader:
    """Reads messages of one schema; the fields of Protobuf carry their numbers."""

    def __init__(self, writer: ProtobufSchema, message_name: str | None = None) -> None:
        self._name = message_name_of(writer, message_name)
        self._class = writer.message_class(self._name)

    def read(self, payload: bytes | memoryview) -> Message:
        """Return the message; InvalidValueError if the bytes are not one."""
        try:
            return self._class.FromString(bytes(payload))
        except DecodeError as error:
            raise InvalidValueError(f"not a message {self._name}: {error}") from None


class ProtobufWriter:
    """Writes messages of one schema."""

    def __init__(self, schema: ProtobufSchema) -> None:
        self._schema = schema

    def write(self, message: Message) -> bytes:
        """Return the bytes; InvalidValueError if the schema does not declare such a message."""
        name = message.DESCRIPTOR.full_name
        try:
            self._schema.indexes(name)
        except KeyError:
            raise InvalidValueError(f"the schema does not declare message {name}") from None
        try:
            return bytes(message.SerializeToString())
        except EncodeError as error:
            raise InvalidValueError(f"{name}: {error}") from None


def message_from_dict(
    schema: ProtobufSchema, values: Mapping[str, Any], message_name: str | None = None
) -> Message:
    """Return the message of a dict in Protobuf's JSON form; names of fields may be as declared.

    InvalidValueError, with the path of the field, if the dict does not fit.
    """
    message: Message = schema.message_class(message_name_of(schema, message_name))()
    try:
        json_format.ParseDict(dict(values), message, descriptor_pool=schema.pool)
    except (json_format.ParseError, RecursionError, ValueError) as error:
        raise InvalidValueError(str(error)) from None
    return message


def dict_of(message: Message, schema: ProtobufSchema | None = None) -> dict[str, Any]:
    """Return a message in Protobuf's JSON form, with the declared names and default values.

    The schema is needed for messages of google.protobuf.Any that only it declares.
    """
    try:
        return dict(
            json_format.MessageToDict(
                message,
                preserving_proto_field_name=True,
                always_print_fields_with_no_presence=True,
                descriptor_pool=None if schema is None else schema.pool,
            )
        )
    except (json_format.SerializeToJsonError, TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(str(error)) from None
