"""The connections of a client, one per broker: opened on demand, and kept.

After a failed attempt a broker is not tried again for a growing backoff; requests meanwhile fail at
once, with the same reason. A long idle connection is replaced, because a firewall may have dropped
it silently.
"""

import asyncio
from collections.abc import Iterable
from typing import Final
from weakref import WeakKeyDictionary

from ottla.clients.config.settings import ClientSettings
from ottla.clients.errors import UnreachableError
from ottla.environment.randomness import Randomness
from ottla.model.address import Address
from ottla.rpc.connection import Connect, Connection
from ottla.rpc.metrics import NetworkCounts
from ottla.runtime.network import KernelNetwork

connect: Final = KernelNetwork().connect
"""Connects through the kernel, to the host's first address that accepts."""
CLOSED: Final = "the client was closed here"
JITTER_PERCENT: Final = 20
"""The jitter of a backoff: clients that lost a broker at the same moment should not reconnect at
the same moment."""


class _Failing:
    """An unreachable broker: the reason, and the time of the next attempt."""

    __slots__ = ("backoff_ms", "not_before", "reason")

    def __init__(self, reason: UnreachableError, backoff_ms: int, not_before: float) -> None:
        self.reason = reason
        self.backoff_ms = backoff_ms
        self.not_before = not_before


class Connections:
    """Connections by address. After `close` none can be opened."""

    def __init__(
        self, settings: ClientSettings, connect: Connect, randomness: Randomness | None = None
    ) -> None:
        """Without `randomness` there is no jitter."""
        self._settings = settings
        self._connect = connect
        self._randomness = randomness
        self._open: dict[Address, Connection] = {}
        self._lent: WeakKeyDictionary[Connection, None] = WeakKeyDictionary()  # in order
        self._opening: dict[Address, asyncio.Lock] = {}
        self._failing: dict[Address, _Failing] = {}
        self.counts = NetworkCounts()
        self.is_closed = False

    def close(self) -> None:
        """Close all connections, without waiting."""
        self.is_closed = True
        for connection in [*self._open.values(), *self._lent]:
            connection.close()
        self._open.clear()

    def abandon(self) -> None:
        """Close all connections soon, in their own loop; callable from any thread."""
        self.is_closed = True
        for connection in [*self._open.values(), *self._lent]:
            connection.abandon()

    def open_one(self) -> Connection | None:
        """Return any open connection, if there is one."""
        self._close_idle()
        return next((row for row in self._open.values() if row.is_open), None)

    def is_open(self, address: Address) -> bool:
        """Return whether there is a connection to this address."""
        connection = self._open.get(address)
        return connection is not None and connection.is_open

    def usable(self, address: Address) -> Connection | None:
        """Return the open connection to this address, if there is one."""
        self._close_idle()
        connection = self._open.get(address)
        return connection if connection is not None and connection.is_open else None

    def in_order(self, addresses: Iterable[Address]) -> list[Address]:
        """Sort addresses: connected, then untried, then failed."""
        now = asyncio.get_running_loop().time()
        return sorted(dict.fromkeys(addresses), key=lambda address: self._rank(address, now))

    async def at(self, address: Address) -> Connection:
        """Return an open connection; UnreachableError with the reason if it fails."""
        connection = self.usable(address)
        if connection is not None:
            return connection
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self.usable(address)
            if connection is None:
                self._check(address)
                connection = await self._opened(address)
                self._open[address] = connection
            return connection

    async def new(self, address: Address) -> Connection:
        """Open a connection for the caller's exclusive use; the caller may close it."""
        self._check(address)
        connection = await self._opened(address)
        self._lent[connection] = None
        return connection

    async def _opened(self, address: Address) -> Connection:
        try:
            connection = await Connection.open(
                address,
                self._connect,
                client_id=self._settings.client_id,
                timeout_ms=self._settings.connect_timeout_ms,
                counts=self.counts,
            )
        except UnreachableError as error:
            self._note_failure(address, error)
            raise
        self._failing.pop(address, None)
        if self.is_closed:
            connection.close()
            raise UnreachableError(CLOSED)
        return connection

    def _check(self, address: Address) -> None:
        if self.is_closed:
            raise UnreachableError(CLOSED)
        failing = self._failing.get(address)
        if failing is not None and asyncio.get_running_loop().time() < failing.not_before:
            raise UnreachableError(*failing.reason.args)

    def _note_failure(self, address: Address, reason: UnreachableError) -> None:
        before = self._failing.get(address)
        backoff_ms = self._settings.reconnect_backoff_ms
        if before is not None:
            backoff_ms = min(2 * before.backoff_ms, self._settings.reconnect_backoff_max_ms)
        now = asyncio.get_running_loop().time()
        not_before = now + (backoff_ms + self._jitter_ms(backoff_ms)) / 1000
        self._failing[address] = _Failing(reason, backoff_ms, not_before)

    def _jitter_ms(self, backoff_ms: int) -> float:
        if self._randomness is None:
            return 0.0
        percent = self._randomness.below(2 * JITTER_PERCENT + 1) - JITTER_PERCENT
        return backoff_ms * percent / 100

    def _close_idle(self) -> None:
        idle_ms_max = self._settings.connections_max_idle_ms
        for address, connection in list(self._open.items()):
            if not connection.is_open:
                del self._open[address]
            elif 0 <= idle_ms_max < connection.idle_ms:
                connection.close()
                del self._open[address]

    def _rank(self, address: Address, now: float) -> tuple[bool, float]:
        failing = self._failing.get(address)
        return not self.is_open(address), 0.0 if failing is None else max(
            failing.not_before - now, 0.0
        )
