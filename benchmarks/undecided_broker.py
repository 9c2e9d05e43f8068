"""`ottla` with transactions that cost nothing: `python -m benchmarks.undecided_broker start`.

It acknowledges the requests of a transaction without any work: no coordinator decides, no record is
kept, and no marker is written. Its only use is to measure how much speed could be gained.
"""

import sys
from collections.abc import Mapping
from unittest.mock import patch

from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.handlers.end_txn import EndTxnHandler
from ottla.broker.requests.request_context import RequestContext
from ottla.cli.main import main
from ottla.machines.transactions.add_partitions import Enlistment
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse


async def _enlist(
    _: TransactionCoordinator, wanted: Enlistment
) -> Mapping[TopicPartition, ErrorCode]:
    return dict.fromkeys(wanted.partitions, ErrorCode.NONE)


async def _end(
    _: EndTxnHandler, _context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    return EndTxnResponse(
        producer_id=request.producer_id, producer_epoch=request.producer_epoch + 1
    )


if __name__ == "__main__":
    with (
        patch.object(TransactionCoordinator, "enlist", _enlist),
        patch.object(EndTxnHandler, "handle", _end),
    ):
        sys.exit(main())
