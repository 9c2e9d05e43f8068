# cython: language_level=3
"""Columns that grow while they are filled. Offsets say how many rows the items of a list have."""

from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memcpy, memset

cdef enum Layout:
    L_NULL = 0
    L_BOOLEAN = 1
    L_FIXED = 2
    L_BYTES = 3
    L_LIST = 4
    L_MAP = 5
    L_STRUCT = 6

cdef enum Fault:
    SOUND = 0
    TRUNCATED = 1
    VARINT = 2
    INT_RANGE = 3
    NEGATIVE_LENGTH = 4
    UNION_INDEX = 5
    ENUM_INDEX = 6
    ENUM_SYMBOL = 7
    BAD_BOOLEAN = 8
    UTF8 = 9
    ITEMS = 10
    DEPTH = 11
    BRANCH = 12
    DECIMAL_RANGE = 13
    DECIMAL_INEXACT = 14
    TIME_RANGE = 15
    PREFIX = 16
    # These end the whole run, and not one value.
    FULL = 100
    NO_MEMORY = 101

cdef enum:
    CAPACITY_MIN = 64

cdef struct Step:
    int32_t operation
    int32_t column
    int64_t first
    int64_t count
    int64_t extra

cdef struct Block:
    uint8_t* data
    int64_t capacity

cdef struct Column:
    int32_t layout
    int32_t is_nullable
    int64_t width
    int32_t first_child
    int32_t children
    int64_t rows
    int64_t nulls
    int64_t size
    Block validity
    Block offsets
    Block data

cdef struct Machine:
    const uint8_t* position
    const uint8_t* end
    const Step* steps
    const int64_t* links
    const uint8_t* constants
    const int32_t* child_indexes
    Column* columns
    int64_t allocated
    int64_t allocated_max
    int64_t zero_size_items
    int32_t fault_step
    int32_t full_column


cdef inline int grow(Machine* machine, Block* block, int64_t needed) noexcept nogil:
    cdef int64_t capacity = block.capacity * 2
    cdef uint8_t* data
    if capacity < needed:
        capacity = needed
    if capacity < CAPACITY_MIN:
        capacity = CAPACITY_MIN
    if capacity - block.capacity > machine.allocated_max - machine.allocated:
        return FULL
    data = <uint8_t*>realloc(block.data, capacity)
    if data == NULL:
        return NO_MEMORY
    machine.allocated += capacity - block.capacity
    block.data = data
    block.capacity = capacity
    return SOUND


cdef inline int reserve(Machine* machine, Block* block, int64_t needed) noexcept nogil:
    if needed <= block.capacity:
        return SOUND
    return grow(machine, block, needed)


cdef inline int write_bit(Machine* machine, Block* block, int64_t row, int bit) noexcept nogil:
    cdef int64_t place = row >> 3
    cdef int shift = row & 7
    if place >= block.capacity and grow(machine, block, place + 1):
        return FULL
    # The bits behind this one are cleared, so no byte has bits that were never written.
    block.data[place] = (block.data[place] & ((1 << shift) - 1) if shift else 0) | (bit << shift)
    return SOUND


cdef inline int mark_valid(Machine* machine, Column* column) noexcept nogil:
    if column.is_nullable:
        return write_bit(machine, &column.validity, column.rows, 1)
    return SOUND


cdef inline int push_offset(Machine* machine, Column* column, int64_t end) noexcept nogil:
    # The first offset, 0, was written when the column was made.
    cdef int64_t place = (column.rows + 1) * 4
    if end > INT32_MAX:
        return FULL
    if place + 4 > column.offsets.capacity and grow(machine, &column.offsets, place + 4):
        return FULL
    (<int32_t*>(column.offsets.data + place))[0] = <int32_t>end
    column.rows += 1
    return SOUND


cdef inline int append_bytes(
    Machine* machine, Column* column, const uint8_t* content, int64_t size
) noexcept nogil:
    cdef int64_t end = column.size + size
    if mark_valid(machine, column):
        return FULL
    if end > column.data.capacity and grow(machine, &column.data, end):
        return FULL
    memcpy(column.data.data + column.size, content, size)
    if push_offset(machine, column, end):
        return FULL
    column.size = end
    return SOUND


cdef inline uint8_t* append_fixed(Machine* machine, Column* column, int64_t width) noexcept nogil:
    """Return the place for the next value, or NULL if there is no room."""
    cdef int64_t start = column.rows * width
    if mark_valid(machine, column):
        return NULL
    if start + width > column.data.capacity and grow(machine, &column.data, start + width):
        return NULL
    column.rows += 1
    return column.data.data + start


cdef inline int append_4(Machine* machine, Column* column, void* value) noexcept nogil:
    cdef uint8_t* place = append_fixed(machine, column, 4)
    if place == NULL:
        return FULL
    memcpy(place, value, 4)
    return SOUND


cdef inline int append_8(Machine* machine, Column* column, void* value) noexcept nogil:
    cdef uint8_t* place = append_fixed(machine, column, 8)
    if place == NULL:
        return FULL
    memcpy(place, value, 8)
    return SOUND


cdef inline int full(Machine* machine, int32_t index) noexcept nogil:
    machine.full_column = index
    return FULL


cdef inline int append_null(Machine* machine, int32_t index) noexcept nogil:
    """Append a null, or an empty value where the column has none."""
    cdef Column* column = &machine.columns[index]
    cdef int32_t child
    cdef int64_t start
    if column.is_nullable:
        column.nulls += 1
        if write_bit(machine, &column.validity, column.rows, 0):
            return full(machine, index)
    if column.layout == L_BYTES:
        if push_offset(machine, column, column.size):
            return full(machine, index)
        return SOUND
    if column.layout == L_LIST or column.layout == L_MAP:
        child = machine.child_indexes[column.first_child]
        if push_offset(machine, column, machine.columns[child].rows):
            return full(machine, index)
        return SOUND
    if column.layout == L_BOOLEAN:
        if write_bit(machine, &column.data, column.rows, 0):
            return full(machine, index)
    elif column.layout == L_FIXED:
        start = column.rows * column.width
        if reserve(machine, &column.data, start + column.width):
            return full(machine, index)
        memset(column.data.data + start, 0, column.width)
    elif column.layout == L_STRUCT:
        for child in range(column.children):
            if append_null(machine, machine.child_indexes[column.first_child + child]):
                return FULL
    column.rows += 1
    return SOUND


cdef inline void cut(Machine* machine, int32_t index, int64_t rows) noexcept nogil:
    """Remove the rows from this one on."""
    cdef Column* column = &machine.columns[index]
    cdef int32_t child
    if column.rows < rows:
        rows = column.rows
    if column.layout == L_BYTES:
        column.size = (<int32_t*>column.offsets.data)[rows]
    elif column.layout == L_LIST or column.layout == L_MAP:
        for child in range(column.children):
            cut(machine, machine.child_indexes[column.first_child + child],
                (<int32_t*>column.offsets.data)[rows])
    elif column.layout == L_STRUCT:
        for child in range(column.children):
            cut(machine, machine.child_indexes[column.first_child + child], rows)
    column.rows = rows


cdef inline bint has_null(Column* column) noexcept nogil:
    """Whether a row is null: nulls are counted before rows are removed."""
    cdef int64_t row
    for row in range(column.rows):
        if not (column.validity.data[row >> 3] >> (row & 7)) & 1:
            return True
    return False
