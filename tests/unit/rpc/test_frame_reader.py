"""Received frames: any cut gives the same frames, each in its own memory; no length is trusted."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.rpc.buffer_pool import BufferPool
from ottla.rpc.frame_reader import (
    BODY_AT,
    ROOM_BYTES,
    SCRATCH_BYTES,
    FrameReader,
    new_scratch,
)
from ottla.wire.frames import frame_prefix
from ottla.wire.protocol_error import ProtocolError

SMALL_SCRATCH_BYTES = 16
FRAME_BYTES_MAX = 1 << 20


def frame(body: bytes) -> bytes:
    return frame_prefix(len(body)) + body


def put(incoming: FrameReader, data: bytes) -> int:
    """Receive as a socket would: as much as there is room for."""
    room = incoming.room()
    size_bytes = min(len(room), len(data))
    room[:size_bytes] = data[:size_bytes]
    incoming.received(size_bytes)
    return size_bytes


def take_all(incoming: FrameReader, *, is_shared: bool = True) -> list[memoryview]:
    frames = []
    while (taken := incoming.take_frame()) is not None:
        frames.append(taken)
    if is_shared:
        incoming.release_scratch()
    return frames


def receive(
    incoming: FrameReader, stream: bytes, step_bytes: int = 1 << 30, *, is_shared: bool = True
) -> list[memoryview]:
    frames = []
    position = 0
    while position < len(stream):
        position += put(incoming, stream[position : position + step_bytes])
        frames += take_all(incoming, is_shared=is_shared)
    return frames


@given(st.lists(st.binary(max_size=80), max_size=8), st.integers(1, 100), st.booleans())
def test_frames_do_not_depend_on_where_the_stream_is_cut(
    bodies: list[bytes], step_bytes: int, is_shared: bool
) -> None:
    incoming = FrameReader(
        FRAME_BYTES_MAX, memoryview(bytearray(SMALL_SCRATCH_BYTES)), BufferPool()
    )
    frames = receive(incoming, b"".join(map(frame, bodies)), step_bytes, is_shared=is_shared)
    assert [bytes(taken) for taken in frames] == bodies
    assert incoming.frame_count == len(bodies)
    assert not incoming.has_unread
    assert incoming.held_bytes == 0


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8), st.integers(0, 8))
def test_untaken_frames_are_kept(bodies: list[bytes], taken_at_first: int) -> None:
    incoming = FrameReader(FRAME_BYTES_MAX, new_scratch(), BufferPool())
    put(incoming, b"".join(map(frame, bodies)))
    frames = [incoming.take_frame() for _ in bodies[:taken_at_first]]
    incoming.release_scratch()
    assert incoming.has_unread == (len(frames) < len(bodies))
    frames += take_all(incoming)
    assert [bytes(taken) for taken in frames if taken is not None] == bodies


def test_connections_that_share_a_scratch_see_nothing_of_each_other() -> None:
    scratch = new_scratch()
    ours, theirs = (FrameReader(FRAME_BYTES_MAX, scratch, BufferPool()) for _ in range(2))
    our_body, their_body = b"o" * 0x010203, b"t" * 0x040506
    frames = []
    for position in range(10):
        frames += receive(ours, frame(our_body)[position : position + 1])
        frames += receive(theirs, frame(their_body)[position : position + 1])
    frames += receive(ours, frame(our_body)[10:])
    frames += receive(theirs, frame(their_body)[10:])
    assert [bytes(taken) for taken in frames] == [our_body, their_body]


def test_untaken_frames_are_not_overwritten() -> None:
    scratch = new_scratch()
    ours, theirs = (FrameReader(FRAME_BYTES_MAX, scratch, BufferPool()) for _ in range(2))
    put(ours, frame(b"one") + frame(b"two"))
    ours.take_frame()
    ours.release_scratch()
    receive(theirs, frame(b"x" * 100))
    assert [bytes(taken) for taken in take_all(ours)] == [b"two"]


def test_a_frame_can_be_written_to_and_stays_as_it_is_when_more_arrives() -> None:
    incoming = FrameReader(FRAME_BYTES_MAX, new_scratch(), BufferPool())
    (first,) = receive(incoming, frame(b"one"))
    first[0:1] = b"O"
    (second,) = receive(incoming, frame(b"two"))
    (large,) = receive(incoming, frame(b"x" * SCRATCH_BYTES * 3))
    large[0:1] = b"X"
    receive(incoming, frame(b"y" * SCRATCH_BYTES * 3))
    assert bytes(first) == b"One"
    assert bytes(second) == b"two"
    assert bytes(large) == b"X" + b"x" * (SCRATCH_BYTES * 3 - 1)


@pytest.mark.parametrize("size", [-1, -(1 << 31), FRAME_BYTES_MAX + 1, (1 << 31) - 1])
def test_a_length_out_of_bounds_is_refused_and_gets_no_memory(size: int) -> None:
    incoming = FrameReader(FRAME_BYTES_MAX, new_scratch(), BufferPool())
    put(incoming, struct.pack(">i", size))
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        incoming.take_frame()
    assert incoming.held_bytes == len(struct.pack(">i", size))


def test_a_length_that_lies_gets_little_more_memory_than_what_is_sent() -> None:
    claimed_bytes = 100 << 20
    incoming = FrameReader(claimed_bytes, new_scratch(), BufferPool())
    receive(incoming, frame_prefix(claimed_bytes))
    sent_bytes = 0
    for step_bytes in (2, 100, 10_000, 1_000_000, 3_000_000):
        receive(incoming, bytes(step_bytes))
        sent_bytes += step_bytes
        held_bytes = incoming.held_bytes - BODY_AT
        assert sent_bytes <= held_bytes <= 2 * sent_bytes + ROOM_BYTES + BODY_AT
    assert incoming.has_unread


def test_without_a_pool_a_frame_gets_its_memory_at_once() -> None:
    reader = FrameReader(FRAME_BYTES_MAX, new_scratch())
    body = b"x" * FRAME_BYTES_MAX
    first_bytes = put(reader, frame(body)[:100])
    assert take_all(reader) == []
    room = reader.room()
    assert len(room) == len(frame(body)) - first_bytes
    room[:] = frame(body)[first_bytes:]
    reader.received(len(room))
    (taken,) = take_all(reader)
    room[-1:] = b"!"
    assert bytes(taken) == body[:-1] + b"!"


def test_a_connection_between_requests_holds_no_memory() -> None:
    incoming = FrameReader(FRAME_BYTES_MAX, new_scratch(), BufferPool())
    receive(incoming, frame(bytes(FRAME_BYTES_MAX)))
    assert incoming.held_bytes == 0


def test_what_was_there_can_be_forgotten() -> None:
    incoming = FrameReader(FRAME_BYTES_MAX, new_scratch(), BufferPool())
    receive(incoming, frame(bytes(1000))[:-1])
    incoming.clear()
    assert not incoming.has_unread
    assert incoming.held_bytes == 0
