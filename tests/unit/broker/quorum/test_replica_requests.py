"""Requests to a replica of the metadata log that takes no part in its quorum."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.quorum.replica_requests import ReplicaRequestHandler
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.wire.api_key import ApiKey
from ottla.wire.apis import api_of
from ottla.wire.codec import encode_response

KEYS = (
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)


class FullReplica:
    """A replica that waits for room on its disk."""

    async def handle(self, _request: object, _version: int) -> object:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "this replica takes no part")


@pytest.mark.parametrize("key", KEYS)
def test_a_replica_without_room_answers_with_an_error(key: ApiKey) -> None:
    request = api_of(key).request()
    _, version = request.versions
    replica: Any = FullReplica()
    context: Any = SimpleNamespace(api_version=version)
    response: Any = asyncio.run(ReplicaRequestHandler(replica).handle(context, request))
    assert response.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert encode_response(key, version, 1, response)
