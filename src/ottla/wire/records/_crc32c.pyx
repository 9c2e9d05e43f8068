# cython: boundscheck=False, wraparound=False, binding=False
"""CRC-32C by the processor's own instruction. Importing fails where the processor has none.

The instruction takes three cycles but a new one can start every cycle, so three parts of the
input are summed side by side. To join two sums, the first is moved past the bytes of the second:
multiplied by a power of x, modulo the polynomial. That is one carry-less multiplication, reduced
by the same CRC instruction.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define OTTLA_LONG_BYTES 4096
    #define OTTLA_SHORT_BYTES 256

    #if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
    #include <immintrin.h>
    #define OTTLA_HARDWARE __attribute__((target("sse4.2,pclmul")))

    /* What moves a sum past one part, and past two: x to the power (8 * bytes - 33). */
    static uint64_t ottla_long[2], ottla_short[2];

    static uint64_t ottla_power_of_x(long exponent) {
        uint32_t power = 0x80000000u;
        for (; exponent > 0; exponent--)
            power = (power >> 1) ^ ((power & 1) ? 0x82F63B78u : 0);
        return power;
    }

    static int ottla_crc32c_prepare(void) {
        __builtin_cpu_init();
        if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul"))
            return 0;
        for (int parts = 1; parts <= 2; parts++) {
            ottla_long[parts - 1] = ottla_power_of_x(8L * OTTLA_LONG_BYTES * parts - 33);
            ottla_short[parts - 1] = ottla_power_of_x(8L * OTTLA_SHORT_BYTES * parts - 33);
        }
        return 1;
    }

    static inline uint64_t ottla_word(const unsigned char *at) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        return word;
    }

    /* 33 powers of x come back here: 32 by the instruction, 1 because a product of two
       reflected numbers lies one bit lower than a reflected product. */
    OTTLA_HARDWARE static inline uint64_t ottla_moved(uint64_t sum, uint64_t power) {
        __m128i product = _mm_clmulepi64_si128(
            _mm_cvtsi64_si128((long long)sum), _mm_cvtsi64_si128((long long)power), 0);
        return _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
    }

    OTTLA_HARDWARE static inline uint64_t ottla_three_parts(
            uint64_t sum, const unsigned char *at, size_t bytes, const uint64_t *powers) {
        uint64_t second = 0, third = 0;
        for (const unsigned char *end = at + bytes; at < end; at += 8) {
            sum = _mm_crc32_u64(sum, ottla_word(at));
            second = _mm_crc32_u64(second, ottla_word(at + bytes));
            third = _mm_crc32_u64(third, ottla_word(at + 2 * bytes));
        }
        return ottla_moved(sum, powers[1]) ^ ottla_moved(second, powers[0]) ^ third;
    }

    OTTLA_HARDWARE static uint32_t ottla_crc32c(
            uint32_t value, const unsigned char *at, size_t size) {
        uint64_t sum = (uint32_t)~value;
        for (; size >= OTTLA_LONG_BYTES * 3; size -= OTTLA_LONG_BYTES * 3) {
            sum = ottla_three_parts(sum, at, OTTLA_LONG_BYTES, ottla_long);
            at += OTTLA_LONG_BYTES * 3;
        }
        for (; size >= OTTLA_SHORT_BYTES * 3; size -= OTTLA_SHORT_BYTES * 3) {
            sum = ottla_three_parts(sum, at, OTTLA_SHORT_BYTES, ottla_short);
            at += OTTLA_SHORT_BYTES * 3;
        }
        for (; size >= 8; at += 8, size -= 8)
            sum = _mm_crc32_u64(sum, ottla_word(at));
        for (; size > 0; at++, size--)
            sum = _mm_crc32_u8((uint32_t)sum, *at);
        return ~(uint32_t)sum;
    }
    #else
    static int ottla_crc32c_prepare(void) { return 0; }
    static uint32_t ottla_crc32c(uint32_t value, const unsigned char *at, size_t size) {
        (void)at, (void)size;
        return value;
    }
    #endif
    """
    bint ottla_crc32c_prepare()
    uint32_t ottla_crc32c(uint32_t value, const unsigned char *at, size_t size) nogil

if not ottla_crc32c_prepare():
    raise ImportError("this processor has no CRC-32C instruction")

# Below this the sum is done sooner than another thread could make use of the interpreter.
cdef enum:
    GIL_FREE_BYTES_MIN = 256 * 1024


cdef uint32_t sum_of(const char *data, size_t size) noexcept:
    return ottla_crc32c(0, <const unsigned char *>data, size)


def crc32c(data not None, uint32_t value=0):
    """Continue `value`, the checksum of what came before, over any contiguous buffer."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(data, &buffer, PyBUF_SIMPLE)
    try:
        if buffer.len < GIL_FREE_BYTES_MIN:
            return ottla_crc32c(value, <const unsigned char *>buffer.buf, buffer.len)
        with nogil:
            value = ottla_crc32c(value, <const unsigned char *>buffer.buf, buffer.len)
        return value
    finally:
        PyBuffer_Release(&buffer)
