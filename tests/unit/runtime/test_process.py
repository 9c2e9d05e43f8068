"""The kernel's figures about this process."""

import os

from ottla.runtime.process import boot_id, open_descriptor_count, resident_bytes


def test_a_descriptor_more_is_counted() -> None:
    before = open_descriptor_count()
    descriptor = os.open("/dev/null", os.O_RDONLY)
    assert open_descriptor_count() == before + 1
    os.close(descriptor)
    assert open_descriptor_count() == before > 0


def test_memory_that_is_used_is_counted() -> None:
    before = resident_bytes()
    used = bytearray(os.urandom(1)) * (64 << 20)
    assert resident_bytes() - before > len(used) // 2


def test_it_stays_the_same_while_the_machine_runs() -> None:
    assert boot_id() == boot_id()


def test_it_has_no_space_around_it() -> None:
    told = boot_id()
    assert told is None or (told and told == told.strip())
