"""Kafka's tool for consumer groups looks into Ottla's groups, moves them and removes them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.console import Console, line_with, table
from tests.interop.kafka_clients import commit_offset

TOPIC = "letters"
RECORDS = 10


@pytest.fixture(scope="module", autouse=True)
def letters(kafka: Console) -> None:
    """Write ten records to a topic of one partition, and read some in two groups."""
    kafka(f"topics --create --topic {TOPIC} --partitions 1")
    lines = "\n".join(f"letter {n}" for n in range(RECORDS))
    kafka(f"console-producer --topic {TOPIC}", stdin=lines)
    consumer = f"console-consumer --topic {TOPIC} --from-beginning --timeout-ms 20000"
    assert kafka(f"{consumer} --group readers --max-messages 6").count("letter") == 6
    commit_offset(kafka.server, "slow", TOPIC, 0, 1)


@pytest.fixture(scope="class")
def live(kafka: Console) -> Iterator[str]:
    """Run a group with a static member that has read all records."""
    line = f"verifiable-consumer --topic {TOPIC} --group-id live --group-instance-id clerk"
    with kafka.running(f"{line} --reset-policy earliest") as printed:
        line_with(printed, "offsets_committed")
        yield "live"


def committed(kafka: Console, group: str) -> str:
    """Look up where a group stands."""
    (row,) = described(kafka, group)
    return row[3]


def described(kafka: Console, group: str) -> list[list[str]]:
    """Return the rows of a group, without the sentence that it has no active members."""
    printed = kafka(f"consumer-groups --describe --group {group}")
    return table(printed[printed.index("GROUP ") :])


class TestAGroupWithAMember:
    """Descriptions of the group, and operations that must be refused."""

    def test_groups_are_listed_by_state_and_type(self, kafka: Console, live: str) -> None:
        assert {"readers", "slow", live} <= set(kafka("consumer-groups --list").split())
        states = dict(table(kafka("consumer-groups --list --state")))
        assert (states["readers"], states[live]) == ("Empty", "Stable")
        stable = [group for group, _ in table(kafka("consumer-groups --list --state stable"))]
        assert stable == [live]
        assert [live, "Classic"] in table(kafka("consumer-groups --list --type classic"))
        assert [live, "Classic", "consumer"] in table(kafka("groups --list"))

    def test_its_offsets_members_and_state_are_described(self, kafka: Console, live: str) -> None:
        (offsets,) = described(kafka, live)
        assert offsets[:6] == [live, TOPIC, "0", "10", "10", "0"]
        assert offsets[6].startswith("clerk-")
        assert offsets[7:] == ["/127.0.0.1", "consumer-live-clerk"]

        line = f"consumer-groups --describe --group {live}"
        (member,) = table(kafka(f"{line} --members --verbose"))
        assert member[2:6] == ["clerk", "/127.0.0.1", "consumer-live-clerk", "1"]
        assert f"{TOPIC}:0" in member
        (state,) = table(kafka(f"{line} --state"))
        assert state == [live, kafka.server, "(1)", "range", "Stable", "1"]

    def test_all_groups_are_described_at_once(self, kafka: Console, live: str) -> None:
        printed = kafka("consumer-groups --describe --all-groups")
        lags = {row[0]: row[5] for row in table(printed) if row[1:2] == [TOPIC]}
        assert lags == {live: "0", "readers": "4", "slow": "9"}

    def test_it_is_not_moved_or_deleted(self, kafka: Console, live: str) -> None:
        line = f"consumer-groups --group {live}"
        moved = kafka.refused(f"{line} --reset-offsets --topic {TOPIC} --to-earliest --execute")
        assert "only be reset if the group 'live' is inactive" in moved
        assert "GroupNotEmptyException" in kafka.refused(f"{line} --delete")
        forgotten = kafka.refused(f"{line} --delete-offsets --topic {TOPIC}")
        assert "GroupSubscribedToTopicException" in forgotten
        assert committed(kafka, live) == "10"


@pytest.mark.parametrize(
    ("way", "offset"),
    [
        ("--to-earliest", "0"),
        ("--to-latest", "10"),
        ("--shift-by -3", "7"),
        ("--to-current", "7"),
        ("--to-offset 4", "4"),
        ("--to-offset 99", "10"),
        ("--to-datetime 2020-01-01T00:00:00.000", "0"),
        ("--to-datetime 2099-01-01T00:00:00.000", "10"),
        ("--by-duration P1D", "0"),
    ],
)
def test_offsets_are_reset_in_every_way(kafka: Console, way: str, offset: str) -> None:
    line = f"consumer-groups --reset-offsets --group readers --topic {TOPIC} {way} --execute"
    assert kafka(line).split()[-4:] == ["readers", TOPIC, "0", offset]


def test_what_was_reset_last_is_where_the_group_stands(kafka: Console) -> None:
    line = f"consumer-groups --reset-offsets --group readers --topic {TOPIC}:0"
    kafka(f"{line} --to-offset 8 --execute")
    assert kafka(f"{line} --to-earliest --dry-run").split()[-1] == "0"
    assert committed(kafka, "readers") == "8"
    consumer = f"console-consumer --topic {TOPIC} --group readers --timeout-ms 20000"
    assert kafka(f"{consumer} --max-messages 2").splitlines()[-2:] == ["letter 8", "letter 9"]


def test_offsets_are_exported_to_a_file_and_taken_from_it(kafka: Console, tmp_path: Path) -> None:
    line = "consumer-groups --reset-offsets --group slow"
    exported = kafka(f"{line} --topic {TOPIC} --to-offset 5 --export --dry-run")
    assert exported.split() == [f"{TOPIC},0,5"]
    file = tmp_path / "offsets.csv"
    file.write_text(exported)
    assert kafka(f"{line} --from-file {file} --execute").split()[-1] == "5"
    assert committed(kafka, "slow") == "5"


def test_offsets_and_groups_are_deleted(kafka: Console) -> None:
    commit_offset(kafka.server, "passing", TOPIC, 0, 3)
    forgotten = kafka(f"consumer-groups --delete-offsets --group passing --topic {TOPIC}")
    assert forgotten.split()[-3:] == [TOPIC, "0", "Successful"]
    commit_offset(kafka.server, "passing", TOPIC, 0, 3)
    assert "was successful" in kafka("consumer-groups --delete --group passing")
    assert "passing" not in kafka("consumer-groups --list").split()


def test_a_group_that_is_not_there_is_not_found(kafka: Console) -> None:
    assert "GroupIdNotFound" in kafka.refused("consumer-groups --describe --group nobody")
    assert "GroupIdNotFound" in kafka.refused("consumer-groups --delete --group nobody")
