"""Ends the open transactions of a flow when its old checkpoint is discarded.

The next run of the same checkpoint would end them. Without the checkpoint they would stay open, and
consumers of committed records would never get past them.
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
    """Commit the decided transactions of a checkpoint's runs, and abort the others.

    Decided transactions that can no longer be committed are logged: all input is read again, so
    nothing is lost.
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
