"""The short way for a transaction's commit: whoever waits for it asks the coordinator itself.

Once a coordinator has answered in the usual way, and soon, the next commits go from the caller's
thread to the socket and back. What is not answered in the usual way is asked again in the client's
own thread: a coordinator that has committed says so once more.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from ottla.clients.connection import Connection, Pending
from ottla.clients.producer.sending.direct_send import WAIT_MS_MAX, EndExpress, may_be_lent
from ottla.clients.producer.transactions.commit_ways import CommitWays
from ottla.runtime.event_loop import epoll_of
from ottla.wire.api_key import ApiKey
from ottla.wire.codec import encode_response
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.schema import Message

VERSION: Final = 5
"""The only one that `EndExpress` writes: its answer says who the producer is from then on."""
SOON_MS: Final = 15
"""A coordinator that takes longer is waited for in the client's own thread."""


class EndRoute(NamedTuple):
    """What an express needs to know of a coordinator."""

    connection: Connection
    expect: Callable[[], tuple[int, Pending]]
    """Gives a request its number on the connection, and what awaits the answer there."""
    request: bytes
    """What is sent, apart from the numbers in it."""
    answer: bytes
    """What is answered if all is well, apart from the numbers in it."""


class EndDesk:
    """Commits in the caller's thread, where the coordinator is known to be near."""

    def __init__(self, transactional_id: str) -> None:
        self._transactional_id = transactional_id
        self.ways = CommitWays()
        self._express: Any = None

    @property
    def is_open(self) -> bool:
        """Whether `ask` may be of use."""
        return self._express is not None and self.ways.is_short

    def offer(self, connection: Connection, took_ms: int) -> None:
        """Let the next commits go where an end has gone that took so long: in the loop's thread."""
        epoll = epoll_of(asyncio.get_running_loop())
        is_known = connection.version_for(EndTxnRequest, VERSION) == VERSION
        is_usable = epoll >= 0 and is_known and may_be_lent(connection)
        is_soon = took_ms <= SOON_MS
        self._express = (
            EndExpress(self._route(connection), epoll) if is_usable and is_soon else None
        )

    def ask(self, producer_id: int, producer_epoch: int) -> tuple[int, int] | None:
        """Commit in the calling thread; return the id and the epoch of who goes on from here.

        None if they are not known: it may be committed, and is to be asked again.
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
    """Do nothing with an answer that was late or not the usual one: it is asked for again."""
