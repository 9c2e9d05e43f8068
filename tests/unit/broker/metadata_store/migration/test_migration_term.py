"""The writes to ZooKeeper before a decision is in the log."""

import asyncio
from typing import get_args

import pytest

from ottla.broker.metadata_store.migration.migration_term import MigrationTerm
from ottla.broker.metadata_store.migration.zookeeper_office import ZooKeeperOffice
from ottla.broker.metadata_store.zookeeper.migration_nodes import (
    MIGRATION,
    MigrationPhase,
    epoch_in_quorum,
    migration_data,
    seen_in_quorum,
)
from ottla.broker.metadata_store.zookeeper.znodes import seen_epoch_path
from ottla.environment.zookeeper import Create, Operation, Write
from ottla.machines.controller.lifecycle import UNFENCED
from ottla.metadata import records as kinds
from ottla.metadata.image import ZkMigrationState
from ottla.metadata.log_replay import ImageChange
from ottla.metadata.records import (
    AbortTransactionRecord,
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    ZkMigrationStateRecord,
)
from ottla.metadata.replay import replay
from ottla.model.identifiers import BrokerId, Offset
from ottla.runtime.clock import SystemClock
from tests.metadata_building import new_topic, uuid_of
from tests.unit.broker.metadata_store.zookeeper.test_znode_writes import Keeper

WRITTEN = {
    "BrokerRegistrationChangeRecord",
    "ConfigRecord",
    "FeatureLevelRecord",
    "PartitionChangeRecord",
    "PartitionRecord",
    "ProducerIdsRecord",
    "RegisterBrokerRecord",
    "RemoveTopicRecord",
    "TopicRecord",
    "UnregisterBrokerRecord",
    "ZkMigrationStateRecord",
}
OF_THE_LOG = {
    "AbortTransactionRecord",
    "BeginTransactionRecord",
    "EndTransactionRecord",
    "NoOpRecord",
    "RegisterControllerRecord",
}
"""These say nothing that a broker in ZooKeeper, or a way back, needs."""
NEVER_DECIDED = {
    "AccessControlEntryRecord",
    "ClearElrRecord",
    "ClientQuotaRecord",
    "DelegationTokenRecord",
    "FenceBrokerRecord",
    "RemoveAccessControlEntryRecord",
    "RemoveDelegationTokenRecord",
    "RemoveUserScramCredentialRecord",
    "UnfenceBrokerRecord",
    "UnknownRecord",
    "UserScramCredentialRecord",
}
"""No decision of the controller has these kinds."""


def term_of(keeper: Keeper, phase: MigrationPhase = MigrationPhase.DUAL) -> MigrationTerm:
    office = ZooKeeperOffice(keeper.session, 5, 3, phase)
    return MigrationTerm(office, keeper.loaded(), {}, asyncio.Event(), SystemClock())


def operations(units: list[list[Operation]]) -> list[Operation]:
    return [one for unit in units for one in unit]


def test_no_kind_of_record_is_forgotten() -> None:
    known = {one.__name__ for one in get_args(kinds.MetadataRecord)}
    assert known == WRITTEN | OF_THE_LOG | NEVER_DECIDED


def test_a_decision_is_written_as_by_a_broker_that_is_the_controller() -> None:
    keeper = Keeper()
    decision = keeper.controller.create_topics(
        [new_topic("a", 2, 3)], topic_ids=[uuid_of(1)], start=0
    )
    units = term_of(keeper).commits(keeper.controller.image, decision.records)
    for unit in units:
        keeper.tree.commit(1, unit)
    image = keeper.controller.image
    keeper.controller.image = replay(image, decision.records, Offset(image.end_offset + 9))
    keeper.check()


@pytest.mark.parametrize("is_known", [True, False])
def test_a_registration_with_the_quorum_is_noted(is_known: bool) -> None:
    keeper = Keeper()
    broker_id = BrokerId(1 if is_known else 8)
    record = RegisterBrokerRecord(broker_id=broker_id, broker_epoch=44, incarnation_id=uuid_of(1))
    (found,) = operations(term_of(keeper).commits(keeper.controller.image, [record]))
    assert isinstance(found, Write if is_known else Create)
    assert (found.path, found.data) == (seen_epoch_path(broker_id), b"%d" % seen_in_quorum(44))
    assert epoch_in_quorum(int(found.data)) == 44


@pytest.mark.parametrize("in_zookeeper", [True, False])
def test_a_broker_in_service_is_noted_if_its_session_is_in_zookeeper(in_zookeeper: bool) -> None:
    keeper = Keeper()
    image = keeper.controller.image
    register = RegisterBrokerRecord(
        broker_id=BrokerId(1),
        broker_epoch=44,
        incarnation_id=uuid_of(1),
        is_migrating_zk_broker=in_zookeeper,
    )
    image = replay(image, [register], Offset(image.end_offset + 1))
    unfence = BrokerRegistrationChangeRecord(
        broker_id=BrokerId(1), broker_epoch=44, fenced=UNFENCED
    )
    found = operations(term_of(keeper).commits(image, [unfence]))
    assert found == ([Write(seen_epoch_path(BrokerId(1)), b"44")] if in_zookeeper else [])


@pytest.mark.parametrize(
    "record",
    [
        NoOpRecord(),
        AbortTransactionRecord(),
        ZkMigrationStateRecord(zk_migration_state=ZkMigrationState.MIGRATION),
    ],
)
def test_matters_of_the_log_are_not_written(record: kinds.MetadataRecord) -> None:
    keeper = Keeper()
    assert operations(term_of(keeper).commits(keeper.controller.image, [record])) == []


def test_nothing_is_written_after_the_last_step() -> None:
    keeper = Keeper()
    term, image = term_of(keeper), keeper.controller.image
    last = ZkMigrationStateRecord(zk_migration_state=ZkMigrationState.POST_MIGRATION)
    assert term.commits(image, [last]) == [
        [Write(MIGRATION, migration_data(MigrationPhase.FINALIZED))]
    ]
    decision = keeper.controller.create_topics(
        [new_topic("a", 2, 3)], topic_ids=[uuid_of(1)], start=0
    )
    assert term.commits(image, decision.records) == []
    assert term_of(keeper, MigrationPhase.FINALIZED).commits(image, decision.records) == []


def test_the_offsets_of_the_feed_are_the_offsets_of_the_log() -> None:
    keeper = Keeper()
    term, image = term_of(keeper), keeper.controller.image
    term.publish([ImageChange(image, ())])
    decision = keeper.controller.create_topics(
        [new_topic("a", 2, 3)], topic_ids=[uuid_of(1)], start=0
    )
    end_offset = Offset(image.end_offset + 2 + len(decision.records))  # a gap of two
    after = replay(image, decision.records, end_offset)
    term.publish([ImageChange(after, decision.records)])
    feed = term.feed
    assert feed is not None
    assert feed.end_offset == (5 << 32) + end_offset
    assert term.log_offset(feed.end_offset) == end_offset
    assert term.log_offset(4 << 32) == -1
    pulled = feed.read(5, Offset((5 << 32) + image.end_offset))
    assert pulled is not None
    assert pulled.data
