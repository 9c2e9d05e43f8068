# cython: boundscheck=False, wraparound=False, binding=False
"""Reading records, compiled: the twin of _reading_python.py, which has the contracts.

Every read is held against the end of the record, which is held against the end of the records.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint64_t

from ottla.wire.records._reading_python import (
    FIELDS_CUT,
    FIELDS_OVER,
    HEADER_COUNT_WRONG,
    HEADER_KEY_WRONG,
    LENGTH_WRONG,
    NUMBER_CUT,
    NUMBER_TOO_LARGE,
    OFFSET_WRONG,
    RECORDS_OVER,
    TIMESTAMP_WRONG,
    record_error,
)

cdef extern from *:
    """
    /* A NamedTuple whose fields are still to be put in. Its own __new__ is written in Python. */
    static PyObject *ottla_empty(PyTypeObject *named_tuple, Py_ssize_t field_count) {
        PyObject *made = named_tuple->tp_alloc(named_tuple, field_count);
    #if PY_VERSION_HEX >= 0x030E0000
        if (made != NULL)
            ((PyTupleObject *)made)->ob_hash = -1;  /* not computed yet */
    #endif
        return made;
    }
    """
    object ottla_empty(type named_tuple, Py_ssize_t field_count)

ctypedef const unsigned char *Place

cdef enum:
    HEADER_BYTES_MIN = 2
    # A scan of fewer bytes is over before another thread could take the interpreter.
    GIL_FREE_BYTES_MIN = 65536

# Without the interpreter's lock no Python object can be touched: errors are raised by number.
cdef enum Reason:
    IS_FIELDS_CUT
    IS_FIELDS_OVER
    IS_HEADER_COUNT_WRONG
    IS_HEADER_KEY_WRONG
    IS_LENGTH_WRONG
    IS_NUMBER_CUT
    IS_NUMBER_TOO_LARGE
    IS_OFFSET_WRONG
    IS_RECORDS_OVER
    IS_TIMESTAMP_WRONG

cdef tuple REASONS = (
    FIELDS_CUT,
    FIELDS_OVER,
    HEADER_COUNT_WRONG,
    HEADER_KEY_WRONG,
    LENGTH_WRONG,
    NUMBER_CUT,
    NUMBER_TOO_LARGE,
    OFFSET_WRONG,
    RECORDS_OVER,
    TIMESTAMP_WRONG,
)


cdef struct Cursor:
    Place start
    Place at
    Place end       # of the record that is being read
    Place limit     # of all records
    Py_ssize_t index


cdef int fail(Cursor *cursor, Place at, Reason reason, int64_t number) except -1 with gil:
    """Raise the error that the twin raises here."""
    raise record_error(cursor.index, at - cursor.start, REASONS[<int>reason], number)


cdef Cursor cursor_over(const Py_buffer *buffer) noexcept:
    cdef Cursor cursor
    cursor.start = cursor.at = <Place>buffer.buf
    cursor.end = cursor.limit = cursor.start + buffer.len
    cursor.index = -1
    return cursor


cdef int read_long_number(
    Cursor *cursor, int full_bytes, unsigned char top_byte_max, int64_t *number
) except -1 nogil:
    cdef Place at = cursor.at
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef unsigned char byte
    while at < cursor.end:
        byte = at[0]
        at += 1
        if shift == 7 * full_bytes and byte > top_byte_max:
            fail(cursor, cursor.at, IS_NUMBER_TOO_LARGE, 0)
        bits |= <uint64_t>(byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            cursor.at = at
            number[0] = <int64_t>((bits >> 1) ^ (0 - (bits & 1)))
            return 0
    fail(cursor, cursor.at, IS_NUMBER_CUT, 0)


cdef inline int read_number(
    Cursor *cursor, int full_bytes, unsigned char top_byte_max, int64_t *number
) except -1 nogil:
    """Read a zigzag number: at most `full_bytes` of seven bits, then one that is not full."""
    cdef unsigned char byte
    if cursor.at < cursor.end and cursor.at[0] < 0x80:
        byte = cursor.at[0]
        cursor.at += 1
        number[0] = (byte >> 1) ^ -(byte & 1)
        return 0
    return read_long_number(cursor, full_bytes, top_byte_max, number)


cdef inline int read_varint(Cursor *cursor, int64_t *number) except -1 nogil:
    return read_number(cursor, 4, 0x0F, number)


cdef inline int read_varlong(Cursor *cursor, int64_t *number) except -1 nogil:
    return read_number(cursor, 9, 0x01, number)


cdef inline int enter_record(Cursor *cursor) except -1 nogil:
    cdef int64_t length
    cdef Place start = cursor.at
    cursor.index += 1
    cursor.end = cursor.limit
    read_varint(cursor, &length)
    if length < 0 or length > cursor.end - cursor.at:
        fail(cursor, start, IS_LENGTH_WRONG, length)
    cursor.end = cursor.at + length
    if length == 0:
        fail(cursor, cursor.at, IS_FIELDS_CUT, 0)
    cursor.at += 1
    return 0


cdef inline int leave_record(Cursor *cursor) except -1 nogil:
    if cursor.at != cursor.end:
        fail(cursor, cursor.at, IS_FIELDS_OVER, cursor.end - cursor.at)
    return 0


cdef int finish(Cursor *cursor) except -1 nogil:
    cursor.index += 1
    if cursor.at != cursor.limit:
        fail(cursor, cursor.at, IS_RECORDS_OVER, cursor.limit - cursor.at)
    return 0


cdef inline int read_timestamp(
    Cursor *cursor, int64_t base_ms, bint is_fixed, int64_t *timestamp_ms
) except -1 nogil:
    cdef int64_t delta
    cdef Place start = cursor.at
    read_varlong(cursor, &delta)
    if is_fixed:
        return 0
    if (delta > 0 and base_ms > INT64_MAX - delta) or (delta < 0 and base_ms < INT64_MIN - delta):
        fail(cursor, start, IS_TIMESTAMP_WRONG, delta)
    timestamp_ms[0] = base_ms + delta
    return 0


cdef inline int read_offset_delta(Cursor *cursor, int64_t last, int64_t *delta) except -1 nogil:
    """Read the delta that comes after the one in `delta`, into it."""
    cdef int64_t following
    cdef Place start = cursor.at
    read_varint(cursor, &following)
    if following <= delta[0] or following > last:
        fail(cursor, start, IS_OFFSET_WRONG, following)
    delta[0] = following
    return 0


cdef inline int read_span(Cursor *cursor, bint may_be_null, Place *span, int64_t *size) except -1 nogil:
    """Find the bytes that come next; a size of -1 is null."""
    cdef Place start = cursor.at
    read_varint(cursor, size)
    if size[0] == -1 and may_be_null:
        return 0
    if size[0] < 0 or size[0] > cursor.end - cursor.at:
        fail(cursor, start, IS_LENGTH_WRONG, size[0])
    span[0] = cursor.at
    cursor.at += size[0]
    return 0


cdef inline object read_bytes(Cursor *cursor):
    cdef Place span = NULL
    cdef int64_t size
    read_span(cursor, True, &span, &size)
    if size == -1:
        return None
    return PyBytes_FromStringAndSize(<const char *>span, size)


cdef inline int read_header_count(Cursor *cursor, int64_t *count) except -1 nogil:
    cdef Place start = cursor.at
    read_varint(cursor, count)
    if count[0] < 0 or count[0] > (cursor.end - cursor.at) // HEADER_BYTES_MIN:
        fail(cursor, start, IS_HEADER_COUNT_WRONG, count[0])
    return 0


cdef object read_header_key(Cursor *cursor):
    cdef Place start = cursor.at
    cdef Place span = NULL
    cdef int64_t size
    read_span(cursor, False, &span, &size)
    try:
        return PyUnicode_DecodeUTF8(<char *>span, size, NULL)
    except UnicodeDecodeError:
        raise record_error(cursor.index, start - cursor.start, HEADER_KEY_WRONG) from None


cdef bint is_utf8(Place at, int64_t size) noexcept nogil:
    """Tell whether Python would decode these bytes: nothing overlong, and no surrogates."""
    cdef Place end = at + size
    cdef unsigned char first
    cdef int following
    while at < end:
        first = at[0]
        at += 1
        if first < 0x80:
            continue
        if first < 0xC2 or first > 0xF4:
            return False
        following = 1 if first < 0xE0 else (2 if first < 0xF0 else 3)
        if end - at < following:
            return False
        if (
            (first == 0xE0 and at[0] < 0xA0)
            or (first == 0xED and at[0] > 0x9F)
            or (first == 0xF0 and at[0] < 0x90)
            or (first == 0xF4 and at[0] > 0x8F)
        ):
            return False
        while following > 0:
            if at[0] & 0xC0 != 0x80:
                return False
            at += 1
            following -= 1
    return True


cdef int skip_header(Cursor *cursor) except -1 nogil:
    cdef Place start = cursor.at
    cdef Place span = NULL
    cdef int64_t size
    read_span(cursor, False, &span, &size)
    if not is_utf8(span, size):
        return fail(cursor, start, IS_HEADER_KEY_WRONG, 0)
    read_span(cursor, True, &span, &size)
    return 0


cdef inline void put(object named_tuple, Py_ssize_t index, object field) noexcept:
    Py_INCREF(field)
    PyTuple_SET_ITEM(named_tuple, index, field)


cdef tuple read_headers(Cursor *cursor, type header_type):
    cdef int64_t count, index
    read_header_count(cursor, &count)
    if count == 0:
        return ()
    cdef list headers = []
    for index in range(count):
        key = read_header_key(cursor)
        value = read_bytes(cursor)
        header = ottla_empty(header_type, 2)
        put(header, 0, key)
        put(header, 1, value)
        headers.append(header)
    return tuple(headers)


cdef list records_in(const Py_buffer *buffer, batch, type record_type, type header_type):
    cdef Cursor cursor = cursor_over(buffer)
    cdef int64_t base_offset = batch.base_offset
    cdef int64_t base_ms = batch.base_timestamp_ms
    cdef int64_t last_offset_delta = batch.last_offset_delta
    cdef bint is_fixed = batch.is_log_append_time
    cdef int64_t timestamp_ms = batch.max_timestamp_ms
    cdef int64_t known_ms = timestamp_ms
    cdef object known = timestamp_ms    # neighbours often share their timestamp: one object for all
    cdef int64_t delta = -1
    cdef int32_t index, count = batch.record_count
    cdef list records = []
    for index in range(count):
        enter_record(&cursor)
        read_timestamp(&cursor, base_ms, is_fixed, &timestamp_ms)
        read_offset_delta(&cursor, last_offset_delta, &delta)
        key = read_bytes(&cursor)
        value = read_bytes(&cursor)
        headers = read_headers(&cursor, header_type)
        leave_record(&cursor)
        if timestamp_ms != known_ms:
            known = known_ms = timestamp_ms
        offset = base_offset + delta
        record = ottla_empty(record_type, 5)
        put(record, 0, offset)
        put(record, 1, known)
        put(record, 2, key)
        put(record, 3, value)
        put(record, 4, headers)
        records.append(record)
    finish(&cursor)
    return records


def read_records(batch, section not None, type record_type not None, type header_type not None):
    """See the twin. Both types are NamedTuples, and are made without their __new__."""
    if not (issubclass(record_type, tuple) and issubclass(header_type, tuple)):
        raise AssertionError("records and headers are NamedTuples")
    cdef Py_buffer buffer
    PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
    try:
        return records_in(&buffer, batch, record_type, header_type)
    finally:
        PyBuffer_Release(&buffer)


cdef struct Scan:
    Py_ssize_t null_key_count
    int64_t least
    int64_t greatest


cdef inline int read_start(
    Cursor *cursor, int64_t wanted_delta, int64_t *timestamp_delta, int64_t *key_size
) except -1 nogil:
    """Read a record that a producer wrote, up to its key, which must have this offset delta."""
    cdef int64_t delta
    cdef Place start
    cdef Place span = NULL
    enter_record(cursor)
    read_varlong(cursor, timestamp_delta)
    start = cursor.at
    read_varint(cursor, &delta)
    if delta != wanted_delta:
        return fail(cursor, start, IS_OFFSET_WRONG, delta)
    return read_span(cursor, True, &span, key_size)


cdef int scan_of(Cursor cursor, Py_ssize_t record_count, Scan *scan) except -1 nogil:
    cdef Place span = NULL
    cdef int64_t timestamp_delta, size, header_count
    cdef Py_ssize_t index
    scan.null_key_count, scan.least, scan.greatest = 0, INT64_MAX, INT64_MIN
    for index in range(record_count):
        read_start(&cursor, index, &timestamp_delta, &size)
        scan.least = min(scan.least, timestamp_delta)
        scan.greatest = max(scan.greatest, timestamp_delta)
        scan.null_key_count += size == -1
        read_span(&cursor, True, &span, &size)
        read_header_count(&cursor, &header_count)
        while header_count > 0:
            skip_header(&cursor)
            header_count -= 1
        leave_record(&cursor)
    if record_count == 0:
        scan.least = scan.greatest = 0
    return finish(&cursor)


def scan_records(section not None, Py_ssize_t record_count):
    """See the twin."""
    cdef Py_buffer buffer
    cdef Cursor cursor
    cdef Scan scan
    PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
    try:
        cursor = cursor_over(&buffer)
        if buffer.len < GIL_FREE_BYTES_MIN:
            scan_of(cursor, record_count, &scan)
        else:
            with nogil:
                scan_of(cursor, record_count, &scan)
        return scan.null_key_count, scan.least, scan.greatest
    finally:
        PyBuffer_Release(&buffer)


def rejected_records(
    section not None, Py_ssize_t record_count, bint needs_keys,
    int64_t least, int64_t greatest, int64_t exempt, Py_ssize_t count_max,
):
    """See the twin."""
    cdef Py_buffer buffer
    cdef Cursor cursor
    cdef int64_t timestamp_delta, key_size
    cdef Py_ssize_t index
    cdef list rejected = []
    PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
    try:
        cursor = cursor_over(&buffer)
        for index in range(record_count):
            if len(rejected) == count_max:
                break
            read_start(&cursor, index, &timestamp_delta, &key_size)
            cursor.at = cursor.end
            if needs_keys and key_size == -1:
                rejected.append((index, None))
            elif timestamp_delta != exempt and not least <= timestamp_delta <= greatest:
                rejected.append((index, timestamp_delta))
        return rejected
    finally:
        PyBuffer_Release(&buffer)


cdef object time_in(
    const Py_buffer *buffer, batch, int64_t wanted_ms, int64_t start_offset, int64_t end_offset
):
    cdef Cursor cursor = cursor_over(buffer)
    cdef int64_t base_offset = batch.base_offset
    cdef int64_t base_ms = batch.base_timestamp_ms
    cdef int64_t last_offset_delta = batch.last_offset_delta
    cdef bint is_fixed = batch.is_log_append_time
    cdef int64_t timestamp_ms = batch.max_timestamp_ms
    cdef int64_t delta = -1, youngest_ms = 0, youngest_offset = 0
    cdef bint is_found = False
    cdef int32_t index, count = batch.record_count
    for index in range(count):
        enter_record(&cursor)
        read_timestamp(&cursor, base_ms, is_fixed, &timestamp_ms)
        read_offset_delta(&cursor, last_offset_delta, &delta)
        cursor.at = cursor.end
        if base_offset + delta >= end_offset:
            break
        if base_offset + delta >= start_offset and (not is_found or timestamp_ms > youngest_ms):
            is_found, youngest_ms, youngest_offset = True, timestamp_ms, base_offset + delta
            if timestamp_ms >= wanted_ms:
                break
    return (youngest_ms, youngest_offset) if is_found else None


def find_time(
    batch, section not None, int64_t timestamp_ms, int64_t start_offset, int64_t end_offset
):
    """See the twin."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
    try:
        return time_in(&buffer, batch, timestamp_ms, start_offset, end_offset)
    finally:
        PyBuffer_Release(&buffer)


cdef inline object made_of(Place span, int64_t size, reader, topic, headers):
    if size == -1:
        return None
    data = PyBytes_FromStringAndSize(<const char *>span, size)
    return data if reader is None else reader(topic, data, headers)


cdef class ConsumedRecords:
    """See the twin. `held` is where the next call goes on: the cursor after the last record.

    The section is taken hold of for each call: one that is held cannot be collected in a circle.
    """

    cdef object section
    cdef bint is_fixed
    cdef Cursor held
    cdef int64_t base_offset, base_ms, fixed_ms, last_offset_delta, start_offset, delta, tried
    cdef Py_ssize_t left
    cdef object topic, partition, leader_epoch, timestamp_type, read_key, read_value
    cdef type record_type, header_type
    cdef readonly bint is_over

    def __cinit__(
        self, batch, section not None, int64_t start_offset, place, readers,
        type record_type not None, type header_type not None,
    ):
        if not (issubclass(record_type, tuple) and issubclass(header_type, tuple)):
            raise AssertionError("records and headers are NamedTuples")
        self.topic, self.partition = place
        self.read_key, self.read_value = readers
        self.record_type, self.header_type = record_type, header_type
        self.is_fixed = batch.is_log_append_time
        self.timestamp_type = 1 if self.is_fixed else 0
        self.leader_epoch = batch.partition_leader_epoch
        self.base_offset, self.base_ms = batch.base_offset, batch.base_timestamp_ms
        self.fixed_ms, self.last_offset_delta = batch.max_timestamp_ms, batch.last_offset_delta
        self.start_offset, self.left = start_offset, batch.record_count
        self.delta = self.tried = -1
        cdef Py_buffer buffer
        PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
        self.section, self.held = section, cursor_over(&buffer)
        PyBuffer_Release(&buffer)

    @property
    def next_offset(self):
        """See the twin."""
        return max(self.base_offset + self.delta + 1, self.start_offset)

    @property
    def tried_offset(self):
        """See the twin."""
        return max(self.base_offset + self.tried, self.next_offset)

    def read(self, Py_ssize_t count):
        """See the twin."""
        cdef list records = []
        cdef Py_buffer buffer
        PyObject_GetBuffer(self.section, &buffer, PyBUF_SIMPLE)
        try:
            if <Place>buffer.buf != self.held.start or buffer.len != self.held.limit - self.held.start:
                raise AssertionError("the section was moved")
            self.fill(records, count)
        except Exception:
            if not records:
                raise
        finally:
            PyBuffer_Release(&buffer)
        return records

    cdef int fill(self, list records, Py_ssize_t count) except -1:
        cdef Cursor cursor = self.held
        cdef Place key = NULL, value = NULL
        cdef int64_t key_size, value_size, header_count
        cdef int64_t timestamp_ms = self.fixed_ms, known_ms = timestamp_ms, delta = self.delta
        cdef object known = timestamp_ms    # as above: neighbours often share it
        while self.left > 0 and count > 0:
            enter_record(&cursor)
            read_timestamp(&cursor, self.base_ms, self.is_fixed, &timestamp_ms)
            read_offset_delta(&cursor, self.last_offset_delta, &delta)
            self.tried = delta
            read_span(&cursor, True, &key, &key_size)
            read_span(&cursor, True, &value, &value_size)
            if self.base_offset + delta < self.start_offset:
                read_header_count(&cursor, &header_count)
                while header_count > 0:
                    skip_header(&cursor)
                    header_count -= 1
                leave_record(&cursor)
            else:
                headers = read_headers(&cursor, self.header_type)
                leave_record(&cursor)
                if timestamp_ms != known_ms:
                    known = known_ms = timestamp_ms
                found_key = made_of(key, key_size, self.read_key, self.topic, headers)
                found_value = made_of(value, value_size, self.read_value, self.topic, headers)
                records.append(self.record(delta, known, found_key, found_value, headers))
                count -= 1
            self.held, self.delta = cursor, delta
            self.left -= 1
        if self.left == 0 and not self.is_over:
            finish(&cursor)
            self.is_over = True
        return 0

    cdef inline object record(self, int64_t delta, timestamp, key, value, headers):
        offset = self.base_offset + delta
        made = ottla_empty(self.record_type, 9)
        put(made, 0, self.topic)
        put(made, 1, self.partition)
        put(made, 2, offset)
        put(made, 3, timestamp)
        put(made, 4, self.timestamp_type)
        put(made, 5, key)
        put(made, 6, value)
        put(made, 7, headers)
        put(made, 8, self.leader_epoch)
        return made
