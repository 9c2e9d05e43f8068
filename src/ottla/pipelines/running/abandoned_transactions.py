"""What a flow's old checkpoint leaves at the broker when it is thrown away: open transactions.

They would be ended by the next run of the same checkpoint. Without it nobody would know of them,
and who reads committed records only would wait for them for ever.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from ottla import Admin, TransactionFilter, TransactionStatus
from ottla.pipelines.running.folders import read_json
from ottla.pipelines.sink.commit_decision import OpenTransaction, is_of_query
from ottla.pipelines.sink.exactly_once import DecisionError, Decisions
from ottla.pipelines.sink.options import DEFAULT_PREFIX

_log = logging.getLogger(__name__)


def end_transactions_of(checkpoint: Path, settings: Mapping[str, str]) -> None:
    """End what was decided in the runs of a checkpoint, and abort what was not.

    What can no more be committed is told of: all is read again, so nothing is lost by it.
    """
    found = read_json(checkpoint / "metadata")
    if found is None:
        return
    query = f"{DEFAULT_PREFIX}-{found['id']}"
    with Decisions(settings, query) as decisions:
        try:
            decisions.commit(decisions.last_batch_id(), ())
        except DecisionError as error:
            _log.warning("%s begins again all the same: %s", checkpoint.name, error)
        decisions.abort(_left_open(settings, query))


def _left_open(settings: Mapping[str, str], query: str) -> list[OpenTransaction]:
    with Admin(dict(settings)) as admin:
        listed = admin.transactions.list(TransactionFilter(states={TransactionStatus.ONGOING}))
        names = [row.transactional_id for row in listed if is_of_query(row.transactional_id, query)]
        found = admin.transactions.describe(names) if names else {}
    return [
        OpenTransaction(row.transactional_id, row.producer_id, row.producer_epoch)
        for row in found.values()
    ]
