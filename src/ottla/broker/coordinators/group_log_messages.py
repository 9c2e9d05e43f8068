"""Tells the log when groups have rebalanced."""

import logging
from collections.abc import Iterable

from ottla.machines.groups.group_records import GroupRecord
from ottla.wire.coordinator_records.classic_group import GroupMetadataKey, GroupMetadataValue

_log = logging.getLogger(__name__)


def tell_rebalances(records: Iterable[GroupRecord]) -> None:
    """Log the new generation of each group in these records."""
    for key, value, _ in records:
        if isinstance(key, GroupMetadataKey) and isinstance(value, GroupMetadataValue):
            _log.info(
                "group %s is in generation %d with %d members",
                key.group,
                value.generation,
                len(value.members),
                extra={"group": key.group},
            )
