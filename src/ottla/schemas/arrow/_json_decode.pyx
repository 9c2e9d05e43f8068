# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""JSON payloads to the buffers of Arrow columns, compiled: the twin of _json_decode_python.

The loop takes the payloads that the plain parser takes. A row that it refuses is only counted: the
plain parser says the reason. No read leaves the payload, and each write reserves its room first.
The loop runs without the GIL; only numbers with many digits take it for a moment.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from ottla.wire.records._arrow_wire cimport is_text

from ottla.schemas.arrow import _json_decode_python as twin

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* s, char** end, object overflow) except? -1.0

cdef enum:
    INT64 = 0
    FLOAT64 = 1
    BOOLEAN = 2
    STRING = 3
    TEXT = 4
    TIMESTAMP = 5
    DATE = 6
    LIST = 7
    MAP = 8
    STRUCT = 9

    # These are the twin's limits; the module checks that below.
    DEPTH_MAX = 128
    NUMBER_CHARACTERS_MAX = 1000
    CELLS_FLOOR = 4096
    CELLS_PER_BYTE = 64

    FINE = 0
    REFUSED = 1
    NO_MEMORY = 2

cdef int64_t INTEGER_OF_FLOAT_MAX = <int64_t>1 << 53
cdef int64_t DAY_MICROSECONDS = <int64_t>86400 * 1000000
cdef double[23] POWERS = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
]

assert (DEPTH_MAX, NUMBER_CHARACTERS_MAX, CELLS_FLOOR, CELLS_PER_BYTE) == (
    twin.DEPTH_MAX, twin.NUMBER_CHARACTERS_MAX, twin.CELLS_FLOOR, twin.CELLS_PER_BYTE
)
assert INTEGER_OF_FLOAT_MAX == twin.INTEGER_OF_FLOAT_MAX
assert [INT64, FLOAT64, BOOLEAN, STRING, TEXT, TIMESTAMP, DATE, LIST, MAP, STRUCT] == list(twin.Kind)

ctypedef const uint8_t* Place


cdef struct Room:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t capacity


cdef struct Columns:
    int kind
    bint is_nullable
    int child_count
    int* children
    Place* names
    Py_ssize_t* name_sizes
    int* slots          # a hash table of child numbers plus one; its size is a power of two
    uint32_t slot_mask
    int expected        # the child after the last one that was read: properties keep their order
    Room validity       # a byte for each value
    Room data
    Room ends
    int64_t count
    int64_t nulls
    int64_t row_count   # as they were before the row, for the case that it is refused
    int64_t row_nulls
    Py_ssize_t row_data


cdef struct Row:
    Columns* columns
    int column_count
    Place here
    Place end
    int depth
    int64_t cells
    int status
    Room scratch


cdef inline bint reserve(Room* room, Py_ssize_t more) noexcept nogil:
    cdef Py_ssize_t capacity
    cdef uint8_t* moved
    if room.size + more <= room.capacity:
        return True
    capacity = max(room.size + more, room.capacity + room.capacity // 2, 256)
    moved = <uint8_t*>realloc(room.data, capacity)
    if moved == NULL:
        return False
    room.data = moved
    room.capacity = capacity
    return True


cdef inline bint out_of_memory(Row* row) noexcept nogil:
    row.status = NO_MEMORY
    return False


cdef inline bint append_validity(Row* row, Columns* column, bint is_valid) noexcept nogil:
    if not reserve(&column.validity, 1):
        return out_of_memory(row)
    column.validity.data[column.validity.size] = is_valid
    column.validity.size += 1
    column.count += 1
    column.nulls += not is_valid
    return True


cdef inline bint append_int64(Row* row, Columns* column, int64_t value) noexcept nogil:
    if not reserve(&column.data, 8):
        return out_of_memory(row)
    (<int64_t*>(column.data.data + column.data.size))[0] = value
    column.data.size += 8
    return append_validity(row, column, True)


cdef inline bint append_float64(Row* row, Columns* column, double value) noexcept nogil:
    if not reserve(&column.data, 8):
        return out_of_memory(row)
    (<double*>(column.data.data + column.data.size))[0] = value
    column.data.size += 8
    return append_validity(row, column, True)


cdef inline bint append_int32(Row* row, Columns* column, int32_t value) noexcept nogil:
    if not reserve(&column.data, 4):
        return out_of_memory(row)
    (<int32_t*>(column.data.data + column.data.size))[0] = value
    column.data.size += 4
    return append_validity(row, column, True)


cdef inline bint append_byte(Row* row, Columns* column, uint8_t value) noexcept nogil:
    if not reserve(&column.data, 1):
        return out_of_memory(row)
    column.data.data[column.data.size] = value
    column.data.size += 1
    return append_validity(row, column, True)


cdef inline bint append_end(Row* row, Columns* column, int64_t end, bint is_valid) noexcept nogil:
    if not reserve(&column.ends, 4):
        return out_of_memory(row)
    # Payloads of one call have less than 2 GiB, which the caller checks.
    (<int32_t*>(column.ends.data + column.ends.size))[0] = <int32_t>end
    column.ends.size += 4
    return append_validity(row, column, is_valid)


cdef bint append_null(Row* row, int index) noexcept nogil:
    cdef Columns* column = &row.columns[index]
    cdef int child
    cdef int size
    if column.kind == STRING or column.kind == TEXT:
        return append_end(row, column, column.data.size, False)
    if column.kind == LIST:
        return append_end(row, column, row.columns[column.children[0]].count, False)
    if column.kind == MAP:
        return append_end(row, column, row.columns[column.children[1]].count, False)
    if column.kind == STRUCT:
        for child in range(column.child_count):
            if not append_null(row, column.children[child]):
                return False
        return append_validity(row, column, False)
    size = 1 if column.kind == BOOLEAN else 4 if column.kind == DATE else 8
    if not reserve(&column.data, size):
        return out_of_memory(row)
    memset(column.data.data + column.data.size, 0, size)
    column.data.size += size
    return append_validity(row, column, False)


# Reading JSON

cdef inline uint8_t peek(Row* row) noexcept nogil:
    """Skip white space, and return the next byte; zero at the end."""
    cdef uint8_t byte
    while row.here < row.end:
        byte = row.here[0]
        if byte != b" " and byte != b"\n" and byte != b"\t" and byte != b"\r":
            return byte
        row.here += 1
    return 0


cdef inline bint take(Row* row, uint8_t byte) noexcept nogil:
    if peek(row) != byte:
        return False
    row.here += 1
    return True


cdef inline bint literal(Row* row, const char* word, Py_ssize_t size) noexcept nogil:
    if row.end - row.here < size or memcmp(row.here, word, size) != 0:
        return False
    row.here += size
    return True


cdef inline bint enter(Row* row) noexcept nogil:
    row.here += 1
    row.depth += 1
    return row.depth <= DEPTH_MAX


cdef inline int hex_digit(uint8_t byte) noexcept nogil:
    if b"0" <= byte <= b"9":
        return byte - c'0'
    byte |= 0x20
    if b"a" <= byte <= b"f":
        return byte - c'a' + 10
    return -1


cdef inline int hex_unit(Place here, Place end) noexcept nogil:
    """Return the number of four hexadecimal digits, or -1."""
    cdef int unit = 0, index, digit
    if end - here < 4:
        return -1
    for index in range(4):
        digit = hex_digit(here[index])
        if digit < 0:
            return -1
        unit = unit * 16 + digit
    return unit


cdef bint span(Row* row, Place* start, Place* stop, bint* has_escape) noexcept nogil:
    """Read a string, and return the place of its characters."""
    cdef Place here
    cdef uint8_t byte
    if peek(row) != b'"':
        return False
    here = row.here + 1
    start[0] = here
    has_escape[0] = False
    while here < row.end:
        byte = here[0]
        if byte == b'"':
            stop[0] = here
            row.here = here + 1
            return True
        if byte < 0x20:
            return False
        here += 1
        if byte == b"\\":
            has_escape[0] = True
            if here == row.end:
                return False
            byte = here[0]
            here += 1
            if byte == b"u":
                if hex_unit(here, row.end) < 0:
                    return False
                here += 4
            elif not (
                byte == b'"' or byte == b"\\" or byte == b"/" or byte == b"b" or byte == b"f"
                or byte == b"n" or byte == b"r" or byte == b"t"
            ):
                return False
    return False


cdef inline uint8_t* put_character(uint8_t* into, uint32_t number) noexcept nogil:
    if number < 0x80:
        into[0] = <uint8_t>number
        return into + 1
    if number < 0x800:
        into[0] = <uint8_t>(0xC0 | number >> 6)
        into[1] = <uint8_t>(0x80 | number & 0x3F)
        return into + 2
    if number < 0x10000:
        into[0] = <uint8_t>(0xE0 | number >> 12)
        into[1] = <uint8_t>(0x80 | number >> 6 & 0x3F)
        into[2] = <uint8_t>(0x80 | number & 0x3F)
        return into + 3
    into[0] = <uint8_t>(0xF0 | number >> 18)
    into[1] = <uint8_t>(0x80 | number >> 12 & 0x3F)
    into[2] = <uint8_t>(0x80 | number >> 6 & 0x3F)
    into[3] = <uint8_t>(0x80 | number & 0x3F)
    return into + 4


cdef Py_ssize_t unescape(Place here, Place stop, uint8_t* into) noexcept nogil:
    """Write the characters of a string that `span` took; -1 for half of a surrogate pair.

    They are never longer than their escapes.
    """
    cdef uint8_t* start = into
    cdef uint8_t byte
    cdef int unit, low
    while here < stop:
        byte = here[0]
        here += 1
        if byte != b"\\":
            into[0] = byte
            into += 1
            continue
        byte = here[0]
        here += 1
        if byte == b"u":
            unit = hex_unit(here, stop)
            here += 4
            if 0xD800 <= unit < 0xE000:
                low = -1
                if unit < 0xDC00 and stop - here >= 6 and here[0] == b"\\" and here[1] == b"u":
                    low = hex_unit(here + 2, stop)
                if not 0xDC00 <= low < 0xE000:
                    return -1
                here += 6
                unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00)
            into = put_character(into, <uint32_t>unit)
            continue
        if byte == b"b":
            byte = 8
        elif byte == b"f":
            byte = 12
        elif byte == b"n":
            byte = 10
        elif byte == b"r":
            byte = 13
        elif byte == b"t":
            byte = 9
        into[0] = byte
        into += 1
    return into - start


cdef bint number_span(Row* row, Place* stop, bint* is_integer) noexcept nogil:
    """Find the end of a number by JSON's grammar, without reading its value."""
    cdef Place here = row.here
    is_integer[0] = True
    if here < row.end and here[0] == b"-":
        here += 1
    if here == row.end or not b"0" <= here[0] <= b"9":
        return False
    if here[0] == b"0":
        here += 1
    else:
        while here < row.end and b"0" <= here[0] <= b"9":
            here += 1
    # As the plain parser's regular expression, leave a part that is not complete to the caller.
    if row.end - here >= 2 and here[0] == b"." and b"0" <= here[1] <= b"9":
        is_integer[0] = False
        here += 2
        while here < row.end and b"0" <= here[0] <= b"9":
            here += 1
    if row.end - here >= 2 and (here[0] == b"e" or here[0] == b"E"):
        stop[0] = here + 1
        if stop[0][0] == b"+" or stop[0][0] == b"-":
            stop[0] += 1
        if stop[0] < row.end and b"0" <= stop[0][0] <= b"9":
            is_integer[0] = False
            here = stop[0]
            while here < row.end and b"0" <= here[0] <= b"9":
                here += 1
    stop[0] = here
    return True


cdef bint skip(Row* row) noexcept nogil:
    """Read any value."""
    cdef uint8_t byte = peek(row)
    cdef Place start, stop
    cdef bint flag
    if byte == b'"':
        return span(row, &start, &stop, &flag)
    if byte == b"{" or byte == b"[":
        return skip_container(row, byte)
    if byte == b"n":
        return literal(row, b"null", 4)
    if byte == b"t":
        return literal(row, b"true", 4)
    if byte == b"f":
        return literal(row, b"false", 5)
    if not number_span(row, &stop, &flag):
        return False
    row.here = stop
    return True


cdef bint skip_container(Row* row, uint8_t opening) noexcept nogil:
    cdef uint8_t closing = b"}" if opening == b"{" else b"]"
    cdef Place start, stop
    cdef bint flag
    if not enter(row):
        return False
    if not take(row, closing):
        while True:
            if opening == b"{" and not (span(row, &start, &stop, &flag) and take(row, b":")):
                return False
            if not skip(row):
                return False
            if not take(row, b","):
                break
        if not take(row, closing):
            return False
    row.depth -= 1
    return True


# Values of columns

cdef bint read_value(Row* row, int index) noexcept nogil:
    cdef Columns* column = &row.columns[index]
    cdef uint8_t byte = peek(row)
    cdef Place start = row.here
    if byte == b"n":
        return literal(row, b"null", 4) and column.is_nullable and append_null(row, index)
    if column.kind == INT64 or column.kind == FLOAT64:
        return read_number(row, column)
    if column.kind == STRING:
        return read_string(row, column)
    if column.kind == BOOLEAN:
        if byte == b"t":
            return literal(row, b"true", 4) and append_byte(row, column, 1)
        return literal(row, b"false", 5) and append_byte(row, column, 0)
    if column.kind == TIMESTAMP or column.kind == DATE:
        return read_time(row, column)
    if column.kind == STRUCT:
        return byte == b"{" and read_struct(row, index)
    if column.kind == LIST:
        return byte == b"[" and read_list(row, column)
    if column.kind == MAP:
        return byte == b"{" and read_map(row, column)
    if not skip(row) or not reserve(&column.data, row.here - start):
        return False
    memcpy(column.data.data + column.data.size, start, row.here - start)
    column.data.size += row.here - start
    return append_end(row, column, column.data.size, True)


cdef bint read_struct(Row* row, int index) noexcept nogil:
    cdef Columns* column = &row.columns[index]
    cdef int64_t count = column.count
    cdef int child
    row.cells -= column.child_count
    if row.cells < 0 or not enter(row):
        return False
    if not take(row, b"}"):
        while True:
            if not read_property(row, column, count):
                return False
            if not take(row, b","):
                break
        if not take(row, b"}"):
            return False
    row.depth -= 1
    for child in range(column.child_count):
        if row.columns[column.children[child]].count == count:
            if not append_null(row, column.children[child]):
                return False
    return append_validity(row, column, True)


cdef bint read_property(Row* row, Columns* column, int64_t count) noexcept nogil:
    cdef Place start, stop
    cdef Py_ssize_t size
    cdef bint has_escape
    cdef int child
    if not span(row, &start, &stop, &has_escape) or not take(row, b":"):
        return False
    size = stop - start
    if has_escape:
        row.scratch.size = 0
        if not reserve(&row.scratch, size):
            return out_of_memory(row)
        size = unescape(start, stop, row.scratch.data)
        start = row.scratch.data
    child = -1 if size < 0 else child_named(column, start, size)
    if child < 0:
        return skip(row)
    child = column.children[child]
    # The object may have the property twice.
    return row.columns[child].count == count and read_value(row, child)


cdef inline uint32_t hash_of(Place name, Py_ssize_t size) noexcept nogil:
    cdef uint32_t number = 2166136261
    cdef Py_ssize_t index
    for index in range(size):
        number = (number ^ name[index]) * 16777619
    return number


cdef inline int child_named(Columns* column, Place name, Py_ssize_t size) noexcept nogil:
    cdef int child = column.expected
    cdef uint32_t slot
    if child < column.child_count and column.name_sizes[child] == size:
        if memcmp(column.names[child], name, size) == 0:
            column.expected = child + 1
            return child
    if column.child_count == 0:
        return -1
    slot = hash_of(name, size) & column.slot_mask
    while column.slots[slot] != 0:
        child = column.slots[slot] - 1
        if column.name_sizes[child] == size and memcmp(column.names[child], name, size) == 0:
            column.expected = child + 1
            return child
        slot = (slot + 1) & column.slot_mask
    return -1


cdef bint read_list(Row* row, Columns* column) noexcept nogil:
    cdef int child = column.children[0]
    if not enter(row):
        return False
    if not take(row, b"]"):
        while True:
            if not read_value(row, child):
                return False
            if not take(row, b","):
                break
        if not take(row, b"]"):
            return False
    row.depth -= 1
    return append_end(row, column, row.columns[child].count, True)


cdef bint read_map(Row* row, Columns* column) noexcept nogil:
    cdef int child = column.children[1]
    if not enter(row):
        return False
    if not take(row, b"}"):
        while True:
            if peek(row) != b'"' or not read_string(row, &row.columns[column.children[0]]):
                return False
            if not take(row, b":") or not read_value(row, child):
                return False
            if not take(row, b","):
                break
        if not take(row, b"}"):
            return False
    row.depth -= 1
    return append_end(row, column, row.columns[child].count, True)


cdef inline bint read_string(Row* row, Columns* column) noexcept nogil:
    cdef Place start, stop
    cdef Py_ssize_t size
    cdef bint has_escape
    if not span(row, &start, &stop, &has_escape):
        return False
    size = stop - start
    if not reserve(&column.data, size):
        return out_of_memory(row)
    if has_escape:
        size = unescape(start, stop, column.data.data + column.data.size)
        if size < 0:
            return False
    else:
        memcpy(column.data.data + column.data.size, start, size)
    column.data.size += size
    return append_end(row, column, column.data.size, True)


cdef bint read_number(Row* row, Columns* column) noexcept nogil:
    cdef Place stop
    cdef bint is_integer
    cdef double number
    cdef int64_t integer
    if not number_span(row, &stop, &is_integer) or stop - row.here > NUMBER_CHARACTERS_MAX:
        return False
    if column.kind == INT64 and is_integer:
        if not integer_of(row.here, stop, &integer):
            return False
        row.here = stop
        return append_int64(row, column, integer)
    if not float_of(row.here, stop, &number):
        return False
    row.here = stop
    if column.kind == FLOAT64:
        return append_float64(row, column, number)
    if not -INTEGER_OF_FLOAT_MAX <= number <= INTEGER_OF_FLOAT_MAX:
        return False
    integer = <int64_t>number
    return integer == number and append_int64(row, column, integer)


cdef inline bint integer_of(Place here, Place stop, int64_t* integer) noexcept nogil:
    cdef bint is_negative = here[0] == b"-"
    cdef uint64_t number = 0
    here += is_negative
    # The grammar allows no leading zeros: 20 digits and more are out of range.
    if stop - here > 19:
        return False
    while here < stop:
        number = number * 10 + (here[0] - c'0')
        here += 1
    if number > <uint64_t>INT64_MAX + is_negative:
        return False
    integer[0] = <int64_t>(0 - number) if is_negative else <int64_t>number
    return True


cdef bint float_of(Place here, Place stop, double* number) noexcept nogil:
    """Read a number. Up to 2**53, and with a small exponent, one operation is correctly rounded."""
    cdef Place start = here
    cdef bint is_negative = here[0] == b"-"
    cdef bint exponent_is_negative = False
    cdef uint64_t mantissa = 0
    cdef int digits = 0, exponent = 0, scale = 0
    here += is_negative
    while here < stop and b"0" <= here[0] <= b"9":
        mantissa = mantissa * 10 + (here[0] - c'0')
        digits += 1
        here += 1
    if here < stop and here[0] == b".":
        here += 1
        while here < stop and b"0" <= here[0] <= b"9":
            mantissa = mantissa * 10 + (here[0] - c'0')
            digits += 1
            scale -= 1
            here += 1
    if here < stop:
        here += 1
        if here[0] == b"-" or here[0] == b"+":
            exponent_is_negative = here[0] == b"-"
            here += 1
        if stop - here > 4:
            return exact_float(start, stop, number)
        while here < stop:
            exponent = exponent * 10 + (here[0] - c'0')
            here += 1
        scale += -exponent if exponent_is_negative else exponent
    if digits > 19 or mantissa > <uint64_t>INTEGER_OF_FLOAT_MAX or not -22 <= scale <= 22:
        return exact_float(start, stop, number)
    number[0] = <double>mantissa
    number[0] = number[0] / POWERS[-scale] if scale < 0 else number[0] * POWERS[scale]
    if is_negative:
        number[0] = -number[0]
    return True


cdef bint exact_float(Place start, Place stop, double* number) noexcept nogil:
    cdef char[NUMBER_CHARACTERS_MAX + 1] text
    memcpy(text, start, stop - start)
    text[stop - start] = 0
    with gil:
        try:
            number[0] = PyOS_string_to_double(text, NULL, OverflowError)
        except (OverflowError, ValueError):
            return False
    return True


# Dates and times

cdef bint read_time(Row* row, Columns* column) noexcept nogil:
    cdef Place start, stop
    cdef Py_ssize_t size
    cdef bint has_escape
    cdef int64_t days, microseconds
    if not span(row, &start, &stop, &has_escape):
        return False
    size = stop - start
    if has_escape:
        row.scratch.size = 0
        if not reserve(&row.scratch, size):
            return out_of_memory(row)
        size = unescape(start, stop, row.scratch.data)
        start = row.scratch.data
    if size < 10 or not date_of(start, &days):
        return False
    if column.kind == DATE:
        return size == 10 and append_int32(row, column, <int32_t>days)
    if not time_of(start + 10, start + size, &microseconds):
        return False
    return append_int64(row, column, days * DAY_MICROSECONDS + microseconds)


cdef inline int two_digits(Place here) noexcept nogil:
    if not (b"0" <= here[0] <= b"9" and b"0" <= here[1] <= b"9"):
        return -1000
    return (here[0] - c'0') * 10 + (here[1] - c'0')


cdef bint date_of(Place here, int64_t* days) noexcept nogil:
    cdef int century = two_digits(here), year = two_digits(here + 2)
    cdef int month = two_digits(here + 5), day = two_digits(here + 8), length
    if century < 0 or year < 0 or here[4] != b"-" or here[7] != b"-" or not 1 <= month <= 12:
        return False
    year += century * 100
    if month == 2:
        length = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    else:
        length = 30 if month == 4 or month == 6 or month == 9 or month == 11 else 31
    if not 1 <= day <= length:
        return False
    # The year begins in March here, so that the leap day is its last day. In the year 0 that may
    # be the year before; the divisions must then round down.
    year += 399 if month <= 2 else 400
    days[0] = (
        <int64_t>year * 365 + year // 4 - year // 100 + year // 400
        + (153 * ((month + 9) % 12) + 2) // 5 + day - 1 - 719_468 - 146_097
    )
    return True


cdef bint time_of(Place here, Place stop, int64_t* microseconds) noexcept nogil:
    """Read the part from the T on, with a fraction and an offset."""
    cdef int hour, minute, second, offset_hours = 0, offset_minutes = 0, sign = 1, digits = 0
    cdef int64_t fraction = 0
    if stop - here < 10 or here[0] | 0x20 != b"t" or here[3] != b":" or here[6] != b":":
        return False
    hour, minute, second = two_digits(here + 1), two_digits(here + 4), two_digits(here + 7)
    if not (0 <= hour <= 23 and 0 <= minute <= 59 and 0 <= second <= 59):
        return False
    here += 9
    if here[0] == b".":
        here += 1
        while here < stop and b"0" <= here[0] <= b"9":
            if digits < 6:
                fraction = fraction * 10 + (here[0] - c'0')
            digits += 1
            here += 1
        if digits == 0:
            return False
        while digits < 6:
            fraction *= 10
            digits += 1
    if stop - here == 6 and (here[0] == b"+" or here[0] == b"-") and here[3] == b":":
        sign = -1 if here[0] == b"-" else 1
        offset_hours, offset_minutes = two_digits(here + 1), two_digits(here + 4)
        if not (0 <= offset_hours <= 23 and 0 <= offset_minutes <= 59):
            return False
    elif stop - here != 1 or here[0] | 0x20 != b"z":
        return False
    minute -= sign * (offset_hours * 60 + offset_minutes)
    microseconds[0] = (<int64_t>hour * 3600 + minute * 60 + second) * 1_000_000 + fraction
    return True


# Rows

cdef int decode_row_into(Row* row, Place start, Place end, bint is_record) noexcept nogil:
    cdef int index
    cdef bint is_read
    cdef Columns* column
    row.here = start
    row.end = end
    row.depth = 0
    row.status = FINE
    row.cells = CELLS_FLOOR + row.column_count + CELLS_PER_BYTE * (end - start)
    for index in range(row.column_count):
        column = &row.columns[index]
        column.row_count = column.count
        column.row_nulls = column.nulls
        column.row_data = column.data.size
        column.expected = 0
    is_read = start < end and is_text(start, end - start)
    if is_read and is_record:
        is_read = peek(row) == b"{" and read_struct(row, 0)
    elif is_read:
        is_read = read_value(row, row.columns[0].children[0])
        is_read = is_read and append_validity(row, &row.columns[0], True)
    if is_read and peek(row) == 0 and row.here == row.end:
        return FINE
    return NO_MEMORY if row.status == NO_MEMORY else REFUSED


cdef void roll_back(Row* row) noexcept nogil:
    cdef int index
    cdef Columns* column
    for index in range(row.column_count):
        column = &row.columns[index]
        column.count = column.row_count
        column.nulls = column.row_nulls
        column.data.size = column.row_data
        column.validity.size = column.row_count
        if column.ends.size:
            column.ends.size = (column.row_count + 1) * 4


cdef bint append_null_row(Row* row) noexcept nogil:
    cdef int child
    for child in range(row.columns[0].child_count):
        if not append_null(row, row.columns[0].children[child]):
            return False
    return append_validity(row, &row.columns[0], True)


@cython.final
cdef class _Columns:
    """The columns of one call, and their memory."""

    cdef Row row
    cdef list names

    def __cinit__(self, plan):
        self.names = []
        self.row.column_count = len(plan)
        self.row.columns = <Columns*>calloc(len(plan), sizeof(Columns))
        if self.row.columns == NULL:
            self.row.column_count = 0
            raise MemoryError
        for index, column in enumerate(plan):
            self.set_up(&self.row.columns[<int>index], column)

    cdef int set_up(self, Columns* into, column) except -1:
        cdef int child, child_count = len(column.children)
        cdef uint32_t size = 2, slot
        into.kind = column.kind
        into.is_nullable = column.is_nullable
        while size < 2 * <uint32_t>child_count:
            size *= 2
        into.slot_mask = size - 1
        into.children = <int*>calloc(child_count + 1, sizeof(int))
        into.names = <Place*>calloc(child_count + 1, sizeof(Place))
        into.name_sizes = <Py_ssize_t*>calloc(child_count + 1, sizeof(Py_ssize_t))
        into.slots = <int*>calloc(size, sizeof(int))
        if (
            into.children == NULL or into.names == NULL or into.name_sizes == NULL
            or into.slots == NULL
        ):
            raise MemoryError
        into.child_count = child_count
        for child in range(child_count):
            into.children[child] = column.children[child]
        for child, name in enumerate(column.names):
            encoded = name.encode()
            self.names.append(encoded)
            into.names[child] = <Place>PyBytes_AS_STRING(encoded)
            into.name_sizes[child] = len(encoded)
            slot = hash_of(into.names[child], into.name_sizes[child]) & into.slot_mask
            while into.slots[slot] != 0:
                slot = (slot + 1) & into.slot_mask
            into.slots[slot] = child + 1
        if into.kind in (STRING, TEXT, LIST, MAP):
            if not reserve(&into.ends, 4):
                raise MemoryError
            (<int32_t*>into.ends.data)[0] = 0
            into.ends.size = 4
        return 0

    def __dealloc__(self):
        cdef int index
        cdef Columns* column
        for index in range(self.row.column_count):
            column = &self.row.columns[index]
            free(column.children)
            free(column.names)
            free(column.name_sizes)
            free(column.slots)
            free(column.validity.data)
            free(column.data.data)
            free(column.ends.data)
        free(self.row.columns)
        free(self.row.scratch.data)

    cdef tuple buffers(self, int index):
        cdef Columns* column = &self.row.columns[index]
        validity = packed(&column.validity) if column.nulls else None
        ends = data = None
        if column.kind in (STRING, TEXT, LIST, MAP):
            ends = PyBytes_FromStringAndSize(<char*>column.ends.data, column.ends.size)
        if column.kind == BOOLEAN:
            data = packed(&column.data)
        elif column.kind not in (LIST, MAP, STRUCT):
            # Without a value there is no memory yet.
            data = b"" if column.data.size == 0 else (
                PyBytes_FromStringAndSize(<char*>column.data.data, column.data.size)
            )
        return column.count, column.nulls, validity, ends, data


cdef bytes packed(Room* flags):
    cdef Py_ssize_t index
    cdef bytes bits = PyBytes_FromStringAndSize(NULL, (flags.size + 7) // 8)
    cdef uint8_t* into = <uint8_t*>PyBytes_AS_STRING(bits)
    memset(into, 0, (flags.size + 7) // 8)
    for index in range(flags.size):
        into[index >> 3] |= (flags.data[index] != 0) << (index & 7)
    return bits


def decode(plan, const int64_t[::1] ends, data, validity, Py_ssize_t first, Py_ssize_t skip_bytes,
           bint is_record):
    """See the twin. Row i has the bytes from ends[i] + skip_bytes to ends[i + 1].

    Its validity is bit first + i, if there are validity bits. Payloads may be shorter than
    `skip_bytes`.
    """
    cdef const uint8_t[::1] bytes_view = data
    cdef const uint8_t[::1] bits = validity
    cdef Place base = &bytes_view[0] if bytes_view is not None and bytes_view.shape[0] else NULL
    cdef Place valid = &bits[0] if bits is not None and bits.shape[0] else NULL
    cdef _Columns columns = _Columns(plan)
    cdef Py_ssize_t rows = ends.shape[0] - 1, index, error_count = 0
    cdef int64_t* errors = <int64_t*>malloc((rows + 1) * sizeof(int64_t))
    cdef int status = FINE
    if errors == NULL:
        raise MemoryError
    try:
        with nogil:
            for index in range(rows):
                if valid != NULL and not valid[(first + index) >> 3] >> ((first + index) & 7) & 1:
                    status = FINE if append_null_row(&columns.row) else NO_MEMORY
                else:
                    status = REFUSED
                    if ends[index + 1] - ends[index] > skip_bytes:
                        status = decode_row_into(
                            &columns.row, base + ends[index] + skip_bytes, base + ends[index + 1],
                            is_record,
                        )
                        if status == REFUSED:
                            roll_back(&columns.row)
                    if status == REFUSED:
                        errors[error_count] = index
                        error_count += 1
                        status = FINE if append_null_row(&columns.row) else NO_MEMORY
                if status == NO_MEMORY:
                    break
        if status == NO_MEMORY:
            raise MemoryError
        return (
            [columns.buffers(<int>index) for index in range(len(plan))],
            [errors[index] for index in range(error_count)],
        )
    finally:
        free(errors)
