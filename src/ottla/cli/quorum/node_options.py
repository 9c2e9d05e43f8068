"""The options of commands about a node of a quorum, which come with its settings."""

import os
from pathlib import Path
from typing import Annotated

import typer

from ottla.model.settings.broker_config import BrokerConfig
from ottla.model.settings.setting_sources import gather_settings

Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="The server.properties of the node."),
]
NodeSettings = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help="A setting of the node. Repeatable."),
]


def node_config(path: Path | None, settings: list[str] | None) -> BrokerConfig:
    """Return the settings of the node; they come from the same places as for `ottla start`."""
    text = path.read_text(encoding="utf-8-sig") if path else ""
    gathered = gather_settings(overrides=settings or (), environ=os.environ, properties=text)
    return BrokerConfig.parse(gathered.settings)
