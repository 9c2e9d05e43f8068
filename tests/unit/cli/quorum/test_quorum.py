"""The rows of `ottla quorum status`, and a new voter by its settings."""

from pathlib import Path

from ottla.cli.quorum.quorum import new_voter, replica_rows
from ottla.clients.admin.admin_cluster import QuorumDescription, QuorumEndpoint, QuorumReplica
from ottla.model.identifiers import ZERO_UUID, uuid_from_text
from ottla.model.settings.broker_config import BrokerConfig

DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"


def replica(number: int, end_offset: int, caught_up_ms: int) -> QuorumReplica:
    return QuorumReplica(number, ZERO_UUID, end_offset, caught_up_ms, caught_up_ms)


def test_the_leader_is_first_and_lags_are_counted_from_it() -> None:
    found = QuorumDescription(
        leader_id=2,
        leader_epoch=4,
        high_watermark=100,
        voters=(replica(1, 90, 7_000), replica(2, 101, 9_000), replica(3, -1, -1)),
        observers=(replica(7, 100, 8_500),),
        endpoints_by_voter={2: (QuorumEndpoint("CONTROLLER", "b", 9093),)},
    )
    rows = [
        (row["NODE"], row["ROLE"], row["ADDRESS"], row["LAG"], row["LAG-MS"])
        for row in replica_rows(found)
    ]
    assert rows == [
        (2, "leader", "b:9093", 0, 0),
        (1, "voter", None, 10, 2_000),
        (3, "voter", None, None, None),
        (7, "observer", None, 0, 500),
    ]


def test_a_new_voter_is_what_its_machine_has(tmp_path: Path) -> None:
    marks = f"version=1\ncluster.id=a\nnode.id=3\ndirectory.id={DIRECTORY}\n"
    (tmp_path / "meta.properties").write_text(marks)
    config = BrokerConfig.parse(
        {
            "process.roles": "controller",
            "node.id": "3",
            "controller.quorum.bootstrap.servers": "a:1",
            "controller.listener.names": "INNER",
            "listeners": "INNER://:9093",
            "advertised.listeners": "INNER://inner.example.org:9094",
            "log.dirs": str(tmp_path),
        }
    )
    assert new_voter(config) == (
        3,
        uuid_from_text(DIRECTORY),
        (QuorumEndpoint("INNER", "inner.example.org", 9094),),
    )
