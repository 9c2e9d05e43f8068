# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Avro to Arrow, compiled: the twin of _avro_decode_python, which has the contracts.

Every read is checked against the end of the value, and every write against the capacity of its
buffer. The loop runs without the GIL and makes no Python object. When a value is malformed, all
columns are cut back to the rows they had before it: the offsets of a list say how many rows its
items had, so nothing has to be saved before a value.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

from ottla.schemas.arrow._avro_columns cimport (
    BAD_BOOLEAN, BRANCH, CAPACITY_MIN, DEPTH, ENUM_INDEX, ENUM_SYMBOL, FULL, ITEMS, L_BOOLEAN,
    L_BYTES, L_FIXED, L_LIST, L_MAP, L_STRUCT, NEGATIVE_LENGTH, NO_MEMORY, PREFIX, SOUND,
    TIME_RANGE, TRUNCATED, UNION_INDEX, UTF8, Block, Column, Machine, Step, append_4, append_8,
    append_bytes, append_fixed, append_null, cut, full, has_null, mark_valid, push_offset, reserve,
    write_bit,
)
from ottla.schemas.arrow._avro_wire cimport (
    LIMBS, is_utf8, read_decimal, read_int, read_long, read_size, write_uuid,
)

from ottla.schemas.arrow._avro_decode_python import OUTPUT_BYTES_MAX, ColumnFullError
from ottla.schemas.avro import avro_resolution

cdef enum Operation:
    NULL_ = 0
    BOOLEAN = 1
    INT = 2
    INT_TO_LONG = 3
    LONG = 4
    LONG_SCALED = 5
    INT_TO_FLOAT = 6
    INT_TO_DOUBLE = 7
    LONG_TO_FLOAT = 8
    LONG_TO_DOUBLE = 9
    FLOAT = 10
    FLOAT_TO_DOUBLE = 11
    DOUBLE = 12
    BYTES = 13
    TEXT = 14
    FIXED = 15
    DECIMAL = 16
    UUID = 17
    ENUM = 18
    RECORD = 19
    ARRAY = 20
    MAP = 21
    UNION = 22
    APPEND_NULL = 23
    MEMBER = 24
    CONSTANT = 25
    FAIL = 26
    SKIP_LONG = 27
    SKIP_BYTES = 28
    SKIP_FIXED = 29
    SKIP_ENUM = 30
    TIME_OF_DAY = 31

cdef enum:
    DIGITS_MAX = 76
    RESERVED_WIDTH_MAX = 32

cdef int DEPTH_MAX = avro_resolution.DEPTH_MAX
cdef int64_t ZERO_SIZE_ITEMS_MAX = avro_resolution.ZERO_SIZE_ITEMS_MAX

cdef struct Failure:
    int64_t row
    int32_t fault
    int32_t step

# Powers of ten, as numbers of 256 bits.
cdef uint32_t POWERS[DIGITS_MAX + 1][LIMBS]


cdef void fill_powers():
    for exponent in range(DIGITS_MAX + 1):
        for limb in range(LIMBS):
            POWERS[exponent][limb] = (10 ** exponent >> (32 * limb)) & 0xFFFFFFFF


fill_powers()


# Steps


cdef int run(Machine* machine, int32_t index, int depth) noexcept nogil:
    """Read one value by a step; the number of a fault, or SOUND."""
    cdef const Step* step = &machine.steps[index]
    cdef int fault = execute(machine, step, depth)
    # The innermost step is the place of the fault.
    if fault and machine.fault_step < 0:
        machine.fault_step = index
        if fault == FULL and machine.full_column < 0:
            machine.full_column = step.column
    return fault


cdef inline int execute(Machine* machine, const Step* step, int depth) noexcept nogil:
    cdef int32_t operation = step.operation
    cdef Column* column = &machine.columns[step.column if step.column >= 0 else 0]
    cdef int64_t value = 0
    cdef float real
    cdef double wide
    cdef int fault
    if operation == LONG:
        fault = read_long(machine, &value)
        return fault if fault else append_8(machine, column, &value)
    elif operation == INT:
        fault = read_int(machine, &value)
        return fault if fault else append_4(machine, column, &value)
    elif operation == TEXT or operation == BYTES:
        fault = read_size(machine, &value)
        if fault:
            return fault
        if operation == TEXT and not is_utf8(machine.position, value):
            return UTF8
        machine.position += value
        return append_bytes(machine, column, machine.position - value, value)
    elif operation == DOUBLE:
        if machine.end - machine.position < 8:
            return TRUNCATED
        machine.position += 8
        return append_8(machine, column, <void*>(machine.position - 8))
    elif operation == FLOAT:
        if machine.end - machine.position < 4:
            return TRUNCATED
        machine.position += 4
        return append_4(machine, column, <void*>(machine.position - 4))
    elif operation == BOOLEAN:
        return read_boolean(machine, column)
    elif operation == UNION:
        fault = read_long(machine, &value)
        if fault:
            return fault
        if value < 0 or value >= step.count:
            return UNION_INDEX
        if depth >= DEPTH_MAX:
            return DEPTH
        return run(machine, <int32_t>machine.links[step.first + value], depth + 1)
    elif operation == APPEND_NULL:
        return append_null(machine, step.column)
    elif operation == RECORD:
        return read_record(machine, step, depth)
    elif operation == ENUM:
        return read_enum(machine, step, column)
    elif operation == FIXED:
        return read_fixed(machine, step, column)
    elif operation == ARRAY:
        return read_array(machine, step, depth)
    elif operation == MAP:
        return read_map(machine, step, depth)
    elif operation == INT_TO_LONG:
        fault = read_int(machine, &value)
        return fault if fault else append_8(machine, column, &value)
    elif operation == INT_TO_FLOAT or operation == LONG_TO_FLOAT:
        fault = read_int(machine, &value) if operation == INT_TO_FLOAT else read_long(machine, &value)
        # By way of a double, as in Python.
        real = <float><double>value
        return fault if fault else append_4(machine, column, &real)
    elif operation == INT_TO_DOUBLE or operation == LONG_TO_DOUBLE:
        fault = read_int(machine, &value) if operation == INT_TO_DOUBLE else read_long(machine, &value)
        wide = <double>value
        return fault if fault else append_8(machine, column, &wide)
    elif operation == FLOAT_TO_DOUBLE:
        if machine.end - machine.position < 4:
            return TRUNCATED
        memcpy(&real, machine.position, 4)
        machine.position += 4
        wide = real
        return append_8(machine, column, &wide)
    elif operation == LONG_SCALED or operation == TIME_OF_DAY:
        return read_scaled(machine, step, column)
    elif operation == DECIMAL:
        return read_decimal_column(machine, step, column)
    elif operation == UUID:
        return read_uuid(machine, column)
    elif operation == NULL_:
        column.rows += 1
        return SOUND
    elif operation == MEMBER:
        return read_member(machine, step, depth)
    elif operation == CONSTANT:
        return read_constant(machine, step, depth)
    elif operation == SKIP_LONG:
        return read_long(machine, &value)
    elif operation == SKIP_BYTES:
        fault = read_size(machine, &value)
        if fault:
            return fault
        machine.position += value
        return SOUND
    elif operation == SKIP_FIXED:
        if machine.end - machine.position < step.first:
            return TRUNCATED
        machine.position += step.first
        return SOUND
    elif operation == SKIP_ENUM:
        fault = read_long(machine, &value)
        if fault:
            return fault
        return SOUND if 0 <= value < step.count else ENUM_INDEX
    return BRANCH


cdef inline int read_boolean(Machine* machine, Column* column) noexcept nogil:
    cdef uint8_t value
    if machine.position >= machine.end:
        return TRUNCATED
    value = machine.position[0]
    if value > 1:
        return BAD_BOOLEAN
    machine.position += 1
    if mark_valid(machine, column) or write_bit(machine, &column.data, column.rows, value):
        return FULL
    column.rows += 1
    return SOUND


cdef int read_fixed(Machine* machine, const Step* step, Column* column) noexcept nogil:
    cdef uint8_t* place
    if machine.end - machine.position < step.first:
        return TRUNCATED
    place = append_fixed(machine, column, step.first)
    if place == NULL and step.first:
        return FULL
    if step.first:
        memcpy(place, machine.position, step.first)
    machine.position += step.first
    return SOUND


cdef int read_enum(Machine* machine, const Step* step, Column* column) noexcept nogil:
    cdef int64_t symbol, start
    cdef int fault = read_long(machine, &symbol)
    if fault:
        return fault
    if symbol < 0 or symbol >= step.count:
        return ENUM_INDEX
    start = machine.links[step.first + 2 * symbol]
    if start < 0:
        return ENUM_SYMBOL
    return append_bytes(
        machine, column, machine.constants + start, machine.links[step.first + 2 * symbol + 1]
    )


cdef int read_scaled(Machine* machine, const Step* step, Column* column) noexcept nogil:
    cdef int64_t value, quotient
    cdef int fault = read_long(machine, &value)
    if fault:
        return fault
    if value > INT64_MAX // step.first or value < INT64_MIN // step.first:
        return TIME_RANGE
    value *= step.first
    quotient = value // step.count
    # C rounds towards zero.
    if value % step.count < 0:
        quotient -= 1
    if step.operation == TIME_OF_DAY and not 0 <= quotient < step.extra:
        return TIME_RANGE
    if column.width == 4:
        return append_4(machine, column, &quotient)
    return append_8(machine, column, &quotient)


cdef int read_decimal_column(Machine* machine, const Step* step, Column* column) noexcept nogil:
    cdef int64_t size = step.first
    cdef int fault
    cdef uint8_t number[LIMBS * 4]
    cdef uint8_t* place
    if size < 0:
        fault = read_size(machine, &size)
        if fault:
            return fault
    elif machine.end - machine.position < size:
        return TRUNCATED
    fault = read_decimal(machine.position, size, step.count, POWERS[step.extra], number, column.width)
    if fault:
        return fault
    machine.position += size
    place = append_fixed(machine, column, column.width)
    if place == NULL:
        return FULL
    memcpy(place, number, column.width)
    return SOUND


cdef int read_uuid(Machine* machine, Column* column) noexcept nogil:
    cdef uint8_t text[36]
    if machine.end - machine.position < 16:
        return TRUNCATED
    write_uuid(machine.position, text)
    machine.position += 16
    return append_bytes(machine, column, text, 36)


cdef int read_record(Machine* machine, const Step* step, int depth) noexcept nogil:
    cdef const int64_t* link = machine.links + step.first
    cdef const int64_t* end = link + step.count
    cdef Column* column
    cdef int fault
    if depth >= DEPTH_MAX:
        return DEPTH
    while link < end:
        fault = run(machine, <int32_t>link[0], depth + 1)
        if fault:
            return fault
        link += 1
    if step.column >= 0:
        column = &machine.columns[step.column]
        if mark_valid(machine, column):
            return FULL
        column.rows += 1
    return SOUND


cdef int read_member(Machine* machine, const Step* step, int depth) noexcept nogil:
    cdef Column* column = &machine.columns[step.column]
    cdef int32_t child
    cdef int fault
    if depth >= DEPTH_MAX:
        return DEPTH
    for child in range(column.children):
        if child != step.count:
            fault = append_null(machine, machine.child_indexes[column.first_child + child])
            if fault:
                return fault
    fault = run(machine, <int32_t>step.first, depth + 1)
    if fault:
        return fault
    if mark_valid(machine, column):
        return FULL
    column.rows += 1
    return SOUND


cdef int read_constant(Machine* machine, const Step* step, int depth) noexcept nogil:
    cdef const uint8_t* position = machine.position
    cdef const uint8_t* end = machine.end
    cdef int fault
    if depth >= DEPTH_MAX:
        return DEPTH
    machine.position = machine.constants + step.extra
    machine.end = machine.position + step.count
    fault = run(machine, <int32_t>step.first, depth + 1)
    machine.position = position
    machine.end = end
    return fault


cdef inline int read_block(Machine* machine, int64_t* count, bint can_be_empty) noexcept nogil:
    """Read the number of items of a block, with or without its size in bytes; 0 at the end."""
    cdef int64_t size
    cdef int fault = read_long(machine, count)
    if fault:
        return fault
    if count[0] < 0:
        if count[0] == INT64_MIN:
            return ITEMS
        count[0] = -count[0]
        fault = read_long(machine, &size)
        if fault:
            return fault
        if size < 0:
            return NEGATIVE_LENGTH
    if can_be_empty:
        if count[0] > machine.zero_size_items:
            return ITEMS
        machine.zero_size_items -= count[0]
        return SOUND
    return SOUND if count[0] <= machine.end - machine.position else ITEMS


cdef int finish_list(Machine* machine, int32_t index) noexcept nogil:
    cdef Column* column = &machine.columns[index]
    cdef int32_t child = machine.child_indexes[column.first_child]
    if mark_valid(machine, column):
        return FULL
    return push_offset(machine, column, machine.columns[child].rows)


cdef int read_array(Machine* machine, const Step* step, int depth) noexcept nogil:
    cdef int64_t count = 0
    cdef int fault
    if depth >= DEPTH_MAX:
        return DEPTH
    while True:
        fault = read_block(machine, &count, step.count != 0)
        if fault:
            return fault
        if count == 0:
            break
        while count > 0:
            fault = run(machine, <int32_t>step.first, depth + 1)
            if fault:
                return fault
            count -= 1
    return finish_list(machine, step.column) if step.column >= 0 else SOUND


cdef int read_map(Machine* machine, const Step* step, int depth) noexcept nogil:
    cdef int64_t count = 0, size
    cdef Column* keys = NULL
    cdef int fault
    if depth >= DEPTH_MAX:
        return DEPTH
    if step.column >= 0:
        keys = &machine.columns[
            machine.child_indexes[machine.columns[step.column].first_child]
        ]
    while True:
        fault = read_block(machine, &count, False)
        if fault:
            return fault
        if count == 0:
            break
        while count > 0:
            fault = read_size(machine, &size)
            if fault:
                return fault
            if keys != NULL:
                if not is_utf8(machine.position, size):
                    return UTF8
                if append_bytes(machine, keys, machine.position, size):
                    return FULL
            machine.position += size
            fault = run(machine, <int32_t>step.first, depth + 1)
            if fault:
                return fault
            count -= 1
    return finish_list(machine, step.column) if step.column >= 0 else SOUND


# Python objects


@cython.final
cdef class Memory:
    """A block that Arrow arrays share; freed with the last of them."""

    cdef uint8_t* data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer* buffer, int flags):
        PyBuffer_FillInfo(buffer, self, self.data, self.size, 1, flags)

    def __releasebuffer__(self, Py_buffer* buffer):
        pass

    def __dealloc__(self):
        free(self.data)


cdef object taken(Block* block, int64_t size):
    """Move a block into an object, without its unused end."""
    cdef Memory memory
    cdef uint8_t* data
    if block.data == NULL or size == 0:
        return b""
    memory = Memory()
    data = <uint8_t*>realloc(block.data, size) if size < block.capacity else block.data
    memory.data = data if data != NULL else block.data
    memory.size = size
    block.data = NULL
    block.capacity = 0
    return memory


cdef object taken_bits(Block* block, int64_t rows):
    # The last byte may have bits of rows that were removed.
    if rows & 7:
        block.data[rows >> 3] &= (1 << (rows & 7)) - 1
    return taken(block, (rows + 7) // 8)


@cython.final
cdef class Decoder:
    """See the twin."""

    cdef object program
    cdef Step* steps
    cdef int64_t* links
    cdef bytes constants
    cdef int32_t* child_indexes
    cdef Column* columns
    cdef int32_t column_count

    def __cinit__(self, program):
        self.program = program
        self.constants = program.constants
        self.column_count = len(program.columns)
        self.steps = <Step*>calloc(len(program.steps), sizeof(Step))
        self.links = <int64_t*>calloc(len(program.links) + 1, sizeof(int64_t))
        self.columns = <Column*>calloc(self.column_count, sizeof(Column))
        self.child_indexes = <int32_t*>calloc(self.column_count, sizeof(int32_t))
        if not (self.steps and self.links and self.columns and self.child_indexes):
            raise MemoryError
        for index, step in enumerate(program.steps):
            self.steps[index].operation = int(step.operation)
            self.steps[index].column = step.column
            self.steps[index].first = step.first
            self.steps[index].count = step.count
            self.steps[index].extra = step.extra
        for index, link in enumerate(program.links):
            self.links[index] = link
        self.fill_columns()

    cdef int fill_columns(self) except -1:
        cdef int32_t used = 0
        for index, column in enumerate(self.program.columns):
            self.columns[index].layout = int(column.layout)
            self.columns[index].width = column.width
            self.columns[index].is_nullable = column.is_nullable
            self.columns[index].first_child = used
            self.columns[index].children = len(column.children)
            for child in column.children:
                self.child_indexes[used] = child.index
                used += 1
        # A value that cannot be decoded is a null of the whole row.
        self.columns[0].is_nullable = True
        return 0

    def __dealloc__(self):
        free(self.steps)
        free(self.links)
        free(self.columns)
        free(self.child_indexes)

    def decode(self, validity, offsets, data, Py_ssize_t start, Py_ssize_t rows,
               int offset_bytes, int64_t skip):
        cdef Run_ run_ = Run_(self)
        return run_.decode(validity, offsets, data, start, rows, offset_bytes, skip)


@cython.final
cdef class Run_:
    """The buffers of one call, freed unless they were handed over."""

    cdef Decoder decoder
    cdef Machine machine
    cdef Failure* failures
    cdef Py_ssize_t failure_count, failure_capacity

    def __cinit__(self, Decoder decoder):
        cdef Machine* machine = &self.machine
        self.decoder = decoder
        machine.steps = decoder.steps
        machine.links = decoder.links
        machine.constants = <const uint8_t*><const char*>decoder.constants
        machine.child_indexes = decoder.child_indexes
        machine.allocated_max = OUTPUT_BYTES_MAX
        machine.full_column = -1
        machine.columns = <Column*>calloc(decoder.column_count, sizeof(Column))
        if machine.columns == NULL:
            raise MemoryError
        memcpy(machine.columns, decoder.columns, decoder.column_count * sizeof(Column))

    def __dealloc__(self):
        cdef int32_t index
        free(self.failures)
        if self.machine.columns != NULL:
            for index in range(self.decoder.column_count):
                free(self.machine.columns[index].validity.data)
                free(self.machine.columns[index].offsets.data)
                free(self.machine.columns[index].data.data)
            free(self.machine.columns)

    cdef int reserve_column(self, int32_t index, int64_t rows) noexcept:
        """Make room for this many rows; lists' items are not counted beforehand."""
        cdef Machine* machine = &self.machine
        cdef Column* column = &machine.columns[index]
        cdef int32_t child
        cdef bint is_list = column.layout == L_LIST or column.layout == L_MAP
        if column.is_nullable and reserve(machine, &column.validity, (rows + 7) // 8):
            return full(machine, index)
        if column.layout == L_BYTES or is_list:
            if reserve(machine, &column.offsets, (rows + 1) * 4):
                return full(machine, index)
            (<int32_t*>column.offsets.data)[0] = 0
            # memcpy of nothing needs a place, too.
            if column.layout == L_BYTES and reserve(machine, &column.data, CAPACITY_MIN):
                return full(machine, index)
        elif column.layout == L_BOOLEAN:
            if reserve(machine, &column.data, (rows + 7) // 8):
                return full(machine, index)
        elif column.layout == L_FIXED and column.width <= RESERVED_WIDTH_MAX:
            if reserve(machine, &column.data, rows * column.width + 1):
                return full(machine, index)
        for child in range(column.children):
            if self.reserve_column(
                machine.child_indexes[column.first_child + child], 0 if is_list else rows
            ):
                return FULL
        return SOUND

    cdef object decode(self, validity, offsets, data, Py_ssize_t start, Py_ssize_t rows,
                       int offset_bytes, int64_t skip):
        cdef Py_buffer bits, ends, content
        cdef int fault = self.reserve_column(0, rows)
        cdef const uint8_t* valid = NULL
        if fault == SOUND:
            PyObject_GetBuffer(offsets, &ends, PyBUF_SIMPLE)
            PyObject_GetBuffer(data, &content, PyBUF_SIMPLE)
            if validity is not None:
                PyObject_GetBuffer(validity, &bits, PyBUF_SIMPLE)
                valid = <const uint8_t*>bits.buf
            try:
                if ends.len < (start + rows + 1) * offset_bytes:
                    raise ValueError("The offsets of the array are too few")
                if validity is not None and bits.len * 8 < start + rows:
                    raise ValueError("The validity bits of the array are too few")
                with nogil:
                    fault = self.loop(
                        valid, <const uint8_t*>ends.buf, <const uint8_t*>content.buf, content.len,
                        start, rows, offset_bytes, skip,
                    )
            finally:
                PyBuffer_Release(&ends)
                PyBuffer_Release(&content)
                if validity is not None:
                    PyBuffer_Release(&bits)
        if fault == FULL:
            raise ColumnFullError(self.decoder.program, self.machine.full_column)
        if fault == NO_MEMORY:
            raise MemoryError
        return self.columns(), [
            (self.failures[index].row, self.failures[index].fault, self.failures[index].step)
            for index in range(self.failure_count)
        ]

    cdef int loop(
        self, const uint8_t* valid, const uint8_t* ends, const uint8_t* content,
        int64_t content_size, int64_t start, int64_t rows, int offset_bytes, int64_t skip,
    ) noexcept nogil:
        cdef Machine* machine = &self.machine
        cdef int64_t row, first, end
        cdef int fault
        for row in range(start, start + rows):
            if valid != NULL and not (valid[row >> 3] >> (row & 7)) & 1:
                if append_null(machine, 0):
                    return FULL
                continue
            if offset_bytes == 4:
                first = (<const int32_t*>ends)[row]
                end = (<const int32_t*>ends)[row + 1]
            else:
                first = (<const int64_t*>ends)[row]
                end = (<const int64_t*>ends)[row + 1]
            machine.fault_step = -1
            machine.zero_size_items = ZERO_SIZE_ITEMS_MAX
            if first < 0 or end < first or end > content_size or end - first < skip:
                machine.fault_step = 0
                fault = PREFIX
            else:
                machine.position = content + first + skip
                machine.end = content + end
                fault = run(machine, 0, 0)
            if fault:
                fault = self.fail(row - start, fault)
                if fault:
                    return fault
        return SOUND

    cdef int fail(self, int64_t row, int fault) noexcept nogil:
        cdef Machine* machine = &self.machine
        cdef Failure* failures
        if fault >= FULL:
            return fault
        if self.failure_count == self.failure_capacity:
            self.failure_capacity = self.failure_capacity * 2 + 16
            failures = <Failure*>realloc(self.failures, self.failure_capacity * sizeof(Failure))
            if failures == NULL:
                return NO_MEMORY
            self.failures = failures
        self.failures[self.failure_count] = Failure(row, fault, machine.fault_step)
        self.failure_count += 1
        cut(machine, 0, row)
        return append_null(machine, 0)

    cdef list columns(self):
        cdef Column* column
        cdef int32_t index
        found = []
        for index in range(self.decoder.column_count):
            column = &self.machine.columns[index]
            validity = offsets = data = None
            if column.is_nullable and column.nulls and has_null(column):
                validity = taken_bits(&column.validity, column.rows)
            if column.layout == L_BYTES:
                offsets = taken(&column.offsets, (column.rows + 1) * 4)
                data = taken(&column.data, column.size)
            elif column.layout == L_LIST or column.layout == L_MAP:
                offsets = taken(&column.offsets, (column.rows + 1) * 4)
            elif column.layout == L_BOOLEAN:
                data = taken_bits(&column.data, column.rows)
            elif column.layout == L_FIXED:
                data = taken(&column.data, column.rows * column.width)
            found.append((column.rows, validity, offsets, data))
        return found
