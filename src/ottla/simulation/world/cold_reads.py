"""A page cache that has everything: no read of a simulated file waits for a disk.

The twin of `runtime.cold_reads`.
"""

from ottla.environment.disk import File


def needs_thread(_file: File, _position: int, _size_bytes: int) -> bool:
    """Say no."""
    return False


def read_hot(file: File, position: int, size_bytes: int) -> bytearray | None:
    """Return these bytes, unless they are not there."""
    try:
        data = bytearray(file.read_at(position, size_bytes))
    except OSError:
        return None
    return data if len(data) == size_bytes else None


def fetch(_file: File, _position: int, _size_bytes: int) -> None:
    """Never be called: nothing is cold."""
    raise AssertionError("nothing is cold in a simulation")


def give_back(_file: File, _position: int, _size_bytes: int) -> None:
    """Never be called: nothing was cold."""
    raise AssertionError("nothing is cold in a simulation")
