"""DeleteShareGroupOffsets (API 92): delete a share group's offsets for topics.

Sent to the group coordinator (KIP-932). The group must be empty.
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    """A topic that the share group shall forget."""

    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(Message, versions=(0, 0), flexible_since=0):
    """Forget these topics for the share group."""

    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    """Whether one topic was forgotten."""

    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)


class DeleteShareGroupOffsetsResponse(Message, versions=(0, 0), flexible_since=0):
    """The outcome of the forgetting."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(default=None, nullable_since=0)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(
        DeleteShareGroupOffsetsResponseTopic
    )
