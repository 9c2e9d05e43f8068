"""The requests of a transaction: each function sends one, and raises ApiError for a refusal.

Under transactions version 2 (KIP-890) writing adds partitions and offsets to the transaction, and
the EndTxn response has the producer's next id and epoch. Under the older protocol separate requests
add both first.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from ottla.clients.errors import check, error_code
from ottla.clients.producer.transactions.coordinator_client import CoordinatorClient
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import TopicPartition, numbers_by_topic, partitions_by_topic
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

ADDING_BY_WRITING: Final = 2
"""The first transactions version in which partitions are added by writing to them."""
_ADD_PARTITIONS_OF_CLIENTS_UNTIL: Final = 3
_LAST_BEFORE_ADDING_BY_WRITING: Final = 4
"""The versions of EndTxn and TxnOffsetCommit."""
_TWO_PHASES_SINCE: Final = 6
_FORMER_PRODUCER_SINCE: Final = 3


class ProducerName(NamedTuple):
    """A producer id with its epoch."""

    producer_id: int
    epoch: int


NO_PRODUCER: Final = ProducerName(-1, -1)


class OffsetToCommit(NamedTuple):
    """The offset at which a group continues in a partition."""

    offset: int
    metadata: str | None = ""
    leader_epoch: int = -1


class GroupMetadata(Protocol):
    """The committing member: the result of a consumer's `group_metadata()`."""

    @property
    def group_id(self) -> str: ...  # noqa: D102
    @property
    def generation_id(self) -> int: ...  # noqa: D102
    @property
    def member_id(self) -> str: ...  # noqa: D102
    @property
    def group_instance_id(self) -> str | None: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class Initiation:
    """An InitProducerId request."""

    timeout_ms: int
    former: ProducerName = NO_PRODUCER
    has_two_phases: bool = False
    keeps_prepared: bool = False

    def request(self, transactional_id: str, version: int) -> InitProducerIdRequest:
        """Return the request; UNSUPPORTED_VERSION if the coordinator has no two-phase commit."""
        if (self.has_two_phases or self.keeps_prepared) and version < _TWO_PHASES_SINCE:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION, "the broker has no two-phase commit (KIP-939)"
            )
        former = self.former if version >= _FORMER_PRODUCER_SINCE else NO_PRODUCER
        return InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=former.producer_id,
            producer_epoch=former.epoch,
            enable2_pc=self.has_two_phases,
            keep_prepared_txn=self.keeps_prepared,
        )

    def refused_by(self, code: int) -> str:
        """Return the setting that a coordinator refuses with this code, if known."""
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            allowed = "the broker's transaction.max.timeout.ms"
            return f": transaction.timeout.ms={self.timeout_ms} is refused by {allowed}"
        if code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED and self.has_two_phases:
            return (
                ": two-phase commit needs transaction.two.phase.commit.enable=true on brokers, too"
            )
        return ""


async def init_producer(
    coordinator: CoordinatorClient, initiation: Initiation
) -> tuple[ProducerName, ProducerName]:
    """Return the producer's id and epoch, and the prepared transaction's or NO_PRODUCER."""
    has_two_phases = initiation.has_two_phases or initiation.keeps_prepared
    version = await coordinator.version_of(InitProducerIdRequest)
    if not has_two_phases:
        version = min(version, _TWO_PHASES_SINCE - 1)
    request = initiation.request(coordinator.transactional_id, version)
    response = await coordinator.ask(request, InitProducerIdResponse, version_max=version)
    reason = initiation.refused_by(response.error_code)
    check(response.error_code, f"transactional id {coordinator.transactional_id!r}{reason}")
    ongoing = ProducerName(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
    return ProducerName(response.producer_id, response.producer_epoch), ongoing


async def add_partitions(
    coordinator: CoordinatorClient, who: ProducerName, partitions: Collection[TopicPartition]
) -> None:
    """Add partitions to the transaction, in the older protocol."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=coordinator.transactional_id,
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in numbers_by_topic(partitions).items()
        ],
    )
    response = await coordinator.ask(
        request, AddPartitionsToTxnResponse, version_max=_ADD_PARTITIONS_OF_CLIENTS_UNTIL
    )
    codes = {
        TopicPartition(topic.name, row.partition_index): error_code(row.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for row in topic.results_by_partition
    }
    _check_all(codes, "could not be added to the transaction")


async def add_offsets(coordinator: CoordinatorClient, who: ProducerName, group_id: str) -> None:
    """Add a group's offsets to the transaction, in the older protocol."""
    request = AddOffsetsToTxnRequest(
        transactional_id=coordinator.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        group_id=group_id,
    )
    response = await coordinator.ask(request, AddOffsetsToTxnResponse)
    check(response.error_code, f"the offsets of group {group_id!r}")


async def end(
    coordinator: CoordinatorClient, who: ProducerName, *, committed: bool, version: int
) -> ProducerName:
    """Commit or abort, and return the producer's next id and epoch."""
    request = EndTxnRequest(
        transactional_id=coordinator.transactional_id,
        producer_id=who.producer_id,
        producer_epoch=who.epoch,
        committed=committed,
    )
    version_max = 5 if version >= ADDING_BY_WRITING else _LAST_BEFORE_ADDING_BY_WRITING
    response = await coordinator.ask(request, EndTxnResponse, version_max=version_max)
    detail = f"the transaction of {coordinator.transactional_id!r}"
    if response.error_code == ErrorCode.INVALID_TXN_STATE:
        detail += " was ended by its coordinator: perhaps it took more than transaction.timeout.ms"
    check(response.error_code, detail)
    if response.producer_id == NO_PRODUCER.producer_id:
        return who
    return ProducerName(response.producer_id, response.producer_epoch)


@dataclass(frozen=True, slots=True)
class OffsetCommit:
    """Offsets to commit in a transaction; accepted offsets are not sent again."""

    coordinator: CoordinatorClient
    """The coordinator of the transaction; the group has a coordinator of its own."""
    who: ProducerName
    group: GroupMetadata
    waiting: dict[TopicPartition, OffsetToCommit]
    version: int

    async def ask(self) -> None:
        """Commit the remaining offsets; the first refusal raises ApiError, the others remain."""
        version_max = 5 if self.version >= ADDING_BY_WRITING else _LAST_BEFORE_ADDING_BY_WRITING
        response = await self.coordinator.view.ask_coordinator(
            self.group.group_id, self._request(), TxnOffsetCommitResponse, version_max=version_max
        )
        codes = {
            TopicPartition(topic.name, row.partition_index): error_code(row.error_code)
            for topic in response.topics
            for row in topic.partitions
        }
        for name, code in codes.items():
            if code is ErrorCode.NONE:
                self.waiting.pop(name, None)
        _check_all(codes, f"has an offset that group {self.group.group_id!r} could not commit")

    def forget_coordinator(self) -> None:
        """Look up the group's coordinator again."""
        self.coordinator.view.forget_coordinator(self.group.group_id)

    def _request(self) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=self.coordinator.transactional_id,
            group_id=self.group.group_id,
            producer_id=self.who.producer_id,
            producer_epoch=self.who.epoch,
            generation_id=self.group.generation_id,
            member_id=self.group.member_id,
            group_instance_id=self.group.group_instance_id,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic, partitions=[_position(name, self.waiting[name]) for name in names]
                )
                for topic, names in partitions_by_topic(sorted(self.waiting)).items()
            ],
        )


def _position(name: TopicPartition, position: OffsetToCommit) -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=name.partition,
        committed_offset=position.offset,
        committed_leader_epoch=position.leader_epoch,
        committed_metadata=position.metadata,
    )


def _check_all(codes: Mapping[TopicPartition, ErrorCode], what: str) -> None:
    """Raise the first real refusal; partitions that were not tried repeat another's reason."""
    bad = {name: code for name, code in codes.items() if code is not ErrorCode.NONE}
    for name, code in sorted(
        bad.items(), key=lambda item: item[1] is ErrorCode.OPERATION_NOT_ATTEMPTED
    ):
        raise ApiError(code, f"partition {name} {what}")
