"""Requests to other replicas: a few connections to each node, opened when they are needed.

The peer answers the requests of one connection in their order. So requests of different pace have
connections of their own: a vote never waits behind a fetch that waits for records, and a fetch
never waits behind a change of the voters, which may wait for that very fetch.
"""

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, Protocol

from ottla.environment.network import Network, StreamSocket
from ottla.model.address import Address
from ottla.model.api_error import ApiError
from ottla.model.error_code import ErrorCode
from ottla.raft.actions import Node
from ottla.rpc.buffer_pool import BufferPool
from ottla.rpc.connection import Connection
from ottla.wire.apis import api_of, key_of
from ottla.wire.messages.add_raft_voter import AddRaftVoterRequest
from ottla.wire.messages.fetch import FetchRequest
from ottla.wire.messages.fetch_snapshot import FetchSnapshotRequest
from ottla.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from ottla.wire.messages.update_raft_voter import UpdateRaftVoterRequest
from ottla.wire.messages.vote import VoteRequest
from ottla.wire.schema import Message

LINKS_MAX: Final = 200
"""Connections; above that, idle ones are closed. A quorum has three to nine voters."""
PRE_VOTE_SINCE: Final = 2
"""The version of Vote that has PreVotes."""
_log = logging.getLogger(__name__)


class Lane(Enum):
    """The connections to one node."""

    ELECTION = auto()
    FETCH = auto()
    VOTERS = auto()


LANES: Final[dict[type[Message], Lane]] = {
    FetchRequest: Lane.FETCH,
    FetchSnapshotRequest: Lane.FETCH,
    AddRaftVoterRequest: Lane.VOTERS,
    RemoveRaftVoterRequest: Lane.VOTERS,
    UpdateRaftVoterRequest: Lane.VOTERS,
}
"""All other requests belong to elections."""


class RequestEnds(Protocol):
    """Told of the end of each request, on the event loop."""

    def on_response(self, correlation_id: int, response: Message) -> None:
        """Take the response."""
        ...

    def on_failure(self, correlation_id: int) -> None:
        """Take note that there is no response."""
        ...

    def on_unsupported(self, correlation_id: int) -> None:
        """Take note that the node does not know this version of the request."""
        ...

    def on_unreachable(self, node: Node) -> None:
        """Take note that nothing listens at the address; `on_failure` follows."""
        ...


@dataclass(slots=True)
class _Link:
    turn: asyncio.Lock
    connection: Connection | None = None
    in_flight: int = 0
    is_foreign: bool = False
    """Whether the node has said that it belongs to another cluster."""


class ReplicaPeers:
    """Sends the requests of one replica. Belongs to one event loop."""

    def __init__(
        self, network: Network, client_id: str, ends: RequestEnds, request_timeout_ms: int
    ) -> None:
        self._network = network
        self._client_id = client_id
        self._ends = ends
        self._timeout_ms = request_timeout_ms
        self._links: dict[tuple[str, int, Lane], _Link] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pool = BufferPool()

    def send(self, correlation_id: int, node: Node, request: Message) -> None:
        """Send a request, and report its end."""
        task = asyncio.get_running_loop().create_task(self._send(correlation_id, node, request))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, correlation_id: int, node: Node, request: Message) -> None:
        link = self._link(node, LANES.get(type(request), Lane.ELECTION))
        link.in_flight += 1
        try:
            response = await self._ask(link, node, request)
        except ApiError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                self._ends.on_unsupported(correlation_id)
            else:
                self._ends.on_failure(correlation_id)
        except (OSError, TimeoutError):
            self._ends.on_failure(correlation_id)
        else:
            code = getattr(response, "error_code", ErrorCode.NONE)
            if code == ErrorCode.UNSUPPORTED_VERSION:
                self._ends.on_unsupported(correlation_id)
            else:
                _report_other_cluster(link, node, code)
                self._ends.on_response(correlation_id, response)
        finally:
            link.in_flight -= 1

    async def _ask(self, link: _Link, node: Node, request: Message) -> Message:
        async with link.turn:
            connection = link.connection
            if connection is None or not connection.is_open:
                connection = link.connection = await self._connect(node)
        if isinstance(request, VoteRequest) and _is_pre_vote(request):
            version = connection.version_for(VoteRequest)
            if version < PRE_VOTE_SINCE:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{node} knows no PreVote")
        response = api_of(key_of(type(request))).response
        return await connection.ask(request, response, timeout_ms=self._timeout_ms)

    async def _connect(self, node: Node) -> Connection:
        async def connect(host: str, port: int) -> StreamSocket:
            try:
                return await self._network.connect(host, port)
            except ConnectionRefusedError:
                self._ends.on_unreachable(node)
                raise

        return await Connection.open(
            Address(node.host, node.port),
            connect,
            client_id=self._client_id,
            timeout_ms=self._timeout_ms,
            pool=self._pool,
        )

    def _link(self, node: Node, lane: Lane) -> _Link:
        place = node.host, node.port, lane
        link = self._links.get(place)
        if link is None:
            self._close_idle()
            link = self._links[place] = _Link(asyncio.Lock())
        return link

    def _close_idle(self) -> None:
        if len(self._links) < LINKS_MAX:
            return
        for place, link in list(self._links.items()):
            if not link.in_flight:
                del self._links[place]
                if link.connection is not None:
                    link.connection.close()

    def close(self) -> None:
        """Close all connections; the ends of running requests are not reported any more."""
        for task in self._tasks:
            task.cancel()
        for link in self._links.values():
            if link.connection is not None:
                link.connection.close()
        self._links.clear()


def _report_other_cluster(link: _Link, node: Node, code: int) -> None:
    """Log once that a node belongs to another cluster; its request is sent again all the time."""
    if code != ErrorCode.INCONSISTENT_CLUSTER_ID:
        link.is_foreign = False
    elif not link.is_foreign:
        link.is_foreign = True
        _log.warning(
            "the controller at %s:%d belongs to another cluster: compare cluster.id in the"
            " meta.properties of both nodes",
            node.host,
            node.port,
        )


def _is_pre_vote(request: VoteRequest) -> bool:
    return any(one.pre_vote for topic in request.topics for one in topic.partitions)
