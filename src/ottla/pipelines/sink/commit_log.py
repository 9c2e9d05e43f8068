"""The log of the decisions of all queries: a compacted topic with one partition."""

from contextlib import suppress
from time import time
from typing import Final

from ottla.clients.admin.admin_configs import ConfigResource
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import check, only
from ottla.clients.producer.transactions.transaction_errors import FENCED, fatal
from ottla.clients.producer.transactions.transactions import Transactions
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.pipelines.sink.commit_decision import (
    NO_BATCH,
    TOPIC,
    CommitDecision,
    DecisionError,
    decision_key,
    done_batch,
    done_key,
    done_note,
)
from ottla.pipelines.topics.committed_topic_reader import CommittedTopicReader
from ottla.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.records.builder import BatchBuilder
from ottla.wire.records.record import Record
from ottla.wire.schema import EVERY_VERSION

REPLICAS_MAX: Final = 3
SEGMENT_BYTES: Final = 1 << 20
"""Each query reads the uncompacted segments when it starts. This is Kafka's minimum."""
CONFIGS: Final = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
_ALL_REPLICAS: Final = -1
_LEADER: Final = 1


class CommitLog:
    """Reads and writes the decisions of one query."""

    def __init__(self, view: ClusterView, query: str) -> None:
        self.last = CommitDecision()
        """The last decision read."""
        self.done_batch_id = NO_BATCH
        """All decisions up to this batch are known to be done."""
        self._view = view
        self._query = query
        self._log = CommittedTopicReader(TOPIC)
        self._decision_key, self._done_key = decision_key(query), done_key(query)
        self._numbered: tuple[int, int] | None = None
        """The producer id and epoch to which `_sequence` belongs."""
        self._sequence = 0

    async def is_there(self) -> bool:
        """Whether the topic exists, as far as the responding broker knows."""
        try:
            await self._view.retried(
                lambda: self._view.topic(TOPIC), final=[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            )
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return False
        return True

    async def prepare(self) -> None:
        """Create the topic, or check that it is compacted; a DecisionError has the remedy."""
        if await self.is_there():
            await self._check_policy()
            return
        admin = AsyncAdmin.over(self._view)
        brokers = len((await admin.cluster.describe()).brokers)
        try:
            await admin.topics.create(
                TOPIC,
                partitions=1,
                replication_factor=min(REPLICAS_MAX, brokers),
                configs=CONFIGS,
            )
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise DecisionError(
                    f"exactlyOnce keeps its decisions in the topic {TOPIC}, which cannot be made: "
                    f"have it made, with one partition and cleanup.policy=compact ({error})"
                ) from error
        self._view.forget([TOPIC])

    async def read(self) -> None:
        """Read all new decisions."""
        await self._log.read_on(self._view, self._take)

    async def write(self, held: Transactions, decision: CommitDecision) -> None:
        """Write a decision, if no other driver has decided since the last read.

        ProducerFencedError if another driver has. After any other error the outcome is unknown.
        """
        await held.begin()
        await held.before_send([self._log.name])
        try:
            await self._send_in(held, decision.to_json(self._query))
        except (ApiError, OSError) as error:
            if isinstance(error, ApiError) and error.code in FENCED:
                raise fatal(error.code, str(error)) from error
            held.batch_failed(self._log.name, error)
        await held.commit()

    async def note_done(self, batch_id: int) -> None:
        """Record that all decisions up to this batch are done; a loss is harmless for days."""
        self.done_batch_id = batch_id
        with suppress(ApiError, OSError):
            await self._send_plain({self._done_key: done_note(batch_id)})

    async def forget(self) -> None:
        """Delete the records of a query that will not run again."""
        with suppress(ApiError, OSError):
            await self._send_plain({self._decision_key: None, self._done_key: None})

    def _take(self, record: Record) -> None:
        if record.value is None:
            return
        if record.key == self._decision_key:
            self.last = CommitDecision.from_json(record.value, self._query)
        elif record.key == self._done_key:
            self.done_batch_id = done_batch(record.value)

    async def _check_policy(self) -> None:
        resource = ConfigResource.topic(TOPIC)
        try:
            found = await AsyncAdmin.over(self._view).configs.describe([resource])
        except ApiError as error:
            if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                return  # without the right to describe configs, assume compaction
            raise
        policy = found[resource]["cleanup.policy"].value
        if policy != CONFIGS["cleanup.policy"]:
            raise DecisionError(
                f"topic {TOPIC} has cleanup.policy={policy}, so decisions would be forgotten, and "
                "a batch could be written twice: set it to compact"
            )

    async def _send_in(self, held: Transactions, value: bytes) -> None:
        who = held.producer_id, held.producer_epoch
        if who != self._numbered:
            self._numbered, self._sequence = who, 0
        builder = BatchBuilder(
            producer_id=who[0],
            producer_epoch=who[1],
            base_sequence=self._sequence,
            is_transactional=True,
        )
        self._sequence += 1
        builder.append(_now_ms(), self._decision_key, value)
        version_max = held.produce_version_max or EVERY_VERSION
        await self._view.retried(
            lambda: self._produce(
                builder.build(), _ALL_REPLICAS, held.transactional_id, version_max
            )
        )

    async def _send_plain(self, rows: dict[bytes, bytes | None]) -> None:
        builder = BatchBuilder()
        for key, value in rows.items():
            builder.append(_now_ms(), key, value)
        await self._produce(builder.build(), _LEADER, None, EVERY_VERSION)

    async def _produce(
        self, batch: bytes | bytearray, acks: int, transactional_id: str | None, version_max: int
    ) -> None:
        """Send one produce request to the leader."""
        topic = await self._view.topic(TOPIC)
        leader_id = (await self._view.partition(self._log.name)).leader_id
        partition = PartitionProduceData(index=self._log.name.partition, records=batch)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=self._view.settings.request_timeout_ms,
            topic_data=[
                TopicProduceData(name=TOPIC, topic_id=topic.topic_id, partition_data=[partition])
            ],
        )
        response = await self._view.ask_broker(
            leader_id, request, ProduceResponse, version_max=version_max
        )
        row = only(only(response.responses, "a topic").partition_responses, "a partition")
        check(row.error_code, row.error_message or f"a decision for {TOPIC}")


def _now_ms() -> int:
    return int(time() * 1000)
