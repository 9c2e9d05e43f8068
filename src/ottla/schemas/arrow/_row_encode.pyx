# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Writes rows of Arrow columns as JSON or as Protobuf messages, compiled.

The steps are those of row_program. The columns are arrays that pyarrow has made, so their offsets
and sizes are trusted. Every write is checked against the capacity of the output. The loop runs
without the GIL. A row that does not fit its schema ends the run: the encoders in Python, which are
the fallback, then give the error.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove

from ottla.schemas.arrow.row_program import VALUES_BYTES_MAX as BYTES_MAX

cdef extern from *:
    """
    typedef __int128 ottla_row_int128;
    """
    ctypedef int int128 "ottla_row_int128"

cdef enum Operation:
    JSON_BOOLEAN = 0
    JSON_INTEGER = 1
    JSON_FLOAT = 2
    JSON_NUMBER = 3
    JSON_STRING = 4
    JSON_BASE64 = 5
    JSON_TIMESTAMP = 6
    JSON_DATE = 7
    JSON_TIME = 8
    JSON_OBJECT = 9
    JSON_ARRAY = 10
    JSON_MAP = 11
    VARINT = 20
    ZIGZAG = 21
    FIXED = 22
    BOOL = 23
    BYTES = 24
    MESSAGE = 25
    WRAPPER = 26
    REPEATED = 27
    PACKED = 28
    MAP = 29
    TIMESTAMP = 30
    DURATION = 31
    DATE = 32
    DECIMAL = 33

cdef enum OnNull:
    ABSENT = 0
    NULL_ = 1
    UNFIT = 2
    EMPTY = 3

cdef enum Fault:
    SOUND = 0
    BAD_VALUE = 1
    FULL = 2
    NO_MEMORY = 3

cdef enum:
    VARINT_BYTES_MAX = 10
    NUMBER_CHARACTERS_MAX = 32
    # Keys of larger maps are compared by the encoder in Python.
    COMPARED_KEYS_MAX = 32
    DECIMAL_BYTES = 16

cdef int64_t VALUES_BYTES_MAX = BYTES_MAX
cdef int64_t DAY_SECONDS = 86_400
cdef int64_t MICROSECONDS = 1_000_000
cdef const char* HEXADECIMAL = b"0123456789abcdef"
cdef const char* BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

cdef struct Step:
    int32_t operation
    int32_t column
    int32_t first
    int32_t count
    int32_t extra
    int32_t on_null
    int32_t has_presence
    int64_t prefix
    int64_t prefix_size

cdef struct Column:
    int64_t offset
    const uint8_t* validity
    const uint8_t* ends
    const uint8_t* data

cdef struct Machine:
    const Step* steps
    const int32_t* links
    const uint8_t* prefixes
    const Column* columns
    uint8_t* written
    int64_t size
    int64_t capacity


# -- output


cdef inline int reserve(Machine* machine, int64_t more) noexcept nogil:
    if machine.size + more <= machine.capacity:
        return SOUND
    return grow(machine, machine.size + more)


cdef int grow(Machine* machine, int64_t needed) noexcept nogil:
    cdef int64_t capacity = machine.capacity + machine.capacity // 2 + 1024
    cdef uint8_t* written
    if needed > VALUES_BYTES_MAX:
        return FULL
    if capacity < needed:
        capacity = needed
    written = <uint8_t*>realloc(machine.written, capacity)
    if written == NULL:
        return NO_MEMORY
    machine.written = written
    machine.capacity = capacity
    return SOUND


cdef inline int write_raw(Machine* machine, const uint8_t* content, int64_t size) noexcept nogil:
    cdef int fault = reserve(machine, size)
    if fault:
        return fault
    if size:
        memcpy(machine.written + machine.size, content, size)
    machine.size += size
    return SOUND


cdef inline int write_byte(Machine* machine, uint8_t content) noexcept nogil:
    cdef int fault = reserve(machine, 1)
    if fault:
        return fault
    machine.written[machine.size] = content
    machine.size += 1
    return SOUND


cdef inline int write_varint(Machine* machine, uint64_t value) noexcept nogil:
    cdef int fault = reserve(machine, VARINT_BYTES_MAX)
    cdef uint8_t* place
    if fault:
        return fault
    place = machine.written + machine.size
    while value > 0x7F:
        place[0] = <uint8_t>(value & 0x7F | 0x80)
        place += 1
        value >>= 7
    place[0] = <uint8_t>value
    machine.size = place + 1 - machine.written
    return SOUND


cdef inline int write_prefix(Machine* machine, const Step* step) noexcept nogil:
    return write_raw(machine, machine.prefixes + step.prefix, step.prefix_size)


# -- columns


cdef inline bint is_null(const Column* column, int64_t row) noexcept nogil:
    cdef int64_t place = column.offset + row
    return column.validity != NULL and not (column.validity[place >> 3] >> (place & 7)) & 1


cdef inline bint bit_of(const Column* column, int64_t row) noexcept nogil:
    cdef int64_t place = column.offset + row
    return (column.data[place >> 3] >> (place & 7)) & 1


cdef inline const int32_t* ends_of(const Column* column, int64_t row) noexcept nogil:
    return <const int32_t*>column.ends + column.offset + row


cdef inline int64_t int64_of(const Column* column, int64_t row) noexcept nogil:
    return (<const int64_t*>column.data)[column.offset + row]


cdef inline int64_t int32_of(const Column* column, int64_t row) noexcept nogil:
    return (<const int32_t*>column.data)[column.offset + row]


cdef inline void civil(int64_t days, int64_t* year, int64_t* month, int64_t* day) noexcept nogil:
    """Return the Gregorian date of days since 1970; years begin in March while it counts."""
    cdef int64_t shifted = days + 719_468
    cdef int64_t era = (shifted if shifted >= 0 else shifted - 146_096) // 146_097
    cdef int64_t of_era = shifted - era * 146_097
    cdef int64_t years = (
        of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096
    ) // 365
    cdef int64_t of_year = of_era - (365 * years + years // 4 - years // 100)
    cdef int64_t from_march = (5 * of_year + 2) // 153
    day[0] = of_year - (153 * from_march + 2) // 5 + 1
    month[0] = from_march + 3 if from_march < 10 else from_march - 9
    year[0] = years + era * 400 + (month[0] <= 2)


cdef inline int64_t floored(int64_t number, int64_t divisor) noexcept nogil:
    """Return the quotient, rounded down: `//` cuts off in compiled code."""
    cdef int64_t found = number // divisor
    return found - 1 if number < found * divisor else found


# -- JSON


cdef int write_json(Machine* machine, const Step* step, int64_t row) noexcept nogil:
    """Write a value that is not null."""
    cdef const Column* column = &machine.columns[step.column]
    cdef const int32_t* ends
    cdef int operation = step.operation
    if operation == JSON_STRING:
        ends = ends_of(column, row)
        return write_string(machine, column.data + ends[0], ends[1] - ends[0])
    if operation == JSON_INTEGER:
        return write_integer(machine, int64_of(column, row))
    if operation == JSON_FLOAT or operation == JSON_NUMBER:
        ends = ends_of(column, row)
        return write_number(
            machine, column.data + ends[0], ends[1] - ends[0], operation == JSON_FLOAT
        )
    if operation == JSON_BOOLEAN:
        if bit_of(column, row):
            return write_raw(machine, b"true", 4)
        return write_raw(machine, b"false", 5)
    if operation == JSON_TIMESTAMP:
        return write_timestamp(machine, int64_of(column, row))
    if operation == JSON_OBJECT:
        return write_object(machine, step, row)
    if operation == JSON_ARRAY:
        return write_array(machine, step, column, row)
    if operation == JSON_MAP:
        return write_json_map(machine, step, column, row)
    if operation == JSON_BASE64:
        ends = ends_of(column, row)
        return write_base64(machine, column.data + ends[0], ends[1] - ends[0])
    if operation == JSON_DATE:
        return write_date(machine, int32_of(column, row))
    return write_time(machine, int64_of(column, row))


cdef int write_object(Machine* machine, const Step* step, int64_t row) noexcept nogil:
    cdef const int32_t* link = machine.links + step.first
    cdef const int32_t* end = link + step.count
    cdef const Step* member
    cdef bint missing
    cdef int64_t start
    cdef int fault = write_byte(machine, c"{")
    if fault:
        return fault
    start = machine.size
    while link < end:
        member = &machine.steps[link[0]]
        link += 1
        missing = is_null(&machine.columns[member.column], row)
        if missing and member.on_null == ABSENT:
            continue
        if missing and member.on_null == UNFIT:
            return BAD_VALUE
        # The prefix begins with a comma, which the first member does not have.
        fault = write_raw(
            machine,
            machine.prefixes + member.prefix + (machine.size == start),
            member.prefix_size - (machine.size == start),
        )
        if not fault:
            if missing:
                fault = write_raw(machine, b"null", 4)
            else:
                fault = write_json(machine, member, row)
        if fault:
            return fault
    return write_byte(machine, c"}")


cdef inline int write_item(Machine* machine, const Step* step, int64_t item) noexcept nogil:
    if not is_null(&machine.columns[step.column], item):
        return write_json(machine, step, item)
    return write_raw(machine, b"null", 4) if step.on_null == NULL_ else BAD_VALUE


cdef int write_array(
    Machine* machine, const Step* step, const Column* column, int64_t row
) noexcept nogil:
    cdef const int32_t* ends = ends_of(column, row)
    cdef int64_t item
    cdef int fault = write_byte(machine, c"[")
    for item in range(ends[0], ends[1]):
        if not fault and item > ends[0]:
            fault = write_byte(machine, c",")
        if not fault:
            fault = write_item(machine, &machine.steps[step.first], item)
        if fault:
            return fault
    return fault if fault else write_byte(machine, c"]")


cdef int write_json_map(
    Machine* machine, const Step* step, const Column* column, int64_t row
) noexcept nogil:
    cdef const int32_t* ends = ends_of(column, row)
    cdef const Column* keys = &machine.columns[step.extra]
    cdef const int32_t* key
    cdef int64_t item
    cdef int fault
    if has_equal_keys(keys, ends[0], ends[1]):
        return BAD_VALUE
    fault = write_byte(machine, c"{")
    for item in range(ends[0], ends[1]):
        key = ends_of(keys, item)
        if not fault and item > ends[0]:
            fault = write_byte(machine, c",")
        if not fault:
            fault = write_string(machine, keys.data + key[0], key[1] - key[0])
        if not fault:
            fault = write_byte(machine, c":")
        if not fault:
            fault = write_item(machine, &machine.steps[step.first], item)
        if fault:
            return fault
    return fault if fault else write_byte(machine, c"}")


cdef bint has_equal_keys(const Column* keys, int64_t start, int64_t end) noexcept nogil:
    """Return whether a key may be there twice."""
    cdef int64_t left, right, size
    cdef const int32_t* one
    cdef const int32_t* other
    if end - start > COMPARED_KEYS_MAX:
        return True
    for left in range(start, end):
        one = ends_of(keys, left)
        size = one[1] - one[0]
        for right in range(start, left):
            other = ends_of(keys, right)
            if size == other[1] - other[0] and not memcmp(
                keys.data + one[0], keys.data + other[0], size
            ):
                return True
    return False


cdef int write_string(Machine* machine, const uint8_t* text, int64_t size) noexcept nogil:
    cdef int64_t index
    cdef uint8_t letter
    cdef uint8_t* place
    # Each byte becomes six at most.
    cdef int fault = reserve(machine, 6 * size + 2)
    if fault:
        return fault
    place = machine.written + machine.size
    place[0] = c'"'
    place += 1
    for index in range(size):
        letter = text[index]
        if letter >= 0x20 and letter != c'"' and letter != c"\\":
            place[0] = letter
            place += 1
        else:
            place += escape(place, letter)
    place[0] = c'"'
    machine.size = place + 1 - machine.written
    return SOUND


cdef int escape(uint8_t* place, uint8_t letter) noexcept nogil:
    cdef uint8_t short = 0
    place[0] = c"\\"
    if letter == c'"' or letter == c"\\":
        short = letter
    elif letter == 0x08:
        short = c"b"
    elif letter == 0x09:
        short = c"t"
    elif letter == 0x0A:
        short = c"n"
    elif letter == 0x0C:
        short = c"f"
    elif letter == 0x0D:
        short = c"r"
    if short:
        place[1] = short
        return 2
    place[1] = c"u"
    place[2] = place[3] = c"0"
    place[4] = HEXADECIMAL[letter >> 4]
    place[5] = HEXADECIMAL[letter & 15]
    return 6


cdef int write_integer(Machine* machine, int64_t number) noexcept nogil:
    cdef uint8_t text[NUMBER_CHARACTERS_MAX]
    cdef int place = NUMBER_CHARACTERS_MAX
    cdef uint64_t left = <uint64_t>number if number >= 0 else ~<uint64_t>number + 1
    while True:
        place -= 1
        text[place] = <uint8_t>(c"0" + left % 10)
        left //= 10
        if not left:
            break
    if number < 0:
        place -= 1
        text[place] = c"-"
    return write_raw(machine, text + place, NUMBER_CHARACTERS_MAX - place)


cdef int write_number(
    Machine* machine, const uint8_t* text, int64_t size, bint is_float
) noexcept nogil:
    cdef int64_t index
    cdef int fault = write_raw(machine, text, size)
    if fault or not is_float:
        return fault
    for index in range(size):
        if text[index] == c"." or text[index] == c"e":
            return SOUND
    return write_raw(machine, b".0", 2)


cdef int write_base64(Machine* machine, const uint8_t* content, int64_t size) noexcept nogil:
    cdef int64_t index = 0
    cdef uint32_t bits
    cdef uint8_t* place
    cdef int fault = reserve(machine, (size + 2) // 3 * 4 + 2)
    if fault:
        return fault
    place = machine.written + machine.size
    place[0] = c'"'
    place += 1
    while index < size:
        bits = <uint32_t>content[index] << 16
        if index + 1 < size:
            bits |= <uint32_t>content[index + 1] << 8
        if index + 2 < size:
            bits |= content[index + 2]
        place[0] = BASE64[bits >> 18]
        place[1] = BASE64[bits >> 12 & 63]
        place[2] = BASE64[bits >> 6 & 63] if index + 1 < size else c"="
        place[3] = BASE64[bits & 63] if index + 2 < size else c"="
        place += 4
        index += 3
    place[0] = c'"'
    machine.size = place + 1 - machine.written
    return SOUND


cdef inline uint8_t* digits(uint8_t* place, int64_t number, int count) noexcept nogil:
    cdef int index
    for index in range(count):
        place[count - 1 - index] = <uint8_t>(c"0" + number % 10)
        number //= 10
    return place + count


cdef uint8_t* date_text(uint8_t* place, int64_t days) noexcept nogil:
    cdef int64_t year, month, day
    civil(days, &year, &month, &day)
    place = digits(place, year, 4)
    place[0] = c"-"
    place = digits(place + 1, month, 2)
    place[0] = c"-"
    return digits(place + 1, day, 2)


cdef uint8_t* time_text(uint8_t* place, int64_t microseconds) noexcept nogil:
    cdef int64_t seconds = microseconds // MICROSECONDS
    place = digits(place, seconds // 3600, 2)
    place[0] = c":"
    place = digits(place + 1, seconds // 60 % 60, 2)
    place[0] = c":"
    place = digits(place + 1, seconds % 60, 2)
    if microseconds % MICROSECONDS:
        place[0] = c"."
        place = digits(place + 1, microseconds % MICROSECONDS, 6)
    return place


cdef int write_date(Machine* machine, int64_t days) noexcept nogil:
    cdef uint8_t text[NUMBER_CHARACTERS_MAX]
    cdef uint8_t* place = date_text(text + 1, days)
    text[0] = place[0] = c'"'
    return write_raw(machine, text, place + 1 - text)


cdef int write_time(Machine* machine, int64_t microseconds) noexcept nogil:
    cdef uint8_t text[NUMBER_CHARACTERS_MAX]
    cdef uint8_t* place = time_text(text + 1, microseconds)
    text[0] = place[0] = c'"'
    return write_raw(machine, text, place + 1 - text)


cdef int write_timestamp(Machine* machine, int64_t microseconds) noexcept nogil:
    cdef uint8_t text[2 * NUMBER_CHARACTERS_MAX]
    cdef int64_t days = floored(microseconds, DAY_SECONDS * MICROSECONDS)
    cdef uint8_t* place = date_text(text + 1, days)
    place[0] = c"T"
    place = time_text(place + 1, microseconds - days * DAY_SECONDS * MICROSECONDS)
    place[0] = c"Z"
    text[0] = place[1] = c'"'
    return write_raw(machine, text, place + 2 - text)


# -- Protobuf


cdef int write_field(Machine* machine, const Step* step, int64_t row) noexcept nogil:
    """Write a field with its tag, if it is there."""
    cdef const Column* column = &machine.columns[step.column]
    cdef int fault
    if is_null(column, row):
        if step.on_null != EMPTY:
            return SOUND
        fault = write_prefix(machine, step)
        return fault if fault else write_byte(machine, 0)
    if step.operation == REPEATED or step.operation == PACKED or step.operation == MAP:
        return write_elements(machine, step, column, row)
    if not step.has_presence and is_default(step, column, row):
        return SOUND
    fault = write_prefix(machine, step)
    return fault if fault else write_value(machine, step, column, row)


cdef bint is_default(const Step* step, const Column* column, int64_t row) noexcept nogil:
    cdef const int32_t* ends
    if step.operation == BOOL:
        return not bit_of(column, row)
    if step.operation == BYTES:
        ends = ends_of(column, row)
        return ends[0] == ends[1]
    # A negative zero has bits, and is no default.
    if step.extra == 8 or step.extra == -8:
        return not int64_of(column, row)
    return not int32_of(column, row)


cdef inline uint64_t bits_of(const Step* step, const Column* column, int64_t row) noexcept nogil:
    if step.extra == 8 or step.extra == -8:
        return <uint64_t>int64_of(column, row)
    if step.extra == 4:
        return (<const uint32_t*>column.data)[column.offset + row]
    return <uint64_t>int32_of(column, row)


cdef int write_value(
    Machine* machine, const Step* step, const Column* column, int64_t row
) noexcept nogil:
    """Write what is behind the tag."""
    cdef const int32_t* ends
    cdef uint64_t bits
    cdef int64_t start, width
    cdef int fault
    cdef int operation = step.operation
    if operation == VARINT:
        return write_varint(machine, bits_of(step, column, row))
    if operation == ZIGZAG:
        bits = bits_of(step, column, row)
        return write_varint(machine, (bits << 1) ^ <uint64_t>(<int64_t>bits >> 63))
    if operation == FIXED:
        width = step.extra
        return write_raw(machine, column.data + (column.offset + row) * width, width)
    if operation == BYTES:
        ends = ends_of(column, row)
        fault = write_varint(machine, <uint64_t>(ends[1] - ends[0]))
        return fault if fault else write_raw(machine, column.data + ends[0], ends[1] - ends[0])
    if operation == BOOL:
        return write_byte(machine, bit_of(column, row))
    fault = begin_sized(machine, &start)
    if fault:
        return fault
    if operation == MESSAGE:
        fault = write_fields(machine, step, row)
    elif operation == WRAPPER:
        fault = write_field(machine, &machine.steps[step.first], row)
    elif operation == TIMESTAMP:
        fault = write_moment(machine, floored(int64_of(column, row), MICROSECONDS), column, row)
    elif operation == DURATION:
        fault = write_moment(machine, int64_of(column, row) // MICROSECONDS, column, row)
    elif operation == DATE:
        fault = write_day(machine, int32_of(column, row))
    else:
        fault = write_decimal(machine, step.extra, column, row)
    return fault if fault else end_sized(machine, start)


cdef int write_fields(Machine* machine, const Step* step, int64_t row) noexcept nogil:
    cdef const int32_t* link = machine.links + step.first
    cdef const int32_t* end = link + step.count
    cdef int fault
    while link < end:
        fault = write_field(machine, &machine.steps[link[0]], row)
        if fault:
            return fault
        link += 1
    return SOUND


cdef inline int begin_sized(Machine* machine, int64_t* start) noexcept nogil:
    """Leave one byte for a size: most messages have less than 128 bytes."""
    cdef int fault = reserve(machine, 1)
    machine.size += not fault
    start[0] = machine.size
    return fault


cdef inline int end_sized(Machine* machine, int64_t start) noexcept nogil:
    cdef int64_t size = machine.size - start, left = size
    cdef int64_t more = 0
    cdef int fault
    if size < 0x80:
        machine.written[start - 1] = <uint8_t>size
        return SOUND
    while left > 0x7F:
        more += 1
        left >>= 7
    fault = reserve(machine, VARINT_BYTES_MAX)
    if fault:
        return fault
    memmove(machine.written + start + more, machine.written + start, size)
    machine.size = start - 1
    fault = write_varint(machine, <uint64_t>size)
    machine.size += size
    return fault


cdef int write_elements(
    Machine* machine, const Step* step, const Column* column, int64_t row
) noexcept nogil:
    cdef const int32_t* ends = ends_of(column, row)
    cdef const Step* element = &machine.steps[step.first]
    cdef const Column* elements = &machine.columns[element.column]
    cdef int64_t item, start, before = machine.size
    cdef int fault
    if step.operation == REPEATED:
        for item in range(ends[0], ends[1]):
            fault = write_field(machine, element, item)
            if fault:
                return fault
        return SOUND
    if step.operation == MAP:
        for item in range(ends[0], ends[1]):
            fault = write_entry(machine, step, item)
            if fault:
                return fault
        return SOUND
    fault = write_prefix(machine, step)
    if not fault:
        fault = begin_sized(machine, &start)
    if fault:
        return fault
    for item in range(ends[0], ends[1]):
        if not is_null(elements, item):
            fault = write_value(machine, element, elements, item)
            if fault:
                return fault
    if machine.size == start:
        machine.size = before
        return SOUND
    return end_sized(machine, start)


cdef int write_entry(Machine* machine, const Step* step, int64_t item) noexcept nogil:
    cdef const Step* value = &machine.steps[step.extra]
    cdef int64_t start
    cdef int fault
    if value.on_null == ABSENT and is_null(&machine.columns[value.column], item):
        return SOUND
    fault = write_prefix(machine, step)
    if not fault:
        fault = begin_sized(machine, &start)
    if not fault:
        fault = write_field(machine, &machine.steps[step.first], item)
    if not fault:
        fault = write_field(machine, value, item)
    return fault if fault else end_sized(machine, start)


cdef int write_number_field(Machine* machine, uint8_t tag, int64_t number) noexcept nogil:
    cdef int fault
    if not number:
        return SOUND
    fault = write_byte(machine, tag)
    return fault if fault else write_varint(machine, <uint64_t>number)


cdef int write_moment(
    Machine* machine, int64_t seconds, const Column* column, int64_t row
) noexcept nogil:
    """Write the fields of a Timestamp or a Duration: seconds, and the rest in nanoseconds."""
    cdef int64_t rest = int64_of(column, row) - seconds * MICROSECONDS
    cdef int fault = write_number_field(machine, 1 << 3, seconds)
    return fault if fault else write_number_field(machine, 2 << 3, rest * 1000)


cdef int write_day(Machine* machine, int64_t days) noexcept nogil:
    cdef int64_t year, month, day
    cdef int fault
    civil(days, &year, &month, &day)
    fault = write_number_field(machine, 1 << 3, year)
    if not fault:
        fault = write_number_field(machine, 2 << 3, month)
    return fault if fault else write_number_field(machine, 3 << 3, day)


cdef int write_decimal(
    Machine* machine, int64_t scale, const Column* column, int64_t row
) noexcept nogil:
    """Write the unscaled number in big-endian bytes, the number of its digits, and the scale."""
    cdef int128 number = (<const int128*>column.data)[column.offset + row]
    cdef int128 left = number if number >= 0 else -number
    cdef uint8_t content[DECIMAL_BYTES + 1]
    cdef int index, size = 1, fault
    cdef int64_t count = 1
    # One bit is for the sign, also where a negative number would fit without it.
    while size < DECIMAL_BYTES and left >> (8 * size - 1):
        size += 1
    while left > 9:
        left //= 10
        count += 1
    for index in range(size):
        content[size - 1 - index] = <uint8_t>(number >> (8 * index))
    fault = write_byte(machine, 1 << 3 | 2)
    if not fault:
        fault = write_varint(machine, <uint64_t>size)
    if not fault:
        fault = write_raw(machine, content, size)
    if not fault:
        fault = write_number_field(machine, 2 << 3, count)
    return fault if fault else write_number_field(machine, 3 << 3, scale)


# -- Python objects


@cython.final
cdef class Memory:
    """A block that an Arrow array keeps, and frees at its end."""

    cdef uint8_t* data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer* buffer):
        pass

    def __dealloc__(self):
        free(self.data)


cdef object owned(uint8_t* data, Py_ssize_t size):
    cdef Memory memory = Memory()
    memory.data = data
    memory.size = size
    return memory


cdef inline int write_row(Machine* machine, bint is_json, int64_t row) noexcept nogil:
    if not is_json:
        return write_fields(machine, &machine.steps[0], row)
    if machine.steps[0].operation == JSON_OBJECT and machine.steps[0].column == 0:
        return write_object(machine, &machine.steps[0], row)
    return write_item(machine, &machine.steps[0], row)


@cython.final
cdef class RowEncoder:
    """Executes a program over the rows of columns."""

    cdef Step* steps
    cdef int32_t* links
    cdef bytes prefixes
    cdef Py_ssize_t column_count
    cdef bint is_json

    def __cinit__(self, program):
        cdef int64_t prefix = 0
        self.column_count = len(program.sources)
        self.steps = <Step*>calloc(len(program.steps), sizeof(Step))
        self.links = <int32_t*>calloc(len(program.links) + 1, sizeof(int32_t))
        if not (self.steps and self.links):
            raise MemoryError
        for index, step in enumerate(program.steps):
            self.steps[index].operation = int(step.operation)
            self.steps[index].column = step.column
            self.steps[index].first = step.first
            self.steps[index].count = step.count
            self.steps[index].extra = step.extra
            self.steps[index].on_null = int(step.on_null)
            self.steps[index].has_presence = step.has_presence
            self.steps[index].prefix = prefix
            self.steps[index].prefix_size = len(step.prefix)
            prefix += len(step.prefix)
        for index, link in enumerate(program.links):
            self.links[index] = link
        self.prefixes = b"".join(step.prefix for step in program.steps)
        self.is_json = self.steps[0].operation < VARINT

    def __dealloc__(self):
        free(self.steps)
        free(self.links)

    def encode(self, columns, int64_t rows, bytes prefix):
        """Return the 32-bit offsets and the bytes of all values, each after the prefix.

        None if a row does not fit its schema. OverflowError if the values do not fit one array.
        """
        cdef Machine machine
        cdef Py_buffer* held = <Py_buffer*>calloc(3 * self.column_count, sizeof(Py_buffer))
        cdef Column* filled = <Column*>calloc(self.column_count, sizeof(Column))
        cdef int32_t* ends = <int32_t*>malloc((rows + 1) * sizeof(int32_t))
        cdef const uint8_t* start = prefix
        cdef int64_t row = 0, prefix_size = len(prefix)
        cdef Py_ssize_t index, held_count = 0
        cdef int fault = NO_MEMORY
        machine.written = NULL
        machine.size = machine.capacity = 0
        try:
            if held == NULL or filled == NULL or ends == NULL:
                raise MemoryError
            for index in range(self.column_count):
                stored = columns[index]
                filled[index].offset = stored.offset
                filled[index].validity = hold(stored.validity, held, &held_count)
                filled[index].ends = hold(stored.ends, held, &held_count)
                filled[index].data = hold(stored.data, held, &held_count)
            machine.steps = self.steps
            machine.links = self.links
            machine.prefixes = <const uint8_t*><const char*>self.prefixes
            machine.columns = filled
            with nogil:
                ends[0] = 0
                fault = reserve(&machine, 1)
                while row < rows and not fault:
                    fault = write_raw(&machine, start, prefix_size)
                    if not fault:
                        fault = write_row(&machine, self.is_json, row)
                    if not fault and machine.size > VALUES_BYTES_MAX:
                        fault = FULL
                    if not fault:
                        row += 1
                        ends[row] = <int32_t>machine.size
            if fault == FULL:
                raise OverflowError
            if fault == NO_MEMORY:
                raise MemoryError
            if fault:
                return None
            found = (
                owned(<uint8_t*>ends, (rows + 1) * sizeof(int32_t)),
                owned(machine.written, machine.size),
            )
            ends = NULL
            machine.written = NULL
            return found
        finally:
            for index in range(held_count):
                PyBuffer_Release(&held[index])
            free(held)
            free(filled)
            free(ends)
            free(machine.written)


cdef const uint8_t* hold(object buffer, Py_buffer* held, Py_ssize_t* count) except? NULL:
    """Return the address of a buffer, which stays until it is released; NULL for None."""
    if buffer is None:
        return NULL
    PyObject_GetBuffer(buffer, &held[count[0]], PyBUF_SIMPLE)
    count[0] += 1
    return <const uint8_t*>held[count[0] - 1].buf
