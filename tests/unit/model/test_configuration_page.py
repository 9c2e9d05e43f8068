"""docs/configuration.md matches the declarations: every setting, default and limit."""

from pathlib import Path

import pytest

from ottla.model.settings.broker_config import TOPIC_SYNONYMS, BrokerConfig
from ottla.model.settings.broker_settings import BROKER_SETTINGS
from ottla.model.settings.settings import Setting
from ottla.model.settings.topic_config import TOPIC_SETTINGS, TopicConfig
from tests.unit.model.kafka_broker_settings import KAFKA_SETTINGS

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
UNSET = {"null", "<none>", ""}


def section(heading: str) -> list[str]:
    """Return the rows of the table under a heading."""
    text = PAGE.read_text(encoding="utf-8").split(f"# {heading}\n", 1)[1].split("\n#", 1)[0]
    return [line for line in text.splitlines() if line.startswith("| `")]


def shown_default(text: str) -> str:
    return "none" if text in UNSET else f"`{text}`"


def broker_row(setting: Setting) -> str:
    default = shown_default(BrokerConfig().as_strings().get(setting.name, ""))
    return (
        f"| `{setting.name}` | {default} | {setting.kind.allowed} | {setting.update_mode} |"
        f" {setting.documentation} |"
    )


def topic_row(setting: Setting) -> str:
    default = shown_default(TopicConfig().as_strings()[setting.name])
    synonyms = TOPIC_SYNONYMS.get(setting.name, ())
    brokers = ", ".join(f"`{synonym.name}`" for synonym in synonyms) or "none"
    return (
        f"| `{setting.name}` | {default} | {setting.kind.allowed} | {brokers} |"
        f" {setting.documentation} |"
    )


def settings_by_section() -> dict[str, list[Setting]]:
    sections: dict[str, list[Setting]] = {}
    heading = ""
    for setting in BROKER_SETTINGS.values():
        heading = setting.section or heading
        sections.setdefault(heading, []).append(setting)
    return sections


@pytest.mark.parametrize("heading", settings_by_section())
def test_the_page_tells_every_broker_setting_as_it_is_declared(heading: str) -> None:
    assert section(heading) == [broker_row(row) for row in settings_by_section()[heading]]


def test_the_page_tells_every_topic_setting_as_it_is_declared() -> None:
    assert section("Settings of topics") == [topic_row(row) for row in TOPIC_SETTINGS.values()]


def differs_from_kafka(name: str) -> bool:
    ours, kafkas = BrokerConfig().as_strings().get(name, ""), KAFKA_SETTINGS[name].default
    if {ours, kafkas} <= UNSET:
        return False
    kind = BROKER_SETTINGS[name].kind
    try:
        return text_in_order(kind.read(kafkas)) != text_in_order(kind.read(ours))
    except ValueError:
        return True


def text_in_order(value: object) -> object:
    return sorted(value) if isinstance(value, tuple) else value


def test_the_page_tells_every_default_that_is_not_kafkas() -> None:
    rows = [row.split(" | ") for row in section("Defaults that are not Kafka's")]
    told = {row[0].strip("| `"): (row[1], row[2]) for row in rows}
    ours = BrokerConfig().as_strings()
    assert told == {
        name: (shown_default(ours[name]), shown_default(KAFKA_SETTINGS[name].default))
        for name in BROKER_SETTINGS
        if name in KAFKA_SETTINGS and differs_from_kafka(name)
    }
