"""Framing: any cut of the stream gives the same frames, and no length is trusted."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.frames import SCRATCH_BYTES, FrameBuffer, frame_prefix
from ottla.wire.protocol_error import ProtocolError

BODY_BYTES_MAX = 2 * SCRATCH_BYTES
bodies = st.one_of(
    st.binary(max_size=64),
    st.integers(SCRATCH_BYTES - 8, BODY_BYTES_MAX).map(lambda size: b"long" * (size // 4)),
)


def receive(buffer: FrameBuffer, data: bytes) -> list[memoryview]:
    """Receive these bytes as a socket would, never more at once than there is room."""
    frames: list[memoryview] = []
    while data:
        room = buffer.room()
        assert len(room) > 0
        size_bytes = min(len(room), len(data))
        room[:size_bytes], data = data[:size_bytes], data[size_bytes:]
        buffer.received(size_bytes)
        frames += buffer.take_frames()
    return frames


@given(st.lists(bodies, max_size=8), st.one_of(st.integers(1, 9), st.just(1 << 20)))
def test_frames_do_not_depend_on_where_the_stream_is_cut(sent: list[bytes], step: int) -> None:
    step = step if sum(map(len, sent)) < 1000 else max(step, 5000)
    stream = b"".join(frame_prefix(len(body)) + body for body in sent)
    buffer = FrameBuffer(frame_bytes_max=BODY_BYTES_MAX)
    frames: list[memoryview] = []
    for start in range(0, len(stream), step):
        frames += receive(buffer, stream[start : start + step])
    assert [bytes(frame) for frame in frames] == sent


@pytest.mark.parametrize("size", [-1, -(1 << 31), 65, (1 << 31) - 1])
def test_a_length_out_of_bounds_is_refused_before_the_body_arrives(size: int) -> None:
    buffer = FrameBuffer(frame_bytes_max=64)
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes: the limit is 64"):
        receive(buffer, struct.pack(">i", size))


@pytest.mark.parametrize("size", [3, SCRATCH_BYTES])
def test_a_frame_stays_as_it_is_when_more_bytes_arrive(size: int) -> None:
    buffer = FrameBuffer(frame_bytes_max=SCRATCH_BYTES)
    (first,) = receive(buffer, frame_prefix(size) + bytes(size) + frame_prefix(size))
    first[0:1] = b"O"
    (second,) = receive(buffer, b"2" * size)
    assert bytes(first) == b"O" + bytes(size - 1)
    assert bytes(second) == b"2" * size


def test_the_rest_of_a_long_frame_is_received_where_it_stays() -> None:
    buffer = FrameBuffer(frame_bytes_max=BODY_BYTES_MAX)
    assert receive(buffer, frame_prefix(BODY_BYTES_MAX) + b"begin") == []
    room = buffer.room()
    assert len(room) == BODY_BYTES_MAX - len(b"begin")
    buffer.received(len(room))
    (frame,) = buffer.take_frames()
    room[-1:] = b"!"
    assert (bytes(frame[:5]), bytes(frame[-1:])) == (b"begin", b"!")
