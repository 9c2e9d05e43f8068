# cython: language_level=3, boundscheck=False, wraparound=False
"""Kafka's hash of keys, compiled; the contract is in _murmur2_python.py."""

from libc.stdint cimport uint8_t, uint32_t


def murmur2(bytes data not None):
    return hash_of(<const uint8_t *><char *>data, len(data))


def partition_for_key(bytes key not None, Py_ssize_t partition_count):
    if partition_count <= 0:
        raise ValueError(f"{partition_count} partitions")
    cdef uint32_t hashed = hash_of(<const uint8_t *><char *>key, len(key))
    return (hashed & 0x7FFFFFFFu) % <size_t>partition_count
