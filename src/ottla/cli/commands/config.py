"""`ottla config`: shows and changes settings of topics, brokers and groups."""

import sys
from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

import typer

from ottla.cli.support.exit_codes import CommandError, WrongCallError
from ottla.cli.support.options import (
    DEFAULT_BROKERS,
    Brokers,
    Format,
    Settings,
    key_values,
    with_cluster,
)
from ottla.cli.support.output import OutputFormat, show
from ottla.clients.admin.admin_configs import (
    Append,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
    Subtract,
)
from ottla.clients.admin.async_admin import AsyncAdmin
from ottla.clients.cluster.cluster_client import ClusterView
from ottla.model.settings.broker_config import is_unknown
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.kafka_settings import KAFKA_SETTING_NAMES
from ottla.model.settings.settings import nearest_to

COLUMNS = ("NAME", "VALUE", "SOURCE", "READ-ONLY")
_SOURCE_BY_KIND: Final = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
    ResourceType.BROKER_LOGGER: ConfigSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    ResourceType.CLIENT_METRICS: ConfigSource.CLIENT_METRICS_CONFIG,
    ResourceType.GROUP: ConfigSource.GROUP_CONFIG,
}
"""The source of a setting that is stored for the resource itself."""


class Entity(StrEnum):
    """The kinds of entities with settings."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"
    CLIENT_METRICS = "client-metrics"
    BROKER_LOGGER = "broker-logger"


Kind = Annotated[Entity, typer.Argument(metavar="KIND", help="topic, broker, group, …")]
Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The name; of a broker its id, or '' for all brokers.")
]
Changes = Annotated[list[str], typer.Argument(metavar="KEY=VALUE…", help="Settings.")]
Keys = Annotated[list[str], typer.Argument(metavar="KEY…", help="Names of settings.")]
configs = typer.Typer(no_args_is_help=True)


def register(app: typer.Typer, name: str, summary: str) -> None:
    """Add the noun and its verbs to the application."""
    app.add_typer(configs, name=name, help=summary)


@configs.command("describe")
@configs.command("get", hidden=True)
def describe(
    kind: Kind,
    name: Name,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Show settings with their default value, too.")
    ] = False,
    documentation: Annotated[
        bool, typer.Option("--docs", help="Show the documentation of each setting, too.")
    ] = False,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
    form: Format = OutputFormat.TABLE,
) -> None:
    """Show the settings of an entity, by default only the changed ones."""
    resource = _resource(kind, name)
    found = with_cluster(
        brokers,
        settings,
        lambda view: AsyncAdmin.over(view).configs.describe(
            resource, with_documentation=documentation
        ),
    )
    rows = [
        {
            "NAME": entry.name,
            "VALUE": "(hidden)" if entry.is_sensitive else entry.value,
            "SOURCE": entry.source.name,
            "READ-ONLY": entry.is_read_only,
            "DOCUMENTATION": entry.documentation,
        }
        for entry in found[resource].values()
        if everything or not entry.is_default
    ]
    show(rows, (*COLUMNS, "DOCUMENTATION") if documentation else COLUMNS, form)


@configs.command("set")
def set_values(
    kind: Kind,
    name: Name,
    changes: Changes,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Change settings; the others stay as they are."""
    _alter(kind, name, dict(key_values(changes, "set")), brokers, settings)


@configs.command("delete")
@configs.command("unset", hidden=True)
def delete(
    kind: Kind,
    name: Name,
    keys: Keys,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Reset settings to their defaults; a setting that is not set is an error."""
    resource = _resource(kind, name)

    async def work(view: ClusterView) -> None:
        admin = AsyncAdmin.over(view)
        await check_are_set(admin, resource, keys)
        await admin.configs.alter({resource: dict.fromkeys(keys)})

    with_cluster(brokers, settings, work)


@configs.command("append")
def append(
    kind: Kind,
    name: Name,
    changes: Changes,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Add items to settings that are lists."""
    values = key_values(changes, "append")
    _alter(kind, name, {key: Append(value) for key, value in values.items()}, brokers, settings)


@configs.command("subtract")
def subtract(
    kind: Kind,
    name: Name,
    changes: Changes,
    brokers: Brokers = DEFAULT_BROKERS,
    settings: Settings = None,
) -> None:
    """Remove items from settings that are lists."""
    values = key_values(changes, "subtract")
    _alter(kind, name, {key: Subtract(value) for key, value in values.items()}, brokers, settings)


def _alter(
    kind: Entity,
    name: str,
    changes: Mapping[str, ConfigChange],
    brokers: str,
    settings: list[str] | None,
) -> None:
    resource = _resource(kind, name)
    with_cluster(
        brokers, settings, lambda view: AsyncAdmin.over(view).configs.alter({resource: changes})
    )
    if kind is Entity.BROKER:
        _warn_of_unknown(changes)


def _warn_of_unknown(names: Collection[str]) -> None:
    """Warn of stored settings that the broker does not know: the protocol has no warnings."""
    known = [*BROKER_SETTINGS, *KAFKA_SETTING_NAMES]
    for name in filter(is_unknown, names):
        sys.stderr.write(
            f"ottla: no broker setting is called {name!r}, so it has no effect unless a plug-in"
            f" reads it{nearest_to(name, known)}\n"
        )


async def check_are_set(admin: AsyncAdmin, resource: ConfigResource, keys: Sequence[str]) -> None:
    """End the command unless all of these settings are stored for the resource itself."""
    described = await admin.configs.describe(resource, keys=keys, with_synonyms=True)
    for key in keys:
        _check_is_set(resource, key, described[resource].get(key))


def _check_is_set(resource: ConfigResource, key: str, entry: ConfigEntry | None) -> None:
    """End the command unless this setting is stored for the resource itself.

    A broker's own value can hide the value for all brokers, so the synonyms count, too.
    """
    own = _SOURCE_BY_KIND[resource.kind]
    if resource == ConfigResource.every_broker():
        own = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    if entry is None:
        raise CommandError(f"{resource} has no setting {key!r}, so nothing was deleted")
    if entry.source is own or (key, own) in {(one.name, one.source) for one in entry.synonyms}:
        return
    raise CommandError(
        f"{key!r} is not set for {resource}, so nothing was deleted: "
        f"its value comes from {entry.source.name}"
    )


def _resource(kind: Entity, name: str) -> ConfigResource:
    resource = ConfigResource(ResourceType[kind.name], name)
    if resource.kind is ResourceType.BROKER and name and not name.isdigit():
        raise WrongCallError(f"a broker is named by its number, not {name!r}")
    return resource
