"""Proposes ISR changes to the controller (AlterPartition) for all partitions led here.

A follower that has caught up is proposed as it fetches. A check at half of
`replica.lag.time.max.ms` finds followers that have not been caught up for that time. Until the
controller responds, both the old ISR and the proposed one count (`InSync.maximal`), because either
may be in force. So a proposal without a response is repeated, and a refused proposal is withdrawn
only if no earlier attempt can still arrive.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, TypeAlias

from ottla.concurrency.notifier import Notifier
from ottla.environment.clock import Clock
from ottla.metadata.image import ClusterImage
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, TopicPartition
from ottla.replication.in_sync import InSync
from ottla.replication.partition import Partition
from ottla.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    BrokerState,
)

RETRY_MS: Final = 100
"""The pause after a controller did not respond."""
_RETRY: Final = "isr changes"
_RECOVERED: Final = 0
_MOVED_ON: Final = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller has newer metadata: the next image decides. Until then both ISRs count."""
_ASK_AGAIN: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR})
_log = logging.getLogger(__name__)

AlterPartition: TypeAlias = Callable[[AlterPartitionRequest], Awaitable[AlterPartitionResponse]]
"""Sends proposals to the controller; raises ApiError or OSError without a response."""


class _Question(NamedTuple):
    """A proposal for a partition, in one leader epoch."""

    partition: Partition
    in_sync: InSync
    asked_ms: int
    is_growing: bool
    """Whether it only adds replicas."""
    is_certain: bool = True
    """Whether every attempt so far got a response."""

    @property
    def is_open(self) -> bool:
        """Whether a response is still needed."""
        return self.partition.in_sync is self.in_sync and self.in_sync.proposed is not None


class IsrChanges:
    """Sends proposals and applies the responses. Belongs to one event loop."""

    def __init__(
        self,
        broker_id: BrokerId,
        broker_epoch: Callable[[], int],
        image: Callable[[], ClusterImage],
        alter_partition: AlterPartition,
        notifier: Notifier,
        clock: Clock,
        lag_ms_max: int,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._image = image
        self._alter_partition = alter_partition
        self._notifier = notifier
        self._clock = clock
        self._lag_ms_max = lag_ms_max
        self._questions: dict[TopicPartition, _Question] = {}
        self._asking: asyncio.Task[None] | None = None
        self._is_stopped = False
        self.expand_count = 0
        self.shrink_count = 0
        self.failure_count = 0
        """Counts of expansions, shrinks and failed proposals."""

    # -- expansion and shrinking ----------------------------------------------------------------

    def on_candidate(self, partition: Partition, broker_id: BrokerId, now_ms: int) -> None:
        """Look at a follower that is not in sync and has just fetched."""
        in_sync = partition.in_sync
        assert in_sync is not None
        if not self._is_eligible(broker_id, in_sync):
            in_sync.awaited.discard(broker_id)
            return
        in_sync.await_if_near(broker_id, partition.log.end_offset, now_ms, self._lag_ms_max)
        if in_sync.may_join(broker_id, partition.high_watermark):
            self._propose(partition, in_sync, (*in_sync.isr, broker_id))

    def _is_eligible(self, broker_id: BrokerId, in_sync: InSync) -> bool:
        """Return whether the controller would admit this incarnation of a follower to the ISR."""
        broker = self._image().brokers.get(broker_id)
        broker_epoch = in_sync.followers[broker_id].broker_epoch
        return broker is not None and broker.is_active and broker.broker_epoch == broker_epoch

    def check(self, partition: Partition) -> None:
        """Check for members of the ISR that have fallen behind; to be called at half the lag.

        A replica that is about to join, but late or gone, is no longer waited for. From a leader
        with a failed disk no follower can fetch: that proves nothing about the followers.
        """
        in_sync = partition.in_sync
        if in_sync is None or partition.is_alone or partition.log.is_offline:
            return
        now_ms = self._clock.monotonic_ms()
        end_offset = partition.log.end_offset
        in_sync.awaited = {one for one in in_sync.awaited if self._is_eligible(one, in_sync)}
        for broker_id in list(in_sync.awaited):
            in_sync.await_if_near(broker_id, end_offset, now_ms, self._lag_ms_max)
        late = in_sync.fell_behind(end_offset, now_ms, self._lag_ms_max)
        if late:
            _log.warning("%s: %s fell behind", partition.name, late)
            isr = tuple(one for one in in_sync.isr if one not in late)
            self._propose(partition, in_sync, isr)
        partition.raise_high_watermark()

    def _propose(self, partition: Partition, in_sync: InSync, isr: tuple[BrokerId, ...]) -> None:
        # Until the response both the old and the proposed ISR may be decided, so the high watermark
        # waits for the members of both (KIP-497).
        in_sync.propose(isr)
        asked_ms = self._clock.monotonic_ms()
        is_growing = len(isr) > len(in_sync.isr)
        self._questions[partition.name] = _Question(partition, in_sync, asked_ms, is_growing)
        if self._asking is None and not self._is_stopped:
            self._asking = asyncio.get_running_loop().create_task(self._ask_all())

    async def stop(self) -> None:
        """Ask nothing any more."""
        self._is_stopped = True
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    # -- asking ---------------------------------------------------------------------------------

    async def _ask_all(self) -> None:
        """Send all pending proposals together, until none is left."""
        try:
            while self._questions and not self._notifier.is_closed:
                # One request at a time; proposals made meanwhile share the next.
                asked, self._questions = self._questions, {}
                asked = {name: one for name, one in asked.items() if one.is_open}
                if asked and not await self._ask(asked):
                    await self._notifier.wait_any([_RETRY], self._clock.monotonic_ms() + RETRY_MS)
        finally:
            self._asking = None

    async def _ask(self, asked: dict[TopicPartition, _Question]) -> bool:
        """Send the proposals of some partitions; return whether there was a response."""
        try:
            response = await self._alter_partition(self._request(asked))
        except (ApiError, OSError) as error:
            _log.info("the controller did not answer AlterPartition: %s", error)
            self._ask_again(asked)
            return False
        if response.error_code:
            _log.warning("the controller refuses: %s", ErrorCode(response.error_code).name)
            self._ask_again(asked)
            return False
        by_key = {
            (one.partition.topic_id, one.partition.name.partition): one for one in asked.values()
        }
        is_done = True
        for topic in response.topics:
            for answer in topic.partitions:
                question = by_key.pop((topic.topic_id, answer.partition_index), None)
                if question is not None and not self._take(question, answer):
                    is_done = False
        self._ask_again({one.partition.name: one for one in by_key.values()})
        return is_done and not by_key

    def _ask_again(self, asked: dict[TopicPartition, _Question]) -> None:
        for name, question in asked.items():
            if question.is_open:
                # The lost request may have been applied: a refusal of the next proves nothing. A
                # newer proposal for the partition, made meanwhile, takes precedence.
                self._questions.setdefault(name, question._replace(is_certain=False))

    def _request(self, asked: dict[TopicPartition, _Question]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequestTopic] = {}
        for partition, in_sync, *_ in asked.values():
            topic_id = partition.topic_id
            topic = topics.setdefault(topic_id, AlterPartitionRequestTopic(topic_id=topic_id))
            topic.partitions.append(
                AlterPartitionRequestPartition(
                    partition_index=partition.name.partition,
                    leader_epoch=partition.leader_epoch,
                    # With the epochs the controller refuses a follower that has restarted since it
                    # caught up, and may have lost its unflushed records (KIP-903).
                    new_isr_with_epochs=[
                        BrokerState(broker_id=one, broker_epoch=self._epoch_of(one, in_sync))
                        for one in in_sync.proposed or ()
                    ],
                    leader_recovery_state=_RECOVERED,
                    partition_epoch=in_sync.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=list(topics.values()),
        )

    def _epoch_of(self, broker_id: BrokerId, in_sync: InSync) -> int:
        if broker_id == self._broker_id:
            return self._broker_epoch()
        follower = in_sync.followers.get(broker_id)
        return -1 if follower is None else follower.broker_epoch

    # -- responses ------------------------------------------------------------------------------

    def _take(self, question: _Question, answer: AlterPartitionResponsePartition) -> bool:
        """Apply the response for one partition; False if the proposal must be repeated later."""
        partition, in_sync, asked_ms, _, is_certain = question
        code = ErrorCode(answer.error_code)
        self._count(code, is_growing=question.is_growing)
        if not question.is_open:
            return True
        if code is ErrorCode.NONE:
            if not in_sync.decided(tuple(map(BrokerId, answer.isr)), answer.partition_epoch):
                in_sync.refused()  # nothing was to be changed
            partition.raise_high_watermark()
            return True
        _log.info(
            "%s: the controller does not want %s: %s", partition.name, in_sync.proposed, code.name
        )
        if code in _MOVED_ON:
            return True
        # An earlier attempt without a response may still arrive, and be granted.
        is_old = self._clock.monotonic_ms() - asked_ms > self._lag_ms_max
        if code not in _ASK_AGAIN and (is_certain or is_old):
            in_sync.refused()
            partition.raise_high_watermark()
            return True
        self._questions.setdefault(partition.name, question)
        return False

    def _count(self, code: ErrorCode, *, is_growing: bool) -> None:
        if code is not ErrorCode.NONE:
            self.failure_count += code not in _ASK_AGAIN
        elif is_growing:
            self.expand_count += 1
        else:
            self.shrink_count += 1
