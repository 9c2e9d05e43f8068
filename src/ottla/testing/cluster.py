"""A cluster of real processes on this machine, with a quorum of controllers or a ZooKeeper."""

import asyncio
import fcntl
import os
import shutil
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType
from typing import BinaryIO, Final, Self

from ottla.clients.admin.admin_cluster import ClusterAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.settings import parse_settings
from ottla.model.settings.listeners import DEFAULT_REGISTRY_LISTENER
from ottla.testing.broker_process import BrokerProcess
from ottla.testing.child_process import ClusterError, ProcessGroup, ReservedPort, wait_until
from ottla.testing.local_quorum import LocalQuorum, refuse_quorum
from ottla.testing.zookeeper_server import ZooKeeperServer, why_not

LOCK_NAME: Final = "cluster.lock"
READY_SECONDS_MAX: Final = 60
NO_CONTROLLER: Final = -1
REGISTRY_SETTING: Final = "ottla.schema.registry.listener"
_OF_QUORUM: Final = {
    "broker.heartbeat.interval.ms": "1000",
    "broker.session.timeout.ms": "6000",
    # The last node that stops finds no majority of controllers to let it go.
    "controlled.shutdown.retry.backoff.ms": "1000",
}
_CLIENT: Final = {"request.timeout.ms": "5000", "socket.connection.setup.timeout.ms": "5000"}


class Cluster:
    """Brokers 1 to n that serve during the `with` block, or from `start` to `stop`.

    Each broker is an `ottla start` process. Three of them are also the quorum of controllers; fewer
    than three brokers have one controller. With `zookeeper` or `zookeeper_connect` the metadata is
    in ZooKeeper instead, and each server of it is a Java process. Any process may be killed, paused
    and started again. Their data is in `data_dir`, or in a temporary directory.
    Settings have Kafka's names and hold for every broker. With `base_port` brokers listen there and
    on the following ports, else on free ones. With `registries` each broker has a schema registry.
    All processes end with the calling process, even if it is killed. A ClusterError names the
    missing or invalid part.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of a test
        self,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        base_port: int = 0,
        zookeeper: bool = False,
        zookeeper_servers: int = 1,
        racks: Sequence[str] = (),
        zookeeper_connect: str | None = None,
        registries: bool = False,
    ) -> None:
        has_zookeeper = zookeeper or zookeeper_connect is not None
        _check_servers(brokers, zookeeper_servers, has_zookeeper=has_zookeeper)
        if has_zookeeper and zookeeper_connect is None and why_not():
            raise ClusterError(why_not())
        is_kept = data_dir is not None
        chosen = mkdtemp(prefix="ottla-") if data_dir is None else data_dir
        self.data_dir = Path(chosen).absolute()
        lock = _lock(self.data_dir)
        self._group = ProcessGroup()
        self._settings = {
            **default_settings(brokers, zookeeper=has_zookeeper),
            **(settings or {}),
        }
        self._base_port = base_port
        self._racks = racks
        self._has_registries = registries and REGISTRY_SETTING not in self._settings
        self.zookeeper_servers: dict[int, ZooKeeperServer] = {}
        self.brokers: dict[int, BrokerProcess] = {}
        self.quorum: LocalQuorum | None = None
        """The controllers; None with ZooKeeper."""
        self.zookeeper_connect = ""
        self._reserved_ports: list[ReservedPort] = []
        removed = None if is_kept else self.data_dir
        self._end = self._finalizer(lock, removed)
        try:
            if not has_zookeeper:
                self.quorum = LocalQuorum(self.data_dir, brokers, base_port, self._reserved_ports)
            else:
                refuse_quorum(self.data_dir)
                self._use_zookeeper(zookeeper_connect, zookeeper_servers, is_durable=is_kept)
            for _ in range(brokers):
                self._new_broker()
        except BaseException:
            self._end()
            raise

    @property
    def has_quorum(self) -> bool:
        """Whether its metadata is in a quorum of controllers, and not in ZooKeeper."""
        return self.quorum is not None

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap address: all brokers, whether they run or not."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def registry_urls(self) -> tuple[str, ...]:
        """The URLs of the schema registries, one for each broker; all serve the same schemas."""
        return tuple(broker.registry_url for broker in self.brokers.values())

    def start(self) -> None:
        """Start every stopped process, and return when the cluster is ready.

        ClusterError gives the reason of a failure; nothing runs then.
        """
        try:
            self._start()
        except BaseException:
            self.kill()
            raise

    def _start(self) -> None:
        servers = [row for row in self.zookeeper_servers.values() if not row.is_running]
        for server in servers:
            server.launch()
        for server in servers:
            server.wait_until_up()
        brokers = [row for row in self.brokers.values() if not row.is_running]
        for broker in brokers:
            broker.launch()
        for broker in brokers:
            broker.wait_until_up()
        self.wait_until_ready()

    def stop(self) -> None:
        """Stop the brokers in order, the controller last, then ZooKeeper; data stays.

        Paused processes are killed. ClusterError if a broker did not stop cleanly; all have ended
        then, too. The cluster can be started again.
        """
        failures = []
        for broker in self._in_order_of_stopping():
            try:
                broker.stop()
            except ClusterError as error:
                failures.append(error)
        self.kill()
        if failures:
            raise failures[0]

    def kill(self) -> None:
        """Kill every process, brokers before ZooKeeper; data stays."""
        for broker in self.brokers.values():
            broker.kill()
        for server in self.zookeeper_servers.values():
            server.kill()

    def controller_id(self) -> int:
        """Return the id of the controller, as the brokers see it; -1 if there is none."""
        for _, controller_id in self._views().values():
            if controller_id != NO_CONTROLLER:
                return controller_id
        return NO_CONTROLLER

    def wait_until_ready(self) -> None:
        """Return when every running broker knows all of them, and one controller among them."""

        def is_ready() -> bool:
            views = self._views()
            controllers = {controller_id for _, controller_id in views.values()}
            is_decided = len(controllers) == 1 and controllers <= views.keys()
            return is_decided and all(brokers >= views.keys() for brokers, _ in views.values())

        wait_until(is_ready, READY_SECONDS_MAX, lambda: f"not ready: brokers see {self._views()}")

    def add_broker(self) -> BrokerProcess:
        """Start one more broker, with the next number, and return when the others know it."""
        broker = self._new_broker()
        broker.start()
        self.wait_until_ready()
        return broker

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.stop()
        finally:
            self._end()

    def _finalizer(self, lock: BinaryIO, removed: Path | None) -> "weakref.finalize[..., Self]":
        """Return the function that ends the processes and releases their ports and directory."""
        return weakref.finalize(
            self,
            _end,
            self._group,
            self.zookeeper_servers,
            self.brokers,
            self._reserved_ports,
            lock,
            removed,
            os.getpid(),
        )

    def _use_zookeeper(self, address: str | None, servers: int, *, is_durable: bool) -> None:
        """Keep the metadata in the ZooKeeper at an address, or in servers of this cluster."""
        if address is None:
            self._add_zookeeper_servers(servers, is_durable)
        self.zookeeper_connect = address or ",".join(
            server.hosts for server in self.zookeeper_servers.values()
        )

    def _add_zookeeper_servers(self, count: int, is_durable: bool) -> None:
        for number in range(1, count + 1):
            self.zookeeper_servers[number] = ZooKeeperServer(
                number, self.data_dir, self._group, is_durable=is_durable
            )
        for server in self.zookeeper_servers.values():
            server.join(self.zookeeper_servers)

    def _new_broker(self) -> BrokerProcess:
        number = max(self.brokers, default=0) + 1
        broker = BrokerProcess(
            number,
            self.data_dir,
            self._group,
            self._settings,
            port=self._base_port + number - 1 if self._base_port else 0,
            rack=self._racks[(number - 1) % len(self._racks)] if self._racks else "",
            registry=self._registry_port(number) if self._has_registries else None,
            quorum=self.quorum,
        )
        broker.zookeeper_connect = self.zookeeper_connect
        self.brokers[number] = broker
        return broker

    def _registry_port(self, number: int) -> ReservedPort:
        """Return the port of a broker's registry: a usual one with usual ports, if it is free."""
        if self._base_port:
            with suppress(ClusterError):
                return ReservedPort(DEFAULT_REGISTRY_LISTENER.port + number - 1)
        return ReservedPort()

    def _in_order_of_stopping(self) -> list[BrokerProcess]:
        running = [row for row in self.brokers.values() if row.is_running and not row.is_paused]
        controller_id = self.controller_id() if len(running) > 1 else NO_CONTROLLER
        return sorted(running, key=lambda broker: broker.id == controller_id)

    def _views(self) -> dict[int, tuple[frozenset[int], int]]:
        """Return each running broker's view: the registered brokers, and the controller."""
        asked = [row for row in self.brokers.values() if row.is_running and not row.is_paused]

        async def ask_all() -> list[tuple[frozenset[int], int]]:
            return await asyncio.gather(*(_ask(row.bootstrap_servers) for row in asked))

        with ThreadPoolExecutor(1) as thread:  # this thread may run an event loop
            answers = thread.submit(asyncio.run, ask_all()).result()
        return {broker.id: answer for broker, answer in zip(asked, answers, strict=True)}


def _check_servers(brokers: int, zookeeper_servers: int, *, has_zookeeper: bool) -> None:
    if brokers < 1 or zookeeper_servers < 1:
        raise ClusterError("a cluster has one broker and one ZooKeeper server, or more")
    if zookeeper_servers > 1 and not has_zookeeper:
        raise ClusterError("zookeeper_servers belongs to a cluster with zookeeper=True")


def default_settings(brokers: int, *, zookeeper: bool = False) -> dict[str, str]:
    """Return the differences from other brokers: replication factors, no delays, no second port."""
    copies = str(min(3, brokers))
    in_sync = "2" if brokers >= 3 else "1"
    of_mode = {"zookeeper.session.timeout.ms": "6000"} if zookeeper else _OF_QUORUM
    return {
        "default.replication.factor": copies,
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "min.insync.replicas": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        **of_mode,
        "ottla.admin.listener": "",
    }


async def _ask(address: str) -> tuple[frozenset[int], int]:
    try:
        async with ClusterView(parse_settings(_CLIENT, address)) as view:
            found = await ClusterAdmin(view).describe()
            return frozenset(row.broker_id for row in found.brokers), found.controller_id
    except OSError:
        return frozenset(), NO_CONTROLLER


def _lock(folder: Path) -> BinaryIO:
    """Create a directory and lock it while the file is open; two clusters would destroy it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = (folder / LOCK_NAME).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ClusterError(f"another cluster runs in {folder}") from None
    return lock


def _end(
    group: ProcessGroup,
    servers: Mapping[int, ZooKeeperServer],
    brokers: Mapping[int, BrokerProcess],
    controller_ports: Sequence[ReservedPort],
    lock: BinaryIO,
    folder: Path | None,
    process_id: int,
) -> None:
    # A forked process has a copy of the cluster, but does not own it.
    if os.getpid() != process_id:
        return
    group.close()
    for broker in brokers.values():
        broker.release()
    for server in servers.values():
        server.release()
    for port in controller_ports:
        port.release()
    lock.close()
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
