"""The built-in assignors, by their names in the settings."""

from collections.abc import Iterable
from typing import Final

from ottla.clients.assignors.assignor import Assignor
from ottla.clients.assignors.range_assignor import RangeAssignor
from ottla.clients.assignors.round_robin_assignor import RoundRobinAssignor
from ottla.clients.assignors.sticky_assignor import CooperativeStickyAssignor, StickyAssignor
from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.model.settings.settings import nearest_to

_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_KNOWN: Final[tuple[Assignor, ...]] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
_BY_NAME: Final = {assignor.name: assignor for assignor in _KNOWN}
_BY_JAVA_NAME: Final = {_JAVA_PACKAGE + type(assignor).__name__: assignor for assignor in _KNOWN}


def assignors(strategies: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """Look up assignors by name, or by Kafka's class name; custom assignors are kept."""
    found = tuple(_assignor(strategy) for strategy in strategies)
    if not found:
        raise InvalidClientSettingError("partition.assignment.strategy names no assignor")
    names = [assignor.name for assignor in found]
    if len(set(names)) < len(names):
        raise InvalidClientSettingError(f"an assignor is named twice: {', '.join(names)}")
    return found


def _assignor(strategy: str | Assignor) -> Assignor:
    if not isinstance(strategy, str):
        return strategy
    known = _BY_NAME | _BY_JAVA_NAME
    if strategy in known:
        return known[strategy]
    hint = nearest_to(strategy, known) or f"; known are {', '.join(_BY_NAME)}"
    raise InvalidClientSettingError(f"there is no assignor {strategy!r}{hint}")
