"""The direct path for commits: the committing thread sends EndTxn itself.

After a regular and fast response, the next commits go from the caller's thread to the socket and
back. After any other response the client's thread sends the request again: a coordinator that has
already committed confirms it again.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.clients.producer.sending.direct_send import WAIT_MS_MAX, EndExpress, may_be_lent
from ottla.clients.producer.transactions.commit_ways import CommitWays
from ottla.rpc.connection import Connection, Pending
from ottla.runtime.event_loop import epoll_of
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import encode_response
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.schema import Message

VERSION: Final = 5
"""The only version that `EndExpress` writes; its response holds the next producer id and epoch."""
SOON_MS: Final = 15
"""The direct path is offered only if the coordinator responded within this time."""


class EndRoute(NamedTuple):
    """A coordinator's connection, with a prepared request and its expected response."""

    connection: Connection
    expect: Callable[[], tuple[int, Pending]]
    """Allocates a correlation id, and the pending response."""
    request: bytes
    """The request frame; `EndExpress` fills in the numbers."""
    answer: bytes
    """The response frame of a successful commit, except for the numbers in it."""


class EndDesk:
    """Sends EndTxn from the caller's thread, if the coordinator responds fast."""

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self.ways = CommitWays()
        self._express: Any = None

    @property
    def is_open(self) -> bool:
        """Whether the direct path is available and preferred."""
        return self._express is not None and self.ways.is_short

    def offer(self, connection: Connection, took_ms: int) -> None:
        """Enable or disable the direct path by the time of an EndTxn; in the loop's thread."""
        epoll = epoll_of(asyncio.get_running_loop())
        is_known = connection.version_for(EndTxnRequest, VERSION) == VERSION
        is_usable = epoll >= 0 and is_known and may_be_lent(connection)
        is_soon = took_ms <= SOON_MS
        self._express = (
            EndExpress(self._route(connection), epoll) if is_usable and is_soon else None
        )

    def ask(self, producer_id: int, producer_epoch: int) -> tuple[int, int] | None:
        """Commit in the calling thread, and return the producer's next id and epoch.

        None without a regular response: the commit may have succeeded, and must be sent again.
        """
        express = self._express
        told = None if express is None else express.ask(producer_id, producer_epoch, WAIT_MS_MAX)
        if told is None:
            self._express = None
        return told

    def _route(self, connection: Connection) -> EndRoute:
        request = EndTxnRequest(transactional_id=self._transactional_id, committed=True)
        return EndRoute(
            connection,
            partial(connection.expect, EndTxnRequest, VERSION, _leave),
            b"".join(connection.encoded(request, VERSION)),
            b"".join(encode_response(ApiKey.END_TXN, VERSION, 0, EndTxnResponse())),
        )


def _leave(_answer: Message | None, _error: Exception | None) -> None:
    """Ignore a late or irregular response: the request is sent again."""
