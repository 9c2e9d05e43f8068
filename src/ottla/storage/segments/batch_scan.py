"""The batch scan: the compiled version if it is available, else the pure Python fallback."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.segments._batch_scan_python import BatchScan, producers_batches
else:
    try:
        from ottla.storage.segments._batch_scan import BatchScan, producers_batches
    except ImportError:
        from ottla.storage.segments._batch_scan_python import BatchScan, producers_batches

__all__ = ["BatchScan", "producers_batches"]
