"""Closes forgotten clients with a ResourceWarning, as Python does for files and sockets.

ResourceWarning is hidden by default (`python -X dev` shows it). If records may be lost, a message
is logged as well.
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
    """Close a client with an open view when its owner is collected, or at interpreter exit.

    `end` and `unsent` (the number of unsent records) may be called in any thread. They must not
    refer to the owner, or it would never be collected. Returns a function that runs this check.
    """
    return finalize(owner, _look, name, view, end, unsent, os.getpid())


def _look(
    name: str,
    view: ClusterView,
    end: Callable[[], None] | None,
    unsent: Callable[[], int] | None,
    process_id: int,
) -> None:
    if view.is_closed or os.getpid() != process_id:  # a forked child must not close it
        return
    count = 0 if unsent is None else unsent()
    if end is not None:
        end()
    if not count and not view.counts.opened:
        return  # it was never used
    left = f"; {count} records may not have been sent" if count else ""
    if count:
        _log.warning("a client was not closed: %s%s", name, left)
    warnings.warn(f"unclosed {name}{left}", ResourceWarning, stacklevel=2)
