"""Reads the same bytes with the compiled reader and with the generated one, its fallback."""

from collections.abc import Iterator
from typing import Any

from ottla.wire import consumer_protocol
from ottla.wire.coordinator_records import codec
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import compiled_reader_for, decode, reader_for
from ottla.wire.schema import Message, Struct
from tests.message_strategies import all_messages


def every_version() -> list[tuple[type[Message], int]]:
    """Return all messages, including internal topics' records, with each of their versions."""
    tables = (codec.CONSUMER_OFFSETS, codec.TRANSACTION_STATE, codec.SHARE_GROUP_STATE)
    records = [cls for table in tables for kind in table.values() for cls in kind]
    consumer = [
        consumer_protocol.ConsumerProtocolSubscription,
        consumer_protocol.ConsumerProtocolAssignment,
    ]
    classes = dict.fromkeys([*all_messages(), *records, *consumer])
    return [(cls, v) for cls in classes for v in range(cls.versions[0], cls.versions[1] + 1)]


class Twins:
    """Both readers of one version of a message."""

    def __init__(self, cls: type[Message], version: int) -> None:
        self._cls = cls
        self._version = version
        self._generated = reader_for(cls, version).function
        # Without a compiler there is only one way to read.
        self._compiled = compiled_reader_for(cls, version) or self._generated

    def agree_on(self, raw: bytes) -> bool:
        """Whether both return the same value, or raise errors with the same text."""
        return self._outcome(self._compiled, raw) == self._outcome(self._generated, raw)

    def both_read(self, raw: bytes) -> bool:
        """Whether both read the same value, the compiled reader without its fallback."""
        buffer = memoryview(raw)
        read = self._compiled(buffer, 0)
        return read is not None and exactly(read) == exactly(self._generated(buffer, 0))

    def _outcome(self, reader: Any, raw: bytes) -> Any:
        self._cls.readers[self._version] = reader
        try:
            return exactly(decode(self._cls, self._version, memoryview(raw)))
        except ProtocolError as error:
            return error.code, error.detail
        finally:
            del self._cls.readers[self._version]


def exactly(value: Any) -> Any:
    """Return a comparable value that includes types: True is not 1, a view is not bytes."""
    if isinstance(value, Struct):
        names = (*(field.name for field in type(value).fields), "unknown_tags")
        return type(value), [exactly(getattr(value, name)) for name in names]
    if isinstance(value, list | tuple):
        return type(value), [exactly(item) for item in value]
    if isinstance(value, float):
        return float, value.hex()
    if isinstance(value, memoryview):
        return memoryview, bytes(value), bytes(value.obj), value.readonly  # type: ignore[arg-type]
    return type(value), value


def structs_in(value: Any) -> Iterator[Struct]:
    """Yield a structure and all that are inside it, or inside the items of an array."""
    if isinstance(value, Struct):
        yield value
        for field in type(value).fields:
            yield from structs_in(getattr(value, field.name))
    elif isinstance(value, list):
        for item in value:
            yield from structs_in(item)


def drop_tagged_fields(value: Message, version: int) -> None:
    """Remove all values that would be written as tagged fields."""
    for struct in list(structs_in(value)):
        for field in type(struct).fields:
            if field.is_tagged(version):
                setattr(struct, field.name, getattr(type(struct)(), field.name))
