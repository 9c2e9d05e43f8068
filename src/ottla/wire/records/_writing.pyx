# cython: boundscheck=False, wraparound=False, binding=False
"""Writing records, compiled: the twin of _writing_python.py, which has the contracts."""

cimport cython
from cpython.bytearray cimport (
    PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize,
)
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t, uint64_t
from libc.string cimport memcpy, memset

from ottla.wire.records.batch import HEADER_BYTES

cdef Py_ssize_t HEADER_ROOM_BYTES = HEADER_BYTES

cdef enum:
    FIRST_BYTES = 4096
    LARGE_BYTES = 1 << 16
    LARGE_AT = 2048  # where a large batch begins in its memory: the kernel copies it faster so


cdef inline int varint_bytes(uint64_t bits) noexcept:
    cdef int count = 1
    while bits > 0x7F:
        bits >>= 7
        count += 1
    return count


cdef inline uint64_t zigzag(int64_t number) noexcept:
    return (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)


cdef inline unsigned char *put_varint(unsigned char *at, uint64_t bits) noexcept:
    while bits > 0x7F:
        at[0] = <unsigned char>(bits | 0x80)
        bits >>= 7
        at += 1
    at[0] = <unsigned char>bits
    return at + 1


cdef inline Py_ssize_t span_bytes(bytes data) noexcept:
    """How long the field is that put_span writes."""
    if data is None:
        return 1
    return varint_bytes(zigzag(PyBytes_GET_SIZE(data))) + PyBytes_GET_SIZE(data)


cdef inline unsigned char *put_span(unsigned char *at, bytes data) noexcept:
    if data is None:
        return put_varint(at, zigzag(-1))
    at = put_varint(at, zigzag(PyBytes_GET_SIZE(data)))
    memcpy(at, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return at + PyBytes_GET_SIZE(data)


cdef inline bytes as_bytes(data):
    if data is None or type(data) is bytes:
        return <bytes>data
    return bytes(memoryview(data))


cdef inline list as_list(items):
    return items if type(items) is list else list(items)


cdef bytes encoded_headers(headers):
    """Write the header count and the headers."""
    cdef list spans = []
    cdef bytes key, value
    cdef Py_ssize_t size = 0
    for header_key, header_value in headers:
        key = (<str?>header_key).encode()
        value = as_bytes(header_value)
        size += span_bytes(key) + span_bytes(value)
        spans.append(key)
        spans.append(value)
    size += varint_bytes(zigzag(len(spans) // 2))
    cdef bytes encoded = PyBytes_FromStringAndSize(NULL, size)
    cdef unsigned char *at = <unsigned char *>PyBytes_AS_STRING(encoded)
    at = put_varint(at, zigzag(len(spans) // 2))
    for span in spans:
        at = put_span(at, <bytes>span)
    return encoded


cdef bytes NO_HEADERS = b"\0"
cdef str TOO_LARGE = "a batch has at most 2**31 - 1 bytes, and as many offsets"


cdef class RecordAccumulator:
    """See the twin."""

    def __cinit__(self):
        self._buffer = PyByteArray_FromStringAndSize(NULL, FIRST_BYTES)
        self._start = <unsigned char *>PyByteArray_AS_STRING(self._buffer)
        memset(self._start, 0, HEADER_ROOM_BYTES)
        self._size = HEADER_ROOM_BYTES
        self._capacity = FIRST_BYTES
        self.base_timestamp_ms = self.max_timestamp_ms = -1

    @classmethod
    def of_encoded(
        cls, bytearray records not None, int32_t record_count, int64_t base_timestamp_ms,
        int64_t max_timestamp_ms,
    ):
        """See the twin."""
        cdef RecordAccumulator made = cls()
        made._buffer = records
        made._start = <unsigned char *>PyByteArray_AS_STRING(records)
        made._size = made._capacity = len(records)
        made.record_count = made.next_offset_delta = record_count
        made.base_timestamp_ms = base_timestamp_ms
        made.max_timestamp_ms = max_timestamp_ms
        return made

    @property
    def size_bytes(self):
        """The room and the records so far; 0 once they are taken."""
        return self._size

    def append(self, int64_t timestamp_ms, key, value, headers=()):
        """Add one record. When this raises, nothing was added."""
        cdef bytes encoded = NO_HEADERS if len(headers) == 0 else encoded_headers(headers)
        if not self._put(timestamp_ms, as_bytes(key), as_bytes(value), encoded, INT32_MAX):
            raise AssertionError(TOO_LARGE)

    def extend(self, timestamp_ms, values, keys=None, headers=None, *, Py_ssize_t start=0,
               Py_ssize_t size_bytes_max=INT32_MAX):
        """See the twin; lists are read in place, other sequences are copied into one."""
        cdef list value_list = as_list(values)
        cdef list key_list = None if keys is None else as_list(keys)
        cdef list header_list = None if headers is None else as_list(headers)
        cdef list time_list = None if isinstance(timestamp_ms, int) else as_list(timestamp_ms)
        cdef int64_t at_ms = timestamp_ms if time_list is None else 0
        assert start >= 0
        assert key_list is None or len(key_list) == len(value_list)
        assert header_list is None or len(header_list) == len(value_list)
        assert time_list is None or len(time_list) == len(value_list)
        return self._extend(
            at_ms, time_list, value_list, key_list, header_list, start, size_bytes_max
        )

    @cython.boundscheck(True)
    cdef Py_ssize_t _extend(
        self, int64_t at_ms, list times, list values, list keys, list headers,
        Py_ssize_t start, Py_ssize_t size_bytes_max,
    ) except -1:
        # Bounds are checked: turning a buffer into bytes may run code that shortens a list.
        cdef Py_ssize_t index
        cdef bytes key = None
        cdef bytes own = NO_HEADERS
        for index in range(start, len(values)):
            if times is not None:
                at_ms = times[index]
            if keys is not None:
                key = as_bytes(keys[index])
            if headers is not None:
                own = encoded_headers(headers[index]) if headers[index] else NO_HEADERS
            if not self._put(at_ms, key, as_bytes(values[index]), own, size_bytes_max):
                return index
        return len(values)

    def leave_gap(self, int64_t offset_count):
        """Leave this many offsets without a record, as compaction does."""
        assert 0 <= offset_count <= INT32_MAX - self.next_offset_delta
        self.next_offset_delta += offset_count

    def take(self):
        """Hand out the room and the records; nothing can be added any more."""
        if self._buffer is None:
            raise AssertionError("the records are taken already")
        taken = self._buffer
        PyByteArray_Resize(taken, self._begin + self._size)
        if self._begin:
            del taken[:self._begin]  # moves nothing
        self._buffer = None
        self._start = NULL
        self._size = self._capacity = self._begin = 0
        return taken

    cdef int _put(
        self, int64_t timestamp_ms, bytes key, bytes value, bytes headers, Py_ssize_t size_max
    ) except -1:
        """Write one record and return 1, or return 0 if that would make the batch too large."""
        cdef uint64_t time_delta = zigzag(self._since_base(timestamp_ms))
        cdef uint64_t offset_delta = zigzag(self.next_offset_delta)
        cdef Py_ssize_t length = (
            1 + varint_bytes(time_delta) + varint_bytes(offset_delta)
            + span_bytes(key) + span_bytes(value) + PyBytes_GET_SIZE(headers)
        )
        cdef Py_ssize_t size = self._size + varint_bytes(zigzag(length)) + length
        if size > size_max and self.record_count:
            return 0
        if size > INT32_MAX or self.next_offset_delta > INT32_MAX:
            raise AssertionError(TOO_LARGE)
        if size > self._capacity:
            self._grow_to(size)
        cdef unsigned char *at = put_varint(self._start + self._size, zigzag(length))
        at[0] = 0
        at = put_varint(at + 1, time_delta)
        at = put_varint(at, offset_delta)
        at = put_span(at, key)
        at = put_span(at, value)
        memcpy(at, PyBytes_AS_STRING(headers), PyBytes_GET_SIZE(headers))
        self._size = size
        if self.record_count == 0:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        self.max_timestamp_ms = max(self.max_timestamp_ms, timestamp_ms)
        self.record_count += 1
        self.next_offset_delta += 1
        return 1

    cdef inline int64_t _since_base(self, int64_t timestamp_ms) except? -1:
        cdef int64_t base_ms = self.base_timestamp_ms
        if self.record_count == 0:
            return 0
        if (base_ms < 0 and timestamp_ms > INT64_MAX + base_ms) or (
            base_ms > 0 and timestamp_ms < INT64_MIN + base_ms
        ):
            raise AssertionError("two timestamps are further apart than 64 bits can say")
        return timestamp_ms - base_ms

    cdef int _grow_to(self, Py_ssize_t size) except -1:
        if self._buffer is None:
            raise AssertionError("the records are taken already")
        cdef Py_ssize_t capacity = max(size, min(2 * self._capacity, INT32_MAX))
        if capacity >= LARGE_BYTES and self._begin == 0:
            self._move_to_large(capacity)
        else:
            PyByteArray_Resize(self._buffer, self._begin + capacity)
        self._start = <unsigned char *>PyByteArray_AS_STRING(self._buffer) + self._begin
        self._capacity = capacity
        return 0

    cdef int _move_to_large(self, Py_ssize_t capacity) except -1:
        """Go on where most of the way to the kernel is fast (decision 0033)."""
        cdef bytearray large = PyByteArray_FromStringAndSize(NULL, LARGE_AT + capacity)
        memcpy(PyByteArray_AS_STRING(large) + LARGE_AT, self._start, self._size)
        self._buffer = large
        self._begin = LARGE_AT
        return 0
