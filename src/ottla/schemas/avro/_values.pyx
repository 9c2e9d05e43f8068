# cython: boundscheck=False, wraparound=False, binding=False
"""Reading and writing Avro data by steps, compiled: the twin of _values_python.py.

Every read is held against the end of the payload. A buffer that grows holds the output.
"""

from collections.abc import Mapping

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.bytes cimport PyBytes_GET_SIZE
from cpython.datetime cimport PyDateTime_CheckExact, datetime_tzinfo, import_datetime
from cpython.datetime cimport timedelta_days, timedelta_microseconds, timedelta_new
from cpython.datetime cimport timedelta_seconds
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint64_t
from libc.string cimport memcpy

from ottla.schemas.avro import avro_steps as texts
from ottla.schemas.avro._values_python import NOT_RECORDS, copied, field_value, symbol_index
from ottla.schemas.avro.avro_steps import CAUGHT, InvalidValueError, located

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint PyLong_Check(object value)
    bint PyBool_Check(object value)
    bint PyFloat_Check(object value)
    bint PyUnicode_Check(object value)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    double PyFloat_AsDouble(object value) except? -1.0

ctypedef const unsigned char *Place

cdef enum:
    IS_NULL = 0
    IS_BOOLEAN = 1
    IS_INT = 2
    IS_LONG = 3
    IS_FLOAT = 4
    IS_DOUBLE = 5
    IS_BYTES = 6
    IS_STRING = 7
    IS_FIXED = 8
    IS_ENUM = 9
    IS_ARRAY = 10
    IS_MAP = 11
    IS_RECORD = 12
    IS_UNION = 13
    DEPTH_MAX = 200
    SMALL_BYTES = 512

cdef int64_t DAY_MICROSECONDS = 86_400_000_000
cdef int64_t TIMESTAMP_MAX = 400_000_000_000_000_000  # more than 9999 years
cdef int64_t DAY_MIN = -719_162
cdef int64_t DAY_MAX = 2_932_896

import_datetime()

assert DEPTH_MAX == texts.DEPTH_MAX
assert [code.value for code in texts.Code] == list(range(IS_UNION + 2))

cdef int64_t FREE_VALUES_MAX = texts.FREE_VALUES_MAX
cdef int64_t FREE_VALUES_PER_BYTE = texts.FREE_VALUES_PER_BYTE


cdef class ReadStep:
    cdef public int code
    cdef public int64_t cost, unit
    cdef public Py_ssize_t size
    cdef public object convert, epoch
    cdef public list steps, names, labels, defaults, symbols
    cdef public dict template
    cdef public ReadStep inner
    cdef public str text

    def __init__(self):
        self.steps = []
        self.names = []
        self.labels = []
        self.template = {}
        self.defaults = []
        self.symbols = []
        self.text = ""


cdef class WriteStep:
    cdef public int code
    cdef public int64_t unit
    cdef public Py_ssize_t size, null_index
    cdef public object convert, epoch, pick
    cdef public list steps, names, defaults
    cdef public dict symbols, by_type
    cdef public WriteStep inner

    def __init__(self):
        self.null_index = -1
        self.steps = []
        self.names = []
        self.defaults = []
        self.symbols = {}
        self.by_type = {}


cdef struct Cursor:
    Place at
    Place end
    int depth
    int64_t free_left


def read_value(ReadStep step not None, payload, Py_ssize_t start):
    cdef Cursor cursor
    cdef Py_buffer view
    if PyBytes_CheckExact(payload):
        cursor.at = <Place>PyBytes_AS_STRING(payload)
        return read_whole(step, &cursor, PyBytes_GET_SIZE(payload), start)
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        cursor.at = <Place>view.buf
        return read_whole(step, &cursor, view.len, start)
    finally:
        PyBuffer_Release(&view)


cdef object read_whole(ReadStep step, Cursor *cursor, Py_ssize_t size, Py_ssize_t start):
    if start < 0 or start > size:
        raise InvalidValueError(texts.CUT)
    cursor.end = cursor.at + size
    cursor.at += start
    cursor.depth = 0
    cursor.free_left = FREE_VALUES_MAX + (size - start) * FREE_VALUES_PER_BYTE
    value = read(step, cursor)
    if cursor.at != cursor.end:
        raise InvalidValueError(texts.TRAILING)
    return value


cdef int fail(object text) except -1:
    raise InvalidValueError(text)


cdef inline int take_long(Cursor *cursor, int64_t *result) except -1:
    cdef uint64_t number
    cdef int shift
    cdef unsigned char byte
    if cursor.at == cursor.end:
        return fail(texts.CUT)
    byte = cursor.at[0]
    cursor.at += 1
    number = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if cursor.at == cursor.end:
            return fail(texts.CUT)
        byte = cursor.at[0]
        cursor.at += 1
        if shift == 63 and byte > 1:
            return fail(texts.NUMBER_WRONG)
        number |= (<uint64_t>(byte & 0x7F)) << shift
        shift += 7
    result[0] = <int64_t>((number >> 1) ^ (~(number & 1) + 1))
    return 0


cdef inline int take_int(Cursor *cursor, int64_t *result) except -1:
    take_long(cursor, result)
    if result[0] != <int32_t>result[0]:
        return fail(texts.NUMBER_WRONG)
    return 0


cdef inline Place take_sized(Cursor *cursor, int64_t *size) except NULL:
    cdef Place at
    take_long(cursor, size)
    if size[0] < 0 or size[0] > cursor.end - cursor.at:
        fail(texts.LENGTH_WRONG)
    at = cursor.at
    cursor.at += size[0]
    return at


cdef inline Place take_fixed(Cursor *cursor, int64_t size) except NULL:
    cdef Place at = cursor.at
    if size > cursor.end - at:
        fail(texts.CUT)
    cursor.at += size
    return at


cdef inline int enter(Cursor *cursor) except -1:
    cursor.depth += 1
    if cursor.depth > DEPTH_MAX:
        return fail(texts.TOO_DEEP)
    return 0


cdef int spend(Cursor *cursor, int64_t count) except -1:
    cursor.free_left -= count
    if cursor.free_left < 0:
        return fail(texts.TOO_MANY_FREE)
    return 0


cdef int take_count(Cursor *cursor, int64_t *count) except -1:
    cdef int64_t size
    take_long(cursor, count)
    if count[0] < 0:
        if count[0] == INT64_MIN:
            return fail(texts.COUNT_WRONG)
        count[0] = -count[0]
        take_long(cursor, &size)
    return 0


cdef object read(ReadStep step, Cursor *cursor):
    if step.epoch is not None:
        return read_timestamp(step, cursor)
    value = read_plain(step, cursor)
    return value if step.convert is None else step.convert(value)


cdef object read_plain(ReadStep step, Cursor *cursor):
    cdef int64_t number
    cdef float single
    cdef double double_number
    cdef Place at
    cdef int code = step.code
    if code == IS_STRING:
        at = take_sized(cursor, &number)
        return PyUnicode_DecodeUTF8(<const char *>at, number, NULL)
    if code == IS_LONG:
        take_long(cursor, &number)
        return number
    if code == IS_UNION:
        take_int(cursor, &number)
        if number < 0 or number >= len(step.steps):
            fail(texts.BRANCH_WRONG)
        return read(<ReadStep>step.steps[number], cursor)
    if code == IS_NULL:
        return None
    if code == IS_RECORD:
        return read_record(step, cursor)
    if code == IS_INT:
        take_int(cursor, &number)
        return number
    if code == IS_DOUBLE:
        memcpy(&double_number, take_fixed(cursor, 8), 8)
        return double_number
    if code == IS_BOOLEAN:
        at = take_fixed(cursor, 1)
        if at[0] > 1:
            fail(texts.BOOLEAN_WRONG)
        return at[0] == 1
    if code == IS_FLOAT:
        memcpy(&single, take_fixed(cursor, 4), 4)
        return <double>single
    if code == IS_BYTES:
        at = take_sized(cursor, &number)
        return PyBytes_FromStringAndSize(<const char *>at, number)
    if code == IS_FIXED:
        return PyBytes_FromStringAndSize(<const char *>take_fixed(cursor, step.size), step.size)
    if code == IS_ENUM:
        return read_enum(step, cursor)
    if code == IS_ARRAY:
        return read_array(step, cursor)
    if code == IS_MAP:
        return read_map(step, cursor)
    raise InvalidValueError(step.text)


cdef object read_timestamp(ReadStep step, Cursor *cursor):
    cdef int64_t number, days
    take_long(cursor, &number)
    if number > TIMESTAMP_MAX // step.unit or number < -(TIMESTAMP_MAX // step.unit):
        fail(texts.TIMESTAMP_WRONG)
    number *= step.unit
    days = number // DAY_MICROSECONDS
    if days < DAY_MIN or days > DAY_MAX:
        fail(texts.TIMESTAMP_WRONG)
    number -= days * DAY_MICROSECONDS
    return step.epoch + timedelta_new(
        <int>days, <int>(number // 1_000_000), <int>(number % 1_000_000)
    )


cdef object read_enum(ReadStep step, Cursor *cursor):
    cdef int64_t number
    take_int(cursor, &number)
    if number < 0 or number >= len(step.symbols):
        fail(texts.ENUM_WRONG)
    symbol = step.symbols[number]
    if symbol is None:
        fail(texts.SYMBOL_UNKNOWN)
    return symbol


cdef object read_record(ReadStep step, Cursor *cursor):
    cdef Py_ssize_t index = 0
    cdef dict record
    cdef list steps = step.steps
    cdef list names = step.names
    enter(cursor)
    record = step.template.copy()
    if step.cost:
        spend(cursor, step.cost)
        for name, default in step.defaults:
            record[name] = copied(default)
    try:
        for index in range(len(steps)):
            value = read(<ReadStep>steps[index], cursor)
            name = names[index]
            if name is not None:
                record[name] = value
    except CAUGHT as error:
        raise located(error, step.labels[index]) from None
    cursor.depth -= 1
    return record


cdef object read_array(ReadStep step, Cursor *cursor):
    cdef int64_t count
    cdef list items = []
    enter(cursor)
    take_count(cursor, &count)
    while count:
        read_items(step.inner, cursor, count, items)
        take_count(cursor, &count)
    cursor.depth -= 1
    return items


cdef int read_items(ReadStep inner, Cursor *cursor, int64_t count, list items) except -1:
    cdef Place at
    try:
        while count:
            count -= 1
            at = cursor.at
            items.append(read(inner, cursor))
            if cursor.at == at:
                spend(cursor, 1)
    except CAUGHT as error:
        raise located(error, len(items)) from None
    return 0


cdef object read_map(ReadStep step, Cursor *cursor):
    cdef int64_t count, size
    cdef Place at
    cdef dict items = {}
    cdef ReadStep inner = step.inner
    enter(cursor)
    take_count(cursor, &count)
    while count:
        while count:
            count -= 1
            at = take_sized(cursor, &size)
            key = PyUnicode_DecodeUTF8(<const char *>at, size, NULL)
            try:
                items[key] = read(inner, cursor)
            except CAUGHT as error:
                raise located(error, key) from None
        take_count(cursor, &count)
    cursor.depth -= 1
    return items


cdef struct Output:
    unsigned char *data
    Py_ssize_t size
    Py_ssize_t capacity
    int depth
    unsigned char *heap
    unsigned char small[SMALL_BYTES]


def write_value(WriteStep step not None, value, bytes prefix not None):
    cdef Output output
    output.data = output.small
    output.size = 0
    output.capacity = SMALL_BYTES
    output.depth = 0
    output.heap = NULL
    try:
        put(&output, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        write(step, value, &output)
        return PyBytes_FromStringAndSize(<const char *>output.data, output.size)
    finally:
        PyMem_Free(output.heap)


cdef int grow(Output *output, Py_ssize_t size) except -1:
    cdef Py_ssize_t capacity = output.capacity * 2
    cdef unsigned char *heap
    if capacity < output.size + size:
        capacity = output.size + size
    heap = <unsigned char *>PyMem_Realloc(output.heap, capacity)
    if heap == NULL:
        raise MemoryError
    if output.heap == NULL:
        memcpy(heap, output.small, output.size)
    output.heap = heap
    output.data = heap
    output.capacity = capacity
    return 0


cdef inline int put(Output *output, const void *data, Py_ssize_t size) except -1:
    if size > output.capacity - output.size:
        grow(output, size)
    memcpy(output.data + output.size, data, size)
    output.size += size
    return 0


cdef inline int put_long(Output *output, int64_t value) except -1:
    cdef uint64_t number = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    if output.capacity - output.size < 10:
        grow(output, 10)
    while number > 0x7F:
        output.data[output.size] = <unsigned char>(number & 0x7F | 0x80)
        output.size += 1
        number >>= 7
    output.data[output.size] = <unsigned char>number
    output.size += 1
    return 0


cdef int put_byte(Output *output, unsigned char byte) except -1:
    return put(output, &byte, 1)


cdef int put_integer(Output *output, object value, bint is_int, object text) except -1:
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(value) or PyBool_Check(value):
        return fail(text)
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or (is_int and number != <int32_t>number):
        return fail(text)
    return put_long(output, number)


cdef double number_of(object value) except? -1.0:
    if PyFloat_Check(value):
        return PyFloat_AsDouble(value)
    if not PyLong_Check(value) or PyBool_Check(value):
        fail(texts.FLOAT_NEEDED)
    try:
        return float(value)
    except OverflowError:
        raise InvalidValueError(texts.FLOAT_NEEDED) from None


cdef int put_float(Output *output, object value) except -1:
    cdef double number = number_of(value)
    cdef float single = <float>number
    if single - single != 0 and number - number == 0:
        return fail(texts.FLOAT_NEEDED)
    return put(output, &single, 4)


cdef int put_string(Output *output, object value) except -1:
    cdef Py_ssize_t size
    cdef const char *data
    if not PyUnicode_Check(value):
        return fail(texts.STRING_NEEDED)
    data = PyUnicode_AsUTF8AndSize(value, &size)
    put_long(output, size)
    return put(output, data, size)


cdef int put_bytes(Output *output, object value, Py_ssize_t fixed_size) except -1:
    cdef bytes encoded
    if not isinstance(value, (bytes, bytearray, memoryview)):
        return fail(texts.BYTES_NEEDED)
    encoded = bytes(value)
    if fixed_size < 0:
        put_long(output, PyBytes_GET_SIZE(encoded))
    elif PyBytes_GET_SIZE(encoded) != fixed_size:
        return fail(texts.SIZE_WRONG)
    return put(output, PyBytes_AS_STRING(encoded), PyBytes_GET_SIZE(encoded))


cdef int write(WriteStep step, object value, Output *output) except -1:
    cdef double number
    cdef int code = step.code
    if step.epoch is not None and PyDateTime_CheckExact(value):
        if datetime_tzinfo(value) is datetime_tzinfo(step.epoch):
            return put_timestamp(step, value, output)
    if step.convert is not None:
        value = step.convert(value)
    if code == IS_STRING:
        return put_string(output, value)
    if code == IS_LONG:
        return put_integer(output, value, False, texts.LONG_NEEDED)
    if code == IS_UNION:
        return write_union(step, value, output)
    if code == IS_RECORD:
        return write_record(step, value, output)
    if code == IS_INT:
        return put_integer(output, value, True, texts.INT_NEEDED)
    if code == IS_DOUBLE:
        number = number_of(value)
        return put(output, &number, 8)
    if code == IS_NULL:
        return 0 if value is None else fail(texts.NULL_NEEDED)
    if code == IS_BOOLEAN:
        if not PyBool_Check(value):
            return fail(texts.BOOLEAN_NEEDED)
        return put_byte(output, value is True)
    if code == IS_FLOAT:
        return put_float(output, value)
    if code == IS_BYTES:
        return put_bytes(output, value, -1)
    if code == IS_FIXED:
        return put_bytes(output, value, step.size)
    if code == IS_ENUM:
        return put_long(output, symbol_index(step.symbols, value))
    if code == IS_ARRAY:
        return write_array(step, value, output)
    return write_map(step, value, output)


cdef int put_timestamp(WriteStep step, object value, Output *output) except -1:
    cdef object delta = value - step.epoch
    cdef int64_t number = timedelta_days(delta)
    number = number * DAY_MICROSECONDS + timedelta_seconds(delta) * <int64_t>1_000_000
    return put_long(output, (number + timedelta_microseconds(delta)) // step.unit)


cdef int enter_output(Output *output) except -1:
    output.depth += 1
    if output.depth > DEPTH_MAX:
        return fail(texts.TOO_DEEP)
    return 0


cdef int write_union(WriteStep step, object value, Output *output) except -1:
    cdef Py_ssize_t index = step.null_index
    if value is not None or index < 0:
        index = step.by_type.get(type(value), -1)
        if index < 0:
            index, value = step.pick(value)
    put_long(output, index)
    return write(<WriteStep>step.steps[index], value, output)


cdef int write_record(WriteStep step, object value, Output *output) except -1:
    cdef Py_ssize_t index = 0
    cdef list names = step.names
    cdef bint is_dict = type(value) is dict
    enter_output(output)
    if not is_dict and type(value) in NOT_RECORDS:
        return fail(texts.DICT_NEEDED)
    try:
        for index in range(len(names)):
            if is_dict and names[index] in <dict>value:
                inner = (<dict>value)[names[index]]
            else:
                inner = field_value(step, value, index)
            write(<WriteStep>step.steps[index], inner, output)
    except CAUGHT as error:
        raise located(error, names[index]) from None
    output.depth -= 1
    return 0


cdef int write_array(WriteStep step, object value, Output *output) except -1:
    cdef Py_ssize_t index = 0
    if not isinstance(value, (list, tuple)):
        return fail(texts.LIST_NEEDED)
    enter_output(output)
    items = tuple(value)
    if items:
        put_long(output, len(items))
        try:
            for index in range(len(items)):
                write(step.inner, items[index], output)
        except CAUGHT as error:
            raise located(error, index) from None
    output.depth -= 1
    return put_byte(output, 0)


cdef int write_map(WriteStep step, object value, Output *output) except -1:
    if not isinstance(value, Mapping):
        return fail(texts.DICT_NEEDED)
    enter_output(output)
    items = list(value.items())
    if items:
        put_long(output, len(items))
        for key, item in items:
            put_string(output, key)
            try:
                write(step.inner, item, output)
            except CAUGHT as error:
                raise located(error, key) from None
    output.depth -= 1
    return put_byte(output, 0)
