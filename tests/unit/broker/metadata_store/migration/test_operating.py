"""The steps of an operator, and the phases in which they are possible."""

import pytest

from ottla.broker.metadata_store.migration.operating import (
    MigrationStatus,
    MigrationStepError,
    ask_to_finalize,
    read_status,
    roll_back,
)
from ottla.broker.metadata_store.migration.zookeeper_office import (
    Claim,
    MigrationRefusedError,
    next_phase,
    take_office,
)
from ottla.broker.metadata_store.zookeeper.migration_nodes import (
    MIGRATION,
    MigrationPhase,
    migration_data,
    read_quorum_endpoint,
    seen_in_quorum,
)
from ottla.broker.metadata_store.zookeeper.znodes import (
    BROKER_IDS,
    CLUSTER_ID,
    CONTROLLER,
    CONTROLLER_EPOCH,
    FEATURES,
    LiveBroker,
    broker_data,
    cluster_id_data,
    controller_data,
    features_data,
    seen_epoch_path,
)
from ottla.environment.zookeeper import BadVersionError, Create, Write
from ottla.metadata.image import BrokerImage
from ottla.metadata.metadata_version import METADATA_VERSION_FEATURE
from ottla.model.identifiers import ZERO_UUID, BrokerId
from tests.metadata_building import CLUSTER_ID as ID
from tests.unit.broker.metadata_store.zookeeper.test_znode_writes import Keeper, run

PHASES = [None, *MigrationPhase]


def cluster(phase: MigrationPhase | None = None) -> Keeper:
    """Return the nodes of a cluster with the controller 0."""
    keeper = Keeper()
    keeper.tree.commit(
        1,
        [
            Create(CLUSTER_ID, cluster_id_data(ID)),
            Create(CONTROLLER_EPOCH, b"4"),
            Create(CONTROLLER, controller_data(BrokerId(0), 0), is_ephemeral=True),
        ],
    )
    if phase is not None:
        keeper.tree.commit(1, [Create(MIGRATION, migration_data(phase))])
    return keeper


def register(keeper: Keeper, broker_id: int, *, follows_quorum: bool = True) -> None:
    broker = BrokerImage(BrokerId(broker_id), -1, ZERO_UUID, ())
    live = LiveBroker(broker, has_lost_tail=False, follows_quorum=follows_quorum)
    path = f"{BROKER_IDS}/{broker_id}"
    keeper.tree.commit(1, [Create(path, broker_data(live, 0), is_ephemeral=True)])


def claim(*, has_copy: bool, cluster_id: str = ID) -> Claim:
    return Claim("zoo:2181", cluster_id, BrokerId(101), 3, ("h", 9093), has_copy=has_copy)


def take(keeper: Keeper, *, has_copy: bool = False, cluster_id: str = ID) -> MigrationPhase:
    wanted = claim(has_copy=has_copy, cluster_id=cluster_id)
    found: MigrationPhase = run(lambda: take_office(keeper.session, wanted, 0)).phase
    return found


def status(keeper: Keeper) -> MigrationStatus:
    found: MigrationStatus = run(lambda: read_status(keeper.session))
    return found


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("has_copy", [True, False])
def test_which_quorum_may_take_the_office(phase: MigrationPhase | None, has_copy: bool) -> None:
    of_an_empty_log = {None, MigrationPhase.COPYING, MigrationPhase.ROLLED_BACK}
    of_a_copy = set(MigrationPhase) - {MigrationPhase.ROLLED_BACK}
    if phase not in (of_a_copy if has_copy else of_an_empty_log):
        with pytest.raises(MigrationRefusedError):
            next_phase(claim(has_copy=has_copy), phase)
    elif not has_copy:
        assert next_phase(claim(has_copy=False), phase) is MigrationPhase.COPYING
    else:
        wanted = MigrationPhase.DUAL if phase is MigrationPhase.COPYING else phase
        assert next_phase(claim(has_copy=True), phase) is wanted


def test_the_office_is_taken_from_a_broker_which_is_fenced() -> None:
    keeper = cluster()
    assert take(keeper) is MigrationPhase.COPYING
    assert keeper.tree.get(CONTROLLER_EPOCH).data == b"5"
    holder = keeper.tree.get(CONTROLLER)
    assert holder.stat.owner_session == 0, "the session of the quorum's leader has it"
    endpoint = read_quorum_endpoint(holder.data)
    assert endpoint is not None
    assert (endpoint.host, endpoint.port) == ("h", 9093)
    assert status(keeper).controller_id == 101


def test_a_broker_has_no_endpoint_of_a_quorum() -> None:
    assert read_quorum_endpoint(controller_data(BrokerId(0), 0)) is None


def test_another_cluster_is_refused() -> None:
    with pytest.raises(MigrationRefusedError, match="formatted for the cluster another: format"):
        take(cluster(), cluster_id="another")


def test_a_zookeeper_without_a_cluster_is_refused() -> None:
    with pytest.raises(MigrationRefusedError, match="has no cluster of Ottla brokers"):
        take(Keeper())


def test_a_broker_of_an_older_release_is_named() -> None:
    keeper = cluster()
    register(keeper, 1)
    register(keeper, 2, follows_quorum=False)
    with pytest.raises(MigrationRefusedError, match="the brokers 2 run a release"):
        take(keeper)
    assert keeper.tree.get(CONTROLLER_EPOCH).data == b"4"


def test_a_level_without_migrations_is_refused() -> None:
    keeper = cluster()
    keeper.tree.commit(1, [Write(FEATURES, features_data({METADATA_VERSION_FEATURE: 7}))])
    with pytest.raises(MigrationRefusedError, match="is 7, and a migration needs at least 8"):
        take(keeper)
    assert keeper.tree.get(CONTROLLER_EPOCH).data == b"4"


def test_the_status_tells_the_brokers_of_both_kinds() -> None:
    keeper = cluster(MigrationPhase.DUAL)
    register(keeper, 0)
    path = seen_epoch_path(BrokerId(1))
    keeper.tree.commit(1, [Write(path, b"%d" % seen_in_quorum(9))])
    found = status(keeper)
    assert (found.in_zookeeper, found.in_quorum) == ((0,), (1,))
    assert found.next_step.startswith("restart the brokers 0 one by one")


@pytest.mark.parametrize("phase", PHASES)
def test_every_phase_has_a_next_step(phase: MigrationPhase | None) -> None:
    assert status(cluster(phase)).next_step


@pytest.mark.parametrize("phase", PHASES)
def test_finalizing_is_asked_for_during_dual_writes(phase: MigrationPhase | None) -> None:
    keeper = cluster(phase)
    if phase in {MigrationPhase.DUAL, MigrationPhase.FINALIZING}:
        run(lambda: ask_to_finalize(keeper.session))
        assert status(keeper).phase is MigrationPhase.FINALIZING
        return
    with pytest.raises(MigrationStepError):
        run(lambda: ask_to_finalize(keeper.session))
    assert status(keeper).phase is phase


def test_finalizing_waits_for_brokers_in_zookeeper() -> None:
    keeper = cluster(MigrationPhase.DUAL)
    register(keeper, 2)
    with pytest.raises(MigrationStepError, match="the brokers 2 have their metadata in ZooKeeper"):
        run(lambda: ask_to_finalize(keeper.session))


def test_the_way_back_fences_the_quorum() -> None:
    keeper = cluster()
    take(keeper)
    office = run(lambda: take_office(keeper.session, claim(has_copy=True), 0))
    run(lambda: roll_back(keeper.session))
    found = status(keeper)
    assert (found.phase, found.controller_id) == (MigrationPhase.ROLLED_BACK, None)
    with pytest.raises(BadVersionError):
        run(lambda: office.commit([Write("/feature", b"")]))


@pytest.mark.parametrize("phase", [None, MigrationPhase.ROLLED_BACK, MigrationPhase.FINALIZED])
def test_no_way_back(phase: MigrationPhase | None) -> None:
    keeper = cluster(phase)
    with pytest.raises(MigrationStepError):
        run(lambda: roll_back(keeper.session))
    assert keeper.tree.get(CONTROLLER_EPOCH).data == b"4"
