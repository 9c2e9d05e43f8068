"""What belonging to a group can end in: each error says what happened, and what to do."""

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode


class CommitFailedError(ApiError):
    """The partitions have gone to another member, who reads again what was not committed."""

    def __init__(self, code: ErrorCode, group_id: str) -> None:
        super().__init__(
            code,
            f"nothing was committed: group {group_id!r} no longer counts this consumer as a "
            "member, and has given its partitions to others, who read again what was not "
            "committed. Most often too much time passed between two polls: raise "
            "max.poll.interval.ms, or lower max.poll.records. The next poll joins again",
        )


class RebalanceInProgressError(ApiError):
    """The group is sharing out anew; after the next poll it is known what is still ours."""

    def __init__(self, group_id: str) -> None:
        super().__init__(
            ErrorCode.REBALANCE_IN_PROGRESS,
            f"nothing was committed: group {group_id!r} is sharing out its partitions. Poll, and "
            "then commit those that are still assigned",
        )


class FencedInstanceIdError(ApiError):
    """Another consumer has taken this one's place. This one cannot go on."""

    def __init__(self, group_id: str, instance_id: str | None) -> None:
        super().__init__(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another consumer has joined group {group_id!r} as group.instance.id "
            f"{instance_id!r}, which must be unique in the group. Close this consumer",
        )
