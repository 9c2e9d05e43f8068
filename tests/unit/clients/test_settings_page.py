"""docs/client-settings.md matches the tables: every setting, default and limit."""

from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.clients.config.setting_table import ClientSetting
from ottla.clients.config.settings import CLIENT_SETTINGS, ClientSettings
from ottla.clients.consumer.state.settings import CONSUMER_SETTINGS, ConsumerSettings
from ottla.clients.producer.state.settings import PRODUCER_SETTINGS, ProducerSettings
from ottla.clients.schemas.schema_settings import (
    CONSUMER_SCHEMA_SETTINGS,
    FIELD_BY_NAME,
    SCHEMA_SETTINGS,
    RegistrySettings,
    SchemaSettings,
)
from ottla.clients.schemas.subject_names import topic_name
from ottla.wire.records.compression.codecs import Compression

PAGE = Path(__file__).parents[3] / "docs" / "client-settings.md"
REGISTRY_DEFAULTS = SimpleNamespace(
    key=None,
    value=None,
    **{name: getattr(RegistrySettings(()), field) for name, field in FIELD_BY_NAME.items()},
)
SECTIONS = {
    "All clients": (CLIENT_SETTINGS, ClientSettings(())),
    "Producers": (PRODUCER_SETTINGS, ProducerSettings()),
    "Consumers": (CONSUMER_SETTINGS, ConsumerSettings()),
    "Schemas of producers and consumers": (CONSUMER_SCHEMA_SETTINGS, REGISTRY_DEFAULTS),
    "Schemas of producers": (SCHEMA_SETTINGS, SchemaSettings()),
}
WITHOUT_FIELD = {
    "security.protocol": "`PLAINTEXT`",
    "group.protocol": "`classic`",
    "compression.gzip.level": "none",
    "compression.lz4.level": "none",
    "compression.zstd.level": "none",
}


def shown(value: Any) -> str:
    if isinstance(value, Compression):
        return f"`{value.config_name}`"
    if value is topic_name:
        return "`TopicNameStrategy`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`{','.join(value)}`" if value else "none"
    return "none" if value in {None, ""} else f"`{value}`"


def row(setting: ClientSetting, defaults: object) -> str:
    if setting.name in WITHOUT_FIELD:
        default = WITHOUT_FIELD[setting.name]
    elif setting.name == "acks":
        default = "`all`"
    else:
        default = shown(getattr(defaults, setting.field_name))
    also = ", ".join(f"`{name}`" for name in setting.aliases)
    documentation = setting.documentation + (f" Also {also}." if also else "")
    return f"| `{setting.name}` | {default} | {setting.kind.allowed} | {documentation} |"


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_page_tells_every_setting_as_it_is_declared(heading: str) -> None:
    text = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    told = [line for line in text.splitlines() if line.startswith("| `")]
    settings, defaults = SECTIONS[heading]
    assert told == [row(setting, defaults) for setting in settings]


@pytest.mark.parametrize(
    "heading", ["All clients", "Producers", "Consumers", "Schemas of producers"]
)
def test_every_field_has_a_setting(heading: str) -> None:
    settings, defaults = SECTIONS[heading]
    names = {field.name for field in fields(defaults)} - {"schemas"}  # type: ignore[arg-type]
    assert names <= {setting.field_name for setting in settings}
