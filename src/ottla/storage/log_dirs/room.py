"""Whether a log folder that was full has room again."""

import posixpath
from contextlib import closing
from typing import Final

from ottla.environment.disk import Disk
from ottla.storage.log.offline_on_error import is_full

FREE_BYTES_MIN: Final = 64 << 20
"""Free space at which a full folder counts as having room again, on a disk of any size."""
FREE_SHARE_MIN: Final = 100
"""On a small disk one part in so many is enough."""
PROBE_BYTES: Final = 64 << 10
PROBE_FILE: Final = ".ottla_room"
_PROBE: Final = bytes(PROBE_BYTES)


def has_room(disk: Disk, path: str) -> bool:
    """Tell whether a folder takes writes again, with a margin. Blocks; `OSError` if it has failed.

    The margin keeps a disk with a few free kilobytes from counting as full and not full by turns.
    The free space alone does not say it: quotas and reserved blocks refuse writes before it is 0.
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
