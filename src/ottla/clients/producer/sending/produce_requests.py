"""Produce requests: encoding many partitions of one broker, and reading the response."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.errors import NoResponseError
from ottla.clients.producer.batching.ready_batch import ReadyBatch
from ottla.clients.producer.state.producer_identity import Identity
from ottla.model.address import Address
from ottla.model.identifiers import ZERO_UUID, TopicPartition
from ottla.rpc.connection import Connection, TakeAnswer
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.wire.schema import EVERY_VERSION, Message

NO_ANSWER: Final = 0
"""The value of acks without responses."""
BY_NAME_VERSION_MAX: Final = 12
"""Later versions identify topics by id only."""
Outcomes = dict[TopicPartition, PartitionProduceResponse]
TakeOutcomes = Callable[[Outcomes | None, Exception | None], None]


class ProduceRequests:
    """Sends Produce requests."""

    def __init__(self, view: ClusterView, acks: int) -> None:
        self._view = view
        self.acks = acks
        self._told: WeakKeyDictionary[Connection, set[str]] = WeakKeyDictionary()
        """The topics of requests that were sent without a response (acks 0)."""

    def ask_now(
        self,
        connection: Connection,
        identity: Identity,
        ready_batches: Sequence[ReadyBatch],
        take: TakeOutcomes,
    ) -> bool:
        """Send at once; `take` is called with the result of each partition's batch.

        False if the caller must wait before sending. There is no time limit.
        """
        request, version_max = self.request(identity, ready_batches)
        return connection.ask_now(request, self.taking(request, take), version_max=version_max)

    def taking(self, request: ProduceRequest, take: TakeOutcomes) -> TakeAnswer:
        """Return the callback for the response, which reports the result of each batch."""

        def told(answer: Message | None, error: Exception | None) -> None:
            if isinstance(answer, ProduceResponse):
                take(self._outcomes(request, answer), None)
            else:
                take(None, error)

        return told

    async def ask(
        self, connection: Connection, identity: Identity, ready_batches: Sequence[ReadyBatch]
    ) -> Outcomes:
        """Return the result of each partition's batch.

        Without a response the connection is closed, because a late response would be misleading.
        """
        request, version_max = self.request(identity, ready_batches)
        timeout_ms = self._view.settings.request_timeout_ms
        if self.acks == NO_ANSWER:
            self._note_told(connection, {ready_batch.batch.topic for ready_batch in ready_batches})
            await connection.tell(request, timeout_ms=timeout_ms, version_max=version_max)
            taken = PartitionProduceResponse(base_offset=-1)
            return {ready_batch.queue.name: taken for ready_batch in ready_batches}
        try:
            response = await connection.ask(
                request, ProduceResponse, timeout_ms=timeout_ms, version_max=version_max
            )
        except NoResponseError:
            connection.close()
            raise
        return self._outcomes(request, response)

    def request(
        self, identity: Identity, ready_batches: Sequence[ReadyBatch]
    ) -> tuple[ProduceRequest, int]:
        """Return the request for these batches, and its highest usable version."""
        version_max = identity.produce_version_max or EVERY_VERSION
        topics: dict[str, TopicProduceData] = {}
        for ready_batch in ready_batches:
            batch = ready_batch.batch
            topic = topics.get(batch.topic)
            if topic is None:
                known = self._view.known_topic(batch.topic)
                topic_id = ZERO_UUID if known is None else known.topic_id
                if topic_id == ZERO_UUID:
                    version_max = min(version_max, BY_NAME_VERSION_MAX)
                topic = TopicProduceData(name=batch.topic, topic_id=topic_id, partition_data=[])
                topics[batch.topic] = topic
            topic.partition_data.append(
                PartitionProduceData(index=batch.partition, records=ready_batch.payload)
            )
        request = ProduceRequest(
            transactional_id=identity.transactional_id,
            acks=self.acks,
            timeout_ms=self._view.settings.request_timeout_ms,
            topic_data=list(topics.values()),
        )
        return request, version_max

    def _note_told(self, connection: Connection, topics: set[str]) -> None:
        """Forget these topics' leaders when the connection ends: acks 0 has no other error."""
        told = self._told.get(connection)
        if told is None:
            told = self._told[connection] = set()
            connection.on_end = partial(self._view.forget, told)
        told |= topics

    def _outcomes(self, request: ProduceRequest, response: ProduceResponse) -> Outcomes:
        """Read a response by partition, and apply its leader hints."""
        name_by_id: Mapping[bytes, str] = {row.topic_id: row.name for row in request.topic_data}
        address_by_broker = {
            node.node_id: Address(node.host, node.port) for node in response.node_endpoints
        }
        outcomes: Outcomes = {}
        for topic in response.responses:
            for row in topic.partition_responses:
                name = TopicPartition(topic.name or name_by_id.get(topic.topic_id, ""), row.index)
                outcomes[name] = row
                if (leader := row.current_leader) is not None:
                    address = address_by_broker.get(leader.leader_id)
                    self._view.learn_leader(name, leader.leader_id, leader.leader_epoch, address)
        return outcomes
