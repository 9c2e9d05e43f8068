import re
from dataclasses import dataclass

import pytest

from ottla.model.settings.settings import (
    FLAG,
    TEXT,
    UNKNOWN_NAMES_MAX,
    Alias,
    Kind,
    SettingType,
    UpdateMode,
    at_start,
    double,
    integer,
    long,
    one_of,
    optional,
    read_settings,
    setting,
    settings_of,
    short,
    texts_of,
    unknown_settings,
)


def test_types_have_the_numbers_of_the_protocol() -> None:
    names = ["BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"]
    assert [SettingType(number).name for number in range(1, 10)] == names


@pytest.mark.parametrize(
    ("kind", "type_", "text", "value"),
    [
        (short(1), SettingType.SHORT, "32767", 32767),
        (integer(0), SettingType.INT, "+7", 7),
        (integer(1, also=-1), SettingType.INT, "-1", -1),
        (long(0), SettingType.LONG, "9223372036854775807", 2**63 - 1),
        (double(0, 1), SettingType.DOUBLE, ".5", 0.5),
        (double(1), SettingType.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (FLAG, SettingType.BOOLEAN, "True", True),
        (TEXT, SettingType.STRING, "anything", "anything"),
        (one_of("a", "b"), SettingType.STRING, "b", "b"),
        (optional(integer(1)), SettingType.INT, "", None),
        (optional(integer(1)), SettingType.INT, "1", 1),
    ],
)
def test_a_kind_reads_text(kind: Kind, type_: SettingType, text: str, value: object) -> None:
    assert kind.type is type_
    assert kind.read(text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (short(1), "32768"),
        (integer(0), "2147483648"),
        (integer(0), ""),
        (integer(0), "1.0"),
        (integer(1, also=-1), "0"),
        (long(0), "9223372036854775808"),
        (double(1), "0.99"),
        (double(1), "1e309"),
        (double(1), "inf"),
        (FLAG, "1"),
        (one_of("a", "b"), "A"),
        (optional(integer(1)), "0"),
    ],
)
def test_a_kind_refuses_the_rest(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        kind.read(text)


@dataclass(frozen=True, slots=True)
class FewSettings:
    new_name: str = setting("0", TEXT, "What counts.", alias=Alias("old", "The old name."))
    segment_bytes: int = setting(1, integer(0), "How many.")
    flush_ms: int | None = at_start(None, optional(integer(0)), "How often.")
    retention_ms: int | None = setting(1, optional(integer(0)), "How long.")
    secret: float = setting(0.5, Kind(SettingType.PASSWORD, "right", float), "Which.")
    given: str = ""


FEW = settings_of(FewSettings)


def test_a_field_declares_a_setting_and_its_alias() -> None:
    assert list(FEW) == ["new.name", "old", "segment.bytes", "flush.ms", "retention.ms", "secret"]
    assert FewSettings().segment_bytes == FEW["segment.bytes"].default == 1
    assert FEW["old"].alias_of == "new.name"
    assert FEW["old"].documentation == "The old name."
    assert FEW["flush.ms"].update_mode is UpdateMode.READ_ONLY
    assert FEW["segment.bytes"].update_mode is UpdateMode.CLUSTER_WIDE


def test_a_name_goes_before_its_alias_in_any_order() -> None:
    for settings in ({"new.name": "1", "old": "2"}, {"old": "2", "new.name": "1"}):
        assert read_settings(FEW, settings) == ({"new_name": "1"}, {})
    assert read_settings(FEW, {"old": "2"}) == ({"new_name": "2"}, {})


def test_the_text_of_a_password_is_not_repeated() -> None:
    assert FEW["secret"].is_sensitive
    _, problems = read_settings(FEW, {"secret": "hunter2"})
    assert problems == {"secret": "secret cannot be the given value: it must be right"}


def test_a_setting_without_a_value_is_written_only_if_its_default_is_a_value() -> None:
    texts = texts_of(FewSettings(segment_bytes=7, retention_ms=None), FEW)
    assert texts["segment.bytes"] == "7"
    assert texts["retention.ms"] == ""
    assert "flush.ms" not in texts


def test_a_flood_of_unknown_names_is_counted_rather_than_told() -> None:
    names = [f"name.{number}" for number in range(100_000)]
    problems = unknown_settings(names, "topic", ["name"])
    assert len(problems) == UNKNOWN_NAMES_MAX + 1
    assert problems[-1] == "99990 more names are unknown"
