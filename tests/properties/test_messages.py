"""Every message in every version: a round trip is exact, and other bytes are refused."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ottla.wire.codec import ODD_BYTES_MAX, read_if_short, read_in_slices, write_in_slices
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.reading import NO_LIMIT, decode
from ottla.wire.schema import Message
from ottla.wire.writing import encode
from tests.examples import examples
from tests.message_strategies import all_versions, name_of, values_of

FEW = settings(max_examples=examples(12), deadline=None, suppress_health_check=list(HealthCheck))
CASES = pytest.mark.parametrize(("cls", "version"), all_versions(), ids=name_of)


@CASES
@FEW
@given(data=st.data())
def test_what_is_written_at_once_or_in_slices_is_read_back(
    cls: type[Message], version: int, data: st.DataObject
) -> None:
    value = data.draw(values_of(cls, version))
    raw = encode(value, version)
    buffer = memoryview(raw)
    assert decode(cls, version, buffer) == value
    pieces: list[bytes] = []
    for _ in write_in_slices(value, version, pieces.append):
        pass
    assert b"".join(pieces) == raw
    limits = {"memory_max": NO_LIMIT, "items_max": NO_LIMIT}
    *between, read = read_in_slices(cls, version, buffer, 0, **limits)
    assert read == value
    assert between == [None] * len(between)
    short = read_if_short(cls, version, buffer, 0, NO_LIMIT)
    assert short in (value, None)
    assert short is not None or len(raw) > ODD_BYTES_MAX


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
