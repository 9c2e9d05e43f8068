"""The APIs of features that Ottla does not have: SASL, KIP-848, KIP-932, KIP-1071, Raft voters.

Kafka 4.3 offers these APIs and answers with an error where the feature is disabled. Ottla answers
with the same error, so that a client that asks without having looked at ApiVersions keeps its
connection:

    ILLEGAL_SASL_STATE     SaslHandshake and SaslAuthenticate, as on a PLAINTEXT listener
    NOT_COORDINATOR        the state of share groups, for each partition
    UNSUPPORTED_VERSION    everything else, for each group where the answer has no error of its own
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.broker.requests.request_context import RequestContext
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import Api, api_of
from ottla.wire.schema import Message, StructType

Refuse = Callable[[Api, Any], Message]


def _no_sasl(api: Api, _request: Any) -> Message:
    return api.response(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def _whole(api: Api, _request: Any) -> Message:
    return api.response(error_code=ErrorCode.UNSUPPORTED_VERSION)


def _each_described_group(api: Api, request: Any) -> Message:
    return _groups(api, request.group_ids)


def _each_group_of_offsets(api: Api, request: Any) -> Message:
    return _groups(api, [group.group_id for group in request.groups])


def _groups(api: Api, group_ids: list[str]) -> Message:
    group = _item(api.response, "groups")
    code = ErrorCode.UNSUPPORTED_VERSION
    return api.response(groups=[group(group_id=one, error_code=code) for one in group_ids])


def _each_partition(api: Api, request: Any) -> Message:
    topic = _item(api.response, "results")
    partition = _item(topic, "partitions")
    code = ErrorCode.NOT_COORDINATOR
    return api.response(
        results=[
            topic(
                topic_id=wanted.topic_id,
                partitions=[
                    partition(partition=one.partition, error_code=code) for one in wanted.partitions
                ],
            )
            for wanted in request.topics
        ]
    )


def _item(cls: StructType, array: str) -> StructType:
    """Return the type of an array's items."""
    (found,) = (field.struct for field in cls.fields if field.name == array)
    assert found is not None
    return found


VERSIONS_AND_REFUSALS: Final[Mapping[ApiKey, tuple[range, Refuse]]] = {
    ApiKey.SASL_HANDSHAKE: (range(2), _no_sasl),
    ApiKey.SASL_AUTHENTICATE: (range(3), _no_sasl),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (range(2), _whole),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (range(2), _each_described_group),
    ApiKey.SHARE_GROUP_HEARTBEAT: (range(1, 2), _whole),
    ApiKey.SHARE_GROUP_DESCRIBE: (range(1, 2), _each_described_group),
    ApiKey.SHARE_FETCH: (range(1, 3), _whole),
    ApiKey.SHARE_ACKNOWLEDGE: (range(1, 3), _whole),
    ApiKey.ADD_RAFT_VOTER: (range(2), _whole),
    ApiKey.REMOVE_RAFT_VOTER: (range(1), _whole),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (range(1), _each_partition),
    ApiKey.READ_SHARE_GROUP_STATE: (range(1), _each_partition),
    ApiKey.WRITE_SHARE_GROUP_STATE: (range(2), _each_partition),
    ApiKey.DELETE_SHARE_GROUP_STATE: (range(1), _each_partition),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (range(2), _each_partition),
    ApiKey.STREAMS_GROUP_HEARTBEAT: (range(1), _whole),
    ApiKey.STREAMS_GROUP_DESCRIBE: (range(1), _each_described_group),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (range(2), _each_group_of_offsets),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (range(1), _whole),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: (range(1), _whole),
}
"""The versions that Kafka 4.3 offers, and how a request is refused."""


@dataclass(frozen=True, slots=True)
class UnsupportedHandler:
    """Refuses all requests of one API."""

    key: ApiKey

    async def handle(self, _context: RequestContext, request: Any) -> Message:
        """Answer with an error. The message types are imported with the first request."""
        _, refuse = VERSIONS_AND_REFUSALS[self.key]
        return refuse(api_of(self.key), request)
