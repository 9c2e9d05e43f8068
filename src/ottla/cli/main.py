"""`ottla start`: a broker in the foreground. Data goes to stdout, talk to stderr."""

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ottla.broker.assembly import Broker, Environment
from ottla.model.api_error import ApiError
from ottla.model.broker_config import BrokerConfig
from ottla.model.properties import PropertiesError
from ottla.model.setting_sources import gather_settings
from ottla.runtime import cold_reads
from ottla.runtime.clock import SystemClock
from ottla.runtime.disk import KernelDisk
from ottla.runtime.randomness import SystemRandomness

LOG_FORMAT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
_log = logging.getLogger("ottla")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return what the shell is told: 0, 1 for a failure, 2 for a wrong call."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="[%(asctime)s] %(levelname)s %(message)s (%(name)s)",
    )
    try:
        config, notes = _configuration(options)
        for note in notes:
            _log.warning(note)
        asyncio.run(_serve(config))
    except (ApiError, PropertiesError, OSError) as error:
        sys.stderr.write(f"ottla: {getattr(error, 'detail', '') or error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ottla", description="An event-streaming platform that speaks the Kafka protocol."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser(
        "start", help="run a broker until it is told to stop (SIGINT or SIGTERM)"
    )
    start.add_argument("--listen", metavar="HOST:PORT", help="where to listen (127.0.0.1:9092)")
    start.add_argument("--data-dir", metavar="DIR", help="where to keep data (ottla-data)")
    start.add_argument("--config", metavar="FILE", help="a server.properties, as Kafka has it")
    start.add_argument(
        "-X",
        dest="settings",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting by Kafka's name; goes before everything else",
    )
    return parser


def _configuration(options: argparse.Namespace) -> tuple[BrokerConfig, list[str]]:
    overrides = list(options.settings)
    if options.listen:
        overrides.append(f"listeners=PLAINTEXT://{options.listen}")
    if options.data_dir:
        overrides.append(f"log.dirs={options.data_dir}")
    text = Path(options.config).read_text(encoding="utf-8-sig") if options.config else ""
    gathered = gather_settings(overrides=overrides, environ=os.environ, properties=text)
    return BrokerConfig.parse(gathered.settings), list(gathered.notes)


async def _serve(config: BrokerConfig) -> None:
    environment = Environment(
        KernelDisk(), SystemClock(), SystemRandomness(), cold_reads, socket.gethostname()
    )
    broker = await Broker.start(config, environment)
    for listener in config.broker_listeners:
        host, port = broker.endpoints.advertised(listener.name)
        _log.info("listening on %s:%d", host, port)
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    await stopping.wait()
    _log.info("stopping")
    await broker.stop()


if __name__ == "__main__":
    sys.exit(main())
