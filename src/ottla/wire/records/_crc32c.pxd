"""What other compiled modules use of the checksum."""

from libc.stdint cimport uint32_t


cdef uint32_t sum_of(const char *data, size_t size) noexcept
"""CRC-32C, however long it takes without letting other threads go on."""
