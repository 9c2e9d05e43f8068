"""Ends clients that were not closed, with a ResourceWarning, as Python does for files and sockets.

ResourceWarning is hidden by default (`python -X dev` shows it). If records may be lost, a line is
logged as well.
"""

import logging
import os
import warnings
from collections.abc import Callable
from weakref import finalize

from ottla.clients.cluster.cluster_client import ClusterView

_log = logging.getLogger(__name__)


def watch(
    owner: object,
    name: str,
    view: ClusterView,
    end: Callable[[], None] | None,
    unsent: Callable[[], int] | None = None,
) -> Callable[[], object]:
    """End a client with an open view when its owner is collected, or when the interpreter ends.

    Neither `end` nor `unsent`, which counts records, may refer to the owner, or it would never be
    collected. They are called in any thread. Returns the function that runs this check at once.
    """
    return finalize(owner, _look, name, view, end, unsent, os.getpid())


def _look(
    name: str,
    view: ClusterView,
    end: Callable[[], None] | None,
    unsent: Callable[[], int] | None,
    process_id: int,
) -> None:
    if view.is_closed or os.getpid() != process_id:  # a forked process must not close it
        return
    count = 0 if unsent is None else unsent()
    if end is not None:
        end()
    if not count and not view.counts.opened:
        return  # it was made, and never used
    left = f"; {count} records may not have been sent" if count else ""
    if count:
        _log.warning("a client was not closed: %s%s", name, left)
    warnings.warn(f"unclosed {name}{left}", ResourceWarning, stacklevel=2)
