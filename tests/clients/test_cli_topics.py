"""`ottla topic`, `ottla config` and `ottla cluster`, as processes against a real broker."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Broker
from tests.clients.cli_calls import OTTLA, call, refused, rows, text


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    with Broker({"num.partitions": "2"}) as broker:
        yield broker.bootstrap_servers


def test_a_topic_lives_from_its_creation_to_its_deletion(brokers: str) -> None:
    shape = ("-p", "3", "-c", "retention.ms=60000")
    created = rows("topic", "create", "letters", *shape, brokers=brokers)
    assert created == [{"topic": "letters", "status": "created"}]
    listed = rows("topic", "ls", brokers=brokers)
    assert {"topic": "letters", "partitions": 3, "replicas": 1} in listed
    described = rows("topic", "describe", "letters", brokers=brokers)
    assert described["configs"] == [{"name": "retention.ms", "value": "60000"}]
    assert [row["partition"] for row in described["partitions"]] == [0, 1, 2]
    assert {row["log_end_offset"] for row in described["partitions"]} == {0}
    deleted = text("topic", "delete", "letters", "--yes", brokers=brokers)
    assert deleted.split() == ["TOPIC", "STATUS", "letters", "deleted"]
    assert "letters" not in text("topic", "list", brokers=brokers)


def test_the_columns_of_a_table_are_upper_case_and_aligned(brokers: str) -> None:
    call("topic", "create", "a", "a-longer-name", brokers=brokers)
    lines = text("topic", "list", "--regex", "a.*", brokers=brokers).splitlines()
    assert [line.split() for line in lines] == [
        ["TOPIC", "PARTITIONS", "REPLICAS"],
        ["a", "2", "1"],
        ["a-longer-name", "2", "1"],
    ]
    assert (
        len({line.rindex("1" if number else "REPLICAS") for number, line in enumerate(lines)}) == 1
    )


def test_a_topic_grows_and_changes_its_settings(brokers: str) -> None:
    call("topic", "create", "growing", "-p", "1", brokers=brokers)
    call("topic", "alter", "growing", "-p", "4", "-c", "segment.ms=1000000", brokers=brokers)
    described = rows("topic", "info", "growing", brokers=brokers)
    assert len(described["partitions"]) == 4
    assert described["configs"] == [{"name": "segment.ms", "value": "1000000"}]
    call("topic", "alter", "growing", "--delete-config", "segment.ms", brokers=brokers)
    assert rows("topic", "describe", "growing", brokers=brokers)["configs"] == []
    sentence = refused("topic", "alter", "growing", "-p", "2", brokers=brokers)
    assert "INVALID_PARTITIONS" in sentence


def test_a_topic_that_is_there_is_refused_unless_that_is_fine(brokers: str) -> None:
    call("topic", "create", "once", brokers=brokers)
    assert "exists" in refused("topic", "create", "once", brokers=brokers)
    created = rows("topic", "create", "once", "fresh", "--if-not-exists", brokers=brokers)
    assert created == [
        {"topic": "once", "status": "exists already"},
        {"topic": "fresh", "status": "created"},
    ]


def test_a_dry_run_creates_nothing(brokers: str) -> None:
    created = rows("topic", "create", "imagined", "--dry-run", brokers=brokers)
    assert created[0]["status"] == "could be created"
    sentence = refused("topic", "describe", "imagined", brokers=brokers)
    assert sentence.startswith("there is no topic 'imagined': `ottla topic list`")


def test_records_before_an_offset_are_trimmed(brokers: str) -> None:
    call("topic", "create", "trimmed", "-p", "1", brokers=brokers)
    call("produce", "trimmed", brokers=brokers, stdin=b"a\nb\nc\n")
    trimmed = rows("topic", "trim", "trimmed", "--before", "2", "--yes", brokers=brokers)
    assert trimmed == [{"topic": "trimmed", "partition": 0, "log_start_offset": 2}]
    assert text("consume", "trimmed", brokers=brokers) == "c\n"


@pytest.mark.parametrize("before", ["4", "999", "+4"])
def test_an_offset_past_the_end_trims_nothing(brokers: str, before: str) -> None:
    topic = f"untrimmed-{before.removeprefix('+')}-{len(before)}"
    call("topic", "create", topic, "-p", "1", brokers=brokers)
    call("produce", topic, brokers=brokers, stdin=b"a\nb\nc\n")
    sentence = refused("topic", "trim", topic, "--before", before, brokers=brokers)
    assert "past the end" in sentence
    assert text("consume", topic, brokers=brokers) == "a\nb\nc\n"
    trimmed = rows("topic", "trim", topic, "--before", "3", "--yes", brokers=brokers)
    assert trimmed[0]["log_start_offset"] == 3


def test_a_setting_that_is_not_set_cannot_be_deleted(brokers: str) -> None:
    call("topic", "create", "unset", "-c", "retention.ms=1000", brokers=brokers)
    delete = ("config", "delete", "topic", "unset")
    sentence = refused(*delete, "retention.ms", "retention.mss", brokers=brokers)
    assert sentence == "topic 'unset' has no setting 'retention.mss', so nothing was deleted"
    sentence = refused(*delete, "retention.ms", "segment.ms", brokers=brokers)
    assert "'segment.ms' is not set for topic 'unset'" in sentence
    alter = ("topic", "alter", "unset", "--delete-config")
    assert "'segment.ms' is not set" in refused(*alter, "segment.ms", brokers=brokers)
    assert "has no setting 'retention.mss'" in refused(*alter, "retention.mss", brokers=brokers)
    call(*delete, "retention.ms", brokers=brokers)
    assert "not set" in refused(*delete, "retention.ms", brokers=brokers)


def test_a_setting_is_deleted_only_where_it_is_set(brokers: str) -> None:
    key = "log.cleaner.threads"
    call("config", "set", "broker", "", f"{key}=2", brokers=brokers)
    assert "DYNAMIC_DEFAULT_BROKER_CONFIG" in refused(
        "config", "delete", "broker", "1", key, brokers=brokers
    )
    call("config", "set", "broker", "1", f"{key}=2", brokers=brokers)
    call("config", "delete", "broker", "", key, brokers=brokers)
    assert key in refused("config", "delete", "broker", "", key, brokers=brokers)
    call("config", "delete", "broker", "1", key, brokers=brokers)
    assert "STATIC_BROKER_CONFIG" in refused(
        "config", "delete", "broker", "1", "num.partitions", brokers=brokers
    )


def test_settings_are_described_set_and_deleted(brokers: str) -> None:
    call("topic", "create", "configured", brokers=brokers)
    call("config", "set", "topic", "configured", "retention.ms=1000", brokers=brokers)
    described = rows("config", "describe", "topic", "configured", brokers=brokers)
    changed = [row for row in described if row["source"] == "DYNAMIC_TOPIC_CONFIG"]
    assert [(row["name"], row["value"]) for row in changed] == [("retention.ms", "1000")]
    call("config", "delete", "topic", "configured", "retention.ms", brokers=brokers)
    everything = rows("config", "describe", "topic", "configured", "--all", brokers=brokers)
    assert len(everything) > 20
    assert {row["source"] for row in everything if row["name"] == "retention.ms"} == {
        "DEFAULT_CONFIG"
    }
    assert "retention.mss" in refused(
        "config", "set", "topic", "configured", "retention.mss=1", brokers=brokers
    )


def test_a_broker_shows_its_settings(brokers: str) -> None:
    described = rows("config", "describe", "broker", "1", brokers=brokers)
    assert {"num.partitions": "2"}.items() <= {
        row["name"]: row["value"] for row in described
    }.items()


def test_the_cluster_shows_its_brokers_its_folders_and_what_it_speaks(brokers: str) -> None:
    described = rows("cluster", "info", brokers=brokers)
    assert described["brokers"][0]["port"] == int(brokers.rpartition(":")[2])
    folders = rows("cluster", "logdirs", brokers=brokers)
    assert [row["status"] for row in folders] == ["ok"]
    versions = {row["api"]: row for row in rows("cluster", "api-versions", brokers=brokers)}
    assert versions["API_VERSIONS"]["key"] == 18


def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    sentence = refused("topic", "list", "-b", "127.0.0.1:1")
    assert sentence == "nothing listens on 127.0.0.1:1: is the broker running?"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["topic", "list", "-b", "nowhere:port"], "HOST:PORT"),
        (["topic", "list", "-X", "request.timeout=1"], "request.timeout.ms"),
        (["topic", "list", "-X", "nonsense"], "KEY=VALUE"),
        (["topic", "list", "-X", "security.protocol=SSL"], "not supported"),
        (["topic", "alter", "letters"], "--partitions"),
        (["config", "describe", "broker", "one"], "number"),
        (["group", "reset-offsets", "g", "--all-topics"], "--to-earliest"),
        (["consume", "letters", "-f", "%q"], "%q"),
        (["consume", "letters", "--from", "yesterday"], "@TIME"),
        (["produce", "letters", "--acks", "2"], "all"),
    ],
)
def test_a_wrong_call_is_one_sentence_and_a_two(arguments: list[str], word: str) -> None:
    assert word in refused(*arguments, expect=2)


def test_help_names_every_command_without_loading_it() -> None:
    shown = text("--help")
    for command in ("start", "topic", "produce", "consume", "group", "config", "cluster", "log"):
        assert f"\n  {command} " in shown
    assert "reset-offsets" in text("group", "--help")


def test_a_shell_is_told_how_to_complete() -> None:
    asked = shlex.join([*OTTLA, "--show-completion"])
    # A shell that has nothing left to do would become the command, which looks for its parent.
    shown = subprocess.run(["bash", "-c", f"{asked}; exit"], capture_output=True, check=True)
    assert b"_OTTLA_COMPLETE" in shown.stdout


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("ottla to", {"topic"}), ("ottla topic de", {"describe", "delete"})],
)
def test_what_is_typed_is_completed(
    monkeypatch: pytest.MonkeyPatch, typed: str, completed: set[str]
) -> None:
    monkeypatch.setenv("_OTTLA_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", typed)
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split()) - 1))
    assert set(text().split()) == completed


def keys_of(value: Any) -> Iterator[str]:
    """Yield every key of every object in a JSON value."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    for item in value if isinstance(value, list) else ():
        yield from keys_of(item)


@pytest.mark.parametrize(
    "command",
    [
        "topic list --internal",
        "topic describe keyed",
        "topic trim keyed --before end --dry-run",
        "config describe topic keyed --all --docs",
        "partition list",
        "partition reassign keyed --to 1 --dry-run",
        "broker list",
        "cluster describe",
        "cluster logdirs",
        "cluster api-versions",
        "transaction list",
        "transaction producers keyed",
        "bench produce keyed --num 10",
        "doctor",
        "version",
    ],
)
def test_keys_of_json_need_no_quotes(brokers: str, command: str) -> None:
    settings = ("-c", "retention.ms=60000", "-c", "cleanup.policy=delete")
    call("topic", "create", "keyed", "--if-not-exists", *settings, brokers=brokers)
    found = set(keys_of(rows(*command.split(), brokers=brokers)))
    assert [key for key in found if not re.fullmatch("[a-z][a-z0-9_]*", key)] == []


def test_a_misspelt_setting_of_a_broker_is_stored_with_a_warning(brokers: str) -> None:
    changes = ("max.conections=77", "max.connections=77")
    done = call("config", "set", "broker", "", *changes, brokers=brokers)
    (warning,) = done.stderr.decode().splitlines()
    assert "no broker setting is called 'max.conections'" in warning
    assert warning.endswith("did you mean max.connections?")
