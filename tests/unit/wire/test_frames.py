"""Framing: any cut of the stream gives the same frames, and no length is trusted."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.frames import FrameBuffer, frame_prefix
from ottla.wire.protocol_error import ProtocolError


@given(st.lists(st.binary(max_size=64), max_size=8), st.integers(1, 9))
def test_frames_do_not_depend_on_where_the_stream_is_cut(bodies: list[bytes], step: int) -> None:
    stream = b"".join(frame_prefix(len(body)) + body for body in bodies)
    buffer = FrameBuffer(frame_bytes_max=64)
    frames: list[bytes] = []
    for start in range(0, len(stream), step):
        buffer.feed(stream[start : start + step])
        frames += [bytes(frame) for frame in buffer.take_frames()]
    assert frames == bodies


@pytest.mark.parametrize("size", [-1, -(1 << 31), 65, (1 << 31) - 1])
def test_a_length_out_of_bounds_is_refused_before_the_body_arrives(size: int) -> None:
    buffer = FrameBuffer(frame_bytes_max=64)
    buffer.feed(struct.pack(">i", size))
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes: the limit is 64"):
        buffer.take_frames()


def test_a_frame_stays_as_it_is_when_more_bytes_arrive() -> None:
    buffer = FrameBuffer(frame_bytes_max=64)
    buffer.feed(frame_prefix(3) + b"one" + frame_prefix(3))
    (first,) = buffer.take_frames()
    first[0:1] = b"O"
    buffer.feed(b"two")
    assert [bytes(frame) for frame in (first, *buffer.take_frames())] == [b"One", b"two"]
