"""Isolation levels and special timestamps, by the protocol's numbers."""

from typing import Final

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
"""The level of isolation at which nothing is read that a transaction has not committed yet."""
LATEST: Final = -1
"""Instead of a time, when offsets are looked for: where the next record goes."""
EARLIEST: Final = -2
"""The same: where the log begins."""
