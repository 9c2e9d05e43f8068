"""Asks a partition's leader where its log begins."""

from typing import Final

from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, LeaderEpoch, Offset, TopicPartition
from ottla.model.isolation_level import EARLIEST
from ottla.rpc.connection import Connection
from ottla.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LIST_OFFSETS_VERSION: Final = 9


async def leader_start_offset(
    connection: Connection,
    broker_id: BrokerId,
    name: TopicPartition,
    leader_epoch: LeaderEpoch,
    timeout_ms: int,
) -> Offset:
    """Return the first offset of the leader's log; ApiError if the leader does not say."""
    wanted = ListOffsetsPartition(
        partition_index=name.partition, current_leader_epoch=leader_epoch, timestamp=EARLIEST
    )
    request = ListOffsetsRequest(
        replica_id=broker_id, topics=[ListOffsetsTopic(name=name.topic, partitions=[wanted])]
    )
    response = await connection.ask(
        request, ListOffsetsResponse, version_max=LIST_OFFSETS_VERSION, timeout_ms=timeout_ms
    )
    found = [one for topic in response.topics for one in topic.partitions]
    if len(found) != 1 or found[0].error_code:
        code = found[0].error_code if found else ErrorCode.UNKNOWN_SERVER_ERROR
        raise ApiError(ErrorCode(code), f"{name}: where does its leader begin?")
    return Offset(found[0].offset)
