"""DeleteTopics (API 20): delete topics.

Since version 6 a topic can be named by its id instead of its name (KIP-516). Error messages
came with version 5 (KIP-599).
"""

from ottla.wire.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    """A topic to delete, by name or by id."""

    name: str | None = string(default=None, since=6, nullable_since=6)
    topic_id: bytes = uuid(since=6)


class DeleteTopicsRequest(Message, versions=(0, 6), flexible_since=4):
    """Delete these topics."""

    topics: list[DeleteTopicState] = array(DeleteTopicState, since=6)
    topic_names: list[str] = array("string", until=6, ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    """Whether one topic was deleted."""

    name: str | None = string(nullable_since=6)
    topic_id: bytes = uuid(since=6, ignorable=True)
    error_code: int = int16()
    error_message: str | None = string(default=None, since=5, nullable_since=5, ignorable=True)


class DeleteTopicsResponse(Message, versions=(0, 6), flexible_since=4):
    """One result per topic."""

    throttle_time_ms: int = int32(since=1, ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
