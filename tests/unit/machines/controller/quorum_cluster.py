"""Brokers that register with the controller of a quorum, and send heartbeats."""

from dataclasses import dataclass, field
from typing import Any

from ottla.machines.controller.features import CLAIMED_LEVELS
from ottla.machines.controller.machine import Controller
from ottla.metadata.image import BrokerImage, ClusterImage
from ottla.metadata.records import FeatureLevelRecord
from ottla.metadata.replay import replay
from ottla.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from ottla.wire.messages.create_topics import CreatableReplicaAssignment
from tests.metadata_building import CLUSTER_ID, add_topics, controller_of, new_topic, run, uuid_of

SESSION_MS = 9000


def registration(
    broker_id: int, life: int = 1, previous_epoch: int = -1, **changes: Any
) -> BrokerRegistrationRequest:
    """Return the request of an incarnation of a broker."""
    given = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": uuid_of(1000 * broker_id + life),
        "listeners": [Listener(name="P", host="h", port=9092)],
        "features": features(CLAIMED_LEVELS),
        "rack": None,
        "log_dirs": [uuid_of(500 + broker_id)],
        "previous_broker_epoch": previous_epoch,
        **changes,
    }
    return BrokerRegistrationRequest(**given)


def features(levels: Any) -> list[Feature]:
    return [
        Feature(name=name, min_supported_version=first, max_supported_version=last)
        for name, (first, last) in levels.items()
    ]


@dataclass
class QuorumCluster:
    """The active controller at a time that only the test moves."""

    controller: Controller
    now_ms: int = 1_000_000
    kraft_version: int = 1
    epoch_by_broker: dict[int, int] = field(default_factory=dict)

    @property
    def image(self) -> ClusterImage:
        return self.controller.image

    def broker(self, broker_id: int) -> BrokerImage:
        return self.image.brokers[broker_id]

    def register(self, request: BrokerRegistrationRequest) -> int:
        decision = self.controller.register(request, self.now_ms, self.kraft_version)
        epoch = run(self.controller, decision)
        self.epoch_by_broker[request.broker_id] = epoch
        return epoch

    def beat(
        self, broker_id: int, offset: int | None = None, **wishes: Any
    ) -> BrokerHeartbeatResponse:
        """Send the heartbeat of a broker that has all of the metadata, by default."""
        reached = self.image.end_offset - 1 if offset is None else offset
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch_by_broker[broker_id],
            current_metadata_offset=reached,
            **wishes,
        )
        return run(self.controller, self.controller.heartbeat(request, self.now_ms))

    def stop(self, broker_id: int) -> BrokerHeartbeatResponse:
        return self.beat(broker_id, want_shut_down=True)

    def fence_expired(self) -> list[int]:
        """Fence broker by broker, as the active controller does."""
        fenced = []
        while (
            found := run(self.controller, self.controller.fence_expired(self.now_ms))
        ) is not None:
            fenced.append(found)
        return fenced

    def next_expiry_ms(self) -> int | None:
        return self.controller.sessions.next_expiry_ms(self.image.brokers.values())

    def fail_over(self) -> None:
        """Let another controller take the office."""
        self.controller = Controller(self.image, self.controller.settings)
        self.controller.take_office(self.now_ms)

    def topic(self, *replicas: int, partitions: int = 1, **configs: str) -> None:
        """Create topic a with every partition on these replicas."""
        topic = new_topic("a", -1, -1, **configs)
        topic.assignments = [
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(replicas))
            for number in range(partitions)
        ]
        add_topics(self.controller, topic)


def quorum_cluster(*broker_ids: int, level: int = 30) -> QuorumCluster:
    """Return a cluster with these brokers in service."""
    records = [FeatureLevelRecord(name="metadata.version", feature_level=level)]
    image = replay(ClusterImage(CLUSTER_ID), records, 1)
    cluster = QuorumCluster(controller_of(image, broker_session_timeout_ms=SESSION_MS))
    cluster.controller.take_office(cluster.now_ms)
    for broker_id in broker_ids:
        cluster.register(registration(broker_id))
        cluster.beat(broker_id)
        assert cluster.broker(broker_id).is_active
    return cluster
