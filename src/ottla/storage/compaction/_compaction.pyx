# cython: boundscheck=False, wraparound=False, cdivision=True, binding=False
"""What compaction does with every record, compiled: the twin of _compaction_python.py.

The contracts are there. The loops run without the interpreter's lock, so that the traffic of the
broker goes on beside them; every read is held against the end of the record or of the section.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from ottla.wire.records._arrow_wire cimport Place, span, varint

from ottla.storage.compaction._compaction_python import malformed

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    /* BLAKE2b (RFC 7693) with a digest of sixteen bytes and no key, as hashlib computes it. */

    static const uint64_t ottla_blake_iv[8] = {
        0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
        0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
    };

    #define OTTLA_TURN(word, bits) (((word) >> (bits)) | ((word) << (64 - (bits))))
    #define OTTLA_MIX(a, b, c, d, x, y) do { \\
        a += b + (x); d = OTTLA_TURN(d ^ a, 32); c += d; b = OTTLA_TURN(b ^ c, 24); \\
        a += b + (y); d = OTTLA_TURN(d ^ a, 16); c += d; b = OTTLA_TURN(b ^ c, 63); \\
    } while (0)

    #define OTTLA_ROUND(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q) do { \\
        OTTLA_MIX(v[0], v[4], v[8], v[12], m[a], m[b]); \\
        OTTLA_MIX(v[1], v[5], v[9], v[13], m[c], m[d]); \\
        OTTLA_MIX(v[2], v[6], v[10], v[14], m[e], m[f]); \\
        OTTLA_MIX(v[3], v[7], v[11], v[15], m[g], m[h]); \\
        OTTLA_MIX(v[0], v[5], v[10], v[15], m[i], m[j]); \\
        OTTLA_MIX(v[1], v[6], v[11], v[12], m[k], m[l]); \\
        OTTLA_MIX(v[2], v[7], v[8], v[13], m[n], m[o]); \\
        OTTLA_MIX(v[3], v[4], v[9], v[14], m[p], m[q]); \\
    } while (0)

    static uint64_t ottla_blake_word(const uint8_t *at) {
        uint64_t word = 0;
        for (int index = 7; index >= 0; index--)
            word = word << 8 | at[index];
        return word;
    }

    static void ottla_blake_block(
        uint64_t state[8], const uint8_t block[128], uint64_t count, uint64_t is_last
    ) {
        uint64_t m[16], v[16];
        for (int index = 0; index < 16; index++)
            m[index] = ottla_blake_word(block + 8 * index);
        for (int index = 0; index < 8; index++) {
            v[index] = state[index];
            v[8 + index] = ottla_blake_iv[index];
        }
        v[12] ^= count;
        v[14] ^= 0 - is_last;
        OTTLA_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        OTTLA_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
        OTTLA_ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
        OTTLA_ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
        OTTLA_ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
        OTTLA_ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
        OTTLA_ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
        OTTLA_ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
        OTTLA_ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
        OTTLA_ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
        OTTLA_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        OTTLA_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
        for (int index = 0; index < 8; index++)
            state[index] ^= v[index] ^ v[8 + index];
    }

    static void ottla_blake(const uint8_t *key, uint64_t size, uint64_t digest[2]) {
        uint64_t state[8], done = 0;
        uint8_t rest[128];
        memcpy(state, ottla_blake_iv, sizeof state);
        state[0] ^= 0x01010010;  /* fan-out and depth 1, no key, sixteen bytes */
        while (size - done > sizeof rest) {
            done += sizeof rest;
            ottla_blake_block(state, key + done - sizeof rest, done, 0);
        }
        memset(rest, 0, sizeof rest);
        if (size > done)
            memcpy(rest, key + done, size - done);
        ottla_blake_block(state, rest, size, 1);
        digest[0] = state[0];
        digest[1] = state[1];
    }
    """
    void ottla_blake(const uint8_t *key, uint64_t size, uint64_t *digest) noexcept nogil

cdef enum:
    LENGTH_BYTES_MAX = 5
    NUMBER_BYTES_MAX = 10


cdef struct Entry:
    uint64_t digest[2]
    int64_t offset_plus_one


cdef struct Reader:
    Place start
    Place at
    Place end
    int64_t record_count
    int64_t last_offset_delta
    int64_t index


cdef struct Fields:
    Place start
    Place body              # behind the length
    Place timestamp_end
    Place end
    Place key
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t key_size
    int64_t value_size


cdef struct Kept:
    uint8_t *records        # NULL as long as all are kept
    Py_ssize_t size
    int64_t count
    int64_t tombstones
    int64_t least
    int64_t greatest


cdef Reader reader_over(const Py_buffer *buffer, int64_t record_count, int64_t last) noexcept:
    cdef Reader reader
    reader.start = reader.at = <Place>buffer.buf
    reader.end = reader.at + buffer.len
    reader.record_count = record_count
    reader.last_offset_delta = last
    reader.index = 0
    return reader


cdef bint read_record(Reader *reader, int64_t previous, Fields *fields) noexcept nogil:
    """Read the next record up to its value; false if it is malformed."""
    cdef Place at = reader.at
    cdef Place value
    cdef int64_t length
    fields.start = at
    if not varint(&at, reader.end, 32, &length) or not 0 < length <= reader.end - at:
        return False
    fields.body = at
    fields.end = at + length
    at += 1
    if not varint(&at, fields.end, 64, &fields.timestamp_delta):
        return False
    fields.timestamp_end = at
    if not varint(&at, fields.end, 32, &fields.offset_delta):
        return False
    if not previous < fields.offset_delta <= reader.last_offset_delta:
        return False
    if not span(&at, fields.end, &fields.key, &fields.key_size):
        return False
    if not span(&at, fields.end, &value, &fields.value_size) or at >= fields.end:
        return False
    reader.at = fields.end
    return True


cdef int check_read(Reader *reader) except -1:
    """Raise what the twin raises, if the reader stopped before the end."""
    if reader.index < reader.record_count or reader.at != reader.end:
        raise malformed(reader.index)
    return 0


cdef inline uint8_t *write_varint(uint8_t *at, int64_t number) noexcept nogil:
    cdef uint64_t rest = (<uint64_t>number << 1) ^ <uint64_t>(number >> 63)
    while rest > 0x7F:
        at[0] = <uint8_t>(rest & 0x7F | 0x80)
        at += 1
        rest >>= 7
    at[0] = <uint8_t>rest
    return at + 1


def key_digest(bytes key not None):
    """See the twin."""
    cdef uint64_t digest[2]
    ottla_blake(<Place>PyBytes_AS_STRING(key), len(key), digest)
    return digest[0].to_bytes(8, "little") + digest[1].to_bytes(8, "little")


cdef class OffsetMap:
    """See the twin."""

    cdef Entry *_table
    cdef uint64_t _slots
    cdef readonly int64_t entries_max
    cdef readonly int64_t entry_count

    def __cinit__(self, int64_t entries_max, int64_t slots):
        if not 0 < entries_max < slots < 2**32:
            raise AssertionError(f"{entries_max} entries in {slots} places")
        self.entries_max = entries_max
        self._slots = slots
        self._table = <Entry *>calloc(slots, sizeof(Entry))  # no memory before it is touched
        if self._table == NULL:
            raise MemoryError(f"an offset map of {slots * sizeof(Entry)} bytes")

    def __dealloc__(self):
        free(self._table)

    cdef Entry *_find(self, Place key, int64_t key_size, uint64_t *digest) noexcept nogil:
        """Return where a key is, or where it would be."""
        cdef uint64_t slot
        cdef Entry *entry
        ottla_blake(key, key_size, digest)
        slot = (digest[0] >> 32) * self._slots >> 32
        while True:
            entry = &self._table[slot]
            if entry.offset_plus_one == 0 or (
                entry.digest[0] == digest[0] and entry.digest[1] == digest[1]
            ):
                return entry
            slot += 1
            if slot == self._slots:
                slot = 0

    def get(self, bytes key not None):
        """See the twin."""
        cdef uint64_t digest[2]
        return self._find(<Place>PyBytes_AS_STRING(key), len(key), digest).offset_plus_one - 1

    def add_keys(self, batch, section not None, int64_t start_offset):
        """See the twin."""
        cdef Py_buffer buffer
        cdef Reader reader
        cdef int64_t base_offset = batch.base_offset
        cdef int64_t unplaced
        cdef int64_t record_count = batch.record_count, last = batch.last_offset_delta
        PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
        try:
            reader = reader_over(&buffer, record_count, last)
            with nogil:
                unplaced = self._add_all(&reader, base_offset, start_offset)
            if unplaced < 0:
                check_read(&reader)
            return unplaced
        finally:
            PyBuffer_Release(&buffer)

    cdef int64_t _add_all(
        self, Reader *reader, int64_t base_offset, int64_t start_offset
    ) noexcept nogil:
        cdef Fields fields
        cdef uint64_t digest[2]
        cdef Entry *entry
        cdef int64_t offset
        fields.offset_delta = -1
        while reader.index < reader.record_count:
            if not read_record(reader, fields.offset_delta, &fields):
                return -1
            reader.index += 1
            offset = base_offset + fields.offset_delta
            if fields.key_size < 0 or offset < start_offset:
                continue
            entry = self._find(fields.key, fields.key_size, digest)
            if entry.offset_plus_one == 0:
                if self.entry_count >= self.entries_max:
                    return offset
                self.entry_count += 1
                entry.digest[0] = digest[0]
                entry.digest[1] = digest[1]
            entry.offset_plus_one = offset + 1
        return -1

    def filter_records(
        self, batch, section not None, int64_t end_offset, *, bint with_tombstones
    ):
        """See the twin."""
        cdef Py_buffer buffer
        cdef Reader reader
        cdef Kept kept
        cdef int64_t base_offset = batch.base_offset
        cdef int64_t record_count = batch.record_count, last = batch.last_offset_delta
        cdef bint has_memory
        PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
        memset(&kept, 0, sizeof(Kept))
        try:
            reader = reader_over(&buffer, record_count, last)
            with nogil:
                has_memory = self._filter_all(
                    &reader, base_offset, end_offset, with_tombstones, &kept
                )
            if not has_memory:
                raise MemoryError(f"records of {buffer.len} bytes")
            check_read(&reader)
            records = None
            if kept.records != NULL:
                records = PyBytes_FromStringAndSize(<char *>kept.records, kept.size)
            return records, kept.count, kept.tombstones, kept.least, kept.greatest
        finally:
            free(kept.records)
            PyBuffer_Release(&buffer)

    cdef bint _filter_all(
        self,
        Reader *reader,
        int64_t base_offset,
        int64_t end_offset,
        bint with_tombstones,
        Kept *kept,
    ) noexcept nogil:
        """Fill `kept`; false if there is no memory for it."""
        cdef Fields fields
        cdef Place run = reader.start   # from here on everything is kept so far, and not copied
        kept.least, kept.greatest = INT64_MAX, INT64_MIN
        fields.offset_delta = -1
        while reader.index < reader.record_count:
            if not read_record(reader, fields.offset_delta, &fields):
                return True
            reader.index += 1
            if self._is_kept(&fields, base_offset, end_offset, with_tombstones):
                kept.count += 1
                kept.tombstones += fields.value_size < 0
                kept.least = min(kept.least, fields.timestamp_delta)
                kept.greatest = max(kept.greatest, fields.timestamp_delta)
                continue
            if kept.records == NULL:
                kept.records = <uint8_t *>malloc(reader.end - reader.start)
                if kept.records == NULL:
                    return False
            memcpy(kept.records + kept.size, run, fields.start - run)
            kept.size += fields.start - run
            run = fields.end
        if kept.records != NULL:
            memcpy(kept.records + kept.size, run, reader.at - run)
            kept.size += reader.at - run
        if kept.count == 0:
            kept.least = kept.greatest = 0
        return True

    cdef bint _is_kept(
        self, Fields *fields, int64_t base_offset, int64_t end_offset, bint with_tombstones
    ) noexcept nogil:
        cdef uint64_t digest[2]
        cdef int64_t offset = base_offset + fields.offset_delta
        if offset >= end_offset:
            return True
        if fields.key_size < 0 or (fields.value_size < 0 and not with_tombstones):
            return False
        return self._find(fields.key, fields.key_size, digest).offset_plus_one <= offset + 1


cdef bint shift_all(
    Reader *reader, int64_t shift, uint8_t *shifted, Py_ssize_t *size
) noexcept nogil:
    cdef Fields fields
    cdef uint8_t *at = shifted
    cdef uint8_t number[NUMBER_BYTES_MAX]
    cdef Py_ssize_t number_size
    cdef int64_t rest_size
    fields.offset_delta = -1
    while reader.index < reader.record_count:
        if not read_record(reader, fields.offset_delta, &fields):
            return False
        reader.index += 1
        number_size = write_varint(
            number, <int64_t>(<uint64_t>fields.timestamp_delta + <uint64_t>shift)
        ) - number
        rest_size = fields.end - fields.timestamp_end
        at = write_varint(at, 1 + number_size + rest_size)
        at[0] = fields.body[0]
        memcpy(at + 1, number, number_size)
        memcpy(at + 1 + number_size, fields.timestamp_end, rest_size)
        at += 1 + number_size + rest_size
    size[0] = at - shifted
    return True


def shift_timestamps(batch, section not None, int64_t record_count, int64_t shift):
    """See the twin."""
    cdef Py_buffer buffer
    cdef Reader reader
    cdef uint8_t *shifted = NULL
    cdef Py_ssize_t size = 0
    PyObject_GetBuffer(section, &buffer, PyBUF_SIMPLE)
    try:
        reader = reader_over(&buffer, record_count, batch.last_offset_delta)
        # A record has at least one byte, and grows by a longer timestamp and a longer length.
        record_count = min(record_count, buffer.len)
        shifted = <uint8_t *>malloc(
            buffer.len + (NUMBER_BYTES_MAX + LENGTH_BYTES_MAX) * record_count + 1
        )
        if shifted == NULL:
            raise MemoryError(f"records of {buffer.len} bytes")
        with nogil:
            shift_all(&reader, shift, shifted, &size)
        check_read(&reader)
        return PyBytes_FromStringAndSize(<char *>shifted, size)
    finally:
        free(shifted)
        PyBuffer_Release(&buffer)
