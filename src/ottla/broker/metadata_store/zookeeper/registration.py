"""A broker's first steps in ZooKeeper: the paths, the cluster id, its own node.

All of them can be repeated after a lost response, and by several brokers at once.
"""

import asyncio
import logging
import posixpath
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from ottla.broker.metadata_store.zookeeper.znode_reads import get_or_none
from ottla.broker.metadata_store.zookeeper.znodes import (
    BROKER_IDS,
    CLUSTER_ID,
    PERSISTENT_PATHS,
    LiveBroker,
    UnreadableZnodeError,
    broker_data,
    cluster_id_data,
    read_cluster_id,
)
from ottla.concurrency.first_of import pause_seconds
from ottla.environment.zookeeper import Create, NodeExistsError, ZooKeeperError, ZooKeeperSession
from ottla.model.identifiers import BrokerId
from ottla.runtime.problem_log import ProblemLog

RETRY_SECONDS: Final = 0.2
UNREADABLE_RETRY_SECONDS: Final = 5.0
Connect = Callable[[], Awaitable[ZooKeeperSession]]
"""Begins a session; ZooKeeperError if no server responds."""

_log = logging.getLogger(__name__)


async def pause_after(error: UnreadableZnodeError | ZooKeeperError) -> None:
    """Log a failure, and wait before the next attempt."""
    if isinstance(error, ZooKeeperError):
        _log.info("ZooKeeper: %r", error)
        await pause_seconds(RETRY_SECONDS)
    else:
        _log.error("the metadata in ZooKeeper cannot be read", exc_info=error)
        await pause_seconds(UNREADABLE_RETRY_SECONDS)


async def begin_session(connect: Connect, proposal: str) -> tuple[ZooKeeperSession, str]:
    """Return a session, and its cluster's id; waits until ZooKeeper responds."""
    problem = ProblemLog(_log, logging.WARNING)
    while True:
        session = None
        try:
            session = await connect()
            await make_paths(session)
            cluster_id = await agree_on_cluster_id(session, proposal)
        except ZooKeeperError as error:
            problem.report(f"no session with ZooKeeper yet: {error!r}")
        else:
            problem.is_over("there is a session with ZooKeeper")
            return session, cluster_id
        if session is not None:
            with suppress(ZooKeeperError):
                await session.close()
        await pause_seconds(RETRY_SECONDS)


async def make_paths(session: ZooKeeperSession) -> None:
    """Create the persistent nodes."""
    for path in PERSISTENT_PATHS:
        await _make_path(session, path)


async def agree_on_cluster_id(session: ZooKeeperSession, proposal: str) -> str:
    """Return the cluster id; the first proposal counts."""
    with suppress(NodeExistsError):
        if await session.exists(CLUSTER_ID) is None:
            await session.commit([Create(CLUSTER_ID, cluster_id_data(proposal))])
    return read_cluster_id((await session.get(CLUSTER_ID)).data)


async def register(session: ZooKeeperSession, live: LiveBroker, now_ms: int) -> int:
    """Register a broker for the duration of the session, and return its epoch.

    While another session has the same broker, wait: mostly it is from the broker's previous
    incarnation, and expires.
    """
    broker_id = live.broker.broker_id
    path = f"{BROKER_IDS}/{broker_id}"
    has_told = False
    while True:
        is_changed = asyncio.Event()
        node = await get_or_none(session, path, is_changed.set)
        if node is None:
            with suppress(NodeExistsError):
                data = broker_data(live, now_ms)
                await session.commit([Create(path, data, is_ephemeral=True)])
        elif node.stat.owner_session == session.session_id:
            return node.stat.created_zxid
        else:
            if not has_told:
                _log.warning("broker %d is registered already: waiting until that ends", broker_id)
                has_told = True
            await is_changed.wait()


async def is_registered(session: ZooKeeperSession, broker_id: BrokerId) -> bool:
    """Return whether a broker is registered, and by our own session."""
    stat = await session.exists(f"{BROKER_IDS}/{broker_id}")
    return stat is not None and stat.owner_session == session.session_id


async def _make_path(session: ZooKeeperSession, path: str) -> None:
    if await session.exists(path) is not None:
        return
    parent = posixpath.dirname(path)
    if parent != "/":
        await _make_path(session, parent)
    with suppress(NodeExistsError):
        await session.commit([Create(path)])
