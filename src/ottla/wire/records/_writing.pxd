"""What other compiled loops may use of _writing.pyx."""

from libc.stdint cimport int32_t, int64_t


cdef bytes encoded_headers(headers)


cdef class RecordAccumulator:
    cdef bytearray _buffer
    cdef unsigned char *_start
    cdef Py_ssize_t _size
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _begin
    cdef readonly int64_t base_timestamp_ms
    cdef readonly int64_t max_timestamp_ms
    cdef readonly int64_t next_offset_delta
    cdef readonly int32_t record_count

    cdef int _put(
        self, int64_t timestamp_ms, bytes key, bytes value, bytes headers, Py_ssize_t size_max
    ) except -1
    cdef Py_ssize_t _extend(
        self, int64_t at_ms, list times, list values, list keys, list headers,
        Py_ssize_t start, Py_ssize_t size_bytes_max,
    ) except -1
    cdef int64_t _since_base(self, int64_t timestamp_ms) except? -1
    cdef int _grow_to(self, Py_ssize_t size) except -1
    cdef int _move_to_large(self, Py_ssize_t capacity) except -1
