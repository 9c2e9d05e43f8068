"""The boot id of the machine, from the kernel."""

from ottla.runtime.boot import boot_id


def test_it_stays_the_same_while_the_machine_runs() -> None:
    assert boot_id() == boot_id()


def test_it_has_no_space_around_it() -> None:
    told = boot_id()
    assert told is None or (told and told == told.strip())
