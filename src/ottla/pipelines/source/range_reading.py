"""Reads one range of offsets as Arrow batches, in a Spark task."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ottla.clients.consumer.fetching.fetched_batches import AbortedBatches
from ottla.pipelines.source.cluster import SourceCluster
from ottla.pipelines.source.errors import SourceReadError
from ottla.pipelines.source.options import Fetching
from ottla.pipelines.source.planning import OffsetRange
from ottla.pipelines.source.range_fetcher import FetchedBatches, RangeFetches
from ottla.wire.protocol_error import ProtocolError
from ottla.wire.records.arrow import arrow_batches

if TYPE_CHECKING:
    from ottla.wire.records.batch import RecordBatch

ARROW_BATCH_BYTES_MAX: Final = 4 << 20
"""The uncompressed bytes of records in one Arrow batch: about 40,000 records of 100 bytes."""


def read_range(
    cluster: SourceCluster,
    wanted: OffsetRange,
    fetching: Fetching,
    columns: pa.Schema,
    *,
    fail_on_data_loss: bool,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, with these columns in this order.

    Control records are left out. Records of aborted transactions are left out unless the isolation
    level is read_uncommitted.
    """
    fetches = RangeFetches(
        cluster.view, wanted, fetching, cluster.sizes, fail_on_data_loss=fail_on_data_loss
    )
    try:
        while not fetches.is_over and (fetched := cluster.thread.run(fetches.next())) is not None:
            for rows in _decoded(fetched, wanted, fetching, columns):
                arrays = [rows.column(name) for name in columns.names]
                yield pa.RecordBatch.from_arrays(arrays, schema=columns)
    except ProtocolError as error:
        raise SourceReadError(f"{wanted}: a batch is damaged: {error.detail}") from error
    finally:
        if not fetches.is_over:
            cluster.thread.run(fetches.close())


def _decoded(
    fetched: FetchedBatches, wanted: OffsetRange, fetching: Fetching, columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    # Without a skip function, runs of batches are decoded at once.
    skip: Callable[[RecordBatch], bool] | None = None
    if fetching.is_committed_only and fetched.aborted:
        skip = AbortedBatches(fetched.aborted).includes
    return arrow_batches(
        fetched.data,
        wanted.topic,
        wanted.partition,
        start_offset=fetched.start_offset,
        end_offset=wanted.end_offset,
        columns=columns.names,
        check_crcs=fetching.check_crcs,
        skip=skip,
        arrow_batch_bytes_max=ARROW_BATCH_BYTES_MAX,
    )
