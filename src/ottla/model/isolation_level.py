"""Isolation levels and special timestamps, by the protocol's numbers."""

from typing import Final

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""The isolation level that hides records of open and aborted transactions."""
LATEST: Final = -1
"""Used as a timestamp in ListOffsets: the end of the log."""
EARLIEST: Final = -2
"""Used as a timestamp in ListOffsets: the start of the log."""
