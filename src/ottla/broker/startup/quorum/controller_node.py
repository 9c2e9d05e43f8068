"""A node with the role `controller` alone: no partitions, no clients but administrators."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack
from threading import Lock
from typing import Final, Self

from ottla.broker.startup.endpoints import Endpoints
from ottla.broker.startup.environment import Environment
from ottla.broker.startup.observability import Operations
from ottla.broker.startup.quorum.quorum_node import NodeWorld, QuorumNode
from ottla.concurrency.first_of import first_of
from ottla.model.settings.broker_config import BrokerConfig
from ottla.storage.log_dirs.log_dirs import LogDirs

THREADS: Final = 2
"""One for syncs of the metadata log, one for snapshots."""
OPEN_FILES_MAX: Final = 16


class ControllerNode:
    """A running controller. `start` it where the event loop runs, and `stop` it there."""

    def __init__(
        self,
        config: BrokerConfig,
        operations: Operations,
        threads: ThreadPoolExecutor,
        node: QuorumNode,
        log_dirs: LogDirs,
    ) -> None:
        self.config = config
        self.operations = operations
        self.node = node
        self.endpoints = Endpoints()
        for listener in node.advertised:
            self.endpoints.advertise(listener.name, listener.host, listener.port)
        self._threads = threads
        self._log_dirs = log_dirs
        self.folder_locks = ExitStack()
        """Locks to release when everything is closed."""

    @classmethod
    async def start(cls, config: BrokerConfig, environment: Environment) -> Self:
        """Open the replica and the listener; the quorum may not have a leader yet.

        Raises LogDirInUseError, and the errors of `QuorumNode.open`.
        """
        operations = await Operations.open(config, environment.clock, environment.cold_reads)
        async with AsyncExitStack() as opened:
            opened.push_async_callback(operations.close)
            log_dirs = LogDirs(
                environment.disk,
                (config.metadata_folder,),
                open_files_max=OPEN_FILES_MAX,
                guard=Lock(),
            )
            locks = opened.enter_context(log_dirs.lock())
            threads = ThreadPoolExecutor(THREADS, thread_name_prefix="ottla")
            opened.callback(threads.shutdown)
            node = await QuorumNode.open(
                NodeWorld(config, environment, threads, operations.meters, operations.cold_reads)
            )
            controller = cls(config, operations, threads, node, log_dirs)
            controller.folder_locks = locks.pop_all()
            operations.announce_controller_ready(log_dirs, node.server)
            opened.pop_all()
        return controller

    async def serve_until(self, stopping: asyncio.Event) -> None:
        """Wait until the controller is to stop, or raise the reason if it cannot go on."""
        await self.operations.watch_over(first_of(stopping.wait(), self.node.wait_for_failure()))

    async def stop(self) -> None:
        """Resign if this controller is active, and close the metadata log."""
        self.operations.announce_stop()
        await self.node.close()
        self._threads.shutdown()
        self.folder_locks.close()
        await self.operations.close()
