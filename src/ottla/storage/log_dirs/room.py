"""Whether a log dir that was full has space again."""

import posixpath
from contextlib import closing
from typing import Final

from ottla.environment.disk import Disk
from ottla.storage.log.offline_on_error import is_full

FREE_BYTES_MIN: Final = 64 << 20
"""Free space at which a full log dir counts as usable again, on a disk of any size."""
FREE_SHARE_MIN: Final = 100
"""On a small disk one part in so many is enough."""
PROBE_BYTES: Final = 64 << 10
PROBE_FILE: Final = ".ottla_room"
_PROBE: Final = bytes(PROBE_BYTES)


def has_room(disk: Disk, path: str) -> bool:
    """Return whether a log dir takes writes again. Blocks; `OSError` if it has failed.

    A margin keeps a disk with a few free kilobytes from alternating between full and not full.
    The free space alone is not enough: quotas and reserved blocks refuse writes before it is 0.
    """
    wanted_bytes = min(FREE_BYTES_MIN, disk.total_bytes(path) // FREE_SHARE_MIN)
    if disk.free_bytes(path) < max(wanted_bytes, PROBE_BYTES):
        return False
    probe = posixpath.join(path, PROBE_FILE)
    try:
        try:
            with closing(disk.create_file(probe)) as file:
                file.write_at(0, _PROBE)
        finally:
            if disk.exists(probe):
                disk.remove(probe)
    except OSError as error:
        if is_full(error):
            return False
        raise
    return True
