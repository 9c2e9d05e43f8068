"""OffsetFetch v1-v9: how far groups have come; since version 8 of several groups at once.

Version 10, which names topics by id, is not offered yet.
"""

from dataclasses import dataclass

from ottla.broker.group_coordinator import GroupCoordinator
from ottla.broker.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

VERSIONS = range(1, 10)
_MANY_GROUPS_SINCE = 8


@dataclass(frozen=True, slots=True)
class OffsetFetchHandler:
    """Answers OffsetFetch."""

    coordinator: GroupCoordinator

    async def handle(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> OffsetFetchResponse:
        """Look up every group."""
        if context.api_version >= _MANY_GROUPS_SINCE:
            return OffsetFetchResponse(groups=[self._fetch(group) for group in request.groups])
        topics = request.topics
        wanted = OffsetFetchRequestGroup(
            group_id=request.group_id,
            topics=None
            if topics is None
            else [
                OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes)
                for t in topics
            ],
        )
        return _as_one_group(self._fetch(wanted))

    def _fetch(self, wanted: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        try:
            return self.coordinator.execute(
                wanted.group_id, lambda machine: machine.decide_fetch(wanted)
            )
        except ApiError as error:
            return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error.code)


def _as_one_group(group: OffsetFetchResponseGroup) -> OffsetFetchResponse:
    """Write the answer as it was before there could be several groups in it."""
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
