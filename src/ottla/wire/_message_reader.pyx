# cython: binding=False
"""Reading sound messages, compiled: follows the steps that reading.py lists for a version.

It knows no errors. Whatever is odd about the bytes ends in None, and the generated reader, its
twin, reads them again: to a value if they are only rare (tagged fields), else to the error.
So this may refuse what the twin accepts, but must never accept what the twin refuses.
"""

cimport cython
from cpython.buffer cimport (
    PyBUF_FORMAT,
    PyBUF_ND,
    PyBuffer_Release,
    PyObject_GetBuffer,
)
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint16_t, uint64_t

from ottla.wire._slots cimport ottla_slot_place

from ottla.wire.schema import Struct

cdef extern from *:
    """
    /* As object.__new__ does: all slots are empty. */
    static PyObject *ottla_new(PyObject *cls) {
        return ((PyTypeObject *)cls)->tp_alloc((PyTypeObject *)cls, 0);
    }

    static void ottla_fill_slot(PyObject *owner, Py_ssize_t place, PyObject *value) {
        PyObject **slot = (PyObject **)((char *)owner + place);
        PyObject *previous = *slot;
        Py_INCREF(value);
        *slot = value;
        Py_XDECREF(previous);
    }
    """
    object ottla_new(object cls)
    void ottla_fill_slot(object owner, Py_ssize_t place, object value)
    double PyFloat_Unpack8(const char *bytes, int is_little_endian) except? -1.0

ctypedef const unsigned char *Place

cdef enum Kind:
    BOOL, INT8, INT16, UINT16, INT32, INT64, FLOAT64, UUID
    STRING, BYTES, RECORDS
    STRUCT
    DEFAULT, DEFAULT_LIST, DEFAULT_STRUCT

KIND_BY_NAME = {
    "bool": BOOL, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "int64": INT64,
    "float64": FLOAT64, "uuid": UUID, "string": STRING, "bytes": BYTES, "records": RECORDS,
    "struct": STRUCT, "default": DEFAULT,
}
WIDTH_BY_KIND = {
    BOOL: 1, INT8: 1, INT16: 2, UINT16: 2, INT32: 4, INT64: 8, FLOAT64: 8, UUID: 16,
}


cdef struct Step:
    Kind kind
    bint is_array
    bint is_nullable
    Py_ssize_t slot
    Py_ssize_t width        # of a value, if all values of the kind have the same
    int32_t item_bytes      # what an item of an array is charged
    PyObject *kept          # borrowed from the StructReader: what a default or a structure needs


cdef struct Cursor:
    Place start
    Place at
    Place end
    int64_t budget
    int64_t items_left
    bint is_flexible
    bint is_odd             # nothing that was read since means anything


cdef inline bint take(Cursor *cursor, int64_t size, Place *taken) noexcept:
    """Step over so many bytes, if they are there. The size is not negative."""
    if size > cursor.end - cursor.at:
        cursor.is_odd = True
        return False
    taken[0] = cursor.at
    cursor.at += size
    return True


cdef inline uint64_t big_endian(Place at, int width) noexcept:
    cdef uint64_t number = 0
    cdef int index
    for index in range(width):
        number = number << 8 | at[index]
    return number


cdef inline int64_t read_uvarint(Cursor *cursor) noexcept:
    cdef Place byte = NULL
    cdef uint64_t number = 0
    cdef int shift
    for shift in range(0, 35, 7):
        if not take(cursor, 1, &byte):
            return 0
        number |= <uint64_t>(byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            break
    else:
        cursor.is_odd = True
    if number > 0xFFFFFFFF:
        cursor.is_odd = True
    return <int64_t>number


cdef inline int64_t read_old_length(Cursor *cursor, int width) noexcept:
    cdef Place at = NULL
    if not take(cursor, width, &at):
        return -1
    if width == 2:
        return <int16_t>big_endian(at, 2)
    return <int32_t>big_endian(at, 4)


cdef inline bint read_length(
    Cursor *cursor, int old_width, bint is_nullable, int64_t *length
) noexcept:
    """Read a length or a count. False says that there is nothing more to read: null, or odd."""
    if cursor.is_flexible:
        length[0] = read_uvarint(cursor) - 1
    else:
        length[0] = read_old_length(cursor, old_width)
    if length[0] < 0 and not (length[0] == -1 and is_nullable):
        cursor.is_odd = True
    return length[0] >= 0 and not cursor.is_odd


cdef inline object read_fixed(Cursor *cursor, const Step *step):
    cdef Place at = NULL
    cdef Kind kind = step.kind
    if not take(cursor, step.width, &at):
        return None
    if kind == INT32:
        return <int32_t>big_endian(at, 4)
    elif kind == INT64:
        return <int64_t>big_endian(at, 8)
    elif kind == INT16:
        return <int16_t>big_endian(at, 2)
    elif kind == UINT16:
        return <uint16_t>big_endian(at, 2)
    elif kind == INT8:
        return <int8_t>at[0]
    elif kind == BOOL:
        return at[0] != 0
    elif kind == FLOAT64:
        return PyFloat_Unpack8(<const char *>at, 0)
    return PyBytes_FromStringAndSize(<const char *>at, 16)


cdef inline object read_sized(Cursor *cursor, Kind kind, bint is_nullable, view):
    cdef Place at = NULL
    cdef int64_t size
    if not read_length(cursor, 2 if kind == STRING else 4, is_nullable, &size):
        return None
    if not take(cursor, size, &at):
        return None
    if kind == STRING:
        return PyUnicode_DecodeUTF8(<const char *>at, size, NULL)
    if kind == BYTES:
        return PyBytes_FromStringAndSize(<const char *>at, size)
    return view[at - cursor.start : at - cursor.start + size]


cdef object read_nested(Cursor *cursor, const Step *step, bint is_nullable, view):
    cdef Place mark = NULL
    if is_nullable:
        if not take(cursor, 1, &mark) or mark[0] == 0xFF:
            return None
        if mark[0] != 1:
            cursor.is_odd = True
            return None
    return (<StructReader>step.kept).read_struct(cursor, view)


cdef inline object read_value(Cursor *cursor, const Step *step, bint is_nullable, view):
    if step.width:
        return read_fixed(cursor, step)
    if step.kind == STRUCT:
        return read_nested(cursor, step, is_nullable, view)
    return read_sized(cursor, step.kind, is_nullable, view)


cdef object read_array(Cursor *cursor, const Step *step, view):
    cdef int64_t count, index
    cdef list items
    if not read_length(cursor, 4, step.is_nullable, &count):
        return None
    cursor.budget -= count * step.item_bytes
    cursor.items_left -= count
    if (
        cursor.budget < 0 or cursor.items_left < 0
        or count * step.width > cursor.end - cursor.at
    ):
        cursor.is_odd = True
        return None
    items = []
    for index in range(count):
        items.append(read_value(cursor, step, False, view))
        if cursor.is_odd:
            return None
    return items


cdef inline object follow(Cursor *cursor, const Step *step, view):
    if step.kind == DEFAULT:
        return <object>step.kept
    if step.kind == DEFAULT_LIST:
        return []
    if step.kind == DEFAULT_STRUCT:
        return (<object>step.kept)()
    if step.is_array:
        return read_array(cursor, step, view)
    return read_value(cursor, step, step.is_nullable, view)


# Neither reader is cleared by the collector: a reader without what it refers to would read by
# pointers to nothing. The class and the dict that are part of every such cycle break it as well.
@cython.no_gc_clear
@cython.final
cdef class StructReader:
    """Reads one structure: a class, and a step for each of its slots.

    A step is (name, kind, is_array, is_nullable, item_bytes, kept). What is kept is the reader of
    a "struct", or the value of a "default": a list stands for a new one, a class for an instance.
    """

    cdef object cls
    cdef Step *steps
    cdef Py_ssize_t step_count
    cdef tuple keeps

    def __cinit__(self, cls, tuple steps not None):
        if not (isinstance(cls, type) and issubclass(cls, Struct)):
            raise AssertionError(f"{cls} is no structure")
        self.cls = cls
        self.keeps = tuple([step[-1] for step in steps])
        self.step_count = len(steps)
        self.steps = <Step *>PyMem_Calloc(max(1, self.step_count), sizeof(Step))
        if self.steps == NULL:
            raise MemoryError
        cdef Py_ssize_t index
        for index in range(self.step_count):
            set_step(self.steps + index, cls, steps[index][:-1], self.keeps[index])

    def __dealloc__(self):
        PyMem_Free(self.steps)

    cdef object read_struct(self, Cursor *cursor, view):
        cdef object made = ottla_new(self.cls)
        cdef const Step *step = self.steps
        cdef const Step *end = step + self.step_count
        cdef Place tag_count = NULL
        while step < end:
            ottla_fill_slot(made, step.slot, follow(cursor, step, view))
            if cursor.is_odd:
                return None
            step += 1
        if cursor.is_flexible and take(cursor, 1, &tag_count) and tag_count[0]:
            cursor.is_odd = True
        return made


cdef int set_step(Step *step, cls, how, kept) except -1:
    name, kind, step.is_array, step.is_nullable, step.item_bytes = how
    step.kind = KIND_BY_NAME[kind]
    if step.kind == STRUCT and not isinstance(kept, StructReader):
        raise AssertionError(f"{name} has no reader")
    if step.kind == DEFAULT and isinstance(kept, list):
        step.kind = DEFAULT_LIST
    elif step.kind == DEFAULT and isinstance(kept, type):
        step.kind = DEFAULT_STRUCT
    step.width = WIDTH_BY_KIND.get(step.kind, 0)
    step.kept = <PyObject *>kept
    step.slot = ottla_slot_place(cls, getattr(cls, name))
    if step.slot < 0:
        raise AssertionError(f"{name} is no slot of {cls}")
    return 0


@cython.no_gc_clear
@cython.final
cdef class MessageReader:
    """Reads one message in one version."""

    cdef StructReader struct
    cdef bint is_flexible
    cdef int64_t budget_floor
    cdef int64_t budget_multiple

    def __cinit__(
        self,
        StructReader struct not None,
        *,
        bint is_flexible,
        int64_t budget_floor,
        int64_t budget_multiple,
    ):
        self.struct = struct
        self.is_flexible = is_flexible
        self.budget_floor = budget_floor
        self.budget_multiple = budget_multiple

    def read(
        self,
        view,
        Py_ssize_t position,
        int64_t memory_max=0x7FFFFFFFFFFFFFFF,
        int64_t items_max=0x7FFFFFFFFFFFFFFF,
    ):
        """Return the message at a position and the position after it; None if anything is odd.

        None as well if all arrays together have more items, or take more memory.
        """
        cdef Py_buffer buffer
        if not isinstance(view, memoryview):
            return None
        try:
            PyObject_GetBuffer(view, &buffer, PyBUF_ND | PyBUF_FORMAT)
        except (BufferError, ValueError):
            return None
        try:
            if not is_octets(&buffer) or not 0 <= position <= buffer.len:
                return None
            return self.read_octets(&buffer, position, view, memory_max, items_max)
        except UnicodeDecodeError:
            return None
        finally:
            PyBuffer_Release(&buffer)

    cdef object read_octets(
        self,
        const Py_buffer *buffer,
        Py_ssize_t position,
        view,
        int64_t memory_max,
        int64_t items_max,
    ):
        cdef Cursor cursor
        cursor.start = <Place>buffer.buf
        cursor.at = cursor.start + position
        cursor.end = cursor.start + buffer.len
        cursor.budget = min(
            self.budget_floor + self.budget_multiple * (buffer.len - position), memory_max
        )
        cursor.items_left = items_max
        cursor.is_flexible = self.is_flexible
        cursor.is_odd = False
        message = self.struct.read_struct(&cursor, view)
        if cursor.is_odd:
            return None
        return message, cursor.at - cursor.start


cdef bint is_octets(const Py_buffer *buffer) noexcept:
    return buffer.ndim == 1 and buffer.itemsize == 1 and buffer.format[0] == c"B"
