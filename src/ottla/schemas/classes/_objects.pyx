# cython: language_level=3, boundscheck=False, wraparound=False, binding=False
"""Objects to Avro bytes and back by a plan, compiled: the twin of _objects_python.py.

Every failure is left to the twin, which does the work again and makes the error text.
"""

import datetime as _datetime
from uuid import UUID

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport (
    PyDate_CheckExact,
    PyDateTime_CheckExact,
    date_day,
    date_month,
    date_new,
    date_year,
    datetime_day,
    datetime_hour,
    datetime_microsecond,
    datetime_minute,
    datetime_month,
    datetime_new,
    datetime_second,
    datetime_tzinfo,
    datetime_year,
    import_datetime,
)
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc

from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT32_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from ottla.schemas.classes import _objects_python as twin
from ottla.schemas.classes.object_plan import DEPTH_MAX

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    object PyObject_Call(object called, object arguments, object named)
    double PyFloat_AS_DOUBLE(object number)

import_datetime()

cdef object UTC = _datetime.timezone.utc
cdef int _DEPTH_MAX = DEPTH_MAX
cdef int64_t DAY_MICROS = 86_400_000_000
cdef int64_t DAY_MIN = -719_162
cdef int64_t DAY_MAX = 2_932_896

cdef enum:
    NULL_OP = 0
    BOOLEAN = 1
    INT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    STRING = 6
    BYTES = 7
    DATETIME = 8
    DATE = 9
    TIME = 10
    UUID_OP = 11
    DECIMAL = 12
    ENUM = 13
    LIST = 14
    MAP = 15
    UNION = 16
    RECORD = 17


cdef class Node:
    """A step of the plan with C fields."""
    cdef int op
    cdef list children
    cdef object cls
    cdef tuple attributes
    cdef list targets
    cdef tuple defaults
    cdef tuple names
    cdef bint is_positional, is_mapping, is_direct
    cdef tuple members
    cdef dict index_by_member
    cdef dict index_by_class
    cdef object step


cdef Node _node(object step, dict known):
    found = known.get(id(step))
    if found is not None:
        return <Node>found
    cdef Node node = Node()
    known[id(step)] = node
    node.step = step
    node.op = int(step.op)
    node.cls = step.cls
    node.attributes = tuple(step.attributes)
    node.targets = list(step.targets)
    node.defaults = tuple(step.defaults)
    node.names = tuple(step.names)
    node.is_positional = step.is_positional
    node.is_mapping = step.is_mapping
    node.is_direct = node.targets == list(range(len(node.defaults)))
    node.members = tuple(step.members)
    node.index_by_member = dict(step.index_by_member)
    node.index_by_class = dict(step.index_by_class)
    node.children = [_node(child, known) for child in step.children]
    return node


class _Failed(Exception):
    """Raised inside only: the twin makes the error text."""


cdef struct Out:
    char *data
    Py_ssize_t size
    Py_ssize_t capacity


cdef inline int _reserve(Out *out, Py_ssize_t count) except -1:
    cdef Py_ssize_t wanted
    cdef char *moved
    if out.size + count > out.capacity:
        wanted = (out.size + count) * 2
        moved = <char *>PyMem_Realloc(out.data, wanted)
        if moved == NULL:
            raise MemoryError
        out.data, out.capacity = moved, wanted
    return 0


cdef inline int _put_long(Out *out, int64_t number) except -1:
    cdef uint64_t rest = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    _reserve(out, 10)
    while rest > 0x7F:
        out.data[out.size] = <char>(rest & 0x7F | 0x80)
        out.size += 1
        rest >>= 7
    out.data[out.size] = <char>rest
    out.size += 1
    return 0


cdef inline int _put_bytes(Out *out, const char *data, Py_ssize_t size) except -1:
    _put_long(out, size)
    _reserve(out, size)
    memcpy(out.data + out.size, data, size)
    out.size += size
    return 0


cdef inline int64_t _days(int64_t year, int64_t month, int64_t day) noexcept:
    """Days since 1970 of a date of the Gregorian calendar, counted in eras of 400 years."""
    cdef int64_t era, year_of_era, day_of_year
    year -= month <= 2
    era = (year if year >= 0 else year - 399) // 400
    year_of_era = year - era * 400
    day_of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719468


cdef inline void _date_of(int64_t days, int *year, int *month, int *day) noexcept:
    """The date of days since 1970, from year 1 on."""
    cdef int64_t shifted = days + 719468
    cdef int64_t era = shifted // 146097
    cdef int64_t day_of_era = shifted - era * 146097
    cdef int64_t year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36524 - day_of_era // 146096
    ) // 365
    cdef int64_t day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    cdef int64_t shifted_month = (5 * day_of_year + 2) // 153
    day[0] = <int>(day_of_year - (153 * shifted_month + 2) // 5 + 1)
    month[0] = <int>(shifted_month + 3 if shifted_month < 10 else shifted_month - 9)
    year[0] = <int>(year_of_era + era * 400 + (month[0] <= 2))


cdef int64_t _micros(object value) except? -1:
    cdef int64_t days, seconds
    if PyDateTime_CheckExact(value) and datetime_tzinfo(value) is UTC:
        days = _days(datetime_year(value), datetime_month(value), datetime_day(value))
        seconds = (datetime_hour(value) * 60 + datetime_minute(value)) * 60 + datetime_second(value)
        return days * DAY_MICROS + seconds * 1_000_000 + datetime_microsecond(value)
    return twin.micros_of(value)


cdef int _write_atom(Node node, Out *out, object value) except -1:
    cdef int64_t number
    cdef double real
    cdef float single
    cdef const char *text
    cdef Py_ssize_t size
    cdef int op = node.op
    if op == STRING:
        if not isinstance(value, str):
            raise _Failed
        text = PyUnicode_AsUTF8AndSize(value, &size)
        _put_bytes(out, text, size)
    elif op == LONG or op == INT:
        if type(value) is not int:
            raise _Failed
        number = value
        if op == INT and not INT32_MIN <= number <= INT32_MAX:
            raise _Failed
        _put_long(out, number)
    elif op == DOUBLE or op == FLOAT:
        if type(value) is not float:
            raise _Failed
        real = PyFloat_AS_DOUBLE(value)
        _reserve(out, 8)
        if op == DOUBLE:
            memcpy(out.data + out.size, &real, 8)
            out.size += 8
        else:
            if real - real == 0 and not -3.4028234e38 <= real <= 3.4028234e38:
                raise _Failed
            single = <float>real
            memcpy(out.data + out.size, &single, 4)
            out.size += 4
    elif op == BOOLEAN:
        if value is not True and value is not False:
            raise _Failed
        _reserve(out, 1)
        out.data[out.size] = value is True
        out.size += 1
    elif op == NULL_OP:
        if value is not None:
            raise _Failed
    elif op == DATETIME:
        _put_long(out, _micros(value))
    else:
        _write_rare(node, out, value)
    return 0


cdef int _write_rare(Node node, Out *out, object value) except -1:
    cdef int op = node.op
    cdef bytes made
    if op == ENUM:
        _put_long(out, node.index_by_member[value])
        return 0
    if op == DATE:
        if not PyDate_CheckExact(value):
            raise _Failed
        _put_long(out, _days(date_year(value), date_month(value), date_day(value)))
        return 0
    if op == TIME:
        if not isinstance(value, _datetime.time):
            raise _Failed
        _put_long(
            out,
            ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond,
        )
        return 0
    if op == BYTES:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise _Failed
        made = bytes(value)
    elif op == UUID_OP:
        if not isinstance(value, UUID):
            raise _Failed
        made = str(value).encode()
    else:
        made = twin.decimal_bytes(value, node.step.precision, node.step.scale)
    _put_bytes(out, PyBytes_AS_STRING(made), PyBytes_GET_SIZE(made))
    return 0


cdef int _write(Node node, Out *out, object value, int depth) except -1:
    cdef Node child
    cdef Py_ssize_t place, size
    cdef int64_t branch
    cdef const char *text
    if depth > _DEPTH_MAX:
        raise _Failed
    if node.op < LIST:
        return _write_atom(node, out, value)
    if node.op == RECORD:
        for place in range(len(node.children)):
            child = <Node>node.children[place]
            if node.is_mapping:
                member = value[node.attributes[place]]
            else:
                member = getattr(value, <str>node.attributes[place])
            if child.op < LIST:
                _write_atom(child, out, member)
            else:
                _write(child, out, member, depth + 1)
    elif node.op == UNION:
        found = node.index_by_class.get(type(value))
        branch = found if found is not None else node.step.branch_of(value)
        _put_long(out, branch)
        _write(<Node>node.children[branch], out, value, depth + 1)
    elif node.op == LIST:
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise _Failed
        child = <Node>node.children[0]
        if value:
            _put_long(out, len(value))
            for item in value:
                _write(child, out, item, depth + 1)
        _put_long(out, 0)
    else:
        if not isinstance(value, dict):
            raise _Failed
        child = <Node>node.children[0]
        if value:
            _put_long(out, len(value))
            for key, item in (<dict>value).items():
                if not isinstance(key, str):
                    raise _Failed
                text = PyUnicode_AsUTF8AndSize(key, &size)
                _put_bytes(out, text, size)
                _write(child, out, item, depth + 1)
        _put_long(out, 0)
    return 0


cdef struct In:
    const uint8_t *data
    Py_ssize_t position
    Py_ssize_t end


cdef inline int64_t _get_long(In *source) except? -1:
    cdef uint64_t number = 0
    cdef int shift = 0
    cdef uint8_t byte
    while source.position < source.end and shift < 70:
        byte = source.data[source.position]
        source.position += 1
        if shift == 63 and byte > 1:
            break
        number |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            return <int64_t>(number >> 1) ^ -<int64_t>(number & 1)
        shift += 7
    raise _Failed


cdef inline Py_ssize_t _get_size(In *source) except -1:
    cdef int64_t size = _get_long(source)
    if size < 0 or size > source.end - source.position:
        raise _Failed
    return size


cdef inline int _need(In *source, Py_ssize_t count) except -1:
    if source.end - source.position < count:
        raise _Failed
    return 0


cdef object _read_datetime(int64_t micros):
    cdef int64_t days = micros // DAY_MICROS
    cdef int64_t rest = micros - days * DAY_MICROS
    cdef int year, month, day
    if rest < 0:
        days -= 1
        rest += DAY_MICROS
    if not DAY_MIN <= days <= DAY_MAX:
        raise _Failed
    _date_of(days, &year, &month, &day)
    cdef int64_t seconds = rest // 1_000_000
    return datetime_new(
        year,
        month,
        day,
        <int>(seconds // 3600),
        <int>(seconds // 60 % 60),
        <int>(seconds % 60),
        <int>(rest % 1_000_000),
        UTC,
    )


cdef object _read_atom(Node node, In *source):
    cdef int op = node.op
    cdef Py_ssize_t size
    cdef int64_t number
    cdef double real
    cdef float single
    if op == STRING:
        size = _get_size(source)
        source.position += size
        return PyUnicode_DecodeUTF8(<const char *>source.data + source.position - size, size, NULL)
    if op == LONG:
        return _get_long(source)
    if op == DOUBLE:
        _need(source, 8)
        memcpy(&real, source.data + source.position, 8)
        source.position += 8
        return real
    if op == BOOLEAN:
        _need(source, 1)
        source.position += 1
        if source.data[source.position - 1] > 1:
            raise _Failed
        return source.data[source.position - 1] == 1
    if op == NULL_OP:
        return None
    if op == DATETIME:
        return _read_datetime(_get_long(source))
    if op == INT:
        number = _get_long(source)
        if not INT32_MIN <= number <= INT32_MAX:
            raise _Failed
        return number
    if op == FLOAT:
        _need(source, 4)
        memcpy(&single, source.data + source.position, 4)
        source.position += 4
        return <double>single
    return _read_rare(node, source)


cdef object _read_rare(Node node, In *source):
    cdef int op = node.op
    cdef Py_ssize_t size
    cdef int64_t number
    cdef int year, month, day
    if op == ENUM:
        number = _get_long(source)
        if not 0 <= number < len(node.members):
            raise _Failed
        return node.members[number]
    if op == DATE:
        number = _get_long(source)
        if not DAY_MIN <= number <= DAY_MAX:
            raise _Failed
        _date_of(number, &year, &month, &day)
        return date_new(year, month, day)
    if op == TIME:
        number = _get_long(source)
        if not 0 <= number < DAY_MICROS:
            raise _Failed
        return _datetime.time(
            number // 3_600_000_000,
            number // 60_000_000 % 60,
            number // 1_000_000 % 60,
            number % 1_000_000,
        )
    size = _get_size(source)
    source.position += size
    data = PyBytes_FromStringAndSize(<const char *>source.data + source.position - size, size)
    if op == BYTES:
        return data
    if op == UUID_OP:
        return UUID(data.decode())
    return twin.decimal_of(data, node.step.scale)


cdef object _read(Node node, In *source, int depth):
    cdef int64_t branch
    if depth > _DEPTH_MAX:
        raise _Failed
    if node.op < LIST:
        return _read_atom(node, source)
    if node.op == RECORD:
        return _read_record(node, source, depth)
    if node.op == UNION:
        branch = _get_long(source)
        if not 0 <= branch < len(node.children):
            raise _Failed
        return _read(<Node>node.children[branch], source, depth + 1)
    return _read_items(node, source, depth)


cdef object _read_record(Node node, In *source, int depth):
    cdef Py_ssize_t place, count = len(node.children)
    cdef Node child
    cdef tuple arguments
    if node.is_direct and node.is_positional:
        arguments = PyTuple_New(count)
        for place in range(count):
            child = <Node>node.children[place]
            value = _read_atom(child, source) if child.op < LIST else _read(child, source, depth + 1)
            Py_INCREF(value)
            PyTuple_SET_ITEM(arguments, place, value)
        return PyObject_Call(node.cls, arguments, NO_NAMES)
    values = list(node.defaults)
    for place in range(count):
        value = _read(<Node>node.children[place], source, depth + 1)
        if node.targets[place] >= 0:
            values[node.targets[place]] = value
    if node.is_positional:
        return node.cls(*values)
    named = dict(zip(node.names, values))
    return named if node.is_mapping else node.cls(**named)


cdef object NO_NAMES = {}


cdef object _read_items(Node node, In *source, int depth):
    cdef Node child = <Node>node.children[0]
    cdef list items = []
    cdef dict pairs = {}
    cdef int64_t count
    cdef Py_ssize_t size
    while True:
        count = _get_long(source)
        if count == 0:
            break
        if count < 0:
            if count < -source.end:
                raise _Failed
            count = -count
            _get_long(source)
        if count > source.end - source.position:
            raise _Failed
        while count > 0:
            count -= 1
            if node.op == LIST:
                items.append(_read(child, source, depth + 1))
            else:
                size = _get_size(source)
                source.position += size
                key = PyUnicode_DecodeUTF8(
                    <const char *>source.data + source.position - size, size, NULL
                )
                pairs[key] = _read(child, source, depth + 1)
    if node.op == MAP:
        return pairs
    return items if node.cls is None else node.cls(items)


cdef class Objects:
    """Encodes and decodes the objects of one plan."""
    cdef Node _root
    cdef object _twin

    def __init__(self, root):
        self._root = _node(root, {})
        self._twin = twin.Objects(root)

    def encode(self, value, bytes prefix not None=b""):
        """Return the bytes of an object after a prefix; ObjectError with the path of the field."""
        cdef Out out
        cdef Py_ssize_t size = PyBytes_GET_SIZE(prefix)
        out.capacity = 256 + size
        out.data = <char *>PyMem_Malloc(out.capacity)
        if out.data == NULL:
            raise MemoryError
        memcpy(out.data, PyBytes_AS_STRING(prefix), size)
        out.size = size
        try:
            _write(self._root, &out, value, 0)
            return PyBytes_FromStringAndSize(out.data, out.size)
        except MemoryError:
            raise
        except Exception:
            pass
        finally:
            PyMem_Free(out.data)
        return self._twin.encode(value, prefix)

    def decode(self, bytes data not None, Py_ssize_t start=0):
        """Return the object after `start` bytes; ObjectError if the bytes are not one object."""
        cdef In source
        source.data = <const uint8_t *>PyBytes_AS_STRING(data)
        source.end = PyBytes_GET_SIZE(data)
        source.position = start
        if 0 <= start <= source.end:
            try:
                value = _read(self._root, &source, 0)
                if source.position == source.end:
                    return value
            except MemoryError:
                raise
            except Exception:
                pass
        return self._twin.decode(data, start)
