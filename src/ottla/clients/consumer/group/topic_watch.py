"""Watches the topics of a group for new topics and new partitions."""

from typing import TYPE_CHECKING, Final

from ottla.clients.consumer.group.group_leader import look_at_topics
from ottla.clients.consumer.group.group_requests import GroupRequests
from ottla.clients.consumer.state.settings import ConsumerSettings
from ottla.clients.consumer.state.subscription import Choice, SubscriptionState
from ottla.clients.errors import NoAnswerError, UnreachableError, check
from ottla.concurrency.sleep import pause
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode

if TYPE_CHECKING:
    from ottla.clients.assignors.assignor import RacksByTopic

MISSING_TOPIC_MS: Final = 1_000
"""The refresh interval while a subscribed topic is missing."""
_HOPELESS: Final = (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


class TopicWatch:
    """Resolves the pattern; in the group leader, also detects changed topics.

    `shared_out` holds the topics of the leader's last assignment; None in other members.
    """

    def __init__(
        self, requests: GroupRequests, state: SubscriptionState, settings: ConsumerSettings
    ) -> None:
        self._requests = requests
        self._state = state
        self._settings = settings
        self.shared_out: RacksByTopic | None = None

    async def find_topics(self) -> frozenset[str]:
        """Return the topics to subscribe to: the matches of the pattern, or the named topics.

        The metadata request also creates missing topics, if allow.auto.create.topics permits it.
        ApiError for a topic whose error is final.
        """
        pattern = self._state.pattern
        if self._state.choice is not Choice.PATTERN or pattern is None:
            topics = self._state.topics
            allow_auto_creation = self._settings.allow_auto_create_topics
            rows = await self._requests.view.refresh(
                sorted(topics), allow_auto_creation=allow_auto_creation
            )
            for row in rows:
                if row.error_code in _HOPELESS:
                    check(row.error_code, f"topic {row.name!r}")
            return topics
        return frozenset(
            row.name
            for row in await self._requests.view.refresh(None)
            if row.name is not None
            and pattern.fullmatch(row.name)
            and not (row.is_internal and self._settings.exclude_internal_topics)
        )

    async def changed(self) -> str:
        """Wait until a rebalance is needed, and return the reason."""
        while True:
            await pause(self._interval_ms())
            try:
                reason = await self._look()
            except (ApiError, UnreachableError, NoAnswerError):
                continue  # the fetcher reports the same error to the application
            if reason is not None:
                return reason

    def _interval_ms(self) -> int:
        interval_ms = self._requests.view.settings.metadata_max_age_ms
        if self.shared_out is not None and not all(self.shared_out.values()):
            return min(MISSING_TOPIC_MS, interval_ms)
        return interval_ms

    async def _look(self) -> str | None:
        if self._state.choice is Choice.PATTERN:
            pattern, topics = self._state.pattern, await self.find_topics()
            if topics != self._state.topics and pattern is self._state.pattern:
                return "the topics that the pattern matches have changed"
        seen = self.shared_out
        if seen is not None:
            found = await look_at_topics(self._requests.view, sorted(seen))
            if any(len(racks) != len(found[topic]) for topic, racks in seen.items()):
                return "the number of partitions has changed"
        return None
