"""Formatting of a node: the written files, and refused calls."""

import re

import pytest

from ottla.broker.metadata_store.meta_properties import ForeignLogDirError
from ottla.broker.quorum.formatting import read_bootstrap
from ottla.cli.quorum.node_formatting import (
    FormatCall,
    World,
    format_node,
    parse_levels,
    parse_voters,
    requested_levels,
)
from ottla.cli.support.exit_codes import CommandError
from ottla.machines.controller.features import first_levels
from ottla.metadata.record_frames import decode_record
from ottla.metadata.records import FeatureLevelRecord
from ottla.model.settings.broker_config import BrokerConfig
from ottla.raft.snapshots import snapshot_start_of
from ottla.raft.voters import Endpoint, VoterSet
from ottla.runtime.randomness import SystemRandomness
from ottla.simulation.world.disk import SimulatedDisk
from ottla.storage.files.checkpoints import read_meta_properties
from ottla.wire.records.record import records_of

CLUSTER = "Zv6MjWMpTyaRFQXSAyuwEA"
A, B = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
CONTROLLERS = f"3@a:9093:{A},1@[::1]:9093:{B}"
BOTH = {
    "process.roles": "broker,controller",
    "node.id": "3",
    "controller.quorum.bootstrap.servers": "a:9093",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data,/meta",
    "metadata.log.dir": "/meta",
}
BROKER = {**BOTH, "process.roles": "broker", "listeners": "PLAINTEXT://:9092"}
VOTERS = {**BOTH, "controller.quorum.voters": "3@a:9093"}
CHECKPOINT = "/meta/__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


class Node:
    """A disk, and the settings of the node that it is in."""

    def __init__(self, settings: dict[str, str] = BOTH) -> None:
        self.config = BrokerConfig.parse(settings)
        self.disk = SimulatedDisk()

    def format(self, *, cluster_id: str = CLUSTER, **options: object) -> list[tuple[str, bool]]:
        """Format it, and return the directories: whether each is new."""
        world = World(self.disk, SystemRandomness(), 77, "my-host")
        call = FormatCall(cluster_id, **options)  # type: ignore[arg-type]
        return [(row.path, row.is_new) for row in format_node(world, self.config, call)]

    @property
    def voters(self) -> VoterSet | None:
        """The first voters, if the node has a snapshot with them."""
        if not self.disk.exists(CHECKPOINT):
            return None
        file = self.disk.open_file(CHECKPOINT)
        return snapshot_start_of(file.read_at(0, file.size_bytes())).voters

    @property
    def levels(self) -> dict[str, int]:
        """The first levels of features."""
        values = [
            row.value for batch in read_bootstrap(self.disk, "/meta") for row in records_of(batch)
        ]
        records = [decode_record(value) for value in values if value is not None]
        return {
            row.name: row.feature_level for row in records if isinstance(row, FeatureLevelRecord)
        }

    def directory_id(self, path: str) -> bytes | None:
        """The id of a directory."""
        mark = read_meta_properties(self.disk, f"{path}/meta.properties")
        return None if mark is None else mark.directory_id


def test_a_controller_begins_a_quorum_alone() -> None:
    node = Node()
    assert node.format(standalone=True) == [("/data", True), ("/meta", True)]
    assert node.voters is not None
    (voter,) = node.voters.voters
    assert voter.endpoints == (Endpoint("CONTROLLER", "my-host", 9093),)
    assert voter.key == (3, node.directory_id("/meta"))
    assert node.levels == first_levels()


def test_controllers_begin_a_quorum_together() -> None:
    node = Node()
    node.format(initial_controllers=CONTROLLERS)
    assert node.voters == parse_voters(CONTROLLERS, "CONTROLLER")
    itself = node.voters.voter(3)
    assert itself is not None
    assert itself.key.directory_id == node.directory_id("/meta") != node.directory_id("/data")


def test_a_controller_that_joins_has_no_voters() -> None:
    node = Node()
    node.format(no_initial_controllers=True)
    assert node.voters is None
    assert node.directory_id("/meta") is not None


@pytest.mark.parametrize("settings", [BROKER, VOTERS])
def test_a_broker_and_a_voter_of_the_settings_need_no_option(settings: dict[str, str]) -> None:
    node = Node(settings)
    node.format()
    assert node.voters is None
    assert node.levels == first_levels()


def test_a_feature_begins_at_the_level_that_was_asked_for() -> None:
    node = Node()
    node.format(standalone=True, level_by_feature={"transaction.version": 1})
    assert node.levels == {**first_levels(), "transaction.version": 1}
    off = Node()
    off.format(standalone=True, level_by_feature={"transaction.version": 0, "kraft.version": 1})
    assert "transaction.version" not in off.levels


def test_a_node_is_formatted_once() -> None:
    node = Node()
    node.format(standalone=True)
    before = node.directory_id("/meta")
    with pytest.raises(CommandError, match="/data is formatted already: --ignore-formatted leaves"):
        node.format(standalone=True)
    assert node.format(standalone=True, ignore_formatted=True) == [
        ("/data", False),
        ("/meta", False),
    ]
    assert node.directory_id("/meta") == before


def test_a_new_disk_is_formatted_beside_the_others() -> None:
    node = Node()
    node.format(standalone=True)
    voters, metadata_id = node.voters, node.directory_id("/meta")
    node.config = BrokerConfig.parse({**BOTH, "log.dirs": "/data,/new"})
    assert node.format(standalone=True, ignore_formatted=True) == [
        ("/data", False),
        ("/new", True),
        ("/meta", False),
    ]
    assert node.directory_id("/new") is not None
    assert (node.voters, node.directory_id("/meta")) == (voters, metadata_id)


def test_directories_of_another_cluster_or_node_are_refused() -> None:
    node = Node()
    node.format(standalone=True)
    with pytest.raises(ForeignLogDirError, match=f"belong to cluster {CLUSTER}, not to another"):
        node.format(cluster_id="another", standalone=True, ignore_formatted=True)
    node.config = BrokerConfig.parse({**BOTH, "node.id": "4"})
    with pytest.raises(ForeignLogDirError, match="/data belongs to node 3, not to 4"):
        node.format(standalone=True, ignore_formatted=True)


@pytest.mark.parametrize(
    ("settings", "options", "problem"),
    [
        (BOTH, {}, "say how this controller finds its quorum: --standalone begins one with"),
        (BOTH, {"cluster_id": "a b", "standalone": True}, "--cluster-id cannot be 'a b': it must"),
        (
            {"log.dirs": "/data"},
            {"standalone": True},
            "process.roles is not set: a node without roles keeps its metadata itself",
        ),
        (
            BOTH,
            {"standalone": True, "no_initial_controllers": True},
            "give only one of --standalone, --initial-controllers and --no-initial-controllers",
        ),
        (BROKER, {"standalone": True}, "--standalone is only for a node with the role controller"),
        (VOTERS, {"standalone": True}, "controller.quorum.voters is set, which names the voters"),
        (
            VOTERS,
            {"initial_controllers": CONTROLLERS},
            "controller.quorum.voters is set, which names the voters",
        ),
        (
            VOTERS,
            {"no_initial_controllers": True},
            "controller.quorum.voters is set, which names the voters",
        ),
        (
            {**BOTH, "listeners": "PLAINTEXT://:9092,CONTROLLER://:0"},
            {"standalone": True},
            "needs a fixed port",
        ),
        (
            BOTH,
            {"standalone": True, "level_by_feature": {"transaction.versions": 1}},
            "no feature is called 'transaction.versions'; did you mean transaction.version?",
        ),
        (
            BOTH,
            {"standalone": True, "level_by_feature": {"transaction.version": 9}},
            "--feature cannot have transaction.version=9: its level must be from 0 to 2",
        ),
        (
            BOTH,
            {"standalone": True, "level_by_feature": {"kraft.version": 0}},
            "--feature cannot have kraft.version=0: it is 1 with --standalone or",
        ),
        (
            BOTH,
            {"no_initial_controllers": True, "level_by_feature": {"kraft.version": 1}},
            "--feature cannot have kraft.version=1: it is 1 with --standalone or",
        ),
    ],
)
def test_a_wrong_call_writes_nothing(
    settings: dict[str, str], options: dict[str, object], problem: str
) -> None:
    node = Node(settings)
    with pytest.raises(CommandError, match=re.escape(problem)):
        node.format(**options)  # type: ignore[arg-type]
    assert not node.disk.exists("/data")
    assert not node.disk.exists("/meta")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot have ''"),
        ("3@a:9093", "cannot have '3@a:9093': each controller must be ID@HOST:PORT:DIRECTORY"),
        (f"3@a:0:{A}", "each controller must be ID@HOST:PORT:DIRECTORY"),
        (f"3@a:65536:{A}", "each controller must be ID@HOST:PORT:DIRECTORY"),
        (f"2147483648@a:1:{A}", "each controller must be ID@HOST:PORT:DIRECTORY"),
        (f"3@a:1:{A},3@b:1:{B}", "two controllers with one id"),
        (f"3@a:1:{A},4@b:1:{A}", "two controllers with one directory id"),
        ("3@a:1:AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAQ is a reserved one"),
        (f"3@a:1:{A[:-1]}h", "is not an id: expected 22 characters"),
    ],
)
def test_first_controllers_are_checked(text: str, problem: str) -> None:
    with pytest.raises(CommandError, match=re.escape(problem)):
        parse_voters(text, "CONTROLLER")


@pytest.mark.parametrize("word", ["transaction.version", "=1", "a=b", "a=-1"])
def test_a_feature_has_a_name_and_a_level(word: str) -> None:
    with pytest.raises(CommandError, match="--feature takes NAME=LEVEL, not "):
        parse_levels([word], "--feature")


def test_a_cluster_may_begin_at_the_levels_of_an_older_release() -> None:
    node = Node()
    node.format(standalone=True, level_by_feature=requested_levels([], "3.9"))
    assert node.levels == {"metadata.version": 21}
    assert requested_levels(["a=1"], "4.0-IV1") == {"a": 1, "metadata.version": 23}
    assert requested_levels([], None) == {}


@pytest.mark.parametrize(
    ("features", "release", "problem"),
    [
        ([], "3.2", "--release-version cannot be '3.2': it must be from 3.3-IV3 to 4.3-IV0"),
        (["metadata.version=30"], "4.2", "give --release-version or --feature metadata.version="),
    ],
)
def test_a_release_is_known_and_given_once(features: list[str], release: str, problem: str) -> None:
    with pytest.raises(CommandError, match=re.escape(problem)):
        requested_levels(features, release)
