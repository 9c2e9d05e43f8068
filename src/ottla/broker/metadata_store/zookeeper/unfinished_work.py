"""The state that earlier terms have left in ZooKeeper: half-done work, and brokers in service."""

import posixpath
from collections.abc import Iterable, Mapping

from ottla.broker.metadata_store.zookeeper.znode_reads import Loaded
from ottla.broker.metadata_store.zookeeper.znode_writes import (
    NEVER_HANDLED,
    Unit,
    first_state,
    in_commits,
)
from ottla.broker.metadata_store.zookeeper.znodes import (
    LiveBroker,
    partition_path,
    seen_epoch_path,
)
from ottla.environment.zookeeper import Create, Delete, ZooKeeperSession
from ottla.machines.controller.leadership import Leadership
from ottla.machines.controller.machine import Controller
from ottla.machines.decision import Decision
from ottla.metadata.image import BrokerImage
from ottla.metadata.records import NO_LEADER, MetadataRecord
from ottla.model.identifiers import ZERO_UUID, BrokerId


def repairs(loaded: Loaded) -> Iterable[Unit]:
    """Return the operations that remove rubbish, and that note brokers no term has handled."""
    units: list[Unit] = [[Delete(path)] for path in loaded.rubbish]
    units += [
        [Create(seen_epoch_path(broker_id), b"%d" % NEVER_HANDLED)] for broker_id in loaded.unseen
    ]
    return in_commits(units)


async def missing_states(
    session: ZooKeeperSession, loaded: Loaded, controller_epoch: int
) -> Iterable[Unit]:
    """Return the operations that complete half-created topics."""
    made: dict[str, None] = {}
    units: list[Unit] = []
    for topic, number in loaded.stateless:
        unit: Unit = []
        above = partition_path(topic.name, number)
        for path in (posixpath.dirname(above), above):
            if path not in made and await session.exists(path) is None:
                unit.append(Create(path))
            made[path] = None
        units.append([*unit, first_state(topic, number, controller_epoch)])
    return in_commits(units)


def known_brokers(loaded: Loaded, live: Mapping[BrokerId, LiveBroker]) -> Iterable[BrokerImage]:
    """Yield the brokers in the state left by earlier terms.

    A live broker whose incarnation an earlier term has handled is in service. Of another broker,
    only the former incarnation is known; it is still to be fenced.
    """
    unseen = dict.fromkeys(loaded.unseen, NEVER_HANDLED)
    for broker_id, epoch in {**loaded.seen_epochs, **unseen}.items():
        earlier = BrokerImage(broker_id, epoch, ZERO_UUID, ())
        yield live[broker_id].broker if is_same_life(earlier, live.get(broker_id)) else earlier


def elect_where_nobody_leads(controller: Controller) -> Decision[MetadataRecord, None]:
    """Elect leaders for partitions that an unfinished term has created."""
    leadership = Leadership(controller.image, controller.settings)
    places = leadership.places(lambda partition: partition.leader == NO_LEADER)
    records = [leadership.change(place).record() for place in places]
    return Decision(tuple(record for record in records if record is not None), None)


def is_same_life(broker: BrokerImage, live: LiveBroker | None) -> bool:
    """Return whether a registration is of this incarnation of a broker."""
    return live is not None and live.broker.broker_epoch == broker.broker_epoch
