"""AddOffsetsToTxn v0-v4: add the offsets of a group to a transaction.

It adds the group's partition of `__consumer_offsets`; if that topic does not exist yet, it is
created. Producers of transactions version 2 need not ask: TxnOffsetCommit does it for them.
"""

from dataclasses import dataclass

from ottla.broker.coordinators.group_coordinator import GroupCoordinator
from ottla.broker.coordinators.transaction_coordinator import TransactionCoordinator
from ottla.broker.requests.request_context import RequestContext
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

VERSIONS = range(5)


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnHandler:
    """Answers AddOffsetsToTxn."""

    coordinator: TransactionCoordinator
    groups: GroupCoordinator

    async def handle(
        self, context: RequestContext, request: AddOffsetsToTxnRequest
    ) -> AddOffsetsToTxnResponse:
        """Put the group's partition into the transaction."""
        version = context.api_version
        try:
            await self.groups.open()
            partition = TopicPartition(self.groups.topic, self.groups.index_of(request.group_id))
            await self.coordinator.ended(request.transactional_id)
            now = self.coordinator.moment()
            return await self.coordinator.answer(
                request.transactional_id,
                lambda machine: machine.decide_add_offsets(request, partition, version, now),
            )
        except ApiError as error:
            return AddOffsetsToTxnResponse(error_code=error.code)
