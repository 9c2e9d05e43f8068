# cython: boundscheck=False, wraparound=False, binding=False, initializedcheck=False
"""Many records at once, compiled: the fallback _bulk_python.py has the contracts."""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from collections.abc import Mapping

from ottla.clients.records._murmur2 cimport hash_of
from ottla.clients.producer.bulk._bulk_python import (
    FIELDS, NO_SUCH_PARTITION, NOT_A_FIELD, NOT_A_PAIR, NOT_BYTES, Columns, Groups,
)
from ottla.wire.records._arrow_rows_python import BUFFER_WRONG

cdef enum:
    NO_PARTITION = -1


cdef inline int32_t partition_for(
    const uint8_t* data, Py_ssize_t size, int32_t partition_count
) noexcept nogil:
    return <int32_t>((hash_of(data, size) & 0x7FFFFFFF) % <uint32_t>partition_count)


cdef class _Reading:
    """Columns that grow; those that nothing was in so far are None."""

    cdef list values, keys, headers, timestamps_ms, partitions

    def __cinit__(self):
        self.values = []

    cdef int add(self, value, key, headers, timestamp_ms, partition) except -1:
        if key is not None and self.keys is None:
            self.keys = [None] * len(self.values)
        if headers and self.headers is None:
            self.headers = [()] * len(self.values)
        if timestamp_ms is not None and self.timestamps_ms is None:
            self.timestamps_ms = [None] * len(self.values)
        if partition is not None and partition != NO_PARTITION and self.partitions is None:
            self.partitions = [NO_PARTITION] * len(self.values)
        self.values.append(value)
        if self.keys is not None:
            self.keys.append(key)
        if self.headers is not None:
            self.headers.append(headers or ())
        if self.timestamps_ms is not None:
            self.timestamps_ms.append(timestamp_ms)
        if self.partitions is not None:
            self.partitions.append(NO_PARTITION if partition is None else partition)
        return 0


cdef object serialized(cell, headers, serialize, str what, Py_ssize_t row):
    if serialize is not None:
        cell = serialize(cell, headers)
    if cell is None or PyBytes_CheckExact(cell):
        return cell
    if isinstance(cell, str):
        return (<str>cell).encode()
    if not isinstance(cell, (bytes, bytearray, memoryview)):
        raise TypeError(NOT_BYTES.format(row, what, type(cell).__name__))
    return bytes(cell)


cdef int check_fields(record, Py_ssize_t row) except -1:
    for name in record:
        if name not in FIELDS:
            raise ValueError(NOT_A_FIELD.format(row, name))
    return 0


cdef inline Py_ssize_t size_of(cell) except -1:
    return 0 if cell is None else len(<bytes>cell)


def read_columns(
    records, Py_ssize_t rows_max, Py_ssize_t size_bytes_max, serialize_key, serialize_value,
    Py_ssize_t first_row,
):
    """See the fallback."""
    cdef _Reading columns = _Reading()
    cdef Py_ssize_t size = 0
    cdef Py_ssize_t count = 0
    cdef tuple pair
    for record in records:
        if PyBytes_CheckExact(record) and serialize_value is None and serialize_key is None:
            value, key = record, None
            columns.add(value, None, None, None, None)
        elif type(record) is tuple:
            pair = record
            if len(pair) != 2:
                raise ValueError(NOT_A_PAIR.format(first_row + count, len(pair)))
            value = serialized(pair[1], (), serialize_value, "value", first_row + count)
            key = serialized(pair[0], (), serialize_key, "key", first_row + count)
            columns.add(value, key, None, None, None)
        elif isinstance(record, Mapping):
            check_fields(record, first_row + count)
            headers = record.get("headers") or ()
            value = serialized(
                record.get("value"), headers, serialize_value, "value", first_row + count
            )
            key = serialized(record.get("key"), headers, serialize_key, "key", first_row + count)
            columns.add(value, key, headers, record.get("timestamp"), record.get("partition"))
        else:
            value = serialized(record, (), serialize_value, "value", first_row + count)
            key = serialized(None, (), serialize_key, "key", first_row + count)
            columns.add(value, key, None, None, None)
        count += 1
        size += size_of(value) + size_of(key)
        if count >= rows_max or size >= size_bytes_max:
            break
    return Columns(
        columns.values, columns.keys, columns.headers, columns.timestamps_ms, columns.partitions
    )


cdef object grouped(int32_t* numbers, Py_ssize_t count, int32_t partition_count):
    """Sort by counting."""
    cdef bytearray starts_room = PyByteArray_FromStringAndSize(
        NULL, (partition_count + 2) * sizeof(int64_t)
    )
    cdef int64_t* starts = <int64_t*>PyByteArray_AS_STRING(starts_room)
    cdef bytearray order_room = PyByteArray_FromStringAndSize(NULL, count * sizeof(int32_t))
    cdef int32_t* order = <int32_t*>PyByteArray_AS_STRING(order_room)
    cdef Py_ssize_t row
    cdef int32_t number
    with nogil:
        for number in range(partition_count + 2):
            starts[number] = 0
        for row in range(count):
            starts[numbers[row] + 1] += 1
        for number in range(partition_count + 1):
            starts[number + 1] += starts[number]
    ends = [starts[number + 1] for number in range(partition_count + 1)]
    with nogil:
        for row in range(count):
            number = numbers[row]
            order[starts[number]] = <int32_t>row
            starts[number] += 1
    return Groups(memoryview(order_room).cast("i"), ends)


def group_rows(
    keys, partitions, Py_ssize_t row_count, int32_t partition_count, Py_ssize_t first_row
):
    """See the fallback."""
    cdef list key_list = None if keys is None else list(keys)
    cdef list given = None if partitions is None else list(partitions)
    cdef bytearray room = PyByteArray_FromStringAndSize(NULL, row_count * sizeof(int32_t))
    cdef int32_t* numbers = <int32_t*>PyByteArray_AS_STRING(room)
    cdef Py_ssize_t row
    cdef bytes key
    assert partition_count > 0
    assert key_list is None or len(key_list) == row_count
    assert given is None or len(given) == row_count
    for row in range(row_count):
        number = NO_PARTITION if given is None else given[row]
        if number != NO_PARTITION:
            if not 0 <= number < partition_count:
                raise ValueError(
                    NO_SUCH_PARTITION.format(first_row + row, number, partition_count)
                )
            numbers[row] = number
        elif key_list is None or key_list[row] is None:
            numbers[row] = partition_count
        else:
            key = key_list[row]
            numbers[row] = partition_for(
                <const uint8_t*>PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), partition_count
            )
    return grouped(numbers, row_count, partition_count)


cdef inline int64_t end_at(const uint8_t* ends, bint is_large, Py_ssize_t index) noexcept nogil:
    cdef int64_t wide
    cdef int32_t narrow
    if is_large:
        memcpy(&wide, ends + index * sizeof(int64_t), sizeof(int64_t))
        return wide
    memcpy(&narrow, ends + index * sizeof(int32_t), sizeof(int32_t))
    return narrow


cdef int hash_column(
    int32_t* numbers, column, Py_ssize_t count, int32_t partition_count
) except -1:
    """Write the partitions of the keys for rows that have none yet."""
    cdef const uint8_t[::1] ends = column.ends
    cdef const uint8_t[::1] content = column.content
    cdef const uint8_t[::1] validity = column.validity
    cdef Py_ssize_t first = column.first
    cdef bint is_large = column.is_large
    cdef Py_ssize_t width = sizeof(int64_t) if is_large else sizeof(int32_t)
    if first < 0 or first + count + 1 > ends.shape[0] // width:
        raise ValueError(BUFFER_WRONG)
    if validity is not None and validity.shape[0] < (first + count + 7) // 8:
        raise ValueError(BUFFER_WRONG)
    cdef const uint8_t* bits = NULL
    cdef const uint8_t* bytes_start = NULL
    if validity is not None:
        bits = &validity[0]
    if content.shape[0]:
        bytes_start = &content[0]
    cdef const uint8_t* ends_start = &ends[0]
    cdef int64_t size = content.shape[0]
    cdef int64_t start, stop
    cdef Py_ssize_t row, at
    cdef bint is_wrong = False
    with nogil:
        for row in range(count):
            at = first + row
            start = end_at(ends_start, is_large, at)
            stop = end_at(ends_start, is_large, at + 1)
            if not 0 <= start <= stop <= size:
                is_wrong = True
                break
            if numbers[row] == NO_PARTITION and (
                bits == NULL or bits[at >> 3] >> (at & 7) & 1
            ):
                numbers[row] = partition_for(bytes_start + start, stop - start, partition_count)
    if is_wrong:
        raise ValueError(BUFFER_WRONG)
    return 0


def group_arrow_rows(
    keys, const int32_t[::1] partitions, Py_ssize_t row_count, int32_t partition_count,
    Py_ssize_t first_row,
):
    """See the fallback."""
    cdef bytearray room = PyByteArray_FromStringAndSize(NULL, row_count * sizeof(int32_t))
    cdef int32_t* numbers = <int32_t*>PyByteArray_AS_STRING(room)
    cdef Py_ssize_t row
    cdef int32_t number
    assert partition_count > 0
    if partitions is not None and partitions.shape[0] < row_count:
        raise ValueError(BUFFER_WRONG)
    for row in range(row_count):
        number = NO_PARTITION if partitions is None else partitions[row]
        if number != NO_PARTITION and not 0 <= number < partition_count:
            raise ValueError(NO_SUCH_PARTITION.format(first_row + row, number, partition_count))
        numbers[row] = number
    if keys is not None:
        hash_column(numbers, keys, row_count, partition_count)
    for row in range(row_count):
        if numbers[row] == NO_PARTITION:
            numbers[row] = partition_count
    return grouped(numbers, row_count, partition_count)


def picked(items, const int32_t[::1] order):
    """See the fallback."""
    cdef list source = items if type(items) is list else list(items)
    cdef Py_ssize_t count = len(source)
    cdef Py_ssize_t index
    cdef list found = []
    for index in range(order.shape[0]):
        if not 0 <= order[index] < count:
            raise IndexError("list index out of range")
        found.append(source[order[index]])
    return found
