"""Members of a group in a simulated cluster: together they are given everything, at least once."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from ottla.clients.cluster_view import ClusterView, pause
from ottla.clients.fetcher import FetcherSettings
from ottla.clients.group_member import GroupSettings
from ottla.clients.group_reader import GroupReader
from ottla.model.api_error import ApiError
from ottla.model.identifiers import TopicPartition
from ottla.simulation.checkers import Violation
from ottla.simulation.history import History, Outcome
from ottla.simulation.machine import Machine
from ottla.simulation.workload import TOPIC, TRY_AGAIN_MS, Workload

MEMBERS: Final = "members"
_FETCHING: Final = FetcherSettings(wait_ms=200)
_TIMES: Final = GroupSettings(session_timeout_ms=6_000, heartbeat_interval_ms=1_000)


class GroupWorkload:
    """What the members of one group share. `belong` is a program for machines."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._delivered: dict[str, None] = {}

    async def belong(self, machine: Machine) -> None:
        """Read what the group says until it is over, and everybody has had everything."""
        while not self._is_over():
            async with self._workload.view(machine) as view:
                with suppress(ApiError, OSError):
                    await self._read_on(view)
            await pause(TRY_AGAIN_MS)

    async def _read_on(self, view: ClusterView) -> None:
        reader = GroupReader.of_group(view, MEMBERS, [TOPIC], _from_the_start, _FETCHING, _TIMES)
        try:
            while not self._is_over():
                await self._take(reader)
        finally:
            await reader.close()

    async def _take(self, reader: GroupReader) -> None:
        for fetched in await reader.poll():
            for record in fetched.records():
                assert record.value is not None
                self._delivered[record.value.partition(b" ")[0].decode()] = None
            reader.mark(fetched.partition, fetched.end_offset)

    def _is_over(self) -> bool:
        return self._workload.is_over and not self.missing()

    def missing(self) -> list[Violation]:
        """Return what was acknowledged, and given to no member (G4)."""
        return [
            Violation("G4 undelivered", f"no member was given {value}")
            for value in _acknowledged(self._workload.history)
            if value not in self._delivered
        ]


def _acknowledged(history: History) -> list[str]:
    return [
        sent.value
        for operation in history.operations
        if operation.outcome is Outcome.OK
        for sent in operation.sent
        if sent.partition.topic == TOPIC
    ]


async def _from_the_start(partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:  # noqa: RUF029
    return dict.fromkeys(partitions, 0)
