"""Creates topics, by request and automatically at first use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ottla.broker.controller.controller_client import ActiveController
from ottla.broker.controller.metadata_propagation import SPREAD_MS_MAX, Spread, nobody
from ottla.broker.metadata_store.store import MetadataStore
from ottla.environment.randomness import Randomness
from ottla.model.error_code import ErrorCode
from ottla.wire.messages.create_topics import CreatableTopic, CreatableTopicResult

_DEFAULT = -1
AUTOMATIC_TOPICS_MAX: Final = 1_000
"""The maximum number of topics that one Metadata request creates. Clients retry the others."""
_START_BELOW = 1 << 16


@dataclass(frozen=True, slots=True)
class TopicCreation:
    """Asks the controller for topics; ids and the place to begin are drawn here."""

    store: MetadataStore
    randomness: Randomness
    is_automatic: bool
    controller: ActiveController
    spread: Spread = nobody

    async def create(self, topics: Sequence[CreatableTopic]) -> list[CreatableTopicResult]:
        """Have the controller make these topics, and return the result of each.

        The other brokers know them by then: the client may send its next request to any of them.
        """
        results = await self.controller.create_topics(topics)
        if results is not None:
            return results
        results = await self.create_here(topics)
        await self.spread([one.error_code for one in results], SPREAD_MS_MAX)
        return results

    async def create_here(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool = False
    ) -> list[CreatableTopicResult]:
        """Create these topics, as the controller; ApiError NOT_CONTROLLER on another broker."""
        topic_ids = [self.randomness.uuid() for _ in topics]
        start = self.randomness.below(_START_BELOW)
        return await self.store.execute(
            lambda controller: controller.create_topics(
                topics, topic_ids=topic_ids, start=start, validate_only=validate_only
            )
        )

    async def create_automatically(self, names: Sequence[str]) -> list[ErrorCode]:
        """Create topics with the defaults, if allowed; return the error codes for the client."""
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not names or not self.is_automatic:
            return [unknown] * len(names)
        wanted = [
            CreatableTopic(name=name, num_partitions=_DEFAULT, replication_factor=_DEFAULT)
            for name in names[:AUTOMATIC_TOPICS_MAX]
        ]
        results = await self.create(wanted)
        codes = [_told(ErrorCode(result.error_code)) for result in results]
        return codes + [unknown] * (len(names) - len(codes))


def _told(code: ErrorCode) -> ErrorCode:
    is_there = code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}
    return ErrorCode.LEADER_NOT_AVAILABLE if is_there else code
