"""`ottla quorum` and `ottla cluster features`, with a broker that is a quorum of one."""

from pathlib import Path

import pytest

from tests.clients.cli_calls import call, refused, rows, text

CONTROLLER = """\
process.roles=controller
node.id=3
controller.quorum.bootstrap.servers=127.0.0.1:9093
listeners=CONTROLLER://127.0.0.1:9095
controller.listener.names=CONTROLLER
log.dirs={folder}/data
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "controller.properties"
    file.write_text(CONTROLLER.format(folder=tmp_path))
    return file


def test_the_leader_and_its_lag_are_shown(story_servers: str) -> None:
    found = rows("quorum", "status", brokers=story_servers)
    (replica,) = found["replicas"]
    assert (replica["node"], replica["role"]) == (found["leader"], "leader")
    assert (replica["lag"], replica["end_offset"]) == (0, found["high_watermark"])
    assert "HIGH-WATERMARK" in text("quorum", "status", brokers=story_servers)


def test_a_controller_that_does_not_vote_cannot_be_removed(story_servers: str) -> None:
    (voter,) = rows("quorum", "status", brokers=story_servers)["replicas"]
    assert refused("quorum", "remove", "77", brokers=story_servers) == (
        f"controller 77 does not vote: the voters are {voter['node']}"
    )
    assert refused(
        "quorum", "remove", "77", "--directory-id", "x", brokers=story_servers, expect=2
    ).startswith("--directory-id: 'x' is not an id")


def test_a_controller_must_be_formatted_before_it_votes(
    config: Path, tmp_path: Path, story_servers: str
) -> None:
    words = ("quorum", "add", "--config", config)
    assert refused(*words, brokers=story_servers) == (
        f"{tmp_path}/data is not formatted by `ottla storage format`"
    )
    call("storage", "format", "-t", "one", "-c", config, "--no-initial-controllers")
    config.write_text(config.read_text().replace("node.id=3", "node.id=4"))
    assert refused(*words, brokers=story_servers) == (
        f"{tmp_path}/data/meta.properties belongs to node 3, not to 4"
    )


def test_only_a_controller_votes(story_servers: str) -> None:
    assert refused("quorum", "add", brokers=story_servers, expect=2) == (
        "process.roles has no controller: give the settings of the new controller by --config"
    )


def test_features_are_shown(story_servers: str) -> None:
    found = {row["feature"]: row for row in rows("cluster", "features", brokers=story_servers)}
    row = found["transaction.version"]
    assert (row["min"], row["level"], row["max"]) == (0, 2, 2)


def test_a_change_of_a_feature_is_checked_and_made(story_servers: str) -> None:
    def change(*words: str) -> int:
        shown = rows("cluster", "features", *words, brokers=story_servers)
        return next(row["level"] for row in shown if row["feature"] == "transaction.version")

    assert change("--downgrade", "transaction.version=1", "--dry-run") == 2
    assert change("--downgrade", "transaction.version=1") == 1
    assert change("--upgrade", "transaction.version=2") == 2


@pytest.mark.parametrize(
    ("words", "code", "problem"),
    [
        (["--upgrade", "transaction.versions=2"], 1, "transaction.versions"),
        (["--upgrade", "transaction.version=9"], 1, "transaction.version"),
        (["--upgrade", "transaction.version"], 2, "--upgrade takes NAME=LEVEL"),
        (["--upgrade", "a=1", "--downgrade", "b=1"], 2, "give --upgrade or --downgrade, not both"),
        (["--unsafe"], 2, "--unsafe is only for --downgrade"),
        (["--dry-run"], 2, "--dry-run is only for --upgrade and --downgrade"),
    ],
)
def test_a_wrong_change_of_a_feature_is_refused(
    story_servers: str, words: list[str], code: int, problem: str
) -> None:
    assert problem in refused("cluster", "features", *words, brokers=story_servers, expect=code)
