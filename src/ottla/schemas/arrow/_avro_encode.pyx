# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Arrow to Avro, compiled: the twin of _avro_encode_python, which has the contracts.

The columns are arrays that pyarrow has made, so their offsets and sizes are trusted. Every write is
checked against the capacity of the output. The loop runs without the GIL.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy

from ottla.schemas.arrow._avro_encode_python import VALUES_BYTES_MAX as BYTES_MAX
from ottla.schemas.arrow._avro_encode_python import Unwritable
from ottla.schemas.avro.avro_encoding import storage_width

cdef enum Operation:
    NULL_ = 0
    BOOLEAN = 1
    INTEGER = 2
    SYMBOL = 3
    FIXED = 4
    BYTES = 5
    DECIMAL = 6
    UUID = 7
    RECORD = 8
    ARRAY = 9
    MAP = 10
    OPTIONAL = 11
    UNION = 12
    CONSTANT = 13

cdef enum Fault:
    SOUND = 0
    BAD_NULL = 1
    BAD_SYMBOL = 2
    BAD_DECIMAL = 3
    BAD_UUID = 4
    NO_MEMBER = 5
    MEMBERS = 6
    # These end the whole run, and not one row.
    FULL = 100
    NO_MEMORY = 101

cdef enum:
    VARINT_BYTES_MAX = 10

cdef int64_t VALUES_BYTES_MAX = BYTES_MAX

cdef struct Step:
    int32_t operation
    int32_t column
    int64_t first
    int64_t count
    int64_t extra

cdef struct Column:
    int64_t width
    int64_t offset
    const uint8_t* validity
    const uint8_t* ends
    const uint8_t* data
    int32_t is_present
    int32_t first_child
    int32_t children

cdef struct Machine:
    const Step* steps
    const int64_t* links
    const uint8_t* constants
    const Column* columns
    const int32_t* child_indexes
    uint8_t* written
    int64_t size
    int64_t capacity
    int32_t fault_step


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


cdef inline int write_long(Machine* machine, int64_t value) noexcept nogil:
    cdef uint64_t bits = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int fault = reserve(machine, VARINT_BYTES_MAX)
    cdef uint8_t* place
    if fault:
        return fault
    place = machine.written + machine.size
    while bits > 0x7F:
        place[0] = <uint8_t>(bits & 0x7F | 0x80)
        place += 1
        bits >>= 7
    place[0] = <uint8_t>bits
    machine.size = place + 1 - machine.written
    return SOUND


cdef inline int write_sized(Machine* machine, const Column* column, int64_t row) noexcept nogil:
    cdef const int32_t* ends = <const int32_t*>column.ends + column.offset + row
    cdef int fault = write_long(machine, ends[1] - ends[0])
    if fault:
        return fault
    return write_raw(machine, column.data + ends[0], ends[1] - ends[0])


cdef inline bint is_null(const Column* column, int64_t row) noexcept nogil:
    cdef int64_t place = column.offset + row
    if not column.is_present:
        return True
    return column.validity != NULL and not (column.validity[place >> 3] >> (place & 7)) & 1


cdef int run(Machine* machine, int32_t index, int64_t row) noexcept nogil:
    """Write one value by a step; the number of a fault, or SOUND."""
    cdef int fault = execute(machine, &machine.steps[index], row)
    # The innermost step is the place of the fault.
    if fault and machine.fault_step < 0:
        machine.fault_step = index
    return fault


cdef inline int execute(Machine* machine, const Step* step, int64_t row) noexcept nogil:
    cdef const Column* column = &machine.columns[step.column if step.column >= 0 else 0]
    cdef int64_t place = column.offset + row
    cdef int64_t value
    if step.operation == CONSTANT:
        return write_raw(machine, machine.constants + step.first, step.count)
    if step.operation == NULL_:
        return SOUND
    if step.operation == OPTIONAL:
        return write_optional(machine, step, column, row)
    if step.operation == UNION:
        return write_union(machine, step, column, row)
    if is_null(column, row):
        return BAD_NULL
    if step.operation == INTEGER or step.operation == SYMBOL:
        if column.width == 8:
            value = (<const int64_t*>column.data)[place]
        else:
            value = (<const int32_t*>column.data)[place]
        if step.operation == SYMBOL and value < 0:
            return BAD_SYMBOL
        return write_long(machine, value)
    elif step.operation == BYTES:
        return write_sized(machine, column, row)
    elif step.operation == FIXED:
        return write_raw(machine, column.data + place * column.width, column.width)
    elif step.operation == BOOLEAN:
        return write_boolean(machine, column, place)
    elif step.operation == RECORD:
        return write_record(machine, step, row)
    elif step.operation == ARRAY or step.operation == MAP:
        return write_list(machine, step, column, row)
    elif step.operation == DECIMAL:
        return write_decimal(machine, step, column.data + place * column.width, column.width)
    return write_uuid(machine, column, row)


cdef inline int write_boolean(Machine* machine, const Column* column, int64_t place) noexcept nogil:
    cdef uint8_t bit = (column.data[place >> 3] >> (place & 7)) & 1
    return write_raw(machine, &bit, 1)


cdef int write_record(Machine* machine, const Step* step, int64_t row) noexcept nogil:
    cdef const int64_t* link = machine.links + step.first
    cdef const int64_t* end = link + step.count
    cdef int fault
    while link < end:
        fault = run(machine, <int32_t>link[0], row)
        if fault:
            return fault
        link += 1
    return SOUND


cdef int write_optional(
    Machine* machine, const Step* step, const Column* column, int64_t row
) noexcept nogil:
    cdef int fault
    if is_null(column, row):
        return BAD_NULL if step.extra < 0 else write_long(machine, step.extra)
    fault = write_long(machine, step.count)
    return fault if fault else run(machine, <int32_t>step.first, row)


cdef int write_union(
    Machine* machine, const Step* step, const Column* column, int64_t row
) noexcept nogil:
    cdef int64_t member, found = -1
    cdef int fault
    if is_null(column, row):
        return BAD_NULL if step.extra < 0 else write_long(machine, step.extra)
    for member in range(step.count):
        if not is_null(
            &machine.columns[machine.child_indexes[column.first_child + member]], row
        ):
            if found >= 0:
                return MEMBERS
            found = member
    if found < 0:
        return NO_MEMBER
    fault = write_long(machine, machine.links[step.first + 2 * found])
    if fault:
        return fault
    return run(machine, <int32_t>machine.links[step.first + 2 * found + 1], row)


cdef int write_list(
    Machine* machine, const Step* step, const Column* column, int64_t row
) noexcept nogil:
    cdef const int32_t* ends = <const int32_t*>column.ends + column.offset + row
    cdef const Column* keys = &machine.columns[machine.child_indexes[column.first_child]]
    cdef int64_t item
    cdef int fault
    if ends[0] < ends[1]:
        fault = write_long(machine, ends[1] - ends[0])
        if fault:
            return fault
    for item in range(ends[0], ends[1]):
        if step.operation == MAP:
            fault = write_sized(machine, keys, item)
            if fault:
                return fault
        fault = run(machine, <int32_t>step.first, item)
        if fault:
            return fault
    return write_long(machine, 0)


cdef int write_decimal(
    Machine* machine, const Step* step, const uint8_t* number, int64_t width
) noexcept nogil:
    """Write a little-endian number of two's complement as a big-endian one."""
    cdef uint8_t sign = 0xFF if number[width - 1] >= 0x80 else 0
    cdef int64_t size = width, index
    cdef uint8_t* place
    cdef int fault
    # As few bytes as keep the sign.
    while size > 1 and number[size - 1] == sign and (number[size - 2] ^ sign) < 0x80:
        size -= 1
    if step.first < 0:
        fault = write_long(machine, size)
        if fault:
            return fault
    elif size > step.first:
        return BAD_DECIMAL
    fault = reserve(machine, step.first if step.first > size else size)
    if fault:
        return fault
    place = machine.written + machine.size
    for index in range(step.first - size):
        place[index] = sign
    if step.first > size:
        place += step.first - size
    for index in range(size):
        place[index] = number[size - 1 - index]
    machine.size = place + size - machine.written
    return SOUND


cdef inline int hex_digit(uint8_t letter) noexcept nogil:
    if c"0" <= letter <= c"9":
        return letter - c"0"
    letter |= 0x20
    return letter - c"a" + 10 if c"a" <= letter <= c"f" else -1


cdef int write_uuid(Machine* machine, const Column* column, int64_t row) noexcept nogil:
    cdef const int32_t* ends = <const int32_t*>column.ends + column.offset + row
    cdef const uint8_t* text = column.data + ends[0]
    cdef uint8_t content[16]
    cdef int index, place = 0, high, low
    if ends[1] - ends[0] != 36:
        return BAD_UUID
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            if text[place] != c"-":
                return BAD_UUID
            place += 1
        high = hex_digit(text[place])
        low = hex_digit(text[place + 1])
        if high < 0 or low < 0:
            return BAD_UUID
        content[index] = <uint8_t>(high << 4 | low)
        place += 2
    return write_raw(machine, content, 16)


# Python objects


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


@cython.final
cdef class Encoder:
    """See the twin."""

    cdef object program
    cdef Step* steps
    cdef int64_t* links
    cdef bytes constants
    cdef int32_t* child_indexes
    cdef Py_ssize_t column_count

    def __cinit__(self, program):
        self.program = program
        self.constants = program.constants
        self.column_count = len(program.columns)
        self.steps = <Step*>calloc(len(program.steps), sizeof(Step))
        self.links = <int64_t*>calloc(len(program.links) + 1, sizeof(int64_t))
        self.child_indexes = <int32_t*>calloc(self.column_count, sizeof(int32_t))
        if not (self.steps and self.links and self.child_indexes):
            raise MemoryError
        for index, step in enumerate(program.steps):
            self.steps[index].operation = int(step.operation)
            self.steps[index].column = step.column
            self.steps[index].first = step.first
            self.steps[index].count = step.count
            self.steps[index].extra = step.extra
        for index, link in enumerate(program.links):
            self.links[index] = link
        children = [child.index for column in program.columns for child in column.children]
        for index, child in enumerate(children):
            self.child_indexes[index] = child

    def __dealloc__(self):
        free(self.steps)
        free(self.links)
        free(self.child_indexes)

    def encode(self, columns, int64_t rows, bytes prefix):
        """See the twin."""
        cdef Machine machine
        cdef Py_buffer* held = <Py_buffer*>calloc(3 * self.column_count, sizeof(Py_buffer))
        cdef Column* filled = <Column*>calloc(self.column_count, sizeof(Column))
        cdef int32_t* ends = <int32_t*>malloc((rows + 1) * sizeof(int32_t))
        cdef const uint8_t* start = prefix
        cdef int64_t row = 0, prefix_size = len(prefix)
        cdef int32_t used = 0
        cdef Py_ssize_t index, held_count = 0
        cdef int fault = NO_MEMORY
        machine.written = NULL
        machine.size = machine.capacity = 0
        try:
            if held == NULL or filled == NULL or ends == NULL:
                raise MemoryError
            for index in range(self.column_count):
                column = self.program.columns[index]
                filled[index].width = storage_width(column)
                filled[index].first_child = used
                filled[index].children = <int32_t>len(column.children)
                used += <int32_t>len(column.children)
                stored = columns[index]
                if stored is None:
                    continue
                filled[index].is_present = True
                filled[index].offset = stored.offset
                filled[index].validity = hold(stored.validity, held, &held_count)
                filled[index].ends = hold(stored.ends, held, &held_count)
                filled[index].data = hold(stored.data, held, &held_count)
            machine.steps = self.steps
            machine.links = self.links
            machine.constants = <const uint8_t*><const char*>self.constants
            machine.columns = filled
            machine.child_indexes = self.child_indexes
            machine.fault_step = -1
            with nogil:
                ends[0] = 0
                fault = reserve(&machine, 1)
                while row < rows and not fault:
                    fault = write_raw(&machine, start, prefix_size)
                    if not fault:
                        fault = run(&machine, 0, row)
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
                return Unwritable(row, fault, machine.fault_step)
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
