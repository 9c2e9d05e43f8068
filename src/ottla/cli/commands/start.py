"""`ottla start`: a broker in the foreground, until SIGINT or SIGTERM."""

import asyncio
import logging
import os
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

import typer

from ottla.broker.metadata_store.meta_properties import ForeignLogDirError
from ottla.broker.metadata_store.migration.zookeeper_office import MigrationRefusedError
from ottla.broker.metadata_store.zookeeper.store import ForeignClusterError
from ottla.broker.quorum.replica_files import DamagedReplicaError
from ottla.broker.startup.assembly import Broker
from ottla.broker.startup.observability import keep_young
from ottla.broker.startup.quorum.controller_node import ControllerNode
from ottla.broker.startup.system_environment import this_machine
from ottla.cli.support.compiled_loops import BROKER_LOOPS, missing_loops, slower_sentence
from ottla.cli.support.exit_codes import WrongCallError, one_sentence
from ottla.metadata.replay import UnreplayableRecordError
from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.properties import PropertiesError
from ottla.model.settings.setting_sources import gather_settings
from ottla.raft.core import LogDivergedError
from ottla.rest.server import open_services
from ottla.runtime import event_loop
from ottla.runtime.logs import LogFormat, configure_logging
from ottla.runtime.process import raise_descriptors_max
from ottla.runtime.small_files import remove, write_atomically

DEFAULT_HOST: Final = "127.0.0.1"
WITHOUT_A_FILE: Final = {"group.initial.rebalance.delay.ms": "0"}
"""Kafka's quickstart sets this in its server.properties, so that a single consumer does not wait
for others. In a cluster, or with a file, the default of 3 seconds holds, as in Kafka."""
_EXPECTED: Final = (
    PropertiesError,
    UnicodeDecodeError,
    ForeignLogDirError,
    ForeignClusterError,
    DamagedReplicaError,
    LogDivergedError,
    UnreplayableRecordError,
    MigrationRefusedError,
)
_log = logging.getLogger("ottla")


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the command to the application."""
    app.command(name, help=f"{summary}\n\n{DETAILS}")(start)


DETAILS: Final = """Everything is kept in one directory; no other service is needed.
SIGINT and SIGTERM stop it: requests in flight are answered and logs are closed.
Settings have Kafka's names. They come from -X, the environment (OTTLA_… or
KAFKA_…) and a server.properties, in this order.

For tests in any language: `ottla start --ephemeral --port 0 --ready-file F` is ready when F is
there; F holds the address, and goes when the broker stops.
"""


def start(
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where to listen. [default: 127.0.0.1:9092]"),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="The port on 127.0.0.1 to listen on; 0 is a free one."),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to keep data. [default: ottla-data]"),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="Keep data in a temporary directory, gone at exit.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A server.properties, as Kafka has it.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("-X", metavar="KEY=VALUE", help="A setting, before all others. Repeatable."),
    ] = None,
    ready_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write HOST:PORT there once clients can connect."),
    ] = None,
    log_format: Annotated[
        LogFormat, typer.Option(help="How log lines look, on stderr.")
    ] = LogFormat.TEXT,
) -> None:
    """Run a broker."""
    _check_call(listen, port, ephemeral=ephemeral, data_dir=data_dir)
    overrides = list(settings or [])
    if port is not None:
        listen = f"{DEFAULT_HOST}:{port}"
    with one_sentence(*_EXPECTED), ExitStack() as stack:
        if ephemeral:
            data_dir = Path(stack.enter_context(TemporaryDirectory(prefix="ottla-")))
        if data_dir:
            overrides.append(f"log.dirs={data_dir}")
        parsed, notes = _configuration(overrides, config, listen)
        stack.callback(configure_logging(log_format, broker_id=parsed.node_id).close)
        for note in notes:
            _log.warning(note)
        keep_young()
        event_loop.run(_serve(parsed, ready_file))


def _check_call(
    listen: str | None, port: int | None, *, ephemeral: bool, data_dir: Path | None
) -> None:
    if not __debug__:
        # Assertions stop a broker with a bug before it damages data.
        raise WrongCallError("the broker needs its assertions: run Python without -O")
    if listen and port is not None:
        raise WrongCallError("--listen and --port both set the address: give only one")
    if ephemeral and data_dir:
        raise WrongCallError("--ephemeral has a directory of its own: leave out --data-dir")


def _configuration(
    overrides: list[str], path: Path | None, address: str | None
) -> tuple[BrokerConfig, tuple[str, ...]]:
    """Read all settings; an address from --listen or --port is a PLAINTEXT listener.

    It never replaces `listeners`, wherever they are set: they may ask for TLS or authentication,
    and the broker would be open without it. A broker without a file and without ZooKeeper has the
    settings that Kafka's quickstart has in its file.
    """
    text = path.read_text(encoding="utf-8-sig") if path else ""
    gathered = gather_settings(overrides=overrides, environ=os.environ, properties=text)
    if address is not None:
        if "listeners" in gathered.settings:
            raise WrongCallError(
                f"listeners={gathered.settings['listeners']} and --listen or --port "
                "both set the address: give only one"
            )
        gathered.settings["listeners"] = f"PLAINTEXT://{address}"
    if path is None and not gathered.settings.get("zookeeper.connect"):
        for name, text in WITHOUT_A_FILE.items():
            gathered.settings.setdefault(name, text)
    return BrokerConfig.parse(gathered.settings), gathered.notes


def _warn_if_slow() -> None:
    missing = missing_loops(BROKER_LOOPS)
    if missing:
        sentence = slower_sentence(missing, len(BROKER_LOOPS))
        _log.warning("%s: run `ottla doctor` for advice", sentence)


async def _serve(config: BrokerConfig, ready_file: Path | None) -> None:
    _warn_if_slow()
    raise_descriptors_max()
    stopping = asyncio.Event()
    node = await _started(config, stopping)
    if node is None:
        _log.info("stopped before it was ready")
        return
    listeners = config.broker_listeners or config.controller_listeners
    addresses = [node.endpoints.advertised(row.name) for row in listeners]
    for host, port in addresses:
        _log.info("listening on %s:%d", host, port)
    try:
        if ready_file:
            write_atomically(ready_file, "{}:{}\n".format(*addresses[0]))
        await node.serve_until(stopping)
        _log.info("stopping")
    finally:
        if ready_file:
            remove(ready_file)
        await node.stop()


async def _start(config: BrokerConfig) -> Broker | ControllerNode:
    environment = this_machine(socket.gethostname())
    if config.is_broker:
        return await Broker.start(config, environment, open_services)
    return await ControllerNode.start(config, environment)


async def _started(config: BrokerConfig, stopping: asyncio.Event) -> Broker | ControllerNode | None:
    """Return a running node; None if a signal arrived during its start, after cleanup.

    After the start, signals set `stopping`.
    """
    loop = asyncio.get_running_loop()
    starting = loop.create_task(_start(config))

    def stop() -> None:
        if not stopping.is_set():
            stopping.set()
            starting.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        return await starting
    except asyncio.CancelledError:
        if stopping.is_set():
            return None
        raise
