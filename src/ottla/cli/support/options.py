"""Options of several commands, declared once."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, TypeVar

import typer

from ottla.cli.support.exit_codes import TERMINATED, WrongCallError, one_sentence
from ottla.cli.support.output import OutputFormat
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.config.settings import ClientSettings, parse_settings
from ottla.wire.writing import UnwritableError

DEFAULT_BROKERS: Final = "127.0.0.1:9092"
T = TypeVar("T")

Brokers = Annotated[
    str,
    typer.Option(
        "--brokers",
        "-b",
        "--bootstrap-server",
        envvar="OTTLA_BROKERS",
        metavar="HOST:PORT,…",
        help="Where the cluster is: one broker suffices.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A client setting by Kafka's name. Repeatable."),
]
Format = Annotated[OutputFormat, typer.Option("--format", help="How to show the result.")]
Internal = Annotated[
    bool, typer.Option("--internal", "-i", help="Show internal topics, such as offsets, too.")
]


def key_values(words: Sequence[str] | None, option: str) -> dict[str, str]:
    """Split `key=value` words; a word without a `=` is a wrong call."""
    values = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise WrongCallError(f"{option} takes KEY=VALUE, not {word!r}")
        values[key] = value
    return values


def client_settings(brokers: str, settings: Sequence[str] | None) -> ClientSettings:
    """Read the cluster's address and the client's settings; an invalid setting is a wrong call."""
    try:
        return parse_settings(key_values(settings, "-X"), brokers)
    except InvalidClientSettingError as error:
        raise WrongCallError(str(error)) from None


async def internal_topics(admin: AsyncAdmin) -> frozenset[str]:
    """Return the internal topics, which hold the state of brokers."""
    return frozenset(topic.name for topic in await admin.topics.list() if topic.is_internal)


def with_cluster(
    brokers: str,
    settings: Sequence[str] | None,
    work: Callable[[ClusterView], Awaitable[T]],
    *expected: type[Exception],
) -> T:
    """Run a function with a view of the cluster; a failure ends the command."""
    view_settings = client_settings(brokers, settings)

    async def run() -> T:
        task = asyncio.current_task()
        assert task is not None
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        async with ClusterView(view_settings) as view:
            return await work(view)

    with one_sentence(UnwritableError, *expected):
        try:
            return asyncio.run(run())
        except asyncio.CancelledError:
            raise SystemExit(TERMINATED) from None
