# cython: boundscheck=False, wraparound=False, cdivision=True, binding=False
"""Goes over the batches of a block by their headers, compiled: the twin of _batch_scan_python.py.

The contracts are there. Every header is held against the end of the block before it is read.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport INT32_MAX, int64_t, uint32_t

from ottla.wire.records._arrow_wire cimport (
    CHECKED_FROM,
    CONTROL_BIT,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    Place,
    big_endian,
)
from ottla.wire.records._crc32c cimport sum_of

from ottla.storage.segments._batch_scan_python import KNOWN_BATCHES_MAX as _KNOWN_BATCHES_MAX

cdef enum:
    TRANSACTIONAL_BIT = 0x10

cdef Py_ssize_t KNOWN_BATCHES_MAX = _KNOWN_BATCHES_MAX


cdef inline Py_ssize_t whole_batch(Place at, Py_ssize_t available) noexcept:
    """Return how long the batch here is, or 0 if its header cannot be right or it is cut off."""
    cdef int64_t size_bytes, last_delta, record_count
    if available < HEADER_BYTES or at[16] != MAGIC:
        return 0
    size_bytes = big_endian(at + 8, 4) + LOG_OVERHEAD_BYTES
    last_delta = big_endian(at + 23, 4)
    record_count = big_endian(at + 57, 4)
    if size_bytes < HEADER_BYTES or size_bytes > available:
        return 0
    if last_delta < 0 or record_count < 0 or record_count > last_delta + 1:
        return 0
    return <Py_ssize_t>size_bytes


cdef inline void put(char* to, int64_t number, int width) noexcept:
    cdef int index
    for index in range(width):
        to[index] = <char>((number >> (8 * (width - 1 - index))) & 0xFF)


cdef class BatchScan:
    cdef int64_t _base_offset, _interval_bytes, _time_ms, _time_offset
    cdef public int64_t position, end_offset, leader_epoch, reach_max
    cdef public int64_t greatest_ms, greatest_offset, unindexed_bytes
    cdef public bytearray offset_entries, time_entries

    def __init__(self, int64_t base_offset, int64_t interval_bytes, int64_t reach_max):
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._time_ms = self._time_offset = -1
        self.position = 0
        self.reach_max = reach_max
        self.end_offset = self.greatest_offset = base_offset
        self.leader_epoch = self.greatest_ms = -1
        self.unindexed_bytes = 0
        self.offset_entries = bytearray()
        self.time_entries = bytearray()

    def go_on(self, block, Py_ssize_t at):
        cdef Py_buffer view
        PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
        try:
            self._go_on(<Place>view.buf, view.len, at)
        finally:
            PyBuffer_Release(&view)

    cdef int _go_on(self, Place start, Py_ssize_t size, Py_ssize_t at) except -1:
        cdef Py_ssize_t size_bytes
        cdef int64_t last_delta, last_offset, epoch
        cdef Place place
        while True:
            place = start + at
            size_bytes = whole_batch(place, size - at)
            if size_bytes == 0 or big_endian(place, 8) != self.end_offset:
                return 0
            last_delta = big_endian(place + 23, 4)
            if last_delta >= self.reach_max - self.end_offset:
                return 0
            last_offset = self.end_offset + last_delta
            epoch = big_endian(place + 12, 4)
            if last_offset - self._base_offset > INT32_MAX:
                return 0
            if epoch >= 0 and epoch != self.leader_epoch:
                return 0
            if sum_of(<const char*>place + CHECKED_FROM, size_bytes - CHECKED_FROM) != (
                <uint32_t>big_endian(place + 17, 4)
            ):
                return 0
            self._take(size_bytes, last_offset, big_endian(place + 35, 8))
            at += size_bytes

    def take(self, int64_t size_bytes, int64_t last_offset, int64_t timestamp_ms):
        self._take(size_bytes, last_offset, timestamp_ms)

    cdef int _take(
        self, int64_t size_bytes, int64_t last_offset, int64_t timestamp_ms
    ) except -1:
        cdef char entry[12]
        cdef int64_t greatest_offset
        if timestamp_ms > self.greatest_ms:
            self.greatest_ms, self.greatest_offset = timestamp_ms, last_offset
        if self.unindexed_bytes > self._interval_bytes:
            put(entry, last_offset - self._base_offset, 4)
            put(entry + 4, self.position, 4)
            self.offset_entries += entry[:8]
            greatest_offset = self.greatest_offset - self._base_offset
            if self.greatest_ms > self._time_ms and greatest_offset > self._time_offset:
                self._time_ms, self._time_offset = self.greatest_ms, greatest_offset
                put(entry, self.greatest_ms, 8)
                put(entry + 8, greatest_offset, 4)
                self.time_entries += entry[:12]
            self.unindexed_bytes = 0
        self.unindexed_bytes += size_bytes
        self.position += size_bytes
        self.end_offset = last_offset + 1
        return 0


def producers_batches(block, Py_ssize_t at):
    cdef Py_buffer view
    PyObject_GetBuffer(block, &view, PyBUF_SIMPLE)
    try:
        return _producers_batches(<Place>view.buf, view.len, at)
    finally:
        PyBuffer_Release(&view)


cdef tuple _producers_batches(Place start, Py_ssize_t size, Py_ssize_t at):
    cdef dict recent_by_producer = {}
    cdef set in_transaction = set()
    cdef set found = set()
    cdef list recent
    cdef int64_t attributes, number
    cdef Py_ssize_t size_bytes
    while True:
        size_bytes = whole_batch(start + at, size - at)
        if size_bytes == 0:
            break
        number = big_endian(start + at + 43, 8)
        if number >= 0:
            producer_id, position = number, at
            attributes = big_endian(start + at + 21, 2)
            if attributes & CONTROL_BIT:
                found.add(position)
                in_transaction.discard(producer_id)
            else:
                if attributes & TRANSACTIONAL_BIT and producer_id not in in_transaction:
                    in_transaction.add(producer_id)
                    found.add(position)
                known = recent_by_producer.get(producer_id)
                if known is None:
                    recent_by_producer[producer_id] = [position]
                else:
                    recent = <list>known
                    recent.append(position)
                    if len(recent) > 2 * KNOWN_BATCHES_MAX:
                        del recent[:KNOWN_BATCHES_MAX]
        at += size_bytes
    for known in recent_by_producer.values():
        found.update((<list>known)[-KNOWN_BATCHES_MAX:])
    return at, sorted(found)
