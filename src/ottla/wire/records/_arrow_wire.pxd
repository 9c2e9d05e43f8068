# cython: cdivision=True
"""What the compiled reading needs to know of the wire: batch headers, numbers, spans.

Everything here that can fail returns whether it did not. Numbers are zigzag varints.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* start, Py_ssize_t size, const char* errors)

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define OTTLA_LIKELY(condition) __builtin_expect(!!(condition), 1)
    #else
    #define OTTLA_LIKELY(condition) (condition)
    #endif
    """
    bint OTTLA_LIKELY(bint) noexcept nogil

cdef enum:
    HEADER_BYTES = 61
    LOG_OVERHEAD_BYTES = 12
    CHECKED_FROM = 21
    MAGIC = 2
    CODEC_MASK = 0x07
    LOG_APPEND_TIME_BIT = 0x08
    CONTROL_BIT = 0x20
    RECORD_BYTES_MIN = 7
    RECORD_HEADER_BYTES_MIN = 2

ctypedef const uint8_t* Place


cdef struct Header:
    int64_t base_offset
    int64_t last_offset_delta
    int64_t base_timestamp_ms
    int64_t max_timestamp_ms
    int64_t record_count
    int64_t payload_bytes
    int64_t attributes
    uint32_t crc


cdef inline int64_t big_endian(Place at, int size) noexcept nogil:
    cdef uint64_t number = 0
    cdef int index
    for index in range(size):
        number = number << 8 | at[index]
    return <int64_t>(number << (64 - 8 * size)) >> (64 - 8 * size)


cdef inline bint is_plain_batch(Place at, Py_ssize_t available, Header* header) noexcept nogil:
    """Read the header of a batch, if that is whole, not compressed and in no way doubtful."""
    cdef int64_t length
    if available < HEADER_BYTES:
        return False
    length = big_endian(at + 8, 4)
    if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or length > available - LOG_OVERHEAD_BYTES:
        return False
    header.base_offset = big_endian(at, 8)
    header.crc = <uint32_t>big_endian(at + 17, 4)
    header.attributes = big_endian(at + 21, 2)
    header.last_offset_delta = big_endian(at + 23, 4)
    header.base_timestamp_ms = big_endian(at + 27, 8)
    header.max_timestamp_ms = big_endian(at + 35, 8)
    header.record_count = big_endian(at + 57, 4)
    header.payload_bytes = length + LOG_OVERHEAD_BYTES - HEADER_BYTES
    return (
        at[16] == MAGIC
        and not header.attributes & CODEC_MASK
        and 0 <= header.record_count <= header.last_offset_delta + 1
        and header.record_count <= header.payload_bytes // RECORD_BYTES_MIN
        and 0 <= header.base_offset <= INT64_MAX - INT32_MAX
    )


cdef inline int64_t zigzag(uint64_t number) noexcept nogil:
    return <int64_t>(number >> 1) ^ -<int64_t>(number & 1)


cdef inline bint long_varint(Place* at, Place end, int bits, int64_t* number) noexcept nogil:
    cdef Place here = at[0]
    cdef uint64_t raw = 0
    cdef int shift = 0
    while here < end and shift < bits:
        if bits - shift < 7 and here[0] >> (bits - shift):
            return False
        raw |= <uint64_t>(here[0] & 0x7F) << shift
        if here[0] < 0x80:
            at[0] = here + 1
            number[0] = zigzag(raw)
            return True
        here += 1
        shift += 7
    return False


cdef inline bint varint(Place* at, Place end, int bits, int64_t* number) noexcept nogil:
    cdef Place here = at[0]
    if OTTLA_LIKELY(end - here >= 2):
        if here[0] < 0x80:
            at[0] = here + 1
            number[0] = zigzag(here[0])
            return True
        if here[1] < 0x80:
            at[0] = here + 2
            number[0] = zigzag((here[0] & 0x7F) | <uint64_t>here[1] << 7)
            return True
    return long_varint(at, end, bits, number)


cdef inline bint span(Place* at, Place end, Place* start, int64_t* size) noexcept nogil:
    """Find bytes that follow their size, which is -1 for null."""
    if not varint(at, end, 32, size) or not -1 <= size[0] <= end - at[0]:
        return False
    start[0] = at[0]
    if size[0] > 0:
        at[0] += size[0]
    return True


cdef inline bint is_log_append_time(Header* header) noexcept nogil:
    return (header.attributes & LOG_APPEND_TIME_BIT) != 0


cdef inline bint read_timestamp(
    Header* header, Place* at, Place end, int64_t* timestamp_ms
) noexcept nogil:
    cdef int64_t base_ms = header.base_timestamp_ms
    cdef int64_t delta_ms
    if not varint(at, end, 64, &delta_ms):
        return False
    if is_log_append_time(header):
        timestamp_ms[0] = header.max_timestamp_ms
        return True
    if delta_ms > INT64_MAX - base_ms if base_ms > 0 else delta_ms < INT64_MIN - base_ms:
        return False
    timestamp_ms[0] = base_ms + delta_ms
    return True


cdef inline bint read_offset_delta(
    Header* header, Place* at, Place end, int64_t* delta
) noexcept nogil:
    """Read the delta that follows the one in `delta`, into it."""
    cdef int64_t previous = delta[0]
    return varint(at, end, 32, delta) and previous < delta[0] <= header.last_offset_delta


cdef inline bint is_utf8(Place start, Py_ssize_t size) noexcept with gil:
    try:
        PyUnicode_DecodeUTF8(<const char*>start, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef inline bint is_text(Place start, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t index
    cdef uint8_t seen = 0
    for index in range(size):
        seen |= start[index]
    return seen < 0x80 or is_utf8(start, size)
