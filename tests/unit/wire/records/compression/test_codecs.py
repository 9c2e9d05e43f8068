"""Compression: round trips in all forms that peers use, and detection of damage."""

import gzip
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.error_code import ErrorCode
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.compression import (
    gzip_members,
    lz4_frame,
    lz4_header,
    snappy_blocks,
    zstd_frames,
)
from ottla.wire.records.compression.codecs import (
    Compression,
    compress,
    compression_in,
    compression_named,
    decompress,
)

MIB = 1 << 20
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
LEVELS = {
    Compression.GZIP: [None, -1, *range(1, 10)],
    Compression.SNAPPY: [None],
    Compression.LZ4: [None, *range(1, 18)],
    Compression.ZSTD: [None, -5, 0, *range(1, 23)],
}
TEXT = b"".join(b'{"user": %d, "city": "Bielefeld"}' % (i * i % 977) for i in range(3000))

each_codec = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.config_name)


@pytest.fixture(params=["isal", "zlib"])
def gzip_engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "zlib":
        monkeypatch.setattr(gzip_members, "engine", zlib)
    return str(request.param)


# Round trips


@each_codec
@given(data=st.binary(max_size=2000), repeats=st.integers(1, 50))
def test_what_is_compressed_comes_back(codec: Compression, data: bytes, repeats: int) -> None:
    assert decompress(codec, compress(codec, data * repeats)) == data * repeats


@each_codec
@pytest.mark.parametrize("size_bytes", [0, 1, MIB - 1, MIB, MIB + 1, 5 * MIB])
def test_every_size_comes_back(codec: Compression, size_bytes: int) -> None:
    data = (TEXT * (size_bytes // len(TEXT) + 1))[:size_bytes]
    assert decompress(codec, compress(codec, data)) == data


@each_codec
def test_content_may_end_anywhere_in_a_piece(
    codec: Compression, gzip_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (gzip_members, lz4_frame, zstd_frames):
        monkeypatch.setattr(module, "PIECE_BYTES", 300)
    for content in (bytes(1000), TEXT[:1000]):
        for size_bytes in range(1000):
            data = content[:size_bytes]
            assert decompress(codec, compress(codec, data)) == data


@each_codec
def test_every_level_of_kafka_works(codec: Compression) -> None:
    for level in LEVELS[codec]:
        assert decompress(codec, compress(codec, TEXT, level)) == TEXT


@each_codec
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(codec: Compression, kind: Callable[[bytes], bytes]) -> None:
    assert decompress(codec, kind(compress(codec, kind(TEXT)))) == TEXT


@each_codec
def test_a_slice_of_a_larger_buffer_will_do(codec: Compression) -> None:
    frame = memoryview(b"before" + compress(codec, TEXT) + b"after")
    assert decompress(codec, frame[6:-5]) == TEXT


def test_no_compression_is_a_view_of_the_same_bytes() -> None:
    data = bytearray(TEXT)
    assert decompress(Compression.NONE, data).obj is data  # type: ignore[union-attr]
    assert compress(Compression.NONE, data) == TEXT


def test_high_levels_compress_better_than_the_default() -> None:
    for codec, level in ((Compression.GZIP, 9), (Compression.LZ4, 12), (Compression.ZSTD, 19)):
        assert len(compress(codec, TEXT, level)) < len(compress(codec, TEXT))


def test_gzip_takes_zlib_where_isal_is_not_installed() -> None:
    script = (
        "import sys, zlib; sys.modules['isal'] = None;"
        "from ottla.wire.records.compression import gzip_members as g; assert g.engine is zlib"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_gzip_is_the_same_by_either_library(gzip_engine: str) -> None:
    for level in LEVELS[Compression.GZIP]:
        frame = compress(Compression.GZIP, TEXT, level)
        assert decompress(Compression.GZIP, frame) == TEXT
        assert gzip.decompress(frame) == TEXT


# Names and ids


def test_codecs_have_the_names_that_configs_use() -> None:
    names = ["none", "gzip", "snappy", "lz4", "zstd"]
    assert [codec.config_name for codec in Compression] == names
    assert [compression_named(name) for name in names] == list(Compression)
    assert compression_named("uncompressed") is Compression.NONE
    with pytest.raises(ValueError, match="brotli"):
        compression_named("brotli")


def test_attributes_name_the_codec_in_their_low_bits() -> None:
    assert [compression_in(0x78 | number) for number in range(5)] == list(Compression)
    for number in (5, 6, 7):
        with pytest.raises(ProtocolError, match=f"codec {number}") as raised:
            compression_in(number)
        assert raised.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_no_codec_library_is_loaded_before_it_is_needed() -> None:
    script = (
        "import sys; import ottla.wire.records.message_set;"
        "import ottla.wire.records.compression.codecs as c;"
        "print(sorted({'isal', 'cramjam', 'lz4', 'zstandard'} & set(sys.modules)));"
        "c.compress(c.Compression.LZ4, b'');"
        "print(sorted({'isal', 'cramjam', 'lz4', 'zstandard'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert ran.stdout.decode().split("\n")[:2] == ["[]", "['lz4']"]


# Other implementations' forms


def test_bare_snappy_is_read() -> None:
    frame = bytes(cramjam.snappy.compress_raw(TEXT))
    assert decompress(Compression.SNAPPY, frame) == TEXT


def test_snappy_is_written_in_blocks_of_32_kib_behind_the_header_that_java_expects() -> None:
    frame = compress(Compression.SNAPPY, TEXT)
    assert frame[:16] == b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    (size_bytes,) = struct.unpack_from(">i", frame, 16)
    assert cramjam.snappy.decompress_raw_len(frame[20 : 20 + size_bytes]) == 32 << 10


def test_xerial_versions_are_not_looked_at() -> None:
    frame = bytearray(compress(Compression.SNAPPY, TEXT))
    struct.pack_into("<ii", frame, 8, 1, 1)  # Redpanda writes them in the other byte order
    assert decompress(Compression.SNAPPY, frame) == TEXT


def test_lz4_is_written_in_independent_blocks_without_a_content_size() -> None:
    flags = compress(Compression.LZ4, TEXT)[4]
    assert flags & 0x20, "Java refuses linked blocks"
    assert not flags & 0x08, "brokers before 0.10 refuse a content size"


def test_all_forms_of_lz4_frames_are_read() -> None:
    for linked in (False, True):
        for size in range(4, 8):
            for checksums in (False, True):
                frame = lz4.frame.compress(
                    TEXT * 20,
                    block_linked=linked,
                    block_size=size,
                    content_checksum=checksums,
                    block_checksum=checksums,
                )
                assert decompress(Compression.LZ4, frame) == TEXT * 20


def test_gzip_may_come_in_several_members(gzip_engine: str) -> None:
    members = [gzip.compress(TEXT), gzip.compress(b""), gzip.compress(b"end")]
    assert decompress(Compression.GZIP, b"".join(members)) == TEXT + b"end"


def test_gzip_members_may_be_larger_than_a_slice_of_input(gzip_engine: str) -> None:
    noise = b"".join(zlib.crc32(b"%d" % i).to_bytes(4, "big") for i in range(300_000))
    frame = gzip.compress(noise, 1) + gzip.compress(noise[::-1], 1)
    assert decompress(Compression.GZIP, frame) == noise + noise[::-1]


def test_zstd_may_come_in_several_frames_and_without_sizes() -> None:
    sized = zstandard.ZstdCompressor(write_checksum=True)
    unsized = zstandard.ZstdCompressor(write_content_size=False)
    skippable = b"\x50\x2a\x4d\x18" + struct.pack("<I", 3) + b"abc"
    frames = [sized.compress(TEXT), unsized.compress(TEXT), skippable, sized.compress(b"")]
    assert decompress(Compression.ZSTD, b"".join(frames)) == TEXT * 2
    assert decompress(Compression.ZSTD, b"".join(frames[::-1])) == TEXT * 2


def test_zstd_of_the_highest_level_is_read_though_it_asks_for_a_huge_window() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(1, window_log=27)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    frame = stream.compress(TEXT) + stream.flush()
    assert zstandard.get_frame_parameters(frame).window_size == 128 * MIB
    assert decompress(Compression.ZSTD, frame) == TEXT


def test_zstd_that_is_written_here_never_asks_for_a_huge_window() -> None:
    for level in (20, 21, 22):
        frame = compress(Compression.ZSTD, bytes(9 * MIB), level)
        assert zstandard.get_frame_parameters(frame).window_size <= 8 * MIB


def test_the_wrong_lz4_checksum_of_the_first_format_is_written_and_mended() -> None:
    for length in range(0, 3000, 100):
        for store_size in (False, True):
            frame = lz4.frame.compress(TEXT[:length], store_size=store_size)
            assert lz4_header.with_right_header_checksum(frame) == frame
            wrong = lz4_header.with_wrong_header_checksum(frame)
            assert lz4_header.with_right_header_checksum(wrong) == frame
            assert sum(a != b for a, b in zip(wrong, frame, strict=True)) <= 1
    frame = compress(Compression.LZ4, TEXT)
    with pytest.raises(ProtocolError, match="lz4"):
        decompress(Compression.LZ4, lz4_header.with_wrong_header_checksum(frame))


@pytest.mark.parametrize("length", range(8))
def test_the_beginning_of_an_lz4_frame_has_no_checksum_to_mend(length: int) -> None:
    start = b"\x04\x22\x4d\x18\x68\x40\x82\x00"[:length]
    assert lz4_header.with_right_header_checksum(start) == start


# Damage


def assert_a_value_or_a_protocol_error(codec: Compression, frame: bytes | bytearray) -> None:
    error: ProtocolError | None = None
    try:
        decompress(codec, frame)
    except ProtocolError as raised:
        error = raised
    if error is not None:
        assert error.code is ErrorCode.CORRUPT_MESSAGE
        assert error.detail.startswith(f"{codec.config_name}: ")


@each_codec
@given(data=st.data())
def test_changed_bytes_give_a_value_or_a_protocol_error(
    codec: Compression, data: st.DataObject
) -> None:
    frame = bytearray(compress(codec, TEXT[: data.draw(st.sampled_from([0, 20, 3000]))]))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    assert_a_value_or_a_protocol_error(codec, frame)


@each_codec
@given(noise=st.binary(max_size=300), keep=st.integers(0, 20))
def test_noise_gives_a_value_or_a_protocol_error(
    codec: Compression, noise: bytes, keep: int
) -> None:
    assert_a_value_or_a_protocol_error(codec, compress(codec, TEXT)[:keep] + noise)


@each_codec
def test_a_missing_end_is_noticed_wherever_it_begins(codec: Compression) -> None:
    frame = compress(codec, TEXT[:300])
    for length in range(len(frame)):
        if codec is Compression.SNAPPY and length == len(snappy_blocks.XERIAL_HEADER):
            continue  # a header without blocks is a complete, empty stream
        with pytest.raises(ProtocolError, match=codec.config_name):
            decompress(codec, frame[:length])


@each_codec
def test_a_missing_end_of_a_large_frame_is_noticed(codec: Compression) -> None:
    for data in (TEXT * 20, bytes(6 * MIB)):
        frame = compress(codec, data)
        for missing in (1, 2, 5, len(frame) // 2):
            with pytest.raises(ProtocolError, match=codec.config_name):
                decompress(codec, frame[:-missing])


@each_codec
@pytest.mark.parametrize("garbage", [b"\0", b"garbage", bytes(100)])
def test_garbage_after_the_end_is_noticed(codec: Compression, garbage: bytes) -> None:
    for data in (b"", TEXT, bytes(6 * MIB)):
        with pytest.raises(ProtocolError, match=codec.config_name):
            decompress(codec, compress(codec, data) + garbage)


def test_checksums_inside_the_formats_are_checked(gzip_engine: str) -> None:
    frames = {
        Compression.GZIP: gzip.compress(TEXT),
        Compression.LZ4: lz4.frame.compress(TEXT, content_checksum=True),
        Compression.ZSTD: zstandard.ZstdCompressor(write_checksum=True).compress(TEXT),
    }
    for codec, frame in frames.items():
        at = -8 if codec is Compression.GZIP else -4
        changed = bytearray(frame)
        changed[at] ^= 1
        with pytest.raises(ProtocolError, match=codec.config_name):
            decompress(codec, changed)


def test_gzip_whose_stated_size_is_wrong_is_refused(gzip_engine: str) -> None:
    frame = bytearray(gzip.compress(TEXT))
    frame[-1] ^= 1
    with pytest.raises(ProtocolError, match="gzip"):
        decompress(Compression.GZIP, frame)


def test_a_decoder_works_after_an_error() -> None:
    frame = compress(Compression.ZSTD, TEXT)
    for _ in range(3):
        with pytest.raises(ProtocolError):
            decompress(Compression.ZSTD, frame[:-1])
        assert decompress(Compression.ZSTD, frame) == TEXT
