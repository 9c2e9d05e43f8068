"""Clients that nobody has closed: they are ended, and complained about, as files and sockets are.

ResourceWarning is not shown unless asked for (`python -X dev`). Records that may be lost are worth
a line in the log besides.
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
    """End a client whose owner is collected, or there when the interpreter ends, with an open view.

    Neither `end` nor `unsent`, which counts records, may refer to the owner, or it would never be
    collected. They are called in any thread. Returns what looks at once, for who ends earlier.
    """
    return finalize(owner, _look, name, view, end, unsent, os.getpid())


def _look(
    name: str,
    view: ClusterView,
    end: Callable[[], None] | None,
    unsent: Callable[[], int] | None,
    process_id: int,
) -> None:
    if view.is_closed or os.getpid() != process_id:  # a fork's copy is nobody's to close
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
