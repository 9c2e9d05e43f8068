# cython: boundscheck=False, wraparound=False, cdivision=True
"""The compiled loop of _protobuf_decode_python, with the same functions and the same errors.

Every read is held against the end of its message. Columns grow by doubling, and are freed with the
object. A call works without the GIL on buffers of its own.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

cdef extern from *:
    """
    typedef __int128 ottla_int128;
    #define OTTLA_LIKELY_FIELD(condition) __builtin_expect(!!(condition), 1)
    """
    ctypedef long long int128 "ottla_int128"
    bint OTTLA_LIKELY_FIELD(bint) noexcept nogil

ctypedef const uint8_t* Place

cdef enum:
    INT32, INT64, UINT32, UINT64, SINT32, SINT64, BOOL, ENUM, CLOSED_ENUM, FIXED32, FIXED64
    STRING, BYTES, MESSAGE, TIMESTAMP, DURATION, WRAPPER, DECIMAL, LIST

cdef enum:
    RIGHT, TRUNCATED, LONG_VARINT, BAD_NUMBER, BAD_WIRE_TYPE, BAD_GROUP, DEEP_GROUP, NOT_UTF8
    BAD_TIMESTAMP, BAD_DURATION, BAD_DECIMAL, LARGE_COLUMN, MANY_CELLS, NO_MEMORY, UNKNOWN

cdef enum:
    GROUP_DEPTH_MAX = 100
    TABLE_NUMBERS_MAX = 1024
    CELLS_PER_VALUE_MAX = 16777216
    CONTENT_BYTES_MAX = 2147483647
    NANOS_MAX = 999999999

cdef uint64_t HIGH_BITS = <uint64_t>0x80808080 << 32 | <uint64_t>0x80808080
cdef int64_t SECONDS_MIN = -62135596800
cdef int64_t SECONDS_MAX = 253402300799
cdef int64_t DURATION_SECONDS_MAX = 315576000000


cdef struct Column:
    # the plan
    int kind
    int wire
    int number
    bint has_presence
    int first
    int count
    int oneof
    int32_t default_number
    int precision
    int scale
    int width
    # fields of a message by number
    int32_t* table
    int table_size
    int32_t* numbers
    int32_t* nodes
    int oneof_count
    int32_t* oneofs
    # names of an enum
    int enum_count
    int32_t* enum_numbers
    int32_t* enum_ends
    uint8_t* enum_names
    # the slot
    bint is_set
    bint is_merged
    uint64_t value
    Place start
    Py_ssize_t size
    uint8_t* merged
    Py_ssize_t merged_bytes
    # the rows
    Py_ssize_t length
    Py_ssize_t capacity
    uint8_t* valid
    uint8_t* data
    int32_t* offsets
    Py_ssize_t content_bytes
    Py_ssize_t content_capacity
    uint8_t* content


cdef inline bint has_offsets(Column* column) noexcept nogil:
    return (
        column.kind == STRING or column.kind == BYTES or column.kind == ENUM
        or column.kind == CLOSED_ENUM or column.kind == LIST
    )


cdef int long_varint(Place* at, Place end, uint64_t* number) noexcept nogil:
    cdef Place here = at[0]
    cdef uint64_t found = 0
    cdef int shift = 0
    while shift < 70:
        if here >= end:
            return TRUNCATED
        if shift == 63 and here[0] > 1:
            return LONG_VARINT
        found |= <uint64_t>(here[0] & 0x7F) << shift
        here += 1
        if (here - 1)[0] < 0x80:
            at[0] = here
            number[0] = found
            return RIGHT
        shift += 7
    return LONG_VARINT


cdef inline int varint(Place* at, Place end, uint64_t* number) noexcept nogil:
    cdef Place here = at[0]
    if OTTLA_LIKELY_FIELD(end - here >= 2):
        if here[0] < 0x80:
            number[0] = here[0]
            at[0] = here + 1
            return RIGHT
        if here[1] < 0x80:
            number[0] = (here[0] & 0x7F) | <uint64_t>here[1] << 7
            at[0] = here + 2
            return RIGHT
    return long_varint(at, end, number)


cdef inline int span(Place* at, Place end, Place* start, Py_ssize_t* size) noexcept nogil:
    cdef uint64_t length
    cdef int status = varint(at, end, &length)
    if status != RIGHT:
        return status
    if length > <uint64_t>(end - at[0]):
        return TRUNCATED
    start[0] = at[0]
    size[0] = <Py_ssize_t>length
    at[0] += length
    return RIGHT


cdef inline int tag_of(Place* at, Place end, int* number, int* wire) noexcept nogil:
    cdef uint64_t tag
    cdef int status = varint(at, end, &tag)
    if status != RIGHT:
        return status
    if tag >> 32 or tag < 8:
        return BAD_NUMBER
    number[0] = <int>(tag >> 3)
    wire[0] = <int>(tag & 7)
    return RIGHT


cdef int skip_field(Place* at, Place end, int wire, int number, int depth) noexcept nogil:
    cdef uint64_t ignored
    cdef Place start
    cdef Py_ssize_t size
    if wire == 0:
        return varint(at, end, &ignored)
    if wire == 2:
        return span(at, end, &start, &size)
    if wire == 1 or wire == 5:
        size = 8 if wire == 1 else 4
        if end - at[0] < size:
            return TRUNCATED
        at[0] += size
        return RIGHT
    if wire == 3:
        return skip_group(at, end, number, depth + 1, &start)
    return BAD_GROUP if wire == 4 else BAD_WIRE_TYPE


cdef int skip_group(Place* at, Place end, int number, int depth, Place* content_end) noexcept nogil:
    """Move behind the end tag of a group; `content_end` is the place of this tag."""
    cdef int inner, wire, status
    if depth > GROUP_DEPTH_MAX:
        return DEEP_GROUP
    while at[0] < end:
        content_end[0] = at[0]
        status = tag_of(at, end, &inner, &wire)
        if status != RIGHT:
            return status
        if wire == 4:
            return RIGHT if inner == number else BAD_GROUP
        status = skip_field(at, end, wire, inner, depth)
        if status != RIGHT:
            return status
    return BAD_GROUP


cdef bint is_utf8(Place at, Py_ssize_t size) noexcept nogil:
    cdef Place end = at + size
    cdef uint64_t eight
    cdef uint32_t code
    cdef int rest
    while at < end:
        if end - at >= 8:
            memcpy(&eight, at, 8)
            if not eight & HIGH_BITS:
                at += 8
                continue
        if at[0] < 0x80:
            at += 1
            continue
        if 0xC2 <= at[0] <= 0xDF:
            rest, code = 1, at[0] & 0x1F
        elif at[0] >> 4 == 0xE:
            rest, code = 2, at[0] & 0x0F
        elif 0xF0 <= at[0] <= 0xF4:
            rest, code = 3, at[0] & 0x07
        else:
            return False
        if end - at <= rest:
            return False
        at += 1
        for _ in range(rest):
            if at[0] >> 6 != 2:
                return False
            code = code << 6 | (at[0] & 0x3F)
            at += 1
        if rest == 2 and (code < 0x800 or 0xD800 <= code <= 0xDFFF):
            return False
        if rest == 3 and not 0x10000 <= code <= 0x10FFFF:
            return False
    return True


cdef int32_t enum_index(Column* column, int32_t number) noexcept nogil:
    cdef int32_t low = 0, high = column.enum_count, middle
    if 0 <= number < high and column.enum_numbers[number] == number:
        return number
    while low < high:
        middle = (low + high) >> 1
        if column.enum_numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    if low < column.enum_count and column.enum_numbers[low] == number:
        return low
    return -1


cdef inline int grow(Column* column) noexcept nogil:
    """Make room for one more row."""
    cdef Py_ssize_t capacity
    cdef void* moved
    if OTTLA_LIKELY_FIELD(column.length < column.capacity):
        return RIGHT
    if column.length >= CONTENT_BYTES_MAX:
        return LARGE_COLUMN
    capacity = 64 if column.capacity < 64 else column.capacity * 2
    moved = realloc(column.valid, capacity)
    if moved == NULL:
        return NO_MEMORY
    column.valid = <uint8_t*>moved
    if column.width:
        moved = realloc(column.data, capacity * column.width)
        if moved == NULL:
            return NO_MEMORY
        column.data = <uint8_t*>moved
    if has_offsets(column):
        moved = realloc(column.offsets, (capacity + 1) * sizeof(int32_t))
        if moved == NULL:
            return NO_MEMORY
        column.offsets = <int32_t*>moved
        if column.length == 0:
            column.offsets[0] = 0
    column.capacity = capacity
    return RIGHT


cdef inline int add_content(Column* column, Place start, Py_ssize_t size) noexcept nogil:
    """Add one row of bytes; grow() has made room for the row."""
    cdef Py_ssize_t needed = column.content_bytes + size, capacity
    cdef void* moved
    if needed > column.content_capacity:
        if needed > CONTENT_BYTES_MAX:
            return LARGE_COLUMN
        capacity = max(needed, column.content_capacity * 2, 256)
        moved = realloc(column.content, capacity)
        if moved == NULL:
            return NO_MEMORY
        column.content = <uint8_t*>moved
        column.content_capacity = capacity
    if size:
        memcpy(column.content + column.content_bytes, start, size)
    column.content_bytes = needed
    column.offsets[column.length + 1] = <int32_t>needed
    return RIGHT


cdef int add_number_text(Column* column, int32_t number) noexcept nogil:
    """Add the decimal text of an enum number that has no name."""
    cdef uint8_t digits[12]
    cdef int at = 12
    cdef int64_t rest = number if number >= 0 else -<int64_t>number
    while True:
        at -= 1
        digits[at] = <uint8_t>(48 + rest % 10)
        rest //= 10
        if rest == 0:
            break
    if number < 0:
        at -= 1
        digits[at] = 45
    return add_content(column, &digits[at], 12 - at)


cdef int merge(Column* column, Place start, Py_ssize_t size) noexcept nogil:
    """Append a further occurrence of a message to its slot: bytes in a row are merged messages."""
    cdef Py_ssize_t needed = column.size + size, capacity
    cdef void* moved
    if needed > column.merged_bytes:
        capacity = needed * 2
        moved = realloc(column.merged, capacity)
        if moved == NULL:
            return NO_MEMORY
        column.merged = <uint8_t*>moved
        column.merged_bytes = capacity
    if not column.is_merged:
        memcpy(column.merged, column.start, column.size)
        column.is_merged = True
    memcpy(column.merged + column.size, start, size)
    column.start = column.merged
    column.size = needed
    return RIGHT


cdef int decimal_of(Column* column, Column* unscaled, int32_t scale, int128* value) noexcept nogil:
    cdef int128 found = 0, limit = 1
    cdef Py_ssize_t index
    cdef int64_t shift = <int64_t>column.scale - scale
    cdef int step
    for step in range(column.precision):
        limit *= 10
    if unscaled.is_set:
        if unscaled.size > 16:
            return BAD_DECIMAL
        if unscaled.size and unscaled.start[0] & 0x80:
            found = -1
        for index in range(unscaled.size):
            found = found * 256 + unscaled.start[index]
    if found != 0:
        if shift > 38 or shift < -38:
            return BAD_DECIMAL
        while shift < 0:
            if found % 10 != 0:
                return BAD_DECIMAL
            found //= 10
            shift += 1
        while shift > 0:
            if found > limit // 10 or found < -(limit // 10):
                return BAD_DECIMAL
            found *= 10
            shift -= 1
    if found >= limit or found <= -limit:
        return BAD_DECIMAL
    value[0] = found
    return RIGHT


cdef class Columns:
    """The columns of one batch."""

    cdef Column* columns
    cdef int column_count
    cdef int64_t cells
    cdef int32_t* failed_rows
    cdef int32_t* failed_codes
    cdef Py_ssize_t failed_count
    cdef Py_ssize_t failed_capacity

    def __cinit__(self, tuple plan):
        cdef int index
        self.columns = <Column*>calloc(max(len(plan), 1), sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        self.column_count = len(plan)
        for index, node in enumerate(plan):
            self.set_up(&self.columns[index], node)
        for index in range(self.column_count):
            if MESSAGE <= self.columns[index].kind < LIST:
                self.set_up_fields(&self.columns[index])

    def __dealloc__(self):
        cdef int index
        cdef Column* column
        if self.columns != NULL:
            for index in range(self.column_count):
                column = &self.columns[index]
                free(column.table)
                free(column.numbers)
                free(column.nodes)
                free(column.oneofs)
                free(column.enum_numbers)
                free(column.enum_ends)
                free(column.enum_names)
                free(column.merged)
                free(column.valid)
                free(column.data)
                free(column.offsets)
                free(column.content)
        free(self.columns)
        free(self.failed_rows)
        free(self.failed_codes)

    cdef int set_up(self, Column* column, node) except -1:
        column.kind = node.kind
        column.number = node.number
        column.has_presence = node.has_presence
        column.first = node.first
        column.count = node.count
        column.oneof = node.oneof
        column.default_number = node.default_number
        column.precision = node.precision
        column.scale = node.scale
        if column.kind <= CLOSED_ENUM:
            column.wire = 0
        elif column.kind == FIXED32:
            column.wire = 5
        elif column.kind == FIXED64:
            column.wire = 1
        else:
            column.wire = 3 if node.is_group else 2
        if column.kind in (INT32, UINT32, SINT32, FIXED32):
            column.width = 4
        elif column.kind in (INT64, UINT64, SINT64, FIXED64, TIMESTAMP, DURATION):
            column.width = 8
        elif column.kind == DECIMAL:
            column.width = 16
        elif column.kind == BOOL:
            column.width = 1
        if node.enum_names:
            self.set_up_enum(column, node.enum_names)
        return 0

    cdef int set_up_enum(self, Column* column, tuple names) except -1:
        cdef bytes joined = "".join(name for _, name in names).encode()
        cdef int index, end = 0
        column.enum_count = len(names)
        column.enum_numbers = <int32_t*>calloc(len(names), sizeof(int32_t))
        column.enum_ends = <int32_t*>calloc(len(names) + 1, sizeof(int32_t))
        column.enum_names = <uint8_t*>calloc(len(joined) + 1, 1)
        if not (column.enum_numbers and column.enum_ends and column.enum_names):
            raise MemoryError
        memcpy(column.enum_names, PyBytes_AS_STRING(joined), len(joined))
        for index, (number, name) in enumerate(names):
            end += len(name.encode())
            column.enum_numbers[index] = number
            column.enum_ends[index + 1] = end
        return 0

    cdef int set_up_fields(self, Column* message) except -1:
        cdef int index, largest = 0
        cdef list ordered = sorted(
            (self.columns[index].number, index)
            for index in range(message.first, message.first + message.count)
        )
        if ordered:
            largest = ordered[len(ordered) - 1][0]
        if largest <= TABLE_NUMBERS_MAX:
            message.table_size = largest + 1
            message.table = <int32_t*>calloc(largest + 1, sizeof(int32_t))
            if message.table == NULL:
                raise MemoryError
            for number, index in ordered:
                message.table[<int>number] = index
        message.numbers = <int32_t*>calloc(len(ordered) + 1, sizeof(int32_t))
        message.nodes = <int32_t*>calloc(len(ordered) + 1, sizeof(int32_t))
        if message.numbers == NULL or message.nodes == NULL:
            raise MemoryError
        for index, (number, node) in enumerate(ordered):
            message.numbers[index] = number
            message.nodes[index] = node
            message.oneof_count = max(message.oneof_count, self.columns[<int>node].oneof + 1)
        message.oneofs = <int32_t*>calloc(message.oneof_count + 1, sizeof(int32_t))
        if message.oneofs == NULL:
            raise MemoryError
        return 0

    @property
    def errors(self):
        """The row and the code of each value that is not valid."""
        cdef Py_ssize_t index
        return [
            (self.failed_rows[index], self.failed_codes[index])
            for index in range(self.failed_count)
        ]

    def decode(
        self,
        const uint8_t[::1] content,
        const uint8_t[::1] offsets,
        bint is_large,
        Py_ssize_t start,
        Py_ssize_t rows,
        validity,
        Py_ssize_t skip,
    ):
        """Decode the values; `errors` gets the row and the code of each that is not valid."""
        cdef const uint8_t[::1] bits
        cdef Place validity_bits = NULL
        cdef Place values = NULL
        cdef int status
        if rows == 0:
            return
        if validity is not None:
            bits = validity
            validity_bits = &bits[0]
        if content.shape[0]:
            values = &content[0]
        with nogil:
            status = self.decode_rows(
                values, <const void*>&offsets[0], is_large, start, rows, validity_bits, skip
            )
        if status != RIGHT:
            raise MemoryError

    cdef int decode_rows(
        self, Place values, const void* offsets, bint is_large, Py_ssize_t start, Py_ssize_t rows,
        Place validity, Py_ssize_t skip,
    ) noexcept nogil:
        cdef const int32_t* short_offsets = <const int32_t*>offsets
        cdef const int64_t* long_offsets = <const int64_t*>offsets
        cdef Column* root = &self.columns[0]
        cdef Py_ssize_t row, at, begin, end
        cdef int status
        for row in range(rows):
            at = start + row
            self.cells = 0
            if validity != NULL and not validity[at >> 3] >> (at & 7) & 1:
                if self.append_null(root) != RIGHT:
                    return NO_MEMORY
                continue
            begin = long_offsets[at] if is_large else short_offsets[at]
            end = long_offsets[at + 1] if is_large else short_offsets[at + 1]
            if end - begin < skip:
                status = TRUNCATED
            else:
                status = self.append(root, 0, values + begin + skip, end - begin - skip)
            if status == NO_MEMORY:
                return NO_MEMORY
            if status != RIGHT:
                self.truncate(root, row)
                if self.append_null(root) != RIGHT or self.add_error(row, status) != RIGHT:
                    return NO_MEMORY
        return RIGHT

    cdef int add_error(self, Py_ssize_t row, int code) noexcept nogil:
        cdef Py_ssize_t capacity
        cdef void* moved
        if self.failed_count == self.failed_capacity:
            capacity = max(self.failed_capacity * 2, 64)
            moved = realloc(self.failed_rows, capacity * sizeof(int32_t))
            if moved == NULL:
                return NO_MEMORY
            self.failed_rows = <int32_t*>moved
            moved = realloc(self.failed_codes, capacity * sizeof(int32_t))
            if moved == NULL:
                return NO_MEMORY
            self.failed_codes = <int32_t*>moved
            self.failed_capacity = capacity
        self.failed_rows[self.failed_count] = <int32_t>row
        self.failed_codes[self.failed_count] = code
        self.failed_count += 1
        return RIGHT

    # --- reading

    cdef inline Column* field(self, Column* message, int number) noexcept nogil:
        cdef int low = 0, high = message.count, middle
        if message.table != NULL:
            if number >= message.table_size or message.table[number] == 0:
                return NULL
            return &self.columns[message.table[number]]
        while low < high:
            middle = (low + high) >> 1
            if message.numbers[middle] < number:
                low = middle + 1
            else:
                high = middle
        if low < message.count and message.numbers[low] == number:
            return &self.columns[message.nodes[low]]
        return NULL

    cdef int parse(self, Column* message, Place at, Place end) noexcept nogil:
        cdef int index, number = 0, wire = 0, status
        cdef Column* child
        for index in range(message.first, message.first + message.count):
            self.columns[index].is_set = False
        for index in range(message.oneof_count):
            message.oneofs[index] = 0
        while at < end:
            status = tag_of(&at, end, &number, &wire)
            if status != RIGHT:
                return status
            child = self.field(message, number)
            status = UNKNOWN if child == NULL else self.take(child, message, wire, &at, end)
            if status == UNKNOWN:
                status = skip_field(&at, end, wire, number, 0)
            if status != RIGHT:
                return status
        return RIGHT

    cdef inline int read(
        self, Column* column, Place* at, Place end, uint64_t* number, Place* start, Py_ssize_t* size
    ) noexcept nogil:
        cdef int status
        cdef uint32_t four
        cdef Place content_end
        if column.wire == 0:
            return varint(at, end, number)
        if column.wire == 2:
            return span(at, end, start, size)
        if column.wire == 3:
            start[0] = at[0]
            status = skip_group(at, end, column.number, 1, &content_end)
            size[0] = content_end - start[0]
            return status
        if column.wire == 1:
            if end - at[0] < 8:
                return TRUNCATED
            memcpy(number, at[0], 8)
            at[0] += 8
            return RIGHT
        if end - at[0] < 4:
            return TRUNCATED
        memcpy(&four, at[0], 4)
        number[0] = four
        at[0] += 4
        return RIGHT

    cdef inline int take(
        self, Column* child, Column* message, int wire, Place* at, Place end
    ) noexcept nogil:
        cdef uint64_t number = 0
        cdef Place start = NULL
        cdef Py_ssize_t size = 0
        cdef int status, before
        if child.kind == LIST:
            return self.take_element(&self.columns[child.first], wire, at, end)
        if wire != child.wire:
            return UNKNOWN
        status = self.read(child, at, end, &number, &start, &size)
        if status != RIGHT:
            return status
        if child.kind == CLOSED_ENUM and enum_index(child, <int32_t>number) < 0:
            return RIGHT
        if child.oneof >= 0:
            before = message.oneofs[child.oneof]
            if before and &self.columns[before] != child:
                self.columns[before].is_set = False
            message.oneofs[child.oneof] = <int32_t>(child - self.columns)
        if child.is_set and child.kind >= MESSAGE:
            return merge(child, start, size)
        child.is_set = True
        child.is_merged = False
        child.value = number
        child.start = start
        child.size = size
        return RIGHT

    cdef int take_element(self, Column* element, int wire, Place* at, Place end) noexcept nogil:
        cdef uint64_t number = 0
        cdef Place start = NULL
        cdef Place stop
        cdef Py_ssize_t size = 0
        cdef int status
        if wire == element.wire:
            status = self.read(element, at, end, &number, &start, &size)
            if status != RIGHT:
                return status
            return self.append_element(element, number, start, size)
        if wire != 2 or element.kind > FIXED64:
            return UNKNOWN
        status = span(at, end, &start, &size)
        stop = start + size
        while status == RIGHT and start < stop:
            status = self.read(element, &start, stop, &number, NULL, NULL)
            if status == RIGHT:
                status = self.append_element(element, number, NULL, 0)
        return status

    cdef inline int append_element(
        self, Column* element, uint64_t number, Place start, Py_ssize_t size
    ) noexcept nogil:
        cdef int status
        if element.kind == CLOSED_ENUM and enum_index(element, <int32_t>number) < 0:
            return RIGHT
        status = self.append(element, number, start, size)
        if status == RIGHT and self.cells > CELLS_PER_VALUE_MAX:
            return MANY_CELLS
        return status

    # --- appending

    cdef int flush(self, Column* message) noexcept nogil:
        cdef int index, status
        cdef Column* child
        for index in range(message.first, message.first + message.count):
            child = &self.columns[index]
            if child.kind == LIST:
                self.cells += 1
                status = grow(child)
                if status != RIGHT:
                    return status
                child.valid[child.length] = 1
                child.length += 1
                child.offsets[child.length] = <int32_t>self.rows(&self.columns[child.first])
            elif child.is_set:
                status = self.append(child, child.value, child.start, child.size)
            elif child.has_presence:
                status = self.append_null(child)
            else:
                status = self.append(child, <uint64_t><int64_t>child.default_number, NULL, 0)
            if status != RIGHT:
                return status
        return RIGHT

    cdef inline Py_ssize_t rows(self, Column* column) noexcept nogil:
        while column.kind == WRAPPER:
            column = &self.columns[column.first]
        return column.length

    cdef int append(
        self, Column* column, uint64_t number, Place start, Py_ssize_t size
    ) noexcept nogil:
        cdef int status, found
        cdef uint32_t four
        cdef int kind = column.kind
        self.cells += 1
        if kind == WRAPPER:
            return self.append_wrapped(column, start, size)
        status = grow(column)
        if status != RIGHT:
            return status
        if kind == STRING or kind == BYTES:
            if kind == STRING and not is_utf8(start, size):
                return NOT_UTF8
            status = add_content(column, start, size)
        elif kind == INT32 or kind == UINT32 or kind == FIXED32:
            four = <uint32_t>number
            memcpy(column.data + column.length * 4, &four, 4)
        elif kind == INT64 or kind == UINT64 or kind == FIXED64:
            memcpy(column.data + column.length * 8, &number, 8)
        elif kind == SINT32:
            four = <uint32_t>(number >> 1) ^ <uint32_t>-<int64_t>(number & 1)
            memcpy(column.data + column.length * 4, &four, 4)
        elif kind == SINT64:
            number = (number >> 1) ^ <uint64_t>-<int64_t>(number & 1)
            memcpy(column.data + column.length * 8, &number, 8)
        elif kind == BOOL:
            column.data[column.length] = number != 0
        elif kind == ENUM or kind == CLOSED_ENUM:
            found = enum_index(column, <int32_t>number)
            if found < 0:
                status = add_number_text(column, <int32_t>number)
            else:
                status = add_content(
                    column,
                    column.enum_names + column.enum_ends[found],
                    column.enum_ends[found + 1] - column.enum_ends[found],
                )
        else:
            status = self.append_message(column, start, size)
        if status != RIGHT:
            return status
        column.valid[column.length] = 1
        column.length += 1
        if kind == MESSAGE:
            return self.flush(column)
        return RIGHT

    cdef int append_wrapped(self, Column* column, Place start, Py_ssize_t size) noexcept nogil:
        cdef Column* inner = &self.columns[column.first]
        cdef int status = self.parse(column, start, start + size)
        if status != RIGHT:
            return status
        if inner.is_set:
            return self.append(inner, inner.value, inner.start, inner.size)
        return self.append(inner, 0, NULL, 0)

    cdef int append_message(self, Column* column, Place start, Py_ssize_t size) noexcept nogil:
        cdef int status = self.parse(column, start, start + size)
        cdef Column* slots = &self.columns[column.first]
        cdef int64_t seconds, nanos, moment
        cdef int128 decimal = 0
        if status != RIGHT or column.kind == MESSAGE:
            return status
        if column.kind == DECIMAL:
            status = decimal_of(
                column, slots, <int32_t>slots[1].value if slots[1].is_set else 0, &decimal
            )
            memcpy(column.data + column.length * 16, &decimal, 16)
            return status
        seconds = <int64_t>slots[0].value if slots[0].is_set else 0
        nanos = <int32_t>slots[1].value if slots[1].is_set else 0
        if column.kind == TIMESTAMP:
            if not SECONDS_MIN <= seconds <= SECONDS_MAX or not 0 <= nanos <= NANOS_MAX:
                return BAD_TIMESTAMP
        elif not -DURATION_SECONDS_MAX <= seconds <= DURATION_SECONDS_MAX:
            return BAD_DURATION
        elif not -NANOS_MAX <= nanos <= NANOS_MAX:
            return BAD_DURATION
        moment = seconds * 1000000 + nanos // 1000 - (1 if nanos < 0 and nanos % 1000 else 0)
        memcpy(column.data + column.length * 8, &moment, 8)
        return RIGHT

    cdef int append_null(self, Column* column) noexcept nogil:
        cdef int index, status
        self.cells += 1
        if column.kind == MESSAGE or column.kind == WRAPPER:
            for index in range(column.first, column.first + column.count):
                status = self.append_null(&self.columns[index])
                if status != RIGHT:
                    return status
            if column.kind == WRAPPER:
                return RIGHT
        status = grow(column)
        if status != RIGHT:
            return status
        if column.width:
            memset(column.data + column.length * column.width, 0, column.width)
        if has_offsets(column):
            column.offsets[column.length + 1] = column.offsets[column.length]
        column.valid[column.length] = 0
        column.length += 1
        return RIGHT

    cdef void truncate(self, Column* column, Py_ssize_t rows) noexcept nogil:
        cdef int index
        if column.kind == MESSAGE or column.kind == WRAPPER:
            for index in range(column.first, column.first + column.count):
                self.truncate(&self.columns[index], rows)
        elif column.kind == LIST:
            self.truncate(
                &self.columns[column.first], 0 if column.offsets == NULL else column.offsets[rows]
            )
        elif column.offsets != NULL:
            column.content_bytes = column.offsets[rows]
        column.length = rows

    # --- results

    def column(self, int index):
        """Return length, null count, validity bits, values or bytes, and offsets of a column."""
        cdef Column* column = &self.columns[index]
        cdef Py_ssize_t row, nulls = 0
        cdef int32_t zero = 0
        for row in range(column.length):
            nulls += not column.valid[row]
        validity = packed(column.valid, column.length) if nulls else None
        if has_offsets(column):
            data = b""
            if column.kind != LIST:
                data = PyBytes_FromStringAndSize(<char*>column.content, column.content_bytes)
            if column.offsets == NULL:
                offsets = PyBytes_FromStringAndSize(<char*>&zero, 4)
            else:
                offsets = PyBytes_FromStringAndSize(
                    <char*>column.offsets, (column.length + 1) * sizeof(int32_t)
                )
            return column.length, nulls, validity, data, offsets
        if column.kind == BOOL:
            data = packed(column.data, column.length)
        else:
            data = PyBytes_FromStringAndSize(<char*>column.data, column.length * column.width)
        return column.length, nulls, validity, data, b""


cdef bytes packed(const uint8_t* flags, Py_ssize_t count):
    cdef bytes found = PyBytes_FromStringAndSize(NULL, (count + 7) // 8)
    cdef uint8_t* bits = <uint8_t*>PyBytes_AS_STRING(found)
    cdef Py_ssize_t index
    memset(bits, 0, (count + 7) // 8)
    for index in range(count):
        bits[index >> 3] |= <uint8_t>((flags[index] != 0) << (index & 7))
    return found
