"""The loops over every record: compiled if possible, else the fallback in plain Python."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.wire.records._reading_python import (
        ConsumedRecords,
        find_time,
        read_records,
        rejected_records,
        scan_records,
    )
    from ottla.wire.records._writing_python import RecordAccumulator
else:
    try:
        from ottla.wire.records._reading import (
            ConsumedRecords,
            find_time,
            read_records,
            rejected_records,
            scan_records,
        )
        from ottla.wire.records._writing import RecordAccumulator
    except ImportError:
        from ottla.wire.records._reading_python import (
            ConsumedRecords,
            find_time,
            read_records,
            rejected_records,
            scan_records,
        )
        from ottla.wire.records._writing_python import RecordAccumulator

__all__ = [
    "ConsumedRecords",
    "RecordAccumulator",
    "find_time",
    "read_records",
    "rejected_records",
    "scan_records",
]
