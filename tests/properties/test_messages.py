"""Every message in every version: what is written is read back, and nothing else is accepted."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import decode
from ottla.wire.schema import Message
from ottla.wire.writing import encode
from tests.message_strategies import all_versions, name_of, values_of

FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
CASES = pytest.mark.parametrize(("cls", "version"), all_versions(), ids=name_of)


@CASES
@FEW
@given(data=st.data())
def test_what_is_written_is_read_back(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(values_of(cls, version))
    assert decode(cls, version, memoryview(encode(value, version))) == value


@CASES
@FEW
@given(data=st.data())
def test_damaged_bytes_are_a_value_or_one_protocol_error(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    raw = bytearray(encode(data.draw(values_of(cls, version)), version))
    for position, byte in data.draw(
        st.lists(st.tuples(st.integers(0, max(0, len(raw) - 1)), st.integers(0, 255)), max_size=4)
    ):
        raw[position : position + 1] = bytes([byte])
    raw = raw[: data.draw(st.integers(0, len(raw)))] + data.draw(st.binary(max_size=3))
    error = _error_of_reading(cls, version, bytes(raw))
    assert error is None or cls.__name__ in str(error)


def _error_of_reading(cls: type[Message], version: int, raw: bytes) -> ProtocolError | None:
    try:
        decode(cls, version, memoryview(raw))
    except ProtocolError as error:
        return error
    return None
