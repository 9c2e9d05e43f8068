from libc.stdint cimport uint8_t, uint32_t

cdef inline uint32_t hash_of(const uint8_t *data, Py_ssize_t length) noexcept nogil:
    cdef uint32_t mixed
    cdef uint32_t hashed = 0x9747B28Cu ^ <uint32_t>length
    cdef Py_ssize_t at = 0
    while length - at >= 4:
        mixed = (<uint32_t>data[at] | <uint32_t>data[at + 1] << 8
                 | <uint32_t>data[at + 2] << 16 | <uint32_t>data[at + 3] << 24)
        mixed *= 0x5BD1E995u
        mixed ^= mixed >> 24
        mixed *= 0x5BD1E995u
        hashed = hashed * 0x5BD1E995u ^ mixed
        at += 4
    if length - at == 3:
        hashed ^= <uint32_t>data[at + 2] << 16
    if length - at >= 2:
        hashed ^= <uint32_t>data[at + 1] << 8
    if length - at >= 1:
        hashed ^= <uint32_t>data[at]
        hashed *= 0x5BD1E995u
    hashed ^= hashed >> 13
    hashed *= 0x5BD1E995u
    return hashed ^ hashed >> 15
