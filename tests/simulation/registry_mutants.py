"""Bugs of the registry's writes and reads: the rules must find each.

Every mutant is named after its behaviour; `test_registry.py` says how soon it is found. Some have
to break two places, because the append is fenced by the leader epoch and by the end of the log.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from ottla.concurrency.notifier import Notifier
from ottla.model.identifiers import Offset
from ottla.registry import broker_schemas_log, registration
from ottla.registry.broker_schemas_log import READ_BYTES, _Part, _SchemasPartition
from ottla.registry.registry import Registry, Written
from ottla.registry.registry_machine import RegistryMachine
from ottla.registry.schemas_log import Leadership
from ottla.replication.partition import Partition

Mutant = Callable[[], AbstractContextManager[None]]


@contextmanager
def patched(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, wrong)
        yield


async def _no_wait(_: Notifier, awaited: Any, *__: Any) -> list[None]:  # noqa: RUF029
    return [None for _ in awaited]


@contextmanager
def responding_before_the_commit() -> Iterator[None]:
    """The id of a schema is returned when the leader alone has its record."""

    async def write(self: Registry, decide: Any, leadership: Leadership) -> Written:
        await self.wait_replayed(leadership.end_offset)
        decision = decide()
        end_offset = self._state.end_offset
        if decision.records:
            end_offset = await self._log.append(decision.records, leadership, end_offset)
        return Written(decision.response, end_offset)

    with (
        patched(broker_schemas_log, "committed", _no_wait),
        patched(Registry, "_write_once", write),
    ):
        yield


@contextmanager
def replaying_uncommitted_records() -> Iterator[None]:
    """A leader replays, and shows, records that another leader may still undo."""

    async def read_here(_: Any, partition: Partition, offset: int) -> _Part:  # noqa: RUF029
        log = partition.log
        return _Part(log.read(Offset(offset), log.end_offset, READ_BYTES).read(), log.end_offset)

    async def news(self: Any, partition: Partition, offset: int, wait_ms: int) -> None:
        if partition.log.end_offset <= offset:
            await self._news(wait_ms)

    with (
        patched(_SchemasPartition, "read_here", read_here),
        patched(_SchemasPartition, "news", news),
        patched(broker_schemas_log, "committed", _no_wait),
    ):
        yield


@contextmanager
def leading_on_after_a_deposition() -> Iterator[None]:
    """A deposed leader still answers writes, and claims that its append was committed."""
    led = _SchemasPartition.leadership
    append = _SchemasPartition.append

    def leadership(self: _SchemasPartition) -> Leadership | None:
        found = led(self)
        if found is not None:
            self._last = found  # type: ignore[attr-defined]
        return getattr(self, "_last", None)

    async def append_or_pretend(self: Any, batch: Any, leader: Any, end_offset: int) -> int:
        if led(self) is None:
            return end_offset
        return await append(self, batch, leader, end_offset)

    with (
        patched(_SchemasPartition, "leadership", leadership),
        patched(_SchemasPartition, "append", append_or_pretend),
    ):
        yield


@contextmanager
def deciding_before_the_epoch_is_replayed() -> Iterator[None]:
    """A new leader decides on the state before its epoch, and appends at the end of its log."""

    async def write(self: Registry, decide: Any, leadership: Leadership) -> Written:
        decision = decide()
        if not decision.records:
            return Written(decision.response, self._state.end_offset)
        partition = self._log._partition.led()  # type: ignore[attr-defined]
        end_offset = partition.log.end_offset if partition else self._state.end_offset
        end_offset = await self._log.append(decision.records, leadership, end_offset)
        await self.wait_replayed(end_offset)
        return Written(decision.response, end_offset)

    with patched(Registry, "_write_once", write):
        yield


def not_waiting_for_the_forwarded_write() -> AbstractContextManager[None]:
    """A broker returns the leader's response before it has replayed the write."""

    async def at_leader(self: Registry, url: str, request: Any, _: int) -> Any:
        return await self._forward(url, request)

    return patched(Registry, "_at_leader", at_leader)


def giving_ids_of_deleted_schemas() -> AbstractContextManager[None]:
    """The next id follows the highest that is in use."""

    def next_id(machine: RegistryMachine, context: str) -> int:
        ids = [
            version.stored.id
            for subject in machine.state.subjects_of(context)
            for version in machine.state.versions(subject).values()
        ]
        return max(ids, default=0) + 1

    return patched(registration, "next_id", next_id)


MUTANTS: dict[str, Mutant] = {
    one.__name__: one
    for one in (
        responding_before_the_commit,
        replaying_uncommitted_records,
        leading_on_after_a_deposition,
        deciding_before_the_epoch_is_replayed,
        not_waiting_for_the_forwarded_write,
        giving_ids_of_deleted_schemas,
    )
}
