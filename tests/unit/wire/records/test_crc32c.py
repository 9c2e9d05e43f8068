import os
from collections.abc import Callable
from itertools import pairwise

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.records import crc32c as module

Checksum = Callable[..., int]
BOTH: list[Checksum] = [module.crc32c, module.packaged_crc32c]

# At three parts of 256 bytes, and at three of 4096, the algorithm changes.
EDGES = [
    3 * part * count + near
    for part in (256, 4096)
    for count in (1, 2)
    for near in (-9, -8, -1, 0, 1, 7, 8, 9)
]

# RFC 3720, appendix B.4
READ_COMMAND = bytes.fromhex(
    "01c00000 00000000 00000000 00000000 14000000 00000400"
    "00000014 00000018 28000000 00000000 02000000 00000000"
)
VECTORS = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(reversed(range(32))): 0x113FDB5C,
    READ_COMMAND: 0xD9963A56,
}


@pytest.fixture(scope="module")
def noise() -> bytes:
    return os.urandom(1 << 20)


@pytest.mark.parametrize("crc32c", BOTH)
@pytest.mark.parametrize("data", VECTORS)
def test_the_standards_examples_come_out(crc32c: Checksum, data: bytes) -> None:
    assert crc32c(data) == VECTORS[data]


@pytest.mark.parametrize("crc32c", BOTH)
def test_nothing_sums_up_to_zero_and_changes_nothing(crc32c: Checksum) -> None:
    assert crc32c(b"") == 0
    assert crc32c(b"", 0xDEADBEEF) == 0xDEADBEEF


def test_every_short_length_at_every_alignment_is_right(noise: bytes) -> None:
    view = memoryview(noise)
    for start in range(17):
        for length in range(301):
            data = view[start : start + length]
            assert module.crc32c(data) == google_crc32c.value(bytes(data)), (start, length)


@pytest.mark.parametrize("length", EDGES)
def test_lengths_where_the_parts_meet_are_right(noise: bytes, length: int) -> None:
    data = memoryview(noise)[3 : 3 + length]
    assert module.crc32c(data) == google_crc32c.value(bytes(data))


def test_an_input_large_enough_to_let_other_threads_run_is_right(noise: bytes) -> None:
    assert module.crc32c(noise) == google_crc32c.value(noise)


@pytest.mark.parametrize("crc32c", BOTH)
@given(data=st.binary(max_size=2000), cuts=st.lists(st.integers(0, 2000), max_size=4))
def test_a_sum_goes_on_from_piece_to_piece(crc32c: Checksum, data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(data)]
    value = 0
    for start, end in pairwise(edges):
        value = crc32c(data[start:end], value)
    assert value == google_crc32c.value(data)


@pytest.mark.parametrize("crc32c", BOTH)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(crc32c: Checksum, kind: Callable[[bytes], bytes]) -> None:
    assert crc32c(kind(READ_COMMAND)) == VECTORS[READ_COMMAND]
    assert crc32c(memoryview(bytearray(READ_COMMAND)).toreadonly()) == VECTORS[READ_COMMAND]
