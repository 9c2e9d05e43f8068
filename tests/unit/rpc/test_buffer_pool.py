"""Buffers are reused once no view of them exists, and not before."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.rpc.buffer_pool import SPARE_BYTES_MIN, BufferPool
from ottla.rpc.frame_reader import FrameReader, new_scratch
from tests.unit.rpc.test_frame_reader import frame, receive

LARGE_BYTES = 2 * SPARE_BYTES_MIN


def test_what_is_kept_is_taken_once_and_by_whoever_needs_no_more() -> None:
    spares = BufferPool()
    assert spares.take(1) is None
    body = bytearray(LARGE_BYTES)
    spares.keep(body)
    assert spares.kept_bytes == LARGE_BYTES
    assert spares.take(LARGE_BYTES + 1) is None
    assert spares.take(LARGE_BYTES) is body
    assert spares.take(1) is None
    assert spares.kept_bytes == 0


def test_a_buffer_with_views_is_not_reused() -> None:
    spares = BufferPool()
    body = bytearray(LARGE_BYTES)
    part = memoryview(body)[10:20]
    spares.keep(body)
    assert spares.take(1) is None
    part.release()
    assert spares.take(1) is body


def test_what_is_small_is_not_kept() -> None:
    spares = BufferPool()
    spares.keep(bytearray(SPARE_BYTES_MIN - 1))
    assert spares.kept_bytes == 0


def test_no_more_is_kept_than_is_allowed_and_the_newest_stays() -> None:
    spares = BufferPool(2 * LARGE_BYTES)
    bodies = [bytearray(LARGE_BYTES) for _ in range(3)]
    for body in bodies:
        spares.keep(body)
    assert spares.kept_bytes == 2 * LARGE_BYTES
    assert spares.take(1) is bodies[2]
    assert spares.take(1) is bodies[1]
    assert spares.take(1) is None


def test_what_is_larger_than_all_that_may_be_kept_does_not_drive_the_others_out() -> None:
    spares = BufferPool(LARGE_BYTES)
    body = bytearray(LARGE_BYTES)
    spares.keep(body)
    spares.keep(bytearray(LARGE_BYTES + 1))
    assert spares.take(1) is body


def test_the_next_large_frame_reuses_a_buffer_without_views() -> None:
    incoming = FrameReader(1 << 20, new_scratch(), BufferPool())
    (first,) = receive(incoming, frame(b"1" * LARGE_BYTES))
    (second,) = receive(incoming, frame(b"2" * LARGE_BYTES))
    assert second.obj is not first.obj
    place = first.obj
    first.release()
    (third,) = receive(incoming, frame(b"3" * (LARGE_BYTES - 1)))
    assert third.obj is place
    assert third == b"3" * (LARGE_BYTES - 1)
    assert second == b"2" * LARGE_BYTES


@given(
    st.lists(st.tuples(st.integers(0, 3 * SPARE_BYTES_MIN), st.booleans()), max_size=8),
    st.integers(1000, 1 << 20),
)
def test_frames_stay_what_was_sent_as_long_as_they_are_looked_at(
    sent: list[tuple[int, bool]], step_bytes: int
) -> None:
    incoming = FrameReader(1 << 20, new_scratch(), BufferPool())
    looked_at = []
    for number, (size_bytes, is_kept) in enumerate(sent):
        body = bytes([number + 1]) * size_bytes
        (taken,) = receive(incoming, frame(body), step_bytes)
        assert taken == body
        if is_kept:
            looked_at.append((taken, body))
    assert all(taken == body for taken, body in looked_at)
