"""Python values as JSON and back, validated by a JSON Schema."""

from typing import Any, Final

try:
    import msgspec
except ImportError as error:
    raise ImportError(
        "JSON values need the package msgspec: pip install 'ottla[schemas]'"
    ) from error

from ottla.schemas.json_schema.json_schema import JsonSchema
from ottla.schemas.json_schema.json_text import DEPTH_MAX, TooDeepError, check_depth
from ottla.schemas.values import InvalidValueError

MESSAGE_CHARACTERS_MAX: Final = 300
"""Longer reasons are cut: the validator quotes the value."""


class JsonReader:
    """Reads payloads of one schema. The last of equal keys counts.

    InvalidSchemaError if the schema's regular expressions are too large to compile.
    """

    def __init__(self, schema: JsonSchema) -> None:
        self._validator = schema.validator

    def read(self, payload: bytes | memoryview) -> object:
        """Return the value; InvalidValueError if it is not JSON, or does not fit the schema."""
        value = _decoded(payload)
        _validate(self._validator, value)
        return value


class JsonWriter:
    """Writes values of one schema: JSON's types, and all that msgspec turns into JSON.

    InvalidSchemaError if the schema's regular expressions are too large to compile.
    """

    def __init__(self, schema: JsonSchema) -> None:
        self._validator = schema.validator

    def write(self, value: object) -> bytes:
        """Return the payload; InvalidValueError if the value does not fit the schema."""
        try:
            payload = msgspec.json.encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidValueError(f"the value cannot be written as JSON: {error}") from error
        # Validated as the reader will see it: dates are strings there, and NaN is null.
        _validate(self._validator, _decoded(payload))
        return payload


def _decoded(payload: bytes | memoryview) -> Any:
    # msgspec recurses, and so does the validator: bounded depth comes first.
    text = bytes(payload)
    try:
        if text.count(b"[") + text.count(b"{") > DEPTH_MAX:
            check_depth(text.decode())
        return msgspec.json.decode(text)
    except TooDeepError as error:
        raise InvalidValueError(f"the value has {error}") from error
    except UnicodeDecodeError as error:
        raise InvalidValueError(f"the payload is not UTF-8: {error}") from error
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"the payload is not JSON: {error}") from error


def _validate(validator: Any, value: object) -> None:
    try:
        if validator.is_valid(value):
            return
        error = next(iter(validator.iter_errors(value)), None)
    except ValueError as failure:
        raise InvalidValueError(f"the value cannot be validated: {failure}") from failure
    if error is None:
        raise InvalidValueError("the value does not fit the schema")
    place = "/".join(str(step) for step in error.instance_path)
    raise InvalidValueError(f"at #/{place}: {error.message[:MESSAGE_CHARACTERS_MAX]}")
