"""Bombs and false sizes: refused, and never held in memory."""

import gzip
import struct
import subprocess
import sys
import tracemalloc
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.compression import gzip_members, snappy_blocks, zstd_frames
from ottla.wire.records.compression.codecs import (
    DECOMPRESSED_BYTES_MAX,
    RATIO_FREE_BYTES,
    RATIO_MAX,
    Compression,
    compress,
    decompress,
)
from ottla.wire.records.compression.inflation import KEPT_FREE_BYTES

MIB = 1 << 20
PEAK_BYTES_MAX = 16 * MIB


def gzip_zeros(mebibytes: int) -> bytes:
    # A full flush resets the state, so the same bytes can be repeated after it.
    stream = zlib.compressobj(9, zlib.DEFLATED, -15)
    mebibyte = stream.compress(bytes(MIB)) + stream.flush(zlib.Z_FULL_FLUSH)
    crc = 0
    for _ in range(mebibytes):
        crc = zlib.crc32(bytes(MIB), crc)
    trailer = stream.flush() + struct.pack("<II", crc, mebibytes * MIB)
    return gzip.compress(b"")[:10] + mebibyte * mebibytes + trailer


def lz4_zeros(mebibytes: int, block_size: int = lz4.frame.BLOCKSIZE_MAX4MB) -> bytes:
    stream = lz4.frame.LZ4FrameCompressor(block_size=block_size, block_linked=False)
    start, end = stream.begin(), stream.flush
    return b"".join((start, _streamed(stream.compress, mebibytes), end()))


def zstd_zeros(mebibytes: int, window_log: int = 21) -> bytes:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return _streamed(stream.compress, mebibytes) + stream.flush()


def xerial_zeros(mebibytes: int) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    return snappy_blocks.XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * mebibytes


def snappy_zeros(mebibytes: int) -> bytes:
    # A literal zero, then copies of 64 bytes from one byte back: the highest ratio.
    copies = mebibytes * MIB // 64
    return _snappy_length(1 + 64 * copies) + b"\x00\x00" + b"\xfe\x01\x00" * copies


def _snappy_length(size_bytes: int) -> bytes:
    length = bytearray()
    while size_bytes > 0x7F:
        length.append(size_bytes & 0x7F | 0x80)
        size_bytes >>= 7
    length.append(size_bytes)
    return bytes(length)


def _streamed(feed: Callable[[bytes], bytes], mebibytes: int) -> bytes:
    return b"".join(feed(bytes(MIB)) for _ in range(mebibytes))


ZEROS: dict[str, tuple[Compression, Callable[[int], bytes]]] = {
    "gzip": (Compression.GZIP, gzip_zeros),
    "lz4": (Compression.LZ4, lz4_zeros),
    "lz4 in small blocks": (Compression.LZ4, lambda size: lz4_zeros(size, 4)),
    "zstd": (Compression.ZSTD, zstd_zeros),
    "zstd with a huge window": (Compression.ZSTD, lambda size: zstd_zeros(size, 27)),
    "xerial": (Compression.SNAPPY, xerial_zeros),
    "snappy": (Compression.SNAPPY, snappy_zeros),
}


@cache
def bomb_of(form: str) -> bytes:
    codec, zeros = ZEROS[form]
    return zeros(256 if codec is Compression.SNAPPY else 1024)


def refused(codec: Compression, data: bytes, *, match: str) -> int:
    """Check that the data is refused; return the peak memory of the attempt."""
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=match) as raised:
            decompress(codec, data)
        assert raised.value.code is ErrorCode.CORRUPT_MESSAGE
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Bombs


@pytest.mark.parametrize("form", ZEROS)
def test_a_bomb_is_refused_and_never_held(form: str) -> None:
    codec, _ = ZEROS[form]
    assert refused(codec, bomb_of(form), match="decompress to more than") < PEAK_BYTES_MAX


def test_a_bomb_costs_little_memory_of_the_process_too(tmp_path: Path) -> None:
    for form, (codec, _) in ZEROS.items():
        (tmp_path / f"{codec.value} {form}").write_bytes(bomb_of(form))
    script = Path(__file__).with_name("bomb_memory.py")
    ran = subprocess.run(
        [sys.executable, script, tmp_path], capture_output=True, check=True, text=True
    )
    grown = dict(line.rsplit("=", 1) for line in ran.stdout.splitlines())
    assert len(grown) == len(ZEROS)
    assert {form: int(size) for form, size in grown.items() if int(size) > PEAK_BYTES_MAX} == {}


@pytest.mark.parametrize("form", ["gzip", "zstd"])
def test_a_bomb_behind_something_innocent_is_found_as_well(form: str) -> None:
    codec, _ = ZEROS[form]
    bomb = compress(codec, b"innocent") + bomb_of(form)
    assert refused(codec, bomb, match="decompress to more than") < PEAK_BYTES_MAX


def test_a_kibibyte_of_runs_in_zstd_is_refused() -> None:
    run = (128 << 10) << 3 | 1 << 1
    blocks = [(run | is_last).to_bytes(3, "little") + b"\0" for is_last in [0] * 254 + [1]]
    bomb = b"\x28\xb5\x2f\xfd\x00" + bytes([11 << 3]) + b"".join(blocks)
    assert len(zstandard.ZstdDecompressor().decompress(bomb, max_output_size=32 * MIB)) > 31 * MIB
    assert refused(Compression.ZSTD, bomb, match="more than 16777216") < PEAK_BYTES_MAX


@pytest.mark.parametrize("form", ZEROS)
def test_zeros_as_people_send_them_are_no_bomb(form: str) -> None:
    codec, zeros = ZEROS[form]
    mebibytes = 8 if form == "zstd with a huge window" else RATIO_FREE_BYTES // MIB
    whole = decompress(codec, zeros(mebibytes - 1))
    assert len(whole) // MIB == mebibytes - 1
    assert not any(whole[:: MIB - 1])


def test_the_ratio_counts_where_the_size_is_no_longer_small() -> None:
    frame = zstd_zeros(32)
    padding = b"\x50\x2a\x4d\x18" + struct.pack("<I", 32 * MIB // RATIO_MAX)
    padding += bytes(32 * MIB // RATIO_MAX)
    refused(Compression.ZSTD, frame, match="more than 16777216")
    assert len(decompress(Compression.ZSTD, frame + padding)) == 32 * MIB


@pytest.mark.parametrize("form", ZEROS)
def test_the_size_limit_is_the_callers(form: str) -> None:
    codec, zeros = ZEROS[form]
    frame = zeros(7)
    size_bytes = len(decompress(codec, frame))
    assert len(decompress(codec, frame, size_bytes_max=size_bytes)) == size_bytes
    for limit in (0, 1, MIB, KEPT_FREE_BYTES, KEPT_FREE_BYTES + 1, size_bytes - 1):
        with pytest.raises(ProtocolError, match=f"more than {limit}"):
            decompress(codec, frame, size_bytes_max=limit)


def test_the_size_limit_holds_for_small_and_for_uncompressed_data() -> None:
    for codec in Compression:
        frame = compress(codec, b"twelve bytes")
        assert decompress(codec, frame, size_bytes_max=12) == b"twelve bytes"
        with pytest.raises(ProtocolError, match="more than 11"):
            decompress(codec, frame, size_bytes_max=11)


def test_the_default_limit_is_128_mebibytes() -> None:
    assert DECOMPRESSED_BYTES_MAX == 128 * MIB
    refused(Compression.GZIP, gzip_zeros(129), match=f"more than {128 * MIB}")
    assert len(decompress(Compression.GZIP, gzip_zeros(128))) == 128 * MIB


# False sizes


@pytest.mark.parametrize("claimed", [MIB, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 60])
def test_the_length_that_snappy_claims_is_not_believed(claimed: int) -> None:
    lie = _snappy_length(claimed) + b"\xfe\x01\x00" * 300
    framed = snappy_blocks.XERIAL_HEADER + struct.pack(">i", len(lie)) + lie
    assert refused(Compression.SNAPPY, lie, match="snappy") < 100_000
    assert refused(Compression.SNAPPY, framed, match="snappy") < 100_000


@pytest.mark.parametrize("claimed", [-(1 << 31), -1, 0, 1000, (1 << 31) - 1])
def test_the_length_of_a_xerial_block_is_not_believed(claimed: int) -> None:
    lie = snappy_blocks.XERIAL_HEADER + struct.pack(">i", claimed) + bytes(900)
    assert refused(Compression.SNAPPY, lie, match=f"block of {claimed} bytes at 20") < 100_000


def test_a_snappy_block_that_holds_less_than_it_claims_is_refused() -> None:
    refused(Compression.SNAPPY, _snappy_length(40) + b"\x00\x00" * 20, match="snappy")
    refused(Compression.SNAPPY, _snappy_length(21) + b"\x00\x00" * 20, match="snappy")
    refused(Compression.SNAPPY, _snappy_length(19) + b"\x00\x00" * 20, match="snappy")


@pytest.mark.parametrize("claimed", [0, 1, 100 * MIB, 1 << 40, (1 << 64) - 2])
def test_the_content_size_of_a_frame_is_not_believed(claimed: int) -> None:
    size = claimed.to_bytes(8, "little")
    block = (1000 << 3 | 1).to_bytes(3, "little") + bytes(1000)
    zstd_lie = b"\x28\xb5\x2f\xfd\xc0" + bytes([11 << 3]) + size + block
    assert refused(Compression.ZSTD, zstd_lie, match="zstd") < 2 * MIB
    lz4_lie = bytearray(lz4.frame.compress(bytes(1000), store_size=True))
    lz4_lie[6:14] = size
    assert refused(Compression.LZ4, bytes(lz4_lie), match="lz4") < 2 * MIB


@pytest.mark.parametrize("window_log", [28, 31, 40, 41])
def test_a_needlessly_large_window_is_refused(window_log: int) -> None:
    block = (10 << 3 | 1).to_bytes(3, "little") + bytes(10)
    lie = b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + block
    assert refused(Compression.ZSTD, lie, match="zstd") < 2 * MIB


# Overhead: input without content must not take more memory than its length


def test_gzip_members_are_limited() -> None:
    member = gzip.compress(b"")
    whole = member * gzip_members.MEMBERS_MAX
    assert decompress(Compression.GZIP, whole) == b""
    refused(Compression.GZIP, whole + member, match="more than 100 members")


def test_zstd_frames_are_limited() -> None:
    frame = compress(Compression.ZSTD, b"")
    whole = frame * zstd_frames.FRAMES_MAX
    assert decompress(Compression.ZSTD, whole) == b""
    refused(Compression.ZSTD, whole + frame, match="more than 100 frames")


def test_zstd_blocks_are_not_limited() -> None:
    block = (1 << 3).to_bytes(3, "little") + b"x"
    frame = b"\x28\xb5\x2f\xfd\x00" + bytes([11 << 3]) + block * 100_000 + b"\x01\x00\x00"
    assert decompress(Compression.ZSTD, frame) == b"x" * 100_000
    refused(Compression.ZSTD, frame[:-1], match="ends in the middle")


def test_tiny_xerial_blocks_are_limited_in_number() -> None:
    block = struct.pack(">i", 3) + b"\x01\x00x"
    blocks_max = snappy_blocks.BLOCKS_FREE
    header = snappy_blocks.XERIAL_HEADER
    assert decompress(Compression.SNAPPY, header + block * blocks_max) == b"x" * blocks_max
    refused(Compression.SNAPPY, header + block * 2 * blocks_max, match="too many small blocks")
