"""Errors of group membership: each message states the cause and the remedy."""

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


class CommitFailedError(ApiError):
    """The partitions belong to another member, which reads the uncommitted records again."""

    def __init__(self, code: ErrorCode, group_id: str) -> None:
        super().__init__(
            code,
            f"nothing was committed: group {group_id!r} no longer counts this consumer as a "
            "member, and has given its partitions to others, which repeat records that were not "
            "committed. Most often too much time passed between two polls: raise "
            "max.poll.interval.ms, or lower max.poll.records. The next poll joins again",
        )


class RebalanceInProgressError(ApiError):
    """The group is rebalancing: poll, then commit only partitions that are still assigned."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"nothing was committed: group {group_id!r} is sharing out its partitions. Poll, and "
            "then commit partitions that are still assigned",
        )


class FencedInstanceIdError(ApiError):
    """Another consumer has joined with the same group.instance.id. This consumer must be closed."""

    def __init__(self, group_id: str, instance_id: str | None) -> None:
        super().__init__(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another consumer has joined group {group_id!r} as group.instance.id "
            f"{instance_id!r}, which must be unique in the group. Close this consumer",
        )
