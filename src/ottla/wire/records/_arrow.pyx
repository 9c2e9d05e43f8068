# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Records to Arrow, compiled: the twin of _arrow_python, which has the contracts.

Whatever the bytes are, no read leaves the payload and no write leaves what was reserved. A payload
of n bytes holds at most n // 7 records and n // 2 headers, and all its keys, values and headers
together are no longer than n: so room is made once per run, from sizes that are known and not from
counts that are claimed, and the loop need not look where it writes. The loop takes what the plain
reader takes; where something is wrong it only stops, and the plain reader says what and where.
"""

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy, memset

from ottla.wire.records._arrow_wire cimport (
    CHECKED_FROM, CONTROL_BIT, HEADER_BYTES, RECORD_BYTES_MIN, RECORD_HEADER_BYTES_MIN, Header,
    Place, is_log_append_time, is_plain_batch, is_text, read_offset_delta, read_timestamp, span,
    varint,
)

from ottla.wire.records._reading_python import read_records
from ottla.wire.records.crc32c import crc32c
from ottla.wire.records.record import Record, RecordHeader

cdef enum:
    # Below this batches are read sooner than another thread could make use of the interpreter.
    GIL_FREE_BYTES_MIN = 64 * 1024

cdef int64_t TIMESTAMP_MS_MAX = INT64_MAX // 1000


@cython.final
cdef class Room:
    """Bytes that grow, and move when they do."""

    cdef object allocate
    cdef object raw
    cdef uint8_t* data
    cdef Py_ssize_t size

    def __cinit__(self, allocate):
        self.allocate = allocate

    cdef int reserve(self, Py_ssize_t size) except -1:
        cdef Py_buffer buffer
        if size <= self.size:
            return 0
        if self.raw is None:
            self.raw = self.allocate(size)
        else:
            # By half at least: many small batches must not copy what is there for each of them.
            self.raw.resize(max(size, self.size + self.size // 2))
        PyObject_GetBuffer(self.raw, &buffer, PyBUF_WRITABLE)
        self.data = <uint8_t*>buffer.buf
        self.size = buffer.len
        PyBuffer_Release(&buffer)
        return 0

    cdef object cut(self, Py_ssize_t size):
        if self.raw is None:
            return b""
        self.raw.resize(size, True)
        return self.raw


@cython.final
cdef class Validity:
    """A bit for each row, set unless the row is null."""

    cdef Room bits
    cdef Py_ssize_t nulls

    def __cinit__(self, allocate):
        self.bits = Room(allocate)

    cdef int reserve(self, Py_ssize_t rows) except -1:
        cdef Py_ssize_t had = self.bits.size
        self.bits.reserve((rows + 7) // 8)
        if self.bits.size > had:
            memset(self.bits.data + had, 0xFF, self.bits.size - had)
        return 0

    cdef inline void unset(self, Py_ssize_t row) noexcept nogil:
        cdef uint8_t* bits = self.bits.data
        bits[row >> 3] &= ~(1 << (row & 7))
        self.nulls += 1

    cdef object finish(self, Py_ssize_t rows):
        return self.bits.cut((rows + 7) // 8) if self.nulls else None


@cython.final
cdef class Ends:
    """Where each row of a column ends in what holds its content; Arrow's "offsets"."""

    cdef Room ends
    cdef Validity validity
    cdef Py_ssize_t rows

    def __cinit__(self, allocate):
        self.ends = Room(allocate)
        self.validity = Validity(allocate)

    cdef int reserve(self, Py_ssize_t more) except -1:
        self.ends.reserve((self.rows + more + 1) * sizeof(int32_t))
        (<int32_t*>self.ends.data)[0] = 0
        self.validity.reserve(self.rows + more)
        return 0

    cdef inline void append(self, Py_ssize_t end, bint is_null) noexcept nogil:
        if is_null:
            self.validity.unset(self.rows)
        self.rows += 1
        (<int32_t*>self.ends.data)[self.rows] = <int32_t>end

    cdef list finish(self):
        self.reserve(0)
        return [self.validity.finish(self.rows), self.ends.cut((self.rows + 1) * sizeof(int32_t))]


@cython.final
cdef class Strings:
    """A column of Arrow's binary layout."""

    cdef Ends ends
    cdef Room content
    cdef Py_ssize_t size

    def __cinit__(self, allocate):
        self.ends = Ends(allocate)
        self.content = Room(allocate)

    cdef int reserve(self, Py_ssize_t more, Py_ssize_t size) except -1:
        self.ends.reserve(more)
        self.content.reserve(self.size + size)
        return 0

    cdef inline void append(self, Place start, int64_t size) noexcept nogil:
        if size > 0:
            memcpy(self.content.data + self.size, start, size)
            self.size += size
        self.ends.append(self.size, size < 0)

    cdef tuple finish(self):
        buffers = [*self.ends.finish(), self.content.cut(self.size)]
        return self.ends.rows, self.ends.validity.nulls, buffers


cdef object repeated(bytes cell, Py_ssize_t count, allocate):
    cdef Room room = Room(allocate)
    cdef Py_ssize_t size = len(cell) * count
    cdef Py_ssize_t done = len(cell)
    cdef Py_ssize_t more
    if count == 0:
        return b""
    room.reserve(size)
    memcpy(room.data, <const char*>cell, done)
    while done < size:
        more = min(done, size - done)
        memcpy(room.data + done, room.data, more)
        done += more
    return room.cut(size)


cdef object repeated_ends(Py_ssize_t size, Py_ssize_t count, allocate):
    cdef Room room = Room(allocate)
    cdef Py_ssize_t row
    # An end is 32 bits wide.
    assert size * count <= INT32_MAX
    room.reserve((count + 1) * sizeof(int32_t))
    for row in range(count + 1):
        (<int32_t*>room.data)[row] = <int32_t>(row * size)
    return room.cut((count + 1) * sizeof(int32_t))


@cython.final
cdef class Columns:
    """See the twin."""

    cdef readonly Py_ssize_t rows
    cdef readonly Py_ssize_t payload_bytes
    cdef Py_ssize_t rows_left, payload_bytes_left
    cdef object names, allocate
    cdef int64_t start_offset
    cdef int64_t last_offset
    cdef Strings keys
    cdef Strings values
    cdef Room offsets
    cdef Room timestamps
    cdef Validity timestamp_validity
    cdef Room timestamp_types
    cdef Ends headers
    cdef Strings header_keys
    cdef Strings header_values

    def __cinit__(self, names, int64_t start_offset, int64_t last_offset, allocate):
        self.names = names
        self.allocate = allocate
        self.start_offset = start_offset
        self.last_offset = last_offset
        self.keys = Strings(allocate) if "key" in names else None
        self.values = Strings(allocate) if "value" in names else None
        self.offsets = Room(allocate) if "offset" in names else None
        if "timestamp" in names:
            self.timestamps = Room(allocate)
            self.timestamp_validity = Validity(allocate)
        self.timestamp_types = Room(allocate) if "timestampType" in names else None
        if "headers" in names:
            self.headers = Ends(allocate)
            self.header_keys = Strings(allocate)
            self.header_values = Strings(allocate)

    def add_run(self, data, Py_ssize_t position, Py_ssize_t payload_bytes_max, bint check_crcs):
        """Add the plain batches from here on; return where the first other one begins."""
        cdef const uint8_t[::1] view = data
        cdef Py_ssize_t end = self.reserve_run(view, position, payload_bytes_max)
        if check_crcs:
            end = self.check_run(memoryview(data), position, end)
        if end - position < GIL_FREE_BYTES_MIN:
            return self.decode_run(view, position, end)
        with nogil:
            position = self.decode_run(view, position, end)
        return position

    def add_batch(self, batch, payload):
        """Add the records of one batch, whose payload is not, or no longer, compressed."""
        cdef const uint8_t[::1] view = payload
        cdef bint is_right
        cdef Header header
        header.base_offset = batch.base_offset
        header.last_offset_delta = batch.last_offset_delta
        header.base_timestamp_ms = batch.base_timestamp_ms
        header.max_timestamp_ms = batch.max_timestamp_ms
        header.record_count = batch.record_count
        header.attributes = batch.attributes
        header.payload_bytes = view.shape[0]
        self.reserve(min(batch.record_count, view.shape[0] // RECORD_BYTES_MIN), view.shape[0])
        if view.shape[0] < GIL_FREE_BYTES_MIN:
            is_right = self.decode(&header, &view[0])
        else:
            with nogil:
                is_right = self.decode(&header, &view[0])
        if not is_right:
            read_records(batch, payload, Record, RecordHeader)
            raise AssertionError("the plain reader takes what the compiled one does not")

    cdef Py_ssize_t reserve_run(
        self, const uint8_t[::1] view, Py_ssize_t end, Py_ssize_t size_max
    ) except -1:
        """Make room for the plain batches from here on, and return where they end."""
        cdef Py_ssize_t rows = 0, size = 0
        cdef Header header
        size_max -= self.payload_bytes
        while is_plain_batch(&view[end], view.shape[0] - end, &header):
            if self.is_wanted(&header):
                if header.payload_bytes > size_max - size:
                    break
                rows += header.record_count
                size += header.payload_bytes
            end += HEADER_BYTES + header.payload_bytes
        self.reserve(rows, size)
        return end

    cdef Py_ssize_t check_run(self, whole, Py_ssize_t position, Py_ssize_t end) except -1:
        """Return where the first batch with a wrong checksum begins, or else the end."""
        cdef const uint8_t[::1] view = whole
        cdef Py_ssize_t batch_end
        cdef Header header
        while position < end and is_plain_batch(&view[position], end - position, &header):
            batch_end = position + HEADER_BYTES + header.payload_bytes
            if self.is_wanted(&header):
                if crc32c(whole[position + CHECKED_FROM:batch_end]) != header.crc:
                    break
            position = batch_end
        return position

    cdef Py_ssize_t decode_run(
        self, const uint8_t[::1] view, Py_ssize_t position, Py_ssize_t end
    ) noexcept nogil:
        """Return where the first batch that cannot be read begins, or else the end."""
        cdef Header header
        while position < end and is_plain_batch(&view[position], end - position, &header):
            if self.is_wanted(&header):
                if not self.decode(&header, &view[position + HEADER_BYTES]):
                    break
            position += HEADER_BYTES + header.payload_bytes
        return position

    cdef inline bint is_wanted(self, Header* header) noexcept nogil:
        return (
            not header.attributes & CONTROL_BIT
            and header.base_offset + header.last_offset_delta >= self.start_offset
            and header.base_offset <= self.last_offset
        )

    cdef int reserve(self, Py_ssize_t more, Py_ssize_t size) except -1:
        # An end is 32 bits wide, and nobody looks again.
        assert self.payload_bytes + size <= INT32_MAX
        if self.keys is not None:
            self.keys.reserve(more, size)
        if self.values is not None:
            self.values.reserve(more, size)
        if self.offsets is not None:
            self.offsets.reserve((self.rows + more) * sizeof(int64_t))
        if self.timestamps is not None:
            self.timestamps.reserve((self.rows + more) * sizeof(int64_t))
            self.timestamp_validity.reserve(self.rows + more)
        if self.timestamp_types is not None:
            self.timestamp_types.reserve((self.rows + more) * sizeof(int32_t))
        if self.headers is not None:
            self.headers.reserve(more)
            self.header_keys.reserve(size // RECORD_HEADER_BYTES_MIN, size)
            self.header_values.reserve(size // RECORD_HEADER_BYTES_MIN, size)
        self.payload_bytes += size
        self.rows_left = more
        self.payload_bytes_left = size
        return 0

    cdef bint decode(self, Header* header, Place payload) noexcept nogil:
        # More than there is room for: the bytes are no longer those that room was made for.
        if header.record_count > self.rows_left or header.payload_bytes > self.payload_bytes_left:
            return False
        self.rows_left -= header.record_count
        self.payload_bytes_left -= header.payload_bytes
        return self.decode_records(header, payload)

    cdef bint decode_records(self, Header* header, Place here) noexcept nogil:
        cdef Place end = here + header.payload_bytes
        cdef int64_t index, delta = -1
        for index in range(header.record_count):
            if not self.decode_record(header, &here, end, &delta):
                return False
        return here == end

    cdef inline bint decode_record(
        self, Header* header, Place* at, Place end, int64_t* delta
    ) noexcept nogil:
        cdef Place here = at[0]
        cdef Place key, value
        cdef int64_t size, key_size, value_size, timestamp_ms, offset
        if not varint(&here, end, 32, &size) or not 1 <= size <= end - here:
            return False
        end = here + size
        at[0] = end
        here += 1  # the attributes, in which no bit has a meaning
        if not read_timestamp(header, &here, end, &timestamp_ms):
            return False
        if not read_offset_delta(header, &here, end, delta):
            return False
        if not span(&here, end, &key, &key_size) or not span(&here, end, &value, &value_size):
            return False
        offset = header.base_offset + delta[0]
        if not self.start_offset <= offset <= self.last_offset:
            return self.decode_headers(here, end, False)
        if self.keys is not None:
            self.keys.append(key, key_size)
        if self.values is not None:
            self.values.append(value, value_size)
        if self.offsets is not None:
            (<int64_t*>self.offsets.data)[self.rows] = offset
        if self.timestamps is not None:
            self.append_timestamp(timestamp_ms)
        if self.timestamp_types is not None:
            (<int32_t*>self.timestamp_types.data)[self.rows] = is_log_append_time(header)
        self.rows += 1
        return self.decode_headers(here, end, self.headers is not None)

    cdef inline void append_timestamp(self, int64_t timestamp_ms) noexcept nogil:
        if not -TIMESTAMP_MS_MAX <= timestamp_ms <= TIMESTAMP_MS_MAX:
            self.timestamp_validity.unset(self.rows)
            timestamp_ms = 0
        (<int64_t*>self.timestamps.data)[self.rows] = timestamp_ms * 1000

    cdef inline bint decode_headers(self, Place here, Place end, bint is_wanted) noexcept nogil:
        cdef Place key, value
        cdef int64_t count, index, key_size, value_size
        if not varint(&here, end, 32, &count) or count < 0:
            return False
        for index in range(count):
            if not span(&here, end, &key, &key_size) or key_size < 0 or not is_text(key, key_size):
                return False
            if not span(&here, end, &value, &value_size):
                return False
            if is_wanted:
                self.header_keys.append(key, key_size)
                self.header_values.append(value, value_size)
        if is_wanted:
            self.headers.append(self.header_keys.ends.rows, count == 0)
        return here == end

    def finish(self, bytes topic not None, int32_t partition):
        """See the twin."""
        cdef Py_ssize_t rows = self.rows
        cdef dict found = {}
        if self.keys is not None:
            found["key"] = self.keys.finish()
        if self.values is not None:
            found["value"] = self.values.finish()
        if "topic" in self.names:
            ends = repeated_ends(len(topic), rows, self.allocate)
            found["topic"] = rows, 0, [None, ends, repeated(topic, rows, self.allocate)]
        if "partition" in self.names:
            cell = PyBytes_FromStringAndSize(<const char*>&partition, sizeof(int32_t))
            found["partition"] = rows, 0, [None, repeated(cell, rows, self.allocate)]
        if self.offsets is not None:
            found["offset"] = rows, 0, [None, self.offsets.cut(rows * sizeof(int64_t))]
        if self.timestamps is not None:
            validity = self.timestamp_validity.finish(rows)
            numbers = self.timestamps.cut(rows * sizeof(int64_t))
            found["timestamp"] = rows, self.timestamp_validity.nulls, [validity, numbers]
        if self.timestamp_types is not None:
            numbers = self.timestamp_types.cut(rows * sizeof(int32_t))
            found["timestampType"] = rows, 0, [None, numbers]
        if self.headers is not None:
            found["headers"] = rows, self.headers.validity.nulls, self.headers.finish()
            found["headers.key"] = self.header_keys.finish()
            found["headers.value"] = self.header_values.finish()
        return found
