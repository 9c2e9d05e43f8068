"""Commits of a group member, and the effect of a refused commit on the membership."""

from collections.abc import Callable, Mapping

from ottla.clients.consumer.group.group_errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
)
from ottla.clients.consumer.group.group_protocol import OffsetAndMetadata
from ottla.clients.consumer.group.member_state import LOST, MemberState
from ottla.clients.consumer.group.offset_commits import OffsetCommits
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition


class MemberCommits:
    """Commits with the member id and generation of the MemberState."""

    def __init__(
        self,
        offsets: OffsetCommits,
        standing: MemberState,
        on_committed: Callable[[Mapping[TopicPartition, OffsetAndMetadata]], None],
    ) -> None:
        """`on_committed` is called after every successful commit, also after automatic ones."""
        self._offsets = offsets
        self._standing = standing
        self._on_committed = on_committed

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_ms: int | None = None
    ) -> None:
        """Commit, with retries within default.api.timeout.ms; commits stay in order."""
        if not offsets:
            return
        generation = self._standing.generation
        self._standing.raise_failure()
        if self._standing.is_subscribed and not generation.is_member:
            raise self._refusal(ErrorCode.UNKNOWN_MEMBER_ID)
        try:
            await self._offsets.commit(generation, offsets, timeout_ms)
        except FencedInstanceIdError as error:
            if generation != self._standing.generation:
                # This consumer has rejoined since, so it has fenced its own former generation.
                raise self._refusal(error.code) from error
            self._standing.fail(error)
            raise
        except ApiError as error:
            # A refusal of a past generation, or during a join, does not change the state.
            is_news = generation == self._standing.generation and not self._standing.is_joining
            told = self._told(error, is_news=is_news)
            raise told from None if told is error else error
        self._on_committed(offsets)

    def _told(self, error: ApiError, *, is_news: bool) -> ApiError:
        """Return the error to raise; if `is_news`, update the MemberState by the refusal first."""
        if error.code is ErrorCode.REBALANCE_IN_PROGRESS:
            if is_news:
                self._standing.request_rejoin("a commit was refused, as the group is rebalancing")
            return RebalanceInProgressError(self._standing.group_id)
        if error.code not in LOST or not self._standing.is_subscribed:
            return error
        if is_news:
            self._standing.lose(error.code, f"a commit was answered with {error.code.name}")
        return self._refusal(error.code)

    def _refusal(self, code: ErrorCode) -> ApiError:
        if self._standing.is_joining:
            return RebalanceInProgressError(self._standing.group_id)
        return CommitFailedError(code, self._standing.group_id)
