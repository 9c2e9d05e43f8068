# cython: binding=False
"""Writing messages, compiled: follows the steps that writing.py lists for a version.

It knows no errors. Whatever is odd about a value ends in None, and the generated writer, its twin,
writes it again: to bytes if it is only rare, else to the error. So this may refuse what the twin
accepts, but must never write what the twin refuses, nor other bytes than the twin.

What it reads is borrowed, from slots and lists that must stay as they are. So no code of Python's
may run while it walks over a value: it touches plain types only, and gives up at any exception.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.object cimport PyObject, PyTypeObject
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memmove

from ottla.wire._slots cimport ottla_slot_place

from ottla.wire.schema import Struct

# As in cpython.*, but for pointers that nobody counts, and without raising anything here.
cdef extern from *:
    """
    /* What an instance keeps in a slot, or NULL if that is empty. */
    static inline PyObject *ottla_slot(PyObject *owner, Py_ssize_t place) {
        return *(PyObject **)((char *)owner + place);
    }
    """
    PyObject *ottla_slot(PyObject *owner, Py_ssize_t place) noexcept
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False
    int Py_NE
    int PyBUF_ND
    int PyBUF_FORMAT
    Py_ssize_t PY_SSIZE_T_MAX
    bint Py_IS_TYPE(PyObject *value, PyTypeObject *cls) noexcept
    PyTypeObject *Py_TYPE(PyObject *value) noexcept
    void Py_DECREF(PyObject *value) noexcept
    void PyErr_Clear() noexcept
    PyObject *PyObject_RichCompare(PyObject *one, PyObject *other, int how) noexcept
    bint PyLong_Check(PyObject *value) noexcept
    long long PyLong_AsLongLongAndOverflow(PyObject *value, int *overflow) noexcept
    bint PyFloat_CheckExact(PyObject *value) noexcept
    double PyFloat_AS_DOUBLE(PyObject *value) noexcept
    int PyFloat_Pack8(double value, char *place, int is_little_endian) noexcept
    bint PyUnicode_CheckExact(PyObject *value) noexcept
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *value) noexcept
    const char *PyUnicode_AsUTF8AndSize(PyObject *value, Py_ssize_t *size) noexcept
    bint PyBytes_CheckExact(PyObject *value) noexcept
    const char *PyBytes_AS_STRING(PyObject *value) noexcept
    Py_ssize_t PyBytes_GET_SIZE(PyObject *value) noexcept
    bint PyByteArray_CheckExact(PyObject *value) noexcept
    const char *PyByteArray_AS_STRING(PyObject *value) noexcept
    Py_ssize_t PyByteArray_GET_SIZE(PyObject *value) noexcept
    bint PyMemoryView_Check(PyObject *value) noexcept
    int PyObject_GetBuffer(PyObject *value, Py_buffer *buffer, int flags) noexcept
    void PyBuffer_Release(Py_buffer *buffer) noexcept
    bint PyList_CheckExact(PyObject *value) noexcept
    Py_ssize_t PyList_GET_SIZE(PyObject *value) noexcept
    PyObject *PyList_GET_ITEM(PyObject *value, Py_ssize_t index) noexcept
    bint PyType_Check(PyObject *value) noexcept

ctypedef unsigned char *Place

cdef enum Kind:
    BOOL, INTEGER, FLOAT64, UUID
    STRING, BYTES, RECORDS
    STRUCT
    ABSENT

KIND_BY_NAME = {
    "bool": BOOL, "int8": INTEGER, "int16": INTEGER, "uint16": INTEGER, "int32": INTEGER,
    "int64": INTEGER, "float64": FLOAT64, "uuid": UUID, "string": STRING, "bytes": BYTES,
    "records": RECORDS, "struct": STRUCT, "absent": ABSENT,
}
WIDTH_BY_NAME = {
    "bool": 1, "int8": 1, "int16": 2, "uint16": 2, "int32": 4, "int64": 8, "float64": 8, "uuid": 16,
}
DEFAULT_TYPES = (type(None), bool, int, float, str, bytes, list, type(Struct))

cdef enum:
    FIRST_BYTES = 1024      # messages up to this size need no memory but that of their bytes
    TEXT_LENGTH_MAX = 0x7FFF    # of what fits into two bytes
    LENGTH_MAX = 0x7FFFFFFF
    TAGS_MAX = 0x7F         # so that their number is one byte


cdef struct Step:
    Kind kind
    bint is_array
    bint is_nullable
    bint is_tagged
    uint64_t tag
    Py_ssize_t slot
    Py_ssize_t width        # of a value, if all values of the kind have the same
    int64_t lowest          # of the integers that fit
    int64_t highest
    PyObject *default       # borrowed from the StructWriter, like the next
    PyObject *nested


cdef struct Output:
    Place start
    Place at
    Place end
    Place first             # where it starts as long as the first bytes are enough
    Py_ssize_t text_bytes_max
    Py_ssize_t batches_bytes_max
    Py_ssize_t items_left
    bint is_flexible


# Every function that writes says whether it could. Where one could not, nothing is touched again.


cdef bint grow(Output *output, Py_ssize_t size) noexcept:
    """Make room for so many more bytes, and for as many again."""
    cdef Py_ssize_t filled = output.at - output.start
    cdef Py_ssize_t capacity = 2 * (filled + size)
    cdef bint is_first = output.start == output.first
    cdef Place larger = <Place>PyMem_Realloc(NULL if is_first else output.start, capacity)
    if larger == NULL:
        return False
    if is_first:
        memcpy(larger, output.first, filled)
    output.start = larger
    output.at = larger + filled
    output.end = larger + capacity
    return True


cdef inline Place take(Output *output, Py_ssize_t size) noexcept:
    """Step over room for so many bytes, and return where it is; NULL if there is no memory."""
    if size > output.end - output.at and not grow(output, size):
        return NULL
    output.at += size
    return output.at - size


cdef inline bint write_big_endian(Output *output, int64_t number, Py_ssize_t width) noexcept:
    cdef Place at = take(output, width)
    cdef Py_ssize_t index
    if at == NULL:
        return False
    for index in range(width):
        at[index] = <unsigned char>(<uint64_t>number >> 8 * (width - 1 - index))
    return True


cdef inline Py_ssize_t uvarint_bytes(uint64_t number) noexcept:
    cdef Py_ssize_t size = 1
    while number > 0x7F:
        number >>= 7
        size += 1
    return size


cdef inline void put_uvarint(Place at, uint64_t number) noexcept:
    while number > 0x7F:
        at[0] = <unsigned char>(number & 0x7F | 0x80)
        number >>= 7
        at += 1
    at[0] = <unsigned char>number


cdef inline bint write_uvarint(Output *output, uint64_t number) noexcept:
    cdef Place at = take(output, uvarint_bytes(number))
    if at == NULL:
        return False
    put_uvarint(at, number)
    return True


cdef inline bint write_length(Output *output, Py_ssize_t length, int old_width) noexcept:
    """Write a length or a count. It is not negative, and that of a text fits into two bytes."""
    if length > LENGTH_MAX:
        return False
    if output.is_flexible:
        return write_uvarint(output, <uint64_t>length + 1)
    return write_big_endian(output, length, old_width)


cdef inline bint write_octets(Output *output, const void *octets, Py_ssize_t size) noexcept:
    cdef Place at = take(output, size)
    if at == NULL:
        return False
    memcpy(at, octets, size)
    return True


cdef inline bint write_integer(Output *output, const Step *step, PyObject *value) noexcept:
    """Write a number. Those of a class of their own are read without asking the class."""
    cdef int overflow = 0
    cdef int64_t number
    if not PyLong_Check(value):
        return False
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < step.lowest or number > step.highest:
        return False
    return write_big_endian(output, number, step.width)


cdef inline bint write_float(Output *output, PyObject *value) noexcept:
    cdef Place at
    if not PyFloat_CheckExact(value):
        return False
    at = take(output, 8)
    if at == NULL:
        return False
    if PyFloat_Pack8(PyFloat_AS_DOUBLE(value), <char *>at, 0) != 0:
        PyErr_Clear()
        return False
    return True


cdef inline bint write_fixed(Output *output, const Step *step, PyObject *value) noexcept:
    if step.kind == INTEGER:
        return write_integer(output, step, value)
    if step.kind == BOOL:
        if value != Py_True and value != Py_False:
            return False
        return write_big_endian(output, value == Py_True, 1)
    if step.kind == FLOAT64:
        return write_float(output, value)
    if not PyBytes_CheckExact(value) or PyBytes_GET_SIZE(value) != step.width:
        return False
    return write_octets(output, PyBytes_AS_STRING(value), step.width)


cdef inline bint write_text(Output *output, PyObject *value) noexcept:
    cdef Py_ssize_t size = 0
    cdef const char *text
    # No text has fewer bytes than characters: one that is far too long is not even encoded.
    if not PyUnicode_CheckExact(value) or PyUnicode_GET_LENGTH(value) > output.text_bytes_max:
        return False
    text = PyUnicode_AsUTF8AndSize(value, &size)
    if text == NULL:
        PyErr_Clear()
        return False
    if size > output.text_bytes_max or not write_length(output, size, 2):
        return False
    return write_octets(output, text, size)


cdef inline bint write_sized(
    Output *output, const void *octets, Py_ssize_t size, Py_ssize_t size_max
) noexcept:
    if size > size_max or not write_length(output, size, 4):
        return False
    return write_octets(output, octets, size)


cdef bint write_view(Output *output, PyObject *view, Py_ssize_t size_max) noexcept:
    cdef Py_buffer buffer
    cdef bint is_written
    if PyObject_GetBuffer(view, &buffer, PyBUF_ND | PyBUF_FORMAT) != 0:
        PyErr_Clear()
        return False
    is_written = is_octets(&buffer) and write_sized(output, buffer.buf, buffer.len, size_max)
    PyBuffer_Release(&buffer)
    return is_written


cdef bint is_octets(const Py_buffer *buffer) noexcept:
    return buffer.ndim == 1 and buffer.itemsize == 1 and buffer.format[0] == c"B"


cdef inline bint write_bytes(Output *output, PyObject *value, Py_ssize_t size_max) noexcept:
    if PyBytes_CheckExact(value):
        return write_sized(output, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), size_max)
    if PyByteArray_CheckExact(value):
        return write_sized(
            output, PyByteArray_AS_STRING(value), PyByteArray_GET_SIZE(value), size_max
        )
    return PyMemoryView_Check(value) and write_view(output, value, size_max)


cdef bint write_null(Output *output, const Step *step) noexcept:
    if step.kind == STRUCT and not step.is_array:
        return write_big_endian(output, 0 if step.is_tagged else -1, 1)
    if output.is_flexible:
        return write_big_endian(output, 0, 1)
    return write_big_endian(output, -1, 2 if step.kind == STRING and not step.is_array else 4)


cdef inline bint write_item(Output *output, const Step *step, PyObject *value) noexcept:
    """Write a value that is not null."""
    if step.width:
        return write_fixed(output, step, value)
    if step.kind == STRING:
        return write_text(output, value)
    if step.kind == STRUCT:
        return (<StructWriter>step.nested).write_struct(output, value)
    return write_bytes(
        output, value, output.batches_bytes_max if step.kind == RECORDS else LENGTH_MAX
    )


cdef bint write_array(Output *output, const Step *step, PyObject *items) noexcept:
    cdef Py_ssize_t index, count
    if not PyList_CheckExact(items):
        return False
    count = PyList_GET_SIZE(items)
    output.items_left -= count
    if output.items_left < 0 or not write_length(output, count, 4):
        return False
    for index in range(count):
        if not write_item(output, step, PyList_GET_ITEM(items, index)):
            return False
    return True


cdef inline bint write_field(Output *output, const Step *step, PyObject *value) noexcept:
    if value == Py_None and step.is_nullable:
        return write_null(output, step)
    if step.is_array:
        return write_array(output, step, value)
    if step.kind == STRUCT and step.is_nullable and not write_big_endian(output, 1, 1):
        return False
    return write_item(output, step, value)


cdef int is_set(const Step *step, PyObject *value) noexcept:
    """Whether a value is another than the default: 1 or 0, or -1 if that is not known here."""
    if step.default == Py_None:
        return value != Py_None
    if PyList_CheckExact(step.default):
        if value == Py_None and step.is_nullable:
            return 1
        return PyList_GET_SIZE(value) > 0 if PyList_CheckExact(value) else -1
    if value == Py_None:
        return 1
    # Structures are compared by code of Python's, and numbers of a class of their own may be.
    if PyType_Check(step.default) or not Py_IS_TYPE(value, Py_TYPE(step.default)):
        return -1
    return differ(value, step.default)


cdef int differ(PyObject *one, PyObject *other) noexcept:
    """Whether two values of the same plain type differ; -1 says that there is no memory."""
    cdef PyObject *answer = PyObject_RichCompare(one, other, Py_NE)
    if answer == NULL:
        PyErr_Clear()
        return -1
    Py_DECREF(answer)
    return answer == Py_True


cdef bint write_tagged(Output *output, const Step *step, PyObject *value) noexcept:
    """Write a tagged field: its tag, its size, and what is usual for its kind."""
    cdef Py_ssize_t begin, size, size_bytes
    if not write_uvarint(output, step.tag) or take(output, 1) == NULL:
        return False
    begin = output.at - output.start
    if not write_field(output, step, value):
        return False
    size = output.at - output.start - begin
    size_bytes = uvarint_bytes(size)
    if size_bytes > 1:
        if take(output, size_bytes - 1) == NULL:
            return False
        memmove(output.start + begin + size_bytes - 1, output.start + begin, size)
    put_uvarint(output.start + begin - 1, size)
    return True


# As with the readers, neither writer is cleared by the collector: the class and the dict that are
# part of every cycle break it as well.
@cython.no_gc_clear
@cython.final
cdef class StructWriter:
    """Writes one structure: a class, and a step for each slot that is looked at.

    A step is (name, kind, is_array, is_nullable, tag, default, nested). An "absent" one writes
    nothing: the value has to be the default. `nested` is the writer of a "struct". The steps of
    tagged fields are apart, and in the order of their tags.
    """

    cdef object cls
    cdef Step *steps
    cdef Py_ssize_t plain_count
    cdef Py_ssize_t step_count
    cdef Py_ssize_t unknown_tags
    cdef tuple keeps

    def __cinit__(self, cls, tuple plain not None, tuple tagged not None):
        if not (isinstance(cls, type) and issubclass(cls, Struct)):
            raise AssertionError(f"{cls} is no structure")
        tags = [step[4] for step in tagged]
        if tags != sorted(set(tags)) or len(tags) > TAGS_MAX:
            raise AssertionError(f"the tags of {cls} do not rise, or are too many")
        self.cls = cls
        self.keeps = plain + tagged
        self.plain_count = len(plain)
        self.step_count = len(self.keeps)
        self.unknown_tags = place_of(cls, "unknown_tags")
        self.steps = <Step *>PyMem_Calloc(max(1, self.step_count), sizeof(Step))
        if self.steps == NULL:
            raise MemoryError
        cdef Py_ssize_t index
        for index in range(self.step_count):
            set_step(self.steps + index, cls, self.keeps[index], index >= self.plain_count)

    def __dealloc__(self):
        PyMem_Free(self.steps)

    cdef bint write_struct(self, Output *output, PyObject *value) noexcept:
        cdef const Step *step = self.steps
        cdef const Step *end = step + self.plain_count
        cdef PyObject *given
        if not Py_IS_TYPE(value, <PyTypeObject *>self.cls):
            return False
        while step < end:
            given = ottla_slot(value, step.slot)
            if given == NULL:
                return False
            if step.kind == ABSENT:
                if is_set(step, given) != 0:
                    return False
            elif not write_field(output, step, given):
                return False
            step += 1
        return not output.is_flexible or self.write_tags(output, value)

    cdef bint write_tags(self, Output *output, PyObject *value) noexcept:
        cdef const Step *step = self.steps + self.plain_count
        cdef const Step *end = self.steps + self.step_count
        cdef Py_ssize_t count_at = output.at - output.start
        cdef PyObject *given
        cdef int is_given
        if ottla_slot(value, self.unknown_tags) != Py_None or not write_big_endian(output, 0, 1):
            return False
        while step < end:
            given = ottla_slot(value, step.slot)
            is_given = is_set(step, given) if given != NULL else -1
            if is_given < 0 or is_given and not write_tagged(output, step, given):
                return False
            output.start[count_at] += is_given
            step += 1
        return True


cdef Py_ssize_t place_of(cls, name) except -1:
    cdef Py_ssize_t place = ottla_slot_place(cls, getattr(cls, name))
    if place < 0:
        raise AssertionError(f"{name} is no slot of {cls}")
    return place


cdef int set_step(Step *step, cls, how, bint is_tagged) except -1:
    name, kind, step.is_array, is_nullable, tag, default, nested = how
    step.kind = KIND_BY_NAME[kind]
    if step.kind == STRUCT and not isinstance(nested, StructWriter):
        raise AssertionError(f"{name} has no writer")
    if type(default) not in DEFAULT_TYPES:
        raise AssertionError(f"{name} has a default that nothing can be held against")
    if is_tagged:
        step.is_tagged = True
        step.tag = tag
    step.slot = place_of(cls, name)
    step.width = WIDTH_BY_NAME.get(kind, 0)
    step.is_nullable = is_nullable and (step.is_array or step.width == 0)
    if step.kind == INTEGER:
        bits = 8 * step.width
        step.lowest = 0 if kind == "uint16" else -(1 << bits - 1)
        step.highest = (1 << (bits if kind == "uint16" else bits - 1)) - 1
    step.default = <PyObject *>default
    step.nested = <PyObject *>nested
    return 0


@cython.no_gc_clear
@cython.final
cdef class MessageWriter:
    """Writes one message in one version."""

    cdef StructWriter struct
    cdef bint is_flexible
    cdef Py_ssize_t text_bytes_max
    cdef Py_ssize_t batches_bytes_max

    def __cinit__(
        self,
        StructWriter struct not None,
        *,
        bint is_flexible,
        Py_ssize_t text_bytes_max,
        Py_ssize_t batches_bytes_max,
    ):
        if text_bytes_max > TEXT_LENGTH_MAX:
            raise AssertionError(f"{text_bytes_max} does not fit into a length of two bytes")
        self.struct = struct
        self.is_flexible = is_flexible
        self.text_bytes_max = text_bytes_max
        self.batches_bytes_max = batches_bytes_max

    def write(self, value, Py_ssize_t items_max=PY_SSIZE_T_MAX):
        """Return the bytes of a message; None if anything is odd, or it has more array items."""
        cdef unsigned char first[FIRST_BYTES]
        cdef Output output
        output.start = output.at = output.first = first
        output.end = output.first + FIRST_BYTES
        output.text_bytes_max = self.text_bytes_max
        output.batches_bytes_max = self.batches_bytes_max
        output.items_left = items_max
        output.is_flexible = self.is_flexible
        try:
            if not self.struct.write_struct(&output, <PyObject *>value):
                return None
            return PyBytes_FromStringAndSize(<char *>output.start, output.at - output.start)
        finally:
            if output.start != output.first:
                PyMem_Free(output.start)
