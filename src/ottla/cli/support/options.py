"""Options of several commands, declared once."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Final, TypeVar

import typer

from ottla.cli.support.exit_codes import TERMINATED, CommandError, WrongCallError, one_sentence
from ottla.cli.support.output import OutputFormat
from ottla.clients.admin.admin_partitions import PartitionDescription
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.clients.config.setting_table import InvalidClientSettingError
from ottla.clients.config.settings import ClientSettings, parse_settings
from ottla.wire.writing import UnwritableError

DEFAULT_BROKERS: Final = "127.0.0.1:9092"
DEFAULT_REGISTRY: Final = "http://127.0.0.1:8081"
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
RegistryUrl = Annotated[
    str,
    typer.Option(
        "--registry",
        envvar=["OTTLA_SCHEMA_REGISTRY_URL", "SCHEMA_REGISTRY_URL"],
        metavar="URL",
        help="The schema registry; a user goes before the host, as in http://USER:PASSWORD@HOST.",
    ),
]
KeySchema = Annotated[
    str | None,
    typer.Option("--key-schema", metavar="SCHEMA", help="The schema of JSON keys, as of values."),
]
ValueSchema = Annotated[
    str | None,
    typer.Option(
        "--value-schema",
        metavar="SCHEMA",
        help="The schema of JSON values: a file, SUBJECT, SUBJECT@VERSION, or an id.",
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


def parse_partitions(word: str) -> tuple[str, tuple[int, ...] | None]:
    """Return the topic and its partitions, which are None if all are meant."""
    topic, colon, numbers = word.partition(":")
    words = numbers.split(",")
    if not topic or (colon and not all(one.isascii() and one.isdigit() for one in words)):
        raise WrongCallError(f"{word!r} names no partitions: expected TOPIC or TOPIC:0,1")
    return topic, tuple(map(int, words)) if colon else None


def parse_brokers(text: str, option: str) -> list[int]:
    """Read the numbers of brokers, `1,2,3`, each named once."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise WrongCallError(f"{option} takes the numbers of brokers, as in 1,2,3, not {text!r}")
    return list(dict.fromkeys(map(int, words)))


async def named_partitions(admin: AsyncAdmin, words: Sequence[str]) -> list[PartitionDescription]:
    """Describe the named partitions; an unknown one ends the command."""
    parsed = [parse_partitions(word) for word in words]
    described = await admin.partitions.describe({topic for topic, _ in parsed})
    found = {}
    for topic, numbers in parsed:
        of_topic = {row.name.partition: row for row in described if row.name.topic == topic}
        for number in of_topic if numbers is None else numbers:
            if number not in of_topic:
                raise CommandError(
                    f"topic {topic!r} has {len(of_topic)} partitions, numbered from 0: "
                    f"there is no {number}"
                )
            found[of_topic[number].name] = of_topic[number]
    return [found[name] for name in sorted(found)]


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
