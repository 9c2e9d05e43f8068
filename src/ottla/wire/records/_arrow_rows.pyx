# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Arrow to records, compiled: the twin of _arrow_rows_python, which has the contracts.

Arrow's offsets are held against their buffers once, when a column comes in; what the loops read
after that lies inside. A batch is measured before it is written, so it is written into exactly
the room that it needs.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, memset

from ottla.wire.records._arrow_rows_python import BUFFER_WRONG, ROW_TOO_LARGE, EncodedRows

cdef enum:
    HEADER_ROOM_BYTES = 61


cdef inline uint64_t zigzag(int64_t number) noexcept nogil:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline int64_t varint_bytes(int64_t number) noexcept nogil:
    cdef uint64_t bits = zigzag(number)
    cdef int64_t count = 1
    while bits > 0x7F:
        bits >>= 7
        count += 1
    return count


cdef inline uint8_t* put_varint(uint8_t* at, int64_t number) noexcept nogil:
    cdef uint64_t bits = zigzag(number)
    while bits > 0x7F:
        at[0] = <uint8_t>(bits | 0x80)
        bits >>= 7
        at += 1
    at[0] = <uint8_t>bits
    return at + 1


cdef inline int64_t span_bytes(int64_t size) noexcept nogil:
    return varint_bytes(size) + max(size, 0)


cdef inline uint8_t* put_span(uint8_t* at, const uint8_t* start, int64_t size) noexcept nogil:
    at = put_varint(at, size)
    if size <= 0:
        return at
    memcpy(at, start, size)
    return at + size


cdef inline bint is_too_far(int64_t timestamp_ms, int64_t base_ms) noexcept nogil:
    if base_ms < 0:
        return timestamp_ms > INT64_MAX + base_ms
    return timestamp_ms < INT64_MIN + base_ms


cdef struct Choice:
    const int32_t* order  # NULL for all rows as they come
    Py_ssize_t start
    Py_ssize_t count


cdef inline Py_ssize_t row_at(const Choice* choice, Py_ssize_t index) noexcept nogil:
    return index if choice.order == NULL else choice.order[index]


@cython.final
cdef class Numbers:
    """Integers of four or eight bytes in a row, wherever in memory they begin."""

    cdef const uint8_t[::1] view
    cdef const uint8_t* start
    cdef int width

    def __cinit__(self, const uint8_t[::1] view, int width, Py_ssize_t first, Py_ssize_t count):
        if first < 0 or first + count > view.shape[0] // width:
            raise ValueError(BUFFER_WRONG)
        self.view = view
        self.start = &view[0] + first * width
        self.width = width

    cdef inline int64_t at(self, Py_ssize_t index) noexcept nogil:
        cdef int64_t wide
        cdef int32_t narrow
        if self.width == sizeof(int32_t):
            memcpy(&narrow, self.start + index * sizeof(int32_t), sizeof(int32_t))
            return narrow
        memcpy(&wide, self.start + index * sizeof(int64_t), sizeof(int64_t))
        return wide

    cdef int check_ends(self, Py_ssize_t count, Py_ssize_t size) except -1:
        cdef Py_ssize_t index
        cdef bint is_wrong = self.at(0) < 0 or self.at(count) > size
        for index in range(count):
            is_wrong |= self.at(index) > self.at(index + 1)
        if is_wrong:
            raise ValueError(BUFFER_WRONG)
        return 0


@cython.final
cdef class Validity:
    """A bit for each row, set unless the row is null; or no bits, if none is."""

    cdef const uint8_t[::1] view
    cdef const uint8_t* bits
    cdef Py_ssize_t first

    def __cinit__(self, const uint8_t[::1] view, Py_ssize_t first, Py_ssize_t count):
        if view is None:
            return
        if view.shape[0] < (first + count + 7) // 8:
            raise ValueError(BUFFER_WRONG)
        self.view = view
        self.bits = &view[0]
        self.first = first

    cdef inline bint at(self, Py_ssize_t row) noexcept nogil:
        row += self.first
        return self.bits == NULL or self.bits[row >> 3] >> (row & 7) & 1


@cython.final
cdef class Strings:
    """A column of bytes."""

    cdef Validity validity
    cdef Numbers ends
    cdef const uint8_t[::1] content

    def __cinit__(self, column, Py_ssize_t count):
        self.validity = Validity(column.validity, column.first, count)
        self.ends = Numbers(column.ends, 8 if column.is_large else 4, column.first, count + 1)
        self.content = column.content
        self.ends.check_ends(count, self.content.shape[0])

    cdef inline int64_t size(self, Py_ssize_t row) noexcept nogil:
        """How long the cell is; -1 if it is null."""
        return self.ends.at(row + 1) - self.ends.at(row) if self.validity.at(row) else -1

    cdef inline uint8_t* put(self, uint8_t* at, Py_ssize_t row) noexcept nogil:
        return put_span(at, &self.content[0] + self.ends.at(row), self.size(row))


@cython.final
cdef class Headers:
    """A column of lists of keys and values."""

    cdef Validity validity
    cdef Numbers ends
    cdef Strings keys
    cdef Strings values

    def __cinit__(self, column, Py_ssize_t count):
        self.validity = Validity(column.validity, column.first, count)
        self.ends = Numbers(column.ends, 4, column.first, count + 1)
        self.keys = Strings(column.keys, column.header_count)
        self.values = Strings(column.values, column.header_count)
        self.ends.check_ends(count, column.header_count)

    cdef inline int64_t stop(self, Py_ssize_t row) noexcept nogil:
        return self.ends.at(row + 1) if self.validity.at(row) else self.ends.at(row)

    cdef int64_t size(self, Py_ssize_t row) noexcept nogil:
        cdef int64_t index
        cdef int64_t start = self.ends.at(row)
        cdef int64_t stop = self.stop(row)
        cdef int64_t size = varint_bytes(stop - start)
        for index in range(start, stop):
            size += span_bytes(self.keys.size(index)) + span_bytes(self.values.size(index))
        return size

    cdef uint8_t* put(self, uint8_t* at, Py_ssize_t row) noexcept nogil:
        cdef int64_t index
        cdef int64_t start = self.ends.at(row)
        cdef int64_t stop = self.stop(row)
        at = put_varint(at, stop - start)
        for index in range(start, stop):
            at = self.values.put(self.keys.put(at, index), index)
        return at


@cython.final
cdef class Timestamps:
    """A column of times, in units of which `divisor` are a millisecond."""

    cdef Validity validity
    cdef Numbers numbers
    cdef int64_t divisor

    def __cinit__(self, column, Py_ssize_t count):
        self.validity = Validity(column.validity, column.first, count)
        self.numbers = Numbers(column.numbers, 8, column.first, count)
        self.divisor = column.divisor

    cdef inline int64_t floored(self, int64_t number, int64_t divisor) noexcept nogil:
        return number // divisor - (number % divisor < 0)

    cdef inline int64_t at(self, Py_ssize_t row) noexcept nogil:
        # A division by a constant is a multiplication.
        if self.divisor == 1000:
            return self.floored(self.numbers.at(row), 1000)
        return self.floored(self.numbers.at(row), self.divisor)


@cython.final
cdef class Rows:
    """See the twin."""

    cdef Py_ssize_t count
    cdef Strings values
    cdef Strings keys
    cdef Headers headers
    cdef Timestamps timestamps
    cdef int64_t timestamp_ms

    def __cinit__(self, Py_ssize_t count, values, keys, headers, timestamps, int64_t timestamp_ms):
        self.count = count
        self.values = Strings(values, count)
        self.keys = None if keys is None else Strings(keys, count)
        self.headers = None if headers is None else Headers(headers, count)
        self.timestamps = None if timestamps is None else Timestamps(timestamps, count)
        self.timestamp_ms = timestamp_ms

    def encode(
        self, Py_ssize_t start, Py_ssize_t size_bytes_max, const int32_t[::1] order=None
    ):
        """See the twin."""
        cdef Choice choice = Choice(NULL, start, self.count)
        if order is not None:
            choice.count = order.shape[0]
        assert 0 <= start < choice.count
        assert size_bytes_max <= INT32_MAX
        if order is not None:
            choice.order = &order[0]
        assert 0 <= row_at(&choice, start) < self.count, "there is no such row"
        cdef int64_t base_ms = self.timestamp(row_at(&choice, start))
        cdef int64_t max_ms = base_ms
        cdef Py_ssize_t index, stop, size = HEADER_ROOM_BYTES
        with nogil:
            stop = self.measure(&choice, size_bytes_max, &size, &max_ms)
        assert stop > start, "there is no such row"
        if size > INT32_MAX:
            raise ValueError(ROW_TOO_LARGE.format(row_at(&choice, start)))
        buffer = PyByteArray_FromStringAndSize(NULL, size)
        cdef uint8_t* at = <uint8_t*>PyByteArray_AS_STRING(buffer)
        cdef uint8_t* end = at + size
        with nogil:
            memset(at, 0, HEADER_ROOM_BYTES)
            at += HEADER_ROOM_BYTES
            for index in range(start, stop):
                at = self.put_record(at, row_at(&choice, index), index - start, base_ms)
        assert at == end
        return EncodedRows(buffer, stop - start, base_ms, max_ms)

    cdef inline int64_t timestamp(self, Py_ssize_t row) noexcept nogil:
        if self.timestamps is None or not self.timestamps.validity.at(row):
            return self.timestamp_ms
        return self.timestamps.at(row)

    cdef Py_ssize_t measure(
        self, const Choice* choice, Py_ssize_t size_bytes_max, Py_ssize_t* size, int64_t* max_ms
    ) noexcept nogil:
        """Return where the batch ends that begins at the start, -1 if a row is not there.

        Adds up its size, and raises max_ms.
        """
        cdef Py_ssize_t index, row
        cdef int64_t body, record, timestamp_ms
        cdef int64_t base_ms = max_ms[0]
        for index in range(choice.start, choice.count):
            row = row_at(choice, index)
            if not 0 <= row < self.count:
                return -1
            timestamp_ms = self.timestamp(row)
            if is_too_far(timestamp_ms, base_ms):
                return index
            body = self.body_bytes(row, index - choice.start, timestamp_ms - base_ms)
            record = varint_bytes(body) + body
            if size[0] + record > size_bytes_max and index > choice.start:
                return index
            size[0] += record
            max_ms[0] = max(max_ms[0], timestamp_ms)
        return choice.count

    cdef inline int64_t body_bytes(
        self, Py_ssize_t row, int64_t offset_delta, int64_t delta_ms
    ) noexcept nogil:
        cdef int64_t size = 1 + varint_bytes(delta_ms) + varint_bytes(offset_delta)
        size += 1 if self.keys is None else span_bytes(self.keys.size(row))
        size += span_bytes(self.values.size(row))
        return size + (1 if self.headers is None else self.headers.size(row))

    cdef inline uint8_t* put_record(
        self, uint8_t* at, Py_ssize_t row, int64_t offset_delta, int64_t base_ms
    ) noexcept nogil:
        cdef int64_t delta_ms = self.timestamp(row) - base_ms
        at = put_varint(at, self.body_bytes(row, offset_delta, delta_ms))
        at[0] = 0  # the attributes, in which no bit has a meaning
        at = put_varint(put_varint(at + 1, delta_ms), offset_delta)
        at = put_span(at, NULL, -1) if self.keys is None else self.keys.put(at, row)
        at = self.values.put(at, row)
        return put_varint(at, 0) if self.headers is None else self.headers.put(at, row)
