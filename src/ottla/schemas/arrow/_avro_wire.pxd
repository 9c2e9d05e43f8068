# cython: language_level=3
"""Avro's numbers, lengths and text. Every read is checked against the end of the value."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from ottla.schemas.arrow._avro_columns cimport (
    DECIMAL_INEXACT, DECIMAL_RANGE, INT_RANGE, NEGATIVE_LENGTH, SOUND, TRUNCATED, VARINT, Machine,
)

cdef enum:
    LIMBS = 8


cdef inline int read_long(Machine* machine, int64_t* value) noexcept nogil:
    cdef const uint8_t* position = machine.position
    cdef uint64_t bits, byte
    cdef int shift
    if position >= machine.end:
        return TRUNCATED
    byte = position[0]
    position += 1
    bits = byte & 0x7F
    if byte >= 0x80:
        shift = 7
        while True:
            if position >= machine.end:
                return TRUNCATED
            byte = position[0]
            position += 1
            if shift == 63 and byte > 1:
                return VARINT
            bits |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
    machine.position = position
    value[0] = <int64_t>((bits >> 1) ^ (~(bits & 1) + 1))
    return SOUND


cdef inline int read_int(Machine* machine, int64_t* value) noexcept nogil:
    cdef int fault = read_long(machine, value)
    if fault:
        return fault
    return SOUND if value[0] == <int64_t><int32_t>value[0] else INT_RANGE


cdef inline int read_size(Machine* machine, int64_t* size) noexcept nogil:
    """Read the size of bytes, which must follow."""
    cdef int fault = read_long(machine, size)
    if fault:
        return fault
    if size[0] < 0:
        return NEGATIVE_LENGTH
    return SOUND if size[0] <= machine.end - machine.position else TRUNCATED


cdef inline bint is_utf8(const uint8_t* text, int64_t size) noexcept nogil:
    cdef const uint8_t* end = text + size
    cdef uint64_t word
    while end - text >= 8:
        memcpy(&word, text, 8)
        if word & 0x8080808080808080ULL:
            break
        text += 8
    while text < end and text[0] < 0x80:
        text += 1
    return text == end or is_long_utf8(text, end)


cdef inline bint is_long_utf8(const uint8_t* text, const uint8_t* end) noexcept nogil:
    """Check text that has more than ASCII: no overlong forms, no surrogates."""
    cdef uint32_t lead, second
    cdef int more, index
    while text < end:
        lead = text[0]
        if lead < 0x80:
            text += 1
            continue
        if lead < 0xC2 or lead > 0xF4:
            return False
        more = 1 if lead < 0xE0 else 2 if lead < 0xF0 else 3
        if end - text <= more:
            return False
        second = text[1]
        if lead == 0xE0 and second < 0xA0 or lead == 0xED and second > 0x9F:
            return False
        if lead == 0xF0 and second < 0x90 or lead == 0xF4 and second > 0x8F:
            return False
        for index in range(1, more + 1):
            if text[index] & 0xC0 != 0x80:
                return False
        text += more + 1
    return True


# Decimals


cdef inline int read_decimal(
    const uint8_t* content, int64_t size, int64_t shift, uint32_t* bound,
    uint8_t* target, int64_t width,
) noexcept nogil:
    """Write a big-endian number as a little-endian one of this width, scaled by 10 ** shift."""
    cdef uint32_t magnitude[LIMBS]
    cdef bint is_negative = size > 0 and content[0] >= 0x80
    cdef uint8_t sign = 0xFF if is_negative else 0
    cdef int index, fault
    # All leading bytes that only repeat the sign.
    while size > LIMBS * 4 and content[0] == sign:
        content += 1
        size -= 1
    if size > LIMBS * 4:
        return DECIMAL_RANGE
    if size > 0 and (content[0] >= 0x80) != is_negative:
        return DECIMAL_RANGE
    memset(magnitude, sign, sizeof(magnitude))
    for index in range(size):
        (<uint8_t*>magnitude)[index] = content[size - 1 - index]
    if is_negative:
        negate(magnitude)
    fault = scale(magnitude, shift)
    if fault:
        return fault
    if not is_below(magnitude, bound):
        return DECIMAL_RANGE
    if is_negative:
        negate(magnitude)
    memcpy(target, magnitude, width)
    return SOUND


cdef inline void negate(uint32_t* limbs) noexcept nogil:
    cdef uint64_t carry = 1
    cdef int index
    for index in range(LIMBS):
        carry += <uint32_t>~limbs[index]
        limbs[index] = <uint32_t>carry
        carry >>= 32


cdef inline int scale(uint32_t* limbs, int64_t shift) noexcept nogil:
    cdef uint64_t carry
    cdef int index
    while shift > 0:
        carry = 0
        for index in range(LIMBS):
            carry += <uint64_t>limbs[index] * 10
            limbs[index] = <uint32_t>carry
            carry >>= 32
        if carry:
            return DECIMAL_RANGE
        shift -= 1
    while shift < 0:
        carry = 0
        for index in range(LIMBS - 1, -1, -1):
            carry = (carry << 32) | limbs[index]
            limbs[index] = <uint32_t>(carry // 10)
            carry %= 10
        if carry:
            return DECIMAL_INEXACT
        shift += 1
    return SOUND


cdef inline bint is_below(uint32_t* limbs, uint32_t* bound) noexcept nogil:
    cdef int index
    for index in range(LIMBS - 1, -1, -1):
        if limbs[index] != bound[index]:
            return limbs[index] < bound[index]
    return False


cdef inline void write_uuid(const uint8_t* content, uint8_t* text) noexcept nogil:
    cdef const char* digits = b"0123456789abcdef"
    cdef int index, place = 0
    for index in range(16):
        if index == 4 or index == 6 or index == 8 or index == 10:
            text[place] = c"-"
            place += 1
        text[place] = digits[content[index] >> 4]
        text[place + 1] = digits[content[index] & 15]
        place += 2
