"""Sends the markers of ended transactions to the leaders of their partitions.

A marker for a partition with its only replica here is written at once. Markers for partitions of
another broker go there in one request at a time, together with all markers added meanwhile. If a
marker is refused or not acknowledged, it is sent again after a pause, to the leader of that time. A
marker for a deleted partition counts as written. No task runs while no marker is pending. The
pending markers are exactly the unwritten ones in the machines' state.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.peers.broker_clients import BrokerClients
from ottla.machines.transactions.markers import OwedMarkers
from ottla.metadata.image import ClusterImage
from ottla.metadata.records import NO_LEADER, MetadataRecord
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.model.identifiers import BrokerId, TopicPartition
from ottla.wire.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

VERSION: Final = 2
PARTITIONS_MAX: Final = 2_000
"""How many markers go into one request."""
REST_MS: Final = 100
"""How long a marker that was refused rests before it is sent again."""
ANSWER_MS_MAX: Final = 40_000
"""Longer than a leader waits for its replicas."""
_ENDED: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED}
)
"""The marker is there, or a later one of the same producer: nothing is open before that."""
_log = logging.getLogger(__name__)

Report: TypeAlias = Callable[[OwedMarkers, Sequence[TopicPartition]], None]
"""Hears which of the owed markers are written."""


class _Debt:
    """The end of one transaction, and the callback for its written markers."""

    __slots__ = ("index", "owed", "report")

    def __init__(self, index: int, owed: OwedMarkers, report: Report) -> None:
        self.index = index
        self.owed = owed
        self.report = report


class _Marker(NamedTuple):
    """One marker that is owed to one partition."""

    debt: _Debt
    partition: TopicPartition


class MarkerSender:
    """All that is owed by the coordinators on this broker. Belongs to one event loop."""

    def __init__(
        self, peers: BrokerClients, image: Callable[[], ClusterImage], writing: MarkerWriter
    ) -> None:
        self._peers = peers
        self._image = image
        self._writing = writing
        # Dicts in place of sets, for their order.
        self._owed_by_broker: dict[BrokerId, dict[_Marker, None]] = {}
        self._resting: dict[_Marker, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._senders: dict[BrokerId, asyncio.Task[None]] = {}
        self._is_stopped = False

    @property
    def unsendable_count(self) -> int:
        """Return the number of markers for partitions without a leader."""
        return len(self._owed_by_broker.get(NO_LEADER, ()))

    def owe(self, index: int, owed: OwedMarkers, report: Report) -> None:
        """Send the markers of a transaction that this partition of the coordinator's topic keeps.

        The end of the transaction must be committed. `report` is called as often as there is
        something to report, and perhaps before this returns.
        """
        written: list[TopicPartition] = []
        unwritten: list[TopicPartition] = []
        marker = owed.message(())
        for name in owed.partitions:
            is_written = self._writing.append_if_safe_at_once(name, marker)
            (written if is_written else unwritten).append(name)
        if unwritten:
            debt = _Debt(index, owed, report)
            self._place(_Marker(debt, name) for name in unwritten)
        if written or not unwritten:
            report(owed, written)

    def forget(self, index: int) -> None:
        """Send nothing more for a partition of the coordinator's topic: another broker does."""
        for markers in (*self._owed_by_broker.values(), self._resting):
            for marker in [one for one in markers if one.debt.index == index]:
                del markers[marker]

    def on_change(self, _image: ClusterImage, _records: Sequence[MetadataRecord]) -> None:
        """Send waiting markers to new leaders, including those unwritten by former leaders."""
        for broker_id, markers in list(self._owed_by_broker.items()):
            self._place(self._drop_moved(broker_id, markers))

    def _drop_moved(self, broker_id: BrokerId, markers: dict[_Marker, None]) -> Iterator[_Marker]:
        """Remove the markers that do not belong to a broker any more."""
        # Some may be in flight: a marker written twice changes nothing, a lost one would
        # leave the transaction open.
        for marker in [one for one in markers if self._leader(one.partition) != broker_id]:
            del markers[marker]
            yield marker

    def stop(self) -> None:
        """Send nothing any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for sender in self._senders.values():
            sender.cancel()
        self._peers.close()

    # -- targets --------------------------------------------------------------------------------

    def _place(self, markers: Iterable[_Marker]) -> None:
        """Queue markers for their leaders; markers for deleted partitions are done."""
        gone: dict[_Debt, list[TopicPartition]] = {}
        for marker in markers:
            broker_id = self._leader(marker.partition)
            if broker_id is None:
                gone.setdefault(marker.debt, []).append(marker.partition)
                continue
            self._owed_by_broker.setdefault(broker_id, {})[marker] = None
            if broker_id != NO_LEADER and broker_id not in self._senders:
                self._send_to(broker_id)
        _report(gone)

    def _leader(self, name: TopicPartition) -> BrokerId | None:
        """Return the leader of a partition; None if the partition does not exist."""
        topic = self._image().topics.get(name.topic)
        partition = None if topic is None else topic.partition(name.partition)
        return None if partition is None else partition.leader

    def _rest(self, markers: Iterable[_Marker]) -> None:
        """Delay markers for a while; then they go to the leaders of that time."""
        for marker in markers:
            self._resting[marker] = None
        if self._resting and self._timer is None and not self._is_stopped:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(REST_MS / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        rested, self._resting = self._resting, {}
        self._place(rested)

    # -- one broker -----------------------------------------------------------------------------

    def _send_to(self, broker_id: BrokerId) -> None:
        if not self._is_stopped:
            task = asyncio.get_running_loop().create_task(self._run(broker_id))
            self._senders[broker_id] = task

    async def _run(self, broker_id: BrokerId) -> None:
        """Send to one broker until nothing is owed to it."""
        markers = self._owed_by_broker[broker_id]
        try:
            while markers:
                await self._send_some(broker_id, markers)
        finally:
            del self._senders[broker_id]

    async def _send_some(self, broker_id: BrokerId, markers: dict[_Marker, None]) -> None:
        sent = list(islice(markers, PARTITIONS_MAX))
        by_debt: dict[_Debt, list[TopicPartition]] = {}
        for debt, partition in sent:
            by_debt.setdefault(debt, []).append(partition)
        request = WriteTxnMarkersRequest(
            markers=[debt.owed.message(partitions) for debt, partitions in by_debt.items()]
        )
        try:
            response = await self._peers.ask(
                broker_id, request, VERSION, WriteTxnMarkersResponse, timeout_ms=ANSWER_MS_MAX
            )
        except (OSError, ApiError) as error:
            _log.debug("broker %d does not take markers: %s", broker_id, error)
            response = WriteTxnMarkersResponse()
        codes = _codes(list(by_debt), response)
        owed = [marker for marker in sent if marker in markers]
        for marker in owed:
            del markers[marker]
        self._take(owed, codes)

    def _take(self, owed: Sequence[_Marker], codes: dict[_Marker, int]) -> None:
        """Report written markers, and delay the others."""
        written: dict[_Debt, list[TopicPartition]] = {}
        unwritten = []
        for marker in owed:
            code = codes.get(marker, ErrorCode.NETWORK_EXCEPTION)
            if code in _ENDED:
                written.setdefault(marker.debt, []).append(marker.partition)
            elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                owner = marker.debt.owed.transactional_id
                _log.warning("%s: %s has a later coordinator", marker.partition, owner)
            else:
                unwritten.append(marker)
        self._rest(unwritten)
        _report(written)


def _codes(debts: Sequence[_Debt], response: WriteTxnMarkersResponse) -> dict[_Marker, int]:
    """Return the results, which are in the order of the request."""
    return {
        _Marker(debt, TopicPartition(topic.name, each.partition_index)): each.error_code
        for debt, result in zip(debts, response.markers, strict=False)
        if debt.owed.producer.producer_id == result.producer_id
        for topic in result.topics
        for each in topic.partitions
    }


def _report(partitions_by_debt: dict[_Debt, list[TopicPartition]]) -> None:
    for debt, partitions in partitions_by_debt.items():
        debt.report(debt.owed, partitions)
